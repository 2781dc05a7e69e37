"""
The errors for requests without a response.

The cause is the network, TLS or the settings.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import ProxyError as UrllibProxyError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
)
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.settings import ClientSettings, Proxy

NETWORK_ERRORS = (requests.RequestException, HTTPError, OSError, http.client.HTTPException)
# OpenSSL's reasons for a first record that is not TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
_NOT_CONNECTED = (ConnectTimeoutError, NewConnectionError, ssl.SSLCertVerificationError)
# The resolver's error numbers for a name that does not exist. Its own failure (EAI_AGAIN) has another number.
_NO_SUCH_NAME = {getattr(socket, each, None) for each in ("EAI_NONAME", "EAI_NODATA")}
_UNKNOWN_CA = "Its CA is not in {bundle}, or the server does not send an intermediate certificate."
_NO_BUNDLE = "If its CA is private, set {bundle} to the path of its bundle."
_OTHER_CERTIFICATE = "The certificate, or that of its CA, is not valid for this kind of server. Have it reissued."
# Advice by OpenSSL's error codes for certificates (X509_V_ERR_... in its x509_vfy.h).
_CERTIFICATE_ADVICE: tuple[tuple[frozenset[int], str], ...] = (
    # It is for another host name or IP address.
    (
        frozenset({62, 64}),
        "The certificate is for another host, or has no subject alternative name: check {place}.",
    ),
    # It is not valid yet, or has expired. OpenSSL also verifies the CA's certificate, and Python does not report which
    # of the two failed.
    (
        frozenset({9, 10}),
        "Check this machine's clock. If it is right, replace the certificate, or that of its CA in {bundle}.",
    ),
    # Its issuer is unknown, or another CA has this name. Or the certificate, or the last of its chain, is self-signed.
    (frozenset({2, 7, 18, 19, 20, 21}), "{unknown_ca}"),
    # The key of the certificate or of its CA is too weak, or a signature's hash is.
    (
        frozenset({66, 67, 68}),
        "The certificate, or that of its CA, has a key or a signature that is too weak. Have it reissued, for example "
        "with P-256 and SHA-256.",
    ),
    # OpenSSL checks these rules only in its strict mode.
    (
        frozenset(range(80, 95)),
        "The certificate, or that of its CA, violates RFC 5280, which Python checks from version 3.13 on. Have it "
        "reissued. Its CA is not missing from {bundle}.",
    ),
)


@dataclass(frozen=True)
class _Facts:
    """
    The facts about a request without a response.

    :param chain: the exceptions; empty: there was a response before the request's body was sent.
    :param sent: whether the request was sent.
    :param proxy: the proxy, if the failure is about it; None: the failure is about the service.
    """

    chain: Sequence[BaseException]
    sent: bool
    proxy: Proxy | None

    @cached_property
    def _tls_errors(self) -> list[ssl.SSLError]:
        return [each for each in self.chain if isinstance(each, ssl.SSLError)]

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the peer sent data that is not HTTP."""
        lines = [str(each.args[0]) for each in self.chain if type(each) is http.client.BadStatusLine]
        return any(not each.startswith("HTTP/") for each in lines)

    @property
    def is_from_proxy(self) -> bool:
        """Whether the proxy, or the connection to it, failed."""
        return _is_proxys(self.chain) or self.is_at_connect

    @cached_property
    def is_at_connect(self) -> bool:
        """Whether the proxy was reached, but did not answer the request to connect to the service."""
        return any(map(_was_connecting, self.chain))

    @property
    def is_refused_by_proxy(self) -> bool:
        """Whether the proxy was reached, but did not connect to the service."""
        return self.proxy is not None and is_proxy_refusal(self.chain)

    @property
    def is_certificate_refused(self) -> bool:
        """Whether the peer's certificate was not accepted."""
        return any(isinstance(each, ssl.SSLCertVerificationError) for each in self._tls_errors)

    @property
    def is_not_tls(self) -> bool:
        """Whether the peer does not speak TLS."""
        return any(each.reason in _NOT_TLS for each in self._tls_errors)

    @property
    def is_tls(self) -> bool:
        """Whether TLS failed in any way."""
        return bool(self._tls_errors)

    @property
    def is_unknown_host(self) -> bool:
        """Whether the host's name does not exist."""
        errors = [each for each in self.chain if isinstance(each, socket.gaierror)]
        return not self.sent and any(each.errno in _NO_SUCH_NAME for each in errors)


@dataclass(frozen=True)
class _Kind:
    """
    A kind of failure, and the error for it.

    :param applies: whether a failure is of this kind.
    :param code: the error's code.
    :param retryable: whether another try may help.
    :param message: the message, with the names of texts in braces (``Failures._texts``).
    :param advice: the advice, with the same names. Default: none.
    """

    applies: Callable[[_Facts], bool]
    code: ErrorCode
    retryable: bool
    message: str
    advice: str = ""


# The first kind that applies is used.
_KINDS = (
    _Kind(
        lambda facts: facts.is_certificate_refused,
        "tls-failed",
        retryable=False,
        message="TLS: the certificate of {name} was not accepted: {cause}",
        advice="{certificate_advice}",
    ),
    _Kind(
        lambda facts: facts.is_not_tls,
        "unreachable",
        retryable=False,
        message="{name} does not speak TLS on this port",
        advice="Start {place} with http://, or use the HTTPS port.",
    ),
    _Kind(
        lambda facts: facts.is_foreign,
        "response-unusable",
        retryable=False,
        message="{name} sent data that is not HTTP",
        advice="Another program listens there, or the port expects TLS. Check {place}.",
    ),
    _Kind(
        lambda facts: facts.is_tls,
        "tls-failed",
        retryable=True,
        message="TLS: {name} cannot be reached: {cause}",
        advice="{check} {client_certificate_advice}",
    ),
    _Kind(
        lambda facts: facts.is_refused_by_proxy,
        "unreachable",
        retryable=True,
        message="{host} cannot be reached through {name}: {cause}",
        advice="Check {place}, and that the proxy allows this host.",
    ),
    _Kind(
        lambda facts: facts.is_at_connect,
        "unreachable",
        retryable=True,
        message="{host} cannot be reached through {name}: the proxy did not answer CONNECT: {cause}",
        advice="Check {place}, and that the proxy allows this host.",
    ),
    _Kind(
        lambda facts: facts.is_unknown_host,
        "unknown-host",
        retryable=True,
        message="{name} cannot be reached: {cause}",
        advice="This machine cannot resolve the host's name. Correct it in {place}.",
    ),
    _Kind(
        lambda facts: not facts.chain,
        "unreachable",
        retryable=True,
        message="{name} responded before the request's body was sent; the request was not carried out",
        advice="{check}",
    ),
    _Kind(
        lambda facts: not facts.sent,
        "unreachable",
        retryable=True,
        message="{tried} cannot be reached: {cause}",
        advice="{check}",
    ),
    _Kind(
        lambda facts: is_timeout(facts.chain),
        "no-response",
        retryable=True,
        message="no complete response from {host} within {timeout:g} s",
        advice="If the service is only slow, increase {timeout_setting}.",
    ),
    _Kind(
        lambda facts: True,
        "no-response",
        retryable=True,
        message="the connection to {host} was lost before the response was complete: {cause}",
    ),
)


@dataclass(frozen=True)
class Failures:
    """
    The failures of one client's requests.

    :param settings: the client's settings.
    :param auth: the way to authenticate; it redacts quotations.
    """

    _settings: ClientSettings
    _auth: Authentication

    def explain(self, operation: Operation, chain: list[BaseException], *, sent: bool | None) -> CustodyError:
        """
        Return the error for a request that failed.

        The error holds no reference to the request object.

        :param operation: the operation that was called.
        :param chain: the exceptions; empty: there was a response before the request's body was sent.
        :param sent: whether sending the body had begun; None: there is no body, and the exceptions show whether the
            request was sent.
        """
        is_network = not chain or any(isinstance(each, NETWORK_ERRORS) for each in chain)
        if sent is None:
            sent = is_network and not any(map(_is_before_sending, chain))
        if not is_network and not sent:
            return operation.failed(
                CustodyConfigurationError,
                f"this request cannot be sent with these settings: {type(chain[-1]).__name__}",
                code="setting-wrong",
                nothing_sent=True,
            )
        return self._error(operation, _Facts(chain, sent=sent, proxy=None))

    def _error(self, operation: Operation, facts: _Facts) -> CustodyError:
        """Return the error for a failure by its kind."""
        if facts.is_foreign or facts.is_from_proxy:
            # Non-HTTP data comes from the first peer, which is the proxy if there is one.
            facts = replace(facts, proxy=self._settings.proxy_in_use)
        kind = next(each for each in _KINDS if each.applies(facts))
        texts = self._texts(operation, facts)
        message = kind.message.format_map(texts)
        advice = kind.advice.format_map(texts) or None
        if facts.sent:
            return operation.after_sending(
                CustodyConnectionError, message, code=kind.code, advice=advice, retryable=kind.retryable
            )
        return operation.failed(
            CustodyConnectionError,
            # Without an exception, the request's headers may have been sent.
            f"{message}; this request was not sent" if facts.chain else message,
            code=kind.code,
            advice=advice,
            retryable=kind.retryable,
            nothing_sent=True,
        )

    def _texts(self, operation: Operation, facts: _Facts) -> dict[str, object]:
        """Return the texts for a message and its advice."""
        settings, proxy = self._settings, facts.proxy
        host = urlsplit(settings.base_url).netloc
        if proxy is None:
            peer = {"place": settings.base_url_text, "name": host, "tried": _with_port(settings.base_url)}
            check = f"Check {settings.base_url_text}, and that the service is up."
        else:
            name = f"the proxy {proxy.address}"
            peer = {"place": proxy.place, "name": name, "tried": name}
            check = f"Check {proxy.place}, and that the proxy is up."
        return {
            **peer,
            "check": check,
            "host": host,
            "cause": self._cause(operation, facts.chain),
            "timeout": settings.timeout,
            "timeout_setting": settings.name("timeout"),
            "certificate_advice": _certificate_advice(facts.chain, peer["place"], settings),
            "client_certificate_advice": _client_certificate_advice(facts, settings),
        }

    def _cause(self, operation: Operation, chain: Sequence[BaseException]) -> str:
        """
        Return the reason for a failure, for people; empty if there is no exception.

        It is the operating system's own text, if there is one.
        """
        if not chain:
            return ""
        for each in chain:
            if isinstance(each, ssl.SSLCertVerificationError):
                return self._auth.redact(str(each.verify_message).rstrip("."), 160)
            if isinstance(each, requests.RequestException):
                continue
            if isinstance(each, OSError) and each.strerror:
                return self._auth.redact(each.strerror, 160)
        if operation.confidential:
            # Do not quote other texts, because they may quote the peer.
            return type(chain[-1]).__name__
        return self._auth.redact(str(chain[-1]) or type(chain[-1]).__name__, 160)


def exception_chain(exception: BaseException, without: BaseException | None = None) -> Iterator[BaseException]:
    """
    Yield an exception and all that it wraps.

    requests and urllib3 nest exceptions in three different ways.
    """
    seen = {id(without)}
    pending: list[object] = [exception]
    while pending:
        each = pending.pop(0)
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args]


def _is_proxys(chain: Iterable[BaseException]) -> bool:
    return any(isinstance(each, (requests.exceptions.ProxyError, UrllibProxyError)) for each in chain)


def is_proxy_refusal(chain: Iterable[BaseException]) -> bool:
    """Tell whether a proxy was reached, but refused to connect."""
    not_reached = (ConnectTimeoutError, NewConnectionError, ssl.SSLError, TimeoutError)
    chain = list(chain)
    return _is_proxys(chain) and not any(isinstance(each, not_reached) for each in chain)


def _is_before_sending(exception: BaseException) -> bool:
    """
    Tell whether an exception proves that nothing is sent.

    There was no connection to send anything on.
    """
    is_no_tls = isinstance(exception, ssl.SSLError) and exception.reason in _NOT_TLS
    is_at_proxy = _is_proxys([exception]) or _was_connecting(exception)
    return is_no_tls or is_at_proxy or isinstance(exception, _NOT_CONNECTED)


def _was_connecting(exception: BaseException) -> bool:
    """
    Tell whether an exception comes from asking a proxy to connect to the service.

    urllib3 reports a proxy that hangs, or closes the connection, like a service that does. Only the traceback differs:
    it leads through the function of Python's http.client that sends CONNECT.
    """
    frames = traceback.walk_tb(exception.__traceback__)
    return any(frame.f_code.co_name == "_tunnel" for frame, _ in frames)


def is_timeout(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about a time-out."""
    return any(isinstance(each, (TimeoutError, requests.Timeout, UrllibTimeoutError)) for each in chain)


def _certificate_advice(chain: Iterable[BaseException], place: str, settings: ClientSettings) -> str:
    """Return advice about a peer's certificate that failed verification."""
    codes = [each.verify_code for each in chain if isinstance(each, ssl.SSLCertVerificationError)]
    advice = next((advice for known, advice in _CERTIFICATE_ADVICE if known.intersection(codes)), _OTHER_CERTIFICATE)
    bundle = settings.name("verify")
    unknown_ca = _NO_BUNDLE if settings.verify is True else _UNKNOWN_CA
    return advice.format(place=place, bundle=bundle, unknown_ca=unknown_ca.format(bundle=bundle))


def _client_certificate_advice(facts: _Facts, settings: ClientSettings) -> str:
    """Return advice about a peer that may require a client certificate."""
    if facts.proxy:
        return "If it requires a client certificate, use another proxy, because only the service is sent one."
    setting = settings.name("client_cert")
    if settings.client_cert is not None:
        return f"It may reject the certificate in {setting}."
    return f"If it requires a client certificate, set its path in {setting}."


def _with_port(base_url: str) -> str:
    """Return host and port of a URL, including a default port."""
    parts = urlsplit(base_url)
    if parts.port is not None:
        return parts.netloc
    return f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"
