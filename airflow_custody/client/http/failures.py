"""
Errors for requests that got no response, because of the network, TLS or the settings.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import ProxyError as UrllibProxyError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from airflow_custody.client.auth import Authentication
from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
)
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.settings import ClientSettings, Proxy

NETWORK_ERRORS = (requests.RequestException, HTTPError, OSError, http.client.HTTPException)
# OpenSSL's reasons for a first record that is not TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
_NOT_CONNECTED = (ConnectTimeoutError, NewConnectionError, ssl.SSLCertVerificationError)
# The resolver's error numbers for a name that does not exist. A failure of the resolver itself (EAI_AGAIN) has a
# different number.
_NO_SUCH_NAME = {getattr(socket, each, None) for each in ("EAI_NONAME", "EAI_NODATA")}
_UNKNOWN_CA = "The certificate's CA is not in {bundle}, or the server does not send an intermediate certificate."
_NO_BUNDLE = "If the certificate's CA is private, set {bundle} to the path of a CA bundle that contains it."
_OTHER_CERTIFICATE = "The certificate, or that of its CA, is not valid for this kind of server. Have it reissued."
# Advice by OpenSSL's error codes for certificates (X509_V_ERR_... in its x509_vfy.h).
_CERTIFICATE_ADVICE: tuple[tuple[frozenset[int], str], ...] = (
    # The certificate is for another host name or IP address.
    (
        frozenset({62, 64}),
        "The certificate is for another host, or has no subject alternative name: check {place}.",
    ),
    # The certificate is not valid yet, or has expired. OpenSSL also verifies the CA's certificate, and Python does not
    # report which of the two certificates failed.
    (
        frozenset({9, 10}),
        "Check this machine's clock. If it is right, replace the certificate, or that of its CA in {bundle}.",
    ),
    # The certificate's issuer is unknown, or another CA has the issuer's name; or the certificate, or the last one in
    # its chain, is self-signed.
    (frozenset({2, 7, 18, 19, 20, 21}), "{unknown_ca}"),
    # The certificate or its CA has a weak key, or is signed with a weak hash.
    (
        frozenset({66, 67, 68}),
        "The certificate, or that of its CA, has a key or a signature that is too weak. Have it reissued, for example "
        "with P-256 and SHA-256.",
    ),
    # OpenSSL checks these rules only in its strict mode.
    (
        frozenset(range(80, 95)),
        "The certificate, or that of its CA, violates RFC 5280, which Python checks from version 3.13 on. Have it "
        "reissued. Do not change {bundle}: the CA is not missing from it.",
    ),
)


class _Kind(NamedTuple):
    """
    The error for a kind of failure.

    :param code: the error's code.
    :param retryable: whether another try may help.
    :param message: the message, as a format string. Its names are the ``texts`` of :func:`explain_failure`.
    :param advice: the advice, as a format string with the same names.
    """

    code: ErrorCode
    retryable: bool
    message: str
    advice: str


_KINDS = {
    "certificate": _Kind(
        "tls-failed", False, "TLS: the certificate of {name} was not accepted: {cause}", "{certificate_advice}"
    ),
    "no TLS": _Kind(
        "unreachable",
        False,
        "{name} does not speak TLS on this port",
        "Start {place} with http://, or use the HTTPS port.",
    ),
    "no HTTP": _Kind(
        "response-unusable",
        False,
        "{name} sent data that is not HTTP",
        "Another program listens on this port, or the port expects TLS. Check {place}.",
    ),
    "TLS": _Kind("tls-failed", True, "TLS: {name} cannot be reached: {cause}", "{check} {client_certificate_advice}"),
    "refused by the proxy": _Kind(
        "unreachable",
        True,
        "{host} cannot be reached through {name}: {cause}",
        "Check {place}, and that the proxy allows this host.",
    ),
    "no answer from the proxy": _Kind(
        "unreachable",
        True,
        "{host} cannot be reached through {name}: the proxy did not answer CONNECT: {cause}",
        "Check {place}, and that the proxy allows this host.",
    ),
    "unknown host": _Kind(
        "unknown-host",
        True,
        "{name} cannot be reached: {cause}",
        "This machine cannot resolve the host's name. Correct it in {place}.",
    ),
    "early response": _Kind(
        "unreachable",
        True,
        "{name} responded before the request's body was sent; the request was not carried out",
        "{check}",
    ),
    "not sent": _Kind("unreachable", True, "{tried} cannot be reached: {cause}", "{check}"),
    "time-out": _Kind(
        "no-response",
        True,
        "no complete response from {host} within {timeout:g} s",
        "If the service is only slow, increase {timeout_setting}.",
    ),
    "lost": _Kind(
        "no-response", True, "the connection to {host} was lost before the response was complete: {cause}", ""
    ),
}


def explain_failure(
    operation: Operation,
    settings: ClientSettings,
    auth: Authentication,
    chain: Sequence[BaseException],
    *,
    sent: bool | None,
) -> CustodyError:
    """
    Return the error for a request that failed.

    The error holds no reference to the request object, because that contains secrets.

    :param operation: the operation that was called.
    :param settings: the client's settings.
    :param auth: the way to authenticate; it redacts quotations.
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
    # Non-HTTP data comes from the first peer, which is the proxy if there is one.
    is_from_proxy = _is_proxys(chain) or any(map(_is_foreign, chain)) or any(map(_was_connecting, chain))
    proxy = settings.proxy_in_use if is_from_proxy else None
    host = urlsplit(settings.base_url).netloc
    if proxy is None:
        peer = {"place": settings.base_url_text, "name": host, "tried": _with_port(settings.base_url)}
        check = f"Check {settings.base_url_text}, and that the service is up."
    else:
        name = f"the proxy {proxy.address}"
        peer = {"place": proxy.place, "name": name, "tried": name}
        check = f"Check {proxy.place}, and that the proxy is up."
    texts: dict[str, object] = {
        **peer,
        "check": check,
        "host": host,
        "cause": _cause(operation, auth, chain),
        "timeout": settings.timeout,
        "timeout_setting": settings.name("timeout"),
        "certificate_advice": _certificate_advice(chain, peer["place"], settings),
        "client_certificate_advice": _client_certificate_advice(proxy, settings),
    }
    kind = _KINDS[_kind_of(chain, sent=sent, has_proxy=proxy is not None)]
    message = kind.message.format_map(texts)
    facts: dict[str, Any] = {
        "code": kind.code,
        "advice": kind.advice.format_map(texts) or None,
        "retryable": kind.retryable,
    }
    if sent:
        return operation.after_sending(CustodyConnectionError, message, **facts)
    # Without an exception, there was an early response. The request's headers may have been sent then, so do not deny
    # it.
    message = f"{message}; this request was not sent" if chain else message
    return operation.failed(CustodyConnectionError, message, **facts, nothing_sent=True)


def _kind_of(chain: Sequence[BaseException], *, sent: bool, has_proxy: bool) -> str:
    """Return the kind of a failure: a key of ``_KINDS``."""
    tls_errors = [each for each in chain if isinstance(each, ssl.SSLError)]
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in tls_errors):
        return "certificate"
    if any(each.reason in _NOT_TLS for each in tls_errors):
        return "no TLS"
    if any(map(_is_foreign, chain)):
        return "no HTTP"
    if tls_errors:
        return "TLS"
    if has_proxy and is_proxy_refusal(chain):
        return "refused by the proxy"
    if any(map(_was_connecting, chain)):
        return "no answer from the proxy"
    if not sent and any(map(_is_unknown_name, chain)):
        return "unknown host"
    if not chain:
        return "early response"
    if not sent:
        return "not sent"
    return "time-out" if is_timeout(chain) else "lost"


def _cause(operation: Operation, auth: Authentication, chain: Sequence[BaseException]) -> str:
    """
    Return the reason for a failure, for people; empty if there is no exception.

    The operating system's own text is preferred.
    """
    if not chain:
        return ""
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return auth.redact(str(each.verify_message).rstrip("."), 160)
        if not isinstance(each, requests.RequestException) and isinstance(each, OSError) and each.strerror:
            return auth.redact(each.strerror, 160)
    if operation.confidential:
        # Do not quote other texts, because they may quote the peer.
        return type(chain[-1]).__name__
    return auth.redact(str(chain[-1]) or type(chain[-1]).__name__, 160)


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


def _is_foreign(exception: BaseException) -> bool:
    """Tell whether the peer sent data that is not HTTP."""
    return type(exception) is http.client.BadStatusLine and not str(exception.args[0]).startswith("HTTP/")


def _is_unknown_name(exception: BaseException) -> bool:
    """Tell whether the host's name does not exist."""
    return isinstance(exception, socket.gaierror) and exception.errno in _NO_SUCH_NAME


def _is_before_sending(exception: BaseException) -> bool:
    """
    Tell whether an exception proves that nothing was sent, because there was no connection to the service yet.
    """
    is_no_tls = isinstance(exception, ssl.SSLError) and exception.reason in _NOT_TLS
    is_at_proxy = _is_proxys([exception]) or _was_connecting(exception)
    return is_no_tls or is_at_proxy or isinstance(exception, _NOT_CONNECTED)


def _was_connecting(exception: BaseException) -> bool:
    """
    Tell whether an exception comes from asking a proxy to connect to the service.

    If a peer hangs or closes the connection, urllib3 raises the same exception for a proxy as for the service. Only the
    traceback differs: for a proxy, it leads through the function of Python's http.client that sends CONNECT.
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


def _client_certificate_advice(proxy: Proxy | None, settings: ClientSettings) -> str:
    """Return advice about a peer that may require a client certificate."""
    if proxy is not None:
        return "If the proxy requires a client certificate, use another proxy, because only the service is sent one."
    setting = settings.name("client_cert")
    if settings.client_cert is not None:
        return f"The service may reject the certificate in {setting}."
    return f"If the service requires a client certificate, set its path in {setting}."


def _with_port(base_url: str) -> str:
    """Return host and port of a URL, including a default port."""
    parts = urlsplit(base_url)
    if parts.port is not None:
        return parts.netloc
    return f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"
