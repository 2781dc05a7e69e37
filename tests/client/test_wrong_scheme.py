"""TLS where there is none, and none where there is TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from authorities import Authority
from calls import create, read
from raw_server import raw_server

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.sandbox import Sandbox


def send(data: bytes) -> Callable[[socket.socket], None]:
    return lambda stream: stream.sendall(data)


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize(
    ("greeting", "advice"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "Begin the base URL {} with http://,"),
        (b"HTTP/1.0 200 OK\r\n\r\n", "Begin the base URL {} with http://,"),
        (b"SSH-2.0-x\r\n", "Another program is there: check the base URL {}. [custody/response-unusable]"),
    ],
)
def test_tls_spoken_to_a_server_without_fails_at_once(greeting: bytes, advice: str, call: Any) -> None:
    with raw_server(send(greeting)) as (url, received):
        https = url.replace("http:", "https:")
        with (
            CustodyClient(https, "t0ken", max_retries=3, timeout=60) as client,
            pytest.raises(CustodyConnectionError, match="does not speak TLS on this port; nothing was sent") as caught,
        ):
            call(client)
    assert not caught.value.retryable
    assert not caught.value.transient
    assert advice.format(https) in str(caught.value)
    # Whether it speaks HTTP is asked for once, without credentials.
    assert received[1:] == [b"HEAD / HTTP/1.0\r\n\r\n"]


# What servers do that are spoken to in plain HTTP on a port for TLS.
MISUNDERSTANDINGS = {
    "alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "alert of TLS 1.2": b"\x15\x03\x03\x00\x02\x02\x32",
    "handshake": b"\x16\x03\x03\x00\x04\x0e\x00\x00\x00",
}


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize("record", MISUNDERSTANDINGS.values(), ids=MISUNDERSTANDINGS)
def test_plain_http_that_is_responded_to_in_tls_fails_at_once(record: bytes, call: Any) -> None:
    with (
        raw_server(send(record)) as (url, received),
        CustodyClient(url, "t0ken", max_retries=3, timeout=60) as client,
        pytest.raises(CustodyConnectionError, match="speaks TLS on this port") as caught,
    ):
        call(client)
    assert not caught.value.retryable
    assert f"Begin the base URL {url} with https://," in str(caught.value)
    assert len(received) == 1


@pytest.mark.parametrize(
    ("call", "kind"), [(create, CustodyOutcomeUnknownError), (read, CustodyConnectionError)], ids=["create", "read"]
)
def test_a_port_for_tls_that_only_closes_is_found_out(
    call: Any, kind: type[CustodyError], authority: Authority
) -> None:
    with Sandbox(certfile=authority[2]) as sandbox:
        plain = sandbox.url.replace("https:", "http:")
        with (
            CustodyClient(plain, sandbox.token, max_retries=3, timeout=60) as client,
            pytest.raises(kind, match=f"Begin the base URL {plain} with https://,") as caught,
        ):
            call(client)
        # A port may know both protocols: that a create was not carried out is not proved.
        assert type(caught.value) is kind
        assert not caught.value.retryable
        assert sandbox.control.request_log() == []


@pytest.mark.parametrize("call", [create, read])
def test_the_page_of_a_gateway_that_was_spoken_to_in_plain_http(call: Any) -> None:
    page = b"<html>400 The plain HTTP request was sent to HTTPS port</html>"
    response = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(page), page)

    def respond(stream: socket.socket) -> None:
        stream.sendall(MISUNDERSTANDINGS["handshake"] if received[-1].startswith(b"\x16\x03") else response)

    with (
        raw_server(respond) as (url, received),
        CustodyClient(url, "t0ken", max_retries=3, timeout=60) as client,
        pytest.raises(CustodyRequestError, match=f"Begin the base URL {url} with https://,"),
    ):
        call(client)


def test_a_bad_request_is_not_the_wrong_scheme(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("html", status=400, times=2)
    sandbox.control.add_fault("status", status=400, times=1)
    with CustodyClient(sandbox.url, sandbox.token) as client:
        for _ in range(3):
            with pytest.raises(CustodyRequestError) as caught:
                read(client)
            assert "https://" not in str(caught.value)


def test_a_broken_connection_is_weather_and_the_server_is_asked_for_tls_once() -> None:
    with (
        raw_server(lambda stream: None) as (url, received),
        CustodyClient(url, "t0ken", max_retries=2, timeout=60) as client,
    ):
        for _ in range(2):
            with pytest.raises(CustodyConnectionError) as caught:
                read(client)
            assert caught.value.retryable
    assert [each[:3] for each in received] == [b"GET", b"\x16\x03\x01", *[b"GET"] * 5]


def test_a_server_that_was_understood_before_is_not_asked_for_tls(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        read(client)
        sandbox.control.add_fault("drop")
        with pytest.raises(CustodyConnectionError):
            read(client)
    assert "Invalid HTTP request" not in caplog.text


def test_a_proxy_with_the_wrong_scheme_is_named() -> None:
    with raw_server(send(MISUNDERSTANDINGS["alert"])) as (url, received):
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=url, timeout=60) as client,
            pytest.raises(CustodyConnectionError, match="Begin 'proxy' with https://,") as caught,
        ):
            read(client)
        assert not caught.value.retryable
        assert len(received) == 1
    with raw_server(send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as (url, received):
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=url.replace("http:", "https:")) as client,
            pytest.raises(CustodyConnectionError, match="Begin 'proxy' with http://,") as caught,
        ):
            read(client)
        assert not caught.value.retryable
        assert received[1:] == [b"HEAD / HTTP/1.0\r\n\r\n"]


def test_a_service_without_tls_behind_a_proxy_is_named() -> None:
    def connect(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        stream.recv(65536)
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with raw_server(connect) as (url, received):
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=url) as client,
            pytest.raises(
                CustodyConnectionError, match=r"Check the base URL https://custody\.example\.com: "
            ) as caught,
        ):
            read(client)
        assert not caught.value.retryable
        assert len(received) == 1


def test_a_refused_connection_names_the_base_url() -> None:
    with (
        CustodyClient("http://127.0.0.1:9/prefix", "t0ken", max_retries=0) as client,
        pytest.raises(CustodyConnectionError, match=r"Check the base URL http://127\.0\.0\.1:9/prefix, and that"),
    ):
        read(client)
