"""Why there is no response, in words: what is wrong with the network, with TLS, or with the settings."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
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
from airflow_custody.client.settings import ClientSettings

NETWORK_ERRORS = (requests.RequestException, HTTPError, OSError, http.client.HTTPException)
# Reasons of OpenSSL for a first record that is not TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
_NOT_CONNECTED = (ConnectTimeoutError, NewConnectionError, ssl.SSLCertVerificationError)
# The resolver's numbers for a name that does not exist; its own trouble (EAI_AGAIN) has another.
_NO_SUCH_NAME = {getattr(socket, each, None) for each in ("EAI_NONAME", "EAI_NODATA")}
_UNKNOWN_CA = "Its CA is not in {bundle}, or an intermediate certificate is missing: have the server send it."
_NO_BUNDLE = "If its CA is private, give its bundle in {bundle}."
_OTHER_CERTIFICATE = "The certificate, or that of its CA, cannot be used for a server like this: have it issued again."
# What to do, by OpenSSL's codes of what is wrong with a certificate (X509_V_ERR_... in its x509_vfy.h).
_CERTIFICATE_ADVICE: tuple[tuple[frozenset[int], str], ...] = (
    # It is for another host name or IP address.
    (
        frozenset({62, 64}),
        "The certificate is for another host, or has no subject alternative name: check {place}.",
    ),
    # It is not valid yet, or has expired. OpenSSL also verifies the CA's certificate; Python does not say which one it
    # was.
    (
        frozenset({9, 10}),
        "Have the certificate replaced, or that of its CA in {bundle}, unless this machine's clock is wrong.",
    ),
    # Its issuer is unknown, or only another CA of this name is known; or it, or the last of its chain, is self-signed.
    (frozenset({2, 7, 18, 19, 20, 21}), _UNKNOWN_CA),
    # The key of the certificate or of its CA is too weak, or the hash of a signature.
    (
        frozenset({66, 67, 68}),
        "The certificate, or that of its CA, has a key or a signature that is too weak: have it issued again, such as "
        "with P-256 and SHA-256.",
    ),
    # Rules that OpenSSL only checks in its strict mode.
    (
        frozenset(range(80, 95)),
        "The certificate, or that of its CA, breaks a rule of RFC 5280, which Python checks from version 3.13 on: have "
        "it issued again. Its CA is not missing from {bundle}.",
    ),
)


@dataclass(frozen=True)
class Failures:
    """
    Explains the failures of one client's requests.

    :param settings: the client's settings.
    :param auth: the way to authenticate; it redacts quotations.
    """

    _settings: ClientSettings
    _auth: Authentication

    def explain(self, operation: Operation, chain: list[BaseException], *, sent: bool | None) -> CustodyError:
        """
        Turn what requests raised into an error of ours, without a reference to the request.

        :param operation: the operation that was called.
        :param chain: the exceptions; empty: something came before the request was sent.
        :param sent: whether the body was read; None: there is none, and what was raised is all that is known.
        """
        is_network = not chain or any(isinstance(each, NETWORK_ERRORS) for each in chain)
        if sent is None:
            sent = is_network and not any(map(_is_before_sending, chain))
        if not is_network and not sent:
            return operation.failed(
                CustodyConfigurationError,
                f"the request cannot be sent with these settings: {type(chain[-1]).__name__}; nothing was sent",
                code="setting-wrong",
                nothing_sent=True,
            )
        code, message, advice, retryable = self._describe(operation, chain, sent=sent)
        facts: dict[str, Any] = {"code": code, "advice": advice, "retryable": retryable}
        if not sent:
            return operation.failed(CustodyConnectionError, f"{message}; nothing was sent", nothing_sent=True, **facts)
        return operation.after_sending(CustodyConnectionError, message, **facts)

    def _describe(
        self, operation: Operation, chain: list[BaseException], *, sent: bool
    ) -> tuple[ErrorCode, str, str | None, bool]:
        """Return the code, the message and the advice, and whether another try may help."""
        lines = [str(each.args[0]) for each in chain if type(each) is http.client.BadStatusLine]
        is_foreign = any(not each.startswith("HTTP/") for each in lines)
        tls = [each for each in chain if isinstance(each, ssl.SSLError)]
        cause = self._cause(operation, chain)
        # What is no HTTP comes from what was spoken to first.
        proxy = self._settings.proxy_in_use if is_foreign or _is_proxys(chain) else None
        host = urlsplit(self._settings.base_url).netloc
        place, what, name = self._settings.base_url_text, "the service", host
        if proxy:
            place, what, name = proxy.place, "the proxy", f"the proxy {proxy.address}"
        check = f"Check {place}, and that {what} is up."
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in tls):
            advice = _certificate_advice(chain, place, self._settings)
            return "tls-failed", f"TLS: the certificate of {name} was not accepted: {cause}", advice, False
        if any(each.reason in _NOT_TLS for each in tls):
            advice = f"Begin {place} with http://, or give the port that speaks HTTPS."
            return "unreachable", f"{name} does not speak TLS on this port", advice, False
        if is_foreign:
            advice = f"Another program is there, or it speaks TLS: check {place}."
            return "response-unusable", f"{name} sent something that is not HTTP", advice, False
        if tls:
            hint = f"If it asks for a client certificate, give its path in {self._settings.name('client_cert')}."
            if proxy:
                hint = "If it asks for a client certificate, use another proxy: only the service is given one."
            elif self._settings.client_cert is not None:
                hint = f"It may not accept the certificate in {self._settings.name('client_cert')}."
            return "tls-failed", f"TLS: {name} cannot be reached: {cause}", f"{check} {hint}", True
        if proxy and is_proxy_refusal(chain):
            advice = f"Check {place}, and that the proxy allows this host."
            return "unreachable", f"{host} cannot be reached through {name}: {cause}", advice, True
        if not sent and any(isinstance(each, socket.gaierror) and each.errno in _NO_SUCH_NAME for each in chain):
            advice = f"This machine finds no host of this name: correct it in {place}."
            return "unknown-host", f"{name} cannot be reached: {cause}", advice, True
        if not sent:
            tried = name if proxy else _with_port(self._settings.base_url)
            return "unreachable", f"{tried} cannot be reached: {cause}", check, True
        if is_timeout(chain):
            message = f"no complete response from {host} within {self._settings.timeout:g} s"
            hint = f"If the service is only slow, raise {self._settings.name('timeout')}."
            return "no-response", message, hint, True
        return "no-response", f"the connection to {host} broke before the response was there: {cause}", None, True

    def _cause(self, operation: Operation, chain: list[BaseException]) -> str:
        """Return the reason for a failure, for people: the operating system's own words, if it has any."""
        if not chain:
            return "something came before the request was sent"
        for each in chain:
            if isinstance(each, ssl.SSLCertVerificationError):
                return self._auth.redact(str(each.verify_message).rstrip("."), 160)
            if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
                return self._auth.redact(each.strerror, 160)
        if operation.confidential:
            # Other texts may quote the peer.
            return type(chain[-1]).__name__
        return self._auth.redact(str(chain[-1]) or type(chain[-1]).__name__, 160)


def exception_chain(exception: BaseException, without: BaseException | None = None) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps: requests and urllib3 nest them in three different ways."""
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
    """Tell whether a proxy was reached, and did not connect us to the service."""
    not_reached = (ConnectTimeoutError, NewConnectionError, ssl.SSLError, TimeoutError)
    chain = list(chain)
    return _is_proxys(chain) and not any(isinstance(each, not_reached) for each in chain)


def _is_before_sending(exception: BaseException) -> bool:
    """Tell whether an exception says that there was no connection to send anything on, whatever else it says."""
    is_no_tls = isinstance(exception, ssl.SSLError) and exception.reason in _NOT_TLS
    return is_no_tls or _is_proxys([exception]) or isinstance(exception, _NOT_CONNECTED)


def is_timeout(chain: Iterable[BaseException]) -> bool:
    """Tell whether these exceptions are about a time-out."""
    return any(isinstance(each, (TimeoutError, requests.Timeout, UrllibTimeoutError)) for each in chain)


def _certificate_advice(chain: Iterable[BaseException], place: str, settings: ClientSettings) -> str:
    """Return what to do about a certificate that was not accepted."""
    codes = [each.verify_code for each in chain if isinstance(each, ssl.SSLCertVerificationError)]
    advice = next((advice for known, advice in _CERTIFICATE_ADVICE if known.intersection(codes)), _OTHER_CERTIFICATE)
    if advice is _UNKNOWN_CA and settings.verify is True:
        advice = _NO_BUNDLE
    return advice.format(place=place, bundle=settings.name("verify"))


def _with_port(base_url: str) -> str:
    """Return host and port of a URL, also a port that the URL leaves out."""
    parts = urlsplit(base_url)
    if parts.port is not None:
        return parts.netloc
    return f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"
