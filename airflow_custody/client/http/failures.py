"""Why there is no response, in words: what is wrong with the network, with TLS, or with the settings."""

from __future__ import annotations

import http.client
import re
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

from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
)
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.settings import ClientSettings, Proxy

NETWORK_ERRORS = (requests.RequestException, HTTPError, OSError, http.client.HTTPException)
# Reasons of OpenSSL for a first record that is not TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
_NOT_CONNECTED = (ConnectTimeoutError, NewConnectionError, ssl.SSLCertVerificationError)
_OPENSSL_NOISE = re.compile(r"^\[[A-Z0-9:_ ]+\] | \(_ssl\.c:\d+\)$")
# The resolver's numbers for a name that does not exist; its own trouble (EAI_AGAIN) has another.
_NO_SUCH_NAME = {getattr(socket, each, None) for each in ("EAI_NONAME", "EAI_NODATA")}
# The beginnings of what a server sends, as http.client quotes them.
_HTTP, _TLS = "HTTP/", ("\x15\x03", "\x16\x03")
# Codes of OpenSSL (X509_V_ERR_...).
_NOT_YET_VALID = 9
_EXPIRED = 10
_OTHER_HOST = (62, 64)
_UNKNOWN_CA = (2, 7, 18, 19, 20, 21, 27)


@dataclass(frozen=True)
class Failures:
    """
    Explains the failures of one client's requests.

    :param settings: the client's settings.
    :param auth: the way to authenticate; it redacts quotations.
    """

    _settings: ClientSettings
    _auth: Authentication

    def explain(
        self, operation: Operation, chain: list[BaseException], timeout: float, *, sent: bool | None
    ) -> CustodyError:
        """
        Turn what requests raised into an error of ours, without a reference to the request.

        :param operation: the operation that was called.
        :param chain: the exceptions; empty: something came before the request was sent.
        :param timeout: seconds that the exchange had.
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
        message, facts = self._describe(operation, chain, timeout, sent=sent)
        if not sent:
            return operation.failed(CustodyConnectionError, f"{message}; nothing was sent", nothing_sent=True, **facts)
        return operation.unanswered(message, **facts)

    def _describe(
        self, operation: Operation, chain: list[BaseException], timeout: float, *, sent: bool
    ) -> tuple[str, dict[str, Any]]:
        """Return the message and the facts of the error."""
        lines = [str(each.args[0]) for each in chain if type(each) is http.client.BadStatusLine]
        foreign = next((each for each in lines if not each.startswith(_HTTP) and not _HTTP.startswith(each)), None)
        tls = [each for each in chain if isinstance(each, ssl.SSLError)]
        cause = self._cause(operation, chain)
        # What is no HTTP comes from what was spoken to first.
        at_proxy = self._settings.proxy_in_use if foreign is not None or _is_proxys(chain) else None
        host = urlsplit(self._settings.base_url).netloc
        url, place, what, name = self._settings.base_url, self._settings.base_url_text, "the service", host
        if at_proxy:
            url, place, what = at_proxy.url, at_proxy.place, "the proxy"
            name = f"the proxy {at_proxy.address}"
        check = f"Check {place}, and that {what} is up."
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in tls):
            advice = _certificate_advice(chain, place, self._settings)
            facts = {"code": "tls-failed", "retryable": False, "advice": advice}
            return f"TLS: the certificate of {name} was not accepted: {cause}", facts
        if any(each.reason in _NOT_TLS for each in tls):
            facts = {"code": "unreachable", "retryable": False, "advice": _other_scheme("http", place)}
            return f"{name} does not speak TLS on this port", facts
        if foreign is not None and foreign.startswith(_TLS) and url.startswith("http:"):
            facts = {"code": "unreachable", "retryable": False, "advice": _other_scheme("https", place)}
            return f"{name} speaks TLS on this port", facts
        if foreign is not None:
            facts = {
                "code": "response-unusable",
                "retryable": False,
                "advice": f"Another program is there: check {place}.",
            }
            return f"{name} sent something that is not HTTP", facts
        if tls:
            facts = {"code": "tls-failed", "advice": self._tls_advice(tls, check, proxy=at_proxy)}
            return f"TLS: {name} cannot be reached: {cause}", facts
        if at_proxy and is_proxy_refusal(chain):
            advice = f"Check {place}, and that the proxy allows this host."
            return f"{host} cannot be reached through {name}: {cause}", {"code": "unreachable", "advice": advice}
        if not sent and any(isinstance(each, socket.gaierror) and each.errno in _NO_SUCH_NAME for each in chain):
            advice = f"This machine finds no host of this name: correct it in {place}."
            return f"{name} cannot be reached: {cause}", {"code": "unknown-host", "advice": advice}
        if not sent:
            if any(isinstance(each, ConnectionRefusedError) for each in chain):
                check = f"The port may be wrong, or {what} is down: check {place}."
            return f"{name} cannot be reached: {cause}", {"code": "unreachable", "advice": check}
        if is_timeout(chain):
            hint = f"If the service is only slow, raise {self._settings.name('timeout')}."
            facts = {"code": "no-response", "advice": hint if timeout >= self._settings.timeout else None}
            return f"no complete response from {host} within {timeout:g} s", facts
        if any(isinstance(each, http.client.RemoteDisconnected) for each in chain):
            hint = "If it asks for a client certificate, give its path in " + self._settings.name("client_cert") + "."
            if url.startswith("http:"):
                hint = f"If it speaks TLS: {_other_scheme('https', place)}"
            facts = {"code": "no-response", "advice": None if self._settings.client_cert else hint}
            return f"{host} closed the connection without a response", facts
        message = f"the connection to {host} broke before the response was there: {cause}"
        return message, {"code": "no-response"}

    def _tls_advice(self, errors: list[ssl.SSLError], check: str, *, proxy: Proxy | None) -> str:
        """Return what to do about TLS that was refused: often it is for want of a client certificate."""
        place = self._settings.name("client_cert")
        hint = f"If it asks for a client certificate, give its path in {place}."
        if proxy:
            hint = "If it asks for a client certificate, use another proxy: only the service is given one."
        elif self._settings.client_cert is not None:
            hint = f"It may not accept the certificate in {place}."
        reasons = " ".join(str(each.reason) for each in errors)
        if "CERTIFICATE" in reasons or re.search("ALERT_(UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE)", reasons):
            return hint
        return f"{check} {hint}" if any(isinstance(each, ssl.SSLEOFError) for each in errors) else check

    def _cause(self, operation: Operation, chain: list[BaseException]) -> str:
        """Return the reason for a failure, for people: the operating system's own words, if it has any."""
        if not chain:
            return "something came before the request was sent"
        for each in chain:
            if isinstance(each, ssl.SSLCertVerificationError):
                return self._auth.redact(str(each.verify_message).rstrip("."), 160)
            if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
                # OpenSSL puts its name for the error before the words, and Python its own source after them.
                return self._auth.redact(_OPENSSL_NOISE.sub("", each.strerror), 160)
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


def _other_scheme(scheme: str, place: str) -> str:
    other = "http" if scheme == "https" else "https"
    return f"Begin {place} with {scheme}://, or give the port that speaks {other.upper()}."


def _certificate_advice(chain: Iterable[BaseException], url_text: str, settings: ClientSettings) -> str:
    """Return what to do about a certificate that was not accepted."""
    codes = {each.verify_code for each in chain if isinstance(each, ssl.SSLCertVerificationError)}
    bundle = settings.name("verify") if settings.verify is not True else None
    # OpenSSL verifies the CA's certificate as it does the peer's, and Python does not say which one it was.
    replaced = "Have the certificate replaced" + (f", or that of its CA in {bundle}" if bundle else "")
    if _EXPIRED in codes:
        return f"{replaced}, unless this machine's clock is wrong."
    if _NOT_YET_VALID in codes:
        return "Set this machine's clock; if it is right, the certificate was made for a later time."
    if codes.intersection(_OTHER_HOST):
        return f"The certificate is for another host, or has no subject alternative name: check {url_text}."
    if not codes.intersection(_UNKNOWN_CA):
        return f"{replaced}."
    if bundle:
        return f"Its CA is not in {bundle}, or an intermediate certificate is missing: have the server send it."
    return f"If its CA is private, give its bundle in {settings.name('verify')}."
