"""What is said when a proxy is at fault, and not the service behind it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from authorities import Authority, context_of
from calls import create, read
from raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyConnectionError

SERVICE = "https://custody.example.com"


def send(data: bytes) -> Callable[[socket.socket], None]:
    return lambda stream: stream.sendall(data)


def failure(proxy: str, call: Any = read, **settings: Any) -> CustodyConnectionError:
    """Return the error of a call through a proxy."""
    with (
        CustodyClient(SERVICE, "t0ken", proxy=proxy, **{"timeout": 60, "max_retries": 0, **settings}) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        call(client)
    return caught.value


def name_of(proxy: str) -> str:
    return f"the proxy {proxy.rpartition('/')[2]}"


@pytest.mark.parametrize(
    ("host", "is_trusted", "advice"),
    [
        ("127.0.0.1", False, "Its CA is not in 'verify'"),
        ("other.example.com", True, "check 'proxy'"),
    ],
)
def test_the_certificate_of_a_proxy(
    tmp_path: Path, authority: Authority, host: str, is_trusted: bool, advice: str
) -> None:
    ca = authority[0] if is_trusted else trustme.CA()
    file = tmp_path / "proxy.pem"
    ca.issue_cert(host).private_key_and_cert_chain_pem.write_to_path(file)
    with raw_server(lambda stream: None, context_of((ca, "", str(file)))) as (proxy, _):
        error = failure(proxy, verify=authority[1])
    assert error.code == "tls-failed"
    assert f"the certificate of {name_of(proxy)} was not accepted" in error.message
    assert "custody.example.com" not in str(error)
    assert advice in str(error.advice)


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"-ERR unknown command 'CONNECT'\r\n"])
def test_another_program_in_place_of_a_proxy(greeting: bytes, scheme: str, call: Any) -> None:
    with raw_server(send(greeting)) as (url, _):
        proxy = url.replace("http:", f"{scheme}:")
        error = failure(proxy, call)
    assert (error.code, error.retryable, error.nothing_sent) == ("response-unusable", False, True)
    assert error.message.startswith(f"{name_of(proxy)} ")
    assert "nothing was sent" in error.message
    assert error.advice == "Another program is there: check 'proxy'."


def test_a_proxy_that_asks_for_a_client_certificate(authority: Authority) -> None:
    context = context_of(authority)
    context.load_verify_locations(authority[1])
    context.verify_mode = ssl.CERT_REQUIRED
    # TLS 1.3 asks so late that what is heard of it is not certain.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with raw_server(lambda stream: None, context) as (proxy, _):
        error = failure(proxy, verify=authority[1], client_cert=authority[2])
    assert "use another proxy: only the service is given one." in str(error.advice)
    assert error.message.startswith(f"TLS: {name_of(proxy)} cannot be reached: ")


def test_a_handshake_with_a_proxy_that_breaks_off_is_the_proxys() -> None:
    with raw_server(lambda stream: None) as (url, _):
        proxy = url.replace("http:", "https:")
        error = failure(proxy)
    assert (error.code, error.advice) == ("tls-failed", "Check 'proxy', and that the proxy is up.")
    assert "custody.example.com" not in error.message


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_service_behind_a_proxy_that_speaks_no_tls_cannot_be_asked_what_it_speaks(answer: bytes) -> None:
    def connect(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        stream.recv(65536)
        stream.sendall(answer)

    with raw_server(connect) as (proxy, received):
        error = failure(proxy)
    assert (error.code, len(received)) == ("unreachable", 1)
    assert error.advice == f"Check the base URL {SERVICE}: the port speaks plain HTTP, or is another program's."


def test_a_refusal_of_the_service_through_a_proxy_is_the_services() -> None:
    def connect(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        stream.recv(65536)
        stream.sendall(b"\x15\x03\x03\x00\x02\x02\x46")

    with raw_server(connect) as (proxy, _):
        error = failure(proxy)
    assert f"custody.example.com cannot be reached through {name_of(proxy)}: " in error.message
    assert str(error.advice).startswith("No TLS version or cipher is common to the service and this machine")
