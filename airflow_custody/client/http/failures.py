"""Why there is no response, in words: what is wrong with the network, with TLS, or with the settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import CustodyConfigurationError, CustodyConnectionError, CustodyError
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.connections import (
    MAX_LOST_CONNECTIONS,
    ConnectionLostError,
    Sending,
    is_closed,
    is_network_error,
    is_not_tls,
    is_timeout,
    is_tls,
    is_tls_record,
    is_unconnected,
    system_text,
)
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.peers import certificate_advice, is_not_http, refusal_of, speaks_http, speaks_tls
from airflow_custody.client.settings import ClientSettings, Proxy

# Seconds to find out whether a server that cannot be talked to speaks TLS.
_PROBE_TIMEOUT = 5.0


@dataclass(frozen=True)
class _Peer:
    """
    The other end of a connection: the service, or a proxy that has not connected us to it yet.

    :param url: its URL, which may contain a password.
    :param what: its kind, for messages.
    :param name: its name in messages, with its host.
    :param place: name of the setting with its URL, in messages.
    """

    url: str = field(repr=False)
    what: str
    name: str
    place: str

    @property
    def scheme(self) -> str:
        """The scheme of its URL."""
        return urlsplit(self.url).scheme


class Failures:
    """
    Explains the failures of one client's requests.

    :param settings: the client's settings.
    :param auth: the way to authenticate; it redacts quotations.
    :param proxy: the proxy that they go through, if any.
    """

    def __init__(self, settings: ClientSettings, auth: Authentication, proxy: Proxy | None) -> None:
        self.settings = settings
        self.auth = auth
        host = urlsplit(settings.base_url).netloc
        self._service = _Peer(settings.base_url, "the service", host, settings.base_url_text)
        self._proxy = _Peer(proxy.url, "the proxy", f"the proxy {proxy.address}", proxy.place) if proxy else None
        # Whether the server may still turn out to speak TLS where the base URL says plain HTTP.
        self._maybe_tls = self._service.scheme == "http" and not proxy

    def has_plain_http(self) -> None:
        """Note that the server has understood a request in plain HTTP, if that is what the base URL says."""
        self._maybe_tls = False

    def explain_bad_request(self, error: CustodyError) -> None:
        """Advise https:// in the error of a status 400 that is not the service's, if the server speaks TLS there."""
        if self._speaks_tls():
            error.advice, error.code = _other_scheme("https", self._service.place), "unreachable"

    def explain(self, operation: Operation, chain: list[BaseException], sending: Sending) -> CustodyError:
        """
        Turn what requests raised into an error of ours, without a reference to the request.

        :param operation: the operation that was called.
        :param chain: the exceptions.
        :param sending: the state of the request.
        """
        peer = self._service if self._proxy is None or sending.tunnelled else self._proxy
        cause = self._cause(operation, chain)
        if mistake := self._wrong_protocol(operation, chain, sending, peer):
            return mistake
        if sending.sent:
            return self._unanswered(operation, chain, sending, cause)
        if isinstance(chain[0], ConnectionLostError):
            return operation.failed(
                CustodyConnectionError,
                f"{self._service.name}, or a proxy, closed the connection or sent something before the request was "
                f"sent, {MAX_LOST_CONNECTIONS} times in a row; nothing was sent",
                code="no-response",
                nothing_sent=True,
            )
        if not is_network_error(chain):
            return operation.failed(
                CustodyConfigurationError,
                f"the request cannot be sent with these settings: {cause}; nothing was sent",
                code="setting-wrong",
            )
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
            return operation.failed(
                CustodyConnectionError,
                f"TLS: the certificate of {peer.name} was not accepted: {cause}; nothing was sent",
                code="tls-failed",
                retryable=False,
                advice=certificate_advice(chain, peer.place, self.settings.verify, self.settings.name("verify")),
            )
        return self._unreached(operation, chain, sending, peer, cause)

    def _unreached(
        self, operation: Operation, chain: list[BaseException], sending: Sending, peer: _Peer, cause: str
    ) -> CustodyError:
        """Return the error for a request that was not sent, because there was no connection to send it on."""
        what = "TLS: " if is_tls(chain) else ""
        code: ErrorCode = "tls-failed" if is_tls(chain) else "unreachable"
        name, through, advice = peer.name, "", f"Check {peer.place}, and that {peer.what} is up."
        # A proxy that was not reached, or not within TLS, was not asked for the service.
        if self._proxy and (peer is self._service or not (is_tls(chain) or is_unconnected(chain))):
            name, through = self._service.name, f" through {self._proxy.name}"
            advice = f"Check {self._proxy.place}, and that the proxy allows this host."
        return operation.failed(
            CustodyConnectionError,
            f"{what}{name} cannot be reached{through}: {cause}; nothing was sent",
            code="unreachable" if sending.refused_by_proxy else code,
            advice=self._refusal_advice(chain, peer) or advice,
        )

    def _unanswered(
        self, operation: Operation, chain: list[BaseException], sending: Sending, cause: str
    ) -> CustodyError:
        """Return the error for a request that was sent."""
        host = self._service.name
        if is_timeout(chain):
            hint = f"If the service is only slow, raise {self.settings.name('timeout')}."
            return operation.unanswered(
                f"no complete response from {host} within {sending.timeout:g} s",
                "no-response",
                advice=hint if sending.timeout >= self.settings.timeout else None,
            )
        message = (
            f"{host} closed the connection without a response"
            if is_closed(chain)
            else f"the connection to {host} broke before the response was there: {cause}"
        )
        if sending.first_bytes:
            return operation.unanswered(message, "no-response")
        if self._speaks_tls():
            # The port may know both protocols, so this does not prove that nothing was done.
            return operation.unanswered(
                message, "unreachable", retryable=False, advice=_other_scheme("https", self._service.place)
            )
        advice = self._refusal_advice(chain, self._service)
        is_first = self._service.scheme == "https" and not sending.reused
        if advice is None and is_first and self.settings.client_cert is None:
            # TLS 1.3 asks for a certificate so late.
            advice = self._certificate_hint(self._service)
        return operation.unanswered(message, "no-response", advice=advice)

    def _refusal_advice(self, chain: list[BaseException], peer: _Peer) -> str | None:
        """Return what to do if a peer has refused TLS; None if it has not, or its reason leads to nothing."""
        refusal = refusal_of(chain)
        if refusal == "certificate":
            return self._certificate_hint(peer)
        if refusal == "handshake":
            return f"{self._certificate_hint(peer)} Or no TLS version or cipher is common to it and this machine."
        if refusal == "version":
            return f"No TLS version or cipher is common to {peer.what} and this machine: have it accept TLS 1.2 or 1.3."
        if refusal == "host":
            return f"It may not serve this host name: check {peer.place}, and that {peer.what} is up."
        return None

    def _certificate_hint(self, peer: _Peer) -> str:
        place = self.settings.name("client_cert")
        if peer is self._proxy:
            return "If it asks for a client certificate, use another proxy: only the service is given one."
        if self.settings.client_cert is None:
            return f"If it asks for a client certificate, give its path in {place}."
        return f"It may not accept the certificate in {place}."

    def _cause(self, operation: Operation, chain: list[BaseException]) -> str:
        """Return the reason for a failure, for people."""
        if text := system_text(chain):
            return self.auth.redact(text, 160)
        if operation.confidential or not is_network_error(chain):
            # Other texts may quote the peer, or the request.
            return type(chain[-1]).__name__
        return self.auth.redact(str(chain[-1]) or type(chain[-1]).__name__, 160)

    def _wrong_protocol(
        self, operation: Operation, chain: list[BaseException], sending: Sending, peer: _Peer
    ) -> CustodyError | None:
        """Return the error for a peer that speaks another protocol than its URL says; None if it is none of that."""
        unsent = "; nothing was sent"
        code: ErrorCode = "response-unusable"
        advice = f"Another program is there: check {peer.place}."
        if not sending.sent and is_not_tls(chain):
            what = f"does not speak TLS on this port{unsent}"
            if self._proxy and peer is self._service:
                # It cannot be asked what it speaks.
                code = "unreachable"
                advice = f"Check {peer.place}: the port speaks plain HTTP, or is another program's."
            elif self._asks(speaks_http, peer):
                code, advice = "unreachable", _other_scheme("http", peer.place)
        elif peer.scheme == "http" and is_tls_record(sending.first_bytes):
            what = f"speaks TLS on this port{', and did not understand the request' if sending.sent else unsent}"
            code, advice = "unreachable", _other_scheme("https", peer.place)
        elif not sending.reused and is_not_http(chain, sending.first_bytes):
            what = "sent something that is not HTTP"
            if sending.sent:
                return operation.not_understood(f"{peer.name} {what}", code, advice=advice)
            what += unsent
        else:
            return None
        return operation.failed(
            CustodyConnectionError,
            f"{peer.name} {what}",
            code=code,
            retryable=False,
            nothing_sent=not sending.sent,
            advice=advice,
        )

    def _speaks_tls(self) -> bool:
        """Tell whether the base URL should say ``https://``; the server is asked at most once."""
        ask, self._maybe_tls = self._maybe_tls, False
        return ask and self._asks(speaks_tls, self._service)

    def _asks(self, speaks: Callable[[str, int, float], bool], peer: _Peer) -> bool:
        url = urlsplit(peer.url)
        port = url.port or (443 if peer.scheme == "https" else 80)
        return speaks(str(url.hostname), port, min(self.settings.timeout, _PROBE_TIMEOUT))


def _other_scheme(scheme: str, place: str) -> str:
    other = "http" if scheme == "https" else "https"
    return f"Begin {place} with {scheme}://, or give the port that speaks {other.upper()}."
