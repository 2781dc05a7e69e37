"""Diagnosis of a peer that cannot be talked to: its protocol, and the fault of its certificate."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Literal

from airflow_custody.client.http.connections import is_tls_record

# Codes of OpenSSL (X509_V_ERR_...).
_NOT_YET_VALID = 9
_EXPIRED = 10
_OTHER_HOST = (62, 64)
_UNKNOWN_CA = (2, 7, 18, 19, 20, 21, 27)
_HTTP = b"HTTP/"

#: The fault: the client's certificate; that, or ``version``; no version or cipher in common; the host.
Refusal = Literal["certificate", "handshake", "version", "host"]
# OpenSSL's names for the alerts of a peer, and for its offers in vain. Others are not conclusive.
_REFUSALS: dict[Refusal, set[str]] = {
    "certificate": {
        "SSLV3_ALERT_NO_CERTIFICATE",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    },
    "handshake": {"SSLV3_ALERT_HANDSHAKE_FAILURE"},
    "version": {"TLSV1_ALERT_PROTOCOL_VERSION", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "UNSUPPORTED_PROTOCOL"},
    # Some send an internal error for a name that they do not serve.
    "host": {"TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_INTERNAL_ERROR"},
}


def speaks_tls(host: str, port: int, timeout: float) -> bool:
    """Tell whether a server responds to the beginning of a TLS handshake with TLS; nothing else is sent."""
    hello = ssl.MemoryBIO()
    handshake = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), hello, server_hostname=host)
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    try:
        with socket.create_connection((host, port), timeout) as sock:
            sock.sendall(hello.read())
            return is_tls_record(_receive(sock, 2, timeout))
    except OSError:
        return False


def speaks_http(host: str, port: int, timeout: float) -> bool:
    """Tell whether a server responds to an HTTP request without credentials with HTTP, and without TLS."""
    try:
        with socket.create_connection((host, port), timeout) as sock:
            sock.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return _receive(sock, len(_HTTP), timeout) == _HTTP
    except OSError:
        return False


def _receive(sock: socket.socket, size: int, timeout: float) -> bytes:
    """Return the first bytes that a peer sends, fewer if it ends; however it cuts them, they have this time in all."""
    deadline, received = monotonic() + timeout, b""
    while len(received) < size:
        if (left := deadline - monotonic()) <= 0:
            raise TimeoutError
        sock.settimeout(left)
        if not (piece := sock.recv(size - len(received))):
            break
        received += piece
    return received


def is_not_http(chain: Iterable[BaseException], first_bytes: bytes) -> bool:
    """
    Tell whether what came back is no HTTP response.

    :param chain: the exceptions that reading it ended with.
    :param first_bytes: its first bytes; empty: not known.
    """
    # A connection that was closed is one of them, for http.client; and a status line may be truncated, at any place.
    lines = [
        str(each.args[0])
        for each in chain
        if isinstance(each, http.client.BadStatusLine) and not isinstance(each, OSError)
    ]
    begin = _HTTP.decode()
    if any(not line.startswith(begin) and not begin.startswith(line) for line in lines):
        return True
    return not _HTTP.startswith(first_bytes)


def refusal_of(chain: Iterable[BaseException]) -> Refusal | None:
    """Return why TLS was refused, as far as that leads to anything; None: it was not, or for another reason."""
    reasons = {str(each.reason) for each in chain if isinstance(each, ssl.SSLError)}
    return next((refusal for refusal, names in _REFUSALS.items() if reasons & names), None)


def certificate_advice(chain: Iterable[BaseException], url_text: str, verify: bool | str, verify_text: str) -> str:
    """
    Return what to do about a certificate that was not accepted.

    :param chain: the exceptions.
    :param url_text: name of the setting with the peer's URL, in messages.
    :param verify: path of the CA bundle, or True.
    :param verify_text: name of the setting with the CA bundle, in messages.
    """
    codes = {each.verify_code for each in chain if isinstance(each, ssl.SSLCertVerificationError)}
    # OpenSSL verifies the CA's certificate as it does the peer's, and Python does not say which one it was.
    replaced = "Have the certificate replaced" + (f", or that of its CA in {verify_text}" if verify is not True else "")
    if _EXPIRED in codes:
        return f"{replaced}, unless this machine's clock is wrong."
    if _NOT_YET_VALID in codes:
        return "Set this machine's clock; if it is right, the certificate was made for a later time."
    if codes.intersection(_OTHER_HOST):
        return f"The certificate is for another host, or has no subject alternative name: check {url_text}."
    if not codes.intersection(_UNKNOWN_CA):
        return f"{replaced}."
    if verify is not True:
        return f"Its CA is not in {verify_text}, or an intermediate certificate is missing: have the server send it."
    return f"If its CA is private, give its bundle in {verify_text}."
