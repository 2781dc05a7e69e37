"""Why there is no response, in words: what is wrong with the network, with TLS, or with the settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import CustodyConfigurationError, CustodyConnectionError, CustodyError
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.connections import (
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
from airflow_custody.client.http.peers import certificate_advice, ended_by_alert, is_not_http, speaks_http, speaks_tls
from airflow_custody.client.proxy_settings import Proxy
from airflow_custody.client.settings import ClientSettings

# Seconds to find out whether a server that cannot be talked to speaks TLS.
_PROBE_TIMEOUT = 5.0


class Failures:
    """
    Explains the failures of one client's requests.

    :param settings: the client's settings.
    :param auth: what authenticates the requests; it redacts what is quoted.
    :param proxy: the proxy that they go through, if any.
    """

    def __init__(self, settings: ClientSettings, auth: Authentication, proxy: Proxy | None) -> None:
        self.settings = settings
        self.auth = auth
        self._proxy = proxy
        # Whether the server may still turn out to speak TLS where the base URL says plain HTTP.
        self._maybe_tls = settings.base_url.startswith("http:") and not self._proxy

    def has_plain_http(self) -> None:
        """Note that the server has understood a request in plain HTTP, if that is what the base URL says."""
        self._maybe_tls = False

    def explain_bad_request(self, error: CustodyError) -> None:
        """Say so in the error of a status 400 that is not the service's, if the server speaks TLS there."""
        if self._speaks_tls():
            error.advice, error.code = _other_scheme("https", self.settings.base_url_text), "wrong-scheme"

    def explain(self, operation: Operation, chain: list[BaseException], sending: Sending) -> CustodyError:
        """
        Turn what requests raised into an error of ours, without a reference to the request.

        :param operation: what was asked for.
        :param chain: the exceptions.
        :param sending: how far the request had come.
        """
        cause = self._cause(operation, chain)
        host = urlsplit(self.settings.base_url).netloc
        if mistake := self._wrong_scheme(operation, chain, sending):
            return mistake
        if sending.sent and not sending.reused and is_not_http(chain, sending.first_bytes):
            who, place = self._who(sending)
            return operation.not_understood(
                f"{who} sent something that is not HTTP",
                "not-custody-response",
                advice=f"Another program is there: check {place}.",
            )
        if sending.sent:
            if is_timeout(chain):
                error = operation.unanswered(
                    f"no complete response from {host} within {sending.timeout:g} s", "timed-out"
                )
                if sending.timeout >= self.settings.timeout:
                    hint = f"If the service is only slow, raise {self.settings.name('timeout')}."
                    error.advice = " ".join(filter(None, [hint, error.advice]))
            else:
                error = operation.unanswered(
                    f"{host} closed the connection without a response"
                    if is_closed(chain)
                    else f"the connection to {host} broke before the response was there: {cause}",
                    "connection-lost",
                )
                if self._may_want_certificate(sending) or ended_by_alert(chain):
                    hint = self._certificate_hint()
                    error.advice = " ".join(filter(None, [hint, error.advice]))
                if not sending.first_bytes and self._speaks_tls():
                    # The port may know both protocols, so this does not prove that nothing was done.
                    error.retryable = False
                    if operation.is_repeatable:
                        error.code = "wrong-scheme"
                    error.advice = " ".join(
                        filter(None, [_other_scheme("https", self.settings.base_url_text), error.advice])
                    )
            return error
        if not is_network_error(chain):
            return operation.failed(
                CustodyConfigurationError,
                f"the request cannot be sent with these settings: {cause}; nothing was sent",
                code="setting-wrong",
            )
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
            return operation.failed(
                CustodyConnectionError,
                f"TLS: the certificate of {host} was not accepted: {cause}; nothing was sent",
                code="tls-untrusted",
                retryable=False,
                advice=certificate_advice(chain, self.settings.base_url_text, self.settings.name("verify")),
            )
        what = "TLS: " if is_tls(chain) else ""
        code: ErrorCode = "tls-failed" if is_tls(chain) else "unreachable"
        advice = f"Check {self.settings.base_url_text}, and that the service is up."
        is_refused = ended_by_alert(chain) and (not self._proxy or sending.tunnelled)
        through = ""
        if proxy := self._proxy:
            at = f"the proxy {proxy.address}"
            if is_unconnected(chain):
                host, advice = at, f"Check {proxy.place}, and that the proxy is up."
            else:
                through, advice = f" through {at}", f"Check {proxy.place}, and that the proxy allows this host."
        if is_refused:
            advice = self._certificate_hint()
        return operation.failed(
            CustodyConnectionError,
            f"{what}{host} cannot be reached{through}: {cause}; nothing was sent",
            code="proxy-refused" if sending.refused_by_proxy else code,
            advice=advice,
        )

    def _may_want_certificate(self, sending: Sending) -> bool:
        """Tell whether a server that ended the connection may have missed a certificate: TLS 1.3 asks so late."""
        is_tls = self.settings.base_url.startswith("https:")
        return is_tls and self.settings.client_cert is None and not sending.first_bytes

    def _certificate_hint(self) -> str:
        place = self.settings.name("client_cert")
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

    def _wrong_scheme(self, operation: Operation, chain: list[BaseException], sending: Sending) -> CustodyError | None:
        """Return the error for TLS spoken to a server without, or the other way round; None if it is neither."""
        who, place = self._who(sending)
        code: ErrorCode = "wrong-scheme"
        if not sending.sent and is_not_tls(chain):
            scheme, what = "http", "does not speak TLS on this port; nothing was sent"
            if not self._proxy and not self._asks(speaks_http, 443):
                code = "not-custody-response"
        elif is_tls_record(sending.first_bytes):
            scheme, what = "https", "speaks TLS on this port, and did not understand the request"
        else:
            return None
        is_other_program = code == "not-custody-response"
        return operation.failed(
            CustodyConnectionError,
            f"{who} {what}",
            code=code,
            retryable=False,
            advice=f"Another program is there: check {place}." if is_other_program else _other_scheme(scheme, place),
        )

    def _who(self, sending: Sending) -> tuple[str, str]:
        """Return what messages call the peer that was spoken to, and the setting that names it."""
        if self._proxy and not sending.tunnelled:
            return f"the proxy {self._proxy.address}", self._proxy.place
        return urlsplit(self.settings.base_url).netloc, self.settings.base_url_text

    def _speaks_tls(self) -> bool:
        """Tell whether the base URL should say ``https://``; the server is asked at most once."""
        ask, self._maybe_tls = self._maybe_tls, False
        return ask and self._asks(speaks_tls, 80)

    def _asks(self, speaks: Callable[[str, int, float], bool], port: int) -> bool:
        url = urlsplit(self.settings.base_url)
        return speaks(str(url.hostname), url.port or port, min(self.settings.timeout, _PROBE_TIMEOUT))


def _other_scheme(scheme: str, place: str) -> str:
    other = "http" if scheme == "https" else "https"
    return f"Begin {place} with {scheme}://, or give the port that speaks {other.upper()}."
