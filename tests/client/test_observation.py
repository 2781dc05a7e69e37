"""What can be seen of a response from outside, whatever the peer sends."""

from __future__ import annotations

import gzip
import socket
import struct
from datetime import datetime, timezone

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.client.http.responses import Observation
from airflow_custody.sandbox import Sandbox


def seen(date: str | None) -> Observation:
    response = requests.Response()
    response.status_code = 200
    if date is not None:
        response.headers["Date"] = date
    return Observation.of(response)


@pytest.mark.parametrize("date", [None, "", "now", "2026-07-01T12:00:00Z", "Wed, 01 Jul 2026 12:00:00"])
def test_a_date_that_cannot_be_read_is_none(date: str | None) -> None:
    assert seen(date).date is None


def test_a_date_is_read() -> None:
    assert seen("Wed, 01 Jul 2026 12:00:00 GMT").date == datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


@given(st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,9} [A-Z][a-z]{2} \d{1,9} [\d:]{1,12} [+-]?\d{1,9}"))
def test_no_date_breaks_anything(date: str) -> None:
    found = seen(date).date
    assert found is None or found.tzinfo is not None


def test_every_response_is_seen_also_one_that_is_tried_again(sandbox: Sandbox) -> None:
    found: list[Observation] = []
    sandbox.control.add_fault("status", status=503, method="GET", path="/health")
    with CustodyClient(sandbox.url, sandbox.token, max_retries=1) as client:
        client.observe(found.append)
        client.list_health_checks()
    assert [each.status for each in found] == [503, 200]
    assert {each.tls_version for each in found} == {""}


_LONG = b"Content-Length: 500\r\n\r\n{"
_CHUNKED = b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"gro'
_LARGE = b"Content-Length: 2000\r\n\r\n" + b" " * 2000


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("rest", [_LONG, _CHUNKED, _LARGE])
@pytest.mark.parametrize(("status", "is_complete"), [(200, False), (500, True)])
def test_a_response_that_is_not_read_to_its_end(rest: bytes, resets: bool, status: int, is_complete: bool) -> None:
    def respond(stream: socket.socket) -> None:
        stream.sendall(f"HTTP/1.1 {status} X\r\n".encode() + rest)
        if resets:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.close()

    found: list[Observation] = []
    with (
        raw_server(respond) as (url, _),
        CustodyClient(url, "token", max_retries=0, max_response_bytes=1024) as client,
    ):
        client.observe(found.append)
        with pytest.raises(CustodyError):
            client.list_health_checks()
    if not (resets and found[0].status is None):
        # Of an error, its status is enough.
        assert [(each.status, each.is_complete) for each in found] == [(status, is_complete)]


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("size", [0, 1, 5, 10, 20, None])
def test_a_compressed_body_is_complete_with_its_end(size: int | None, framing: str) -> None:
    """An empty body would say that the deletion was done."""
    packed = gzip.compress(b"{}")
    body = packed[:size]
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    header, sent = {
        "length": (f"Content-Length: {len(body)}", body),
        "chunked": ("Transfer-Encoding: chunked", chunk + b"0\r\n\r\n"),
        "close": ("Connection: close", body),
    }[framing]
    is_complete = size is None or (size == 0 and framing != "close")

    def respond(stream: socket.socket) -> None:
        stream.sendall(f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n{header}\r\n\r\n".encode() + sent)

    found: list[Observation] = []
    with raw_server(respond) as (url, _), CustodyClient(url, "token", max_retries=0) as client:
        client.observe(found.append)
        if is_complete:
            client.delete_webhook("11111111-1111-1111-1111-111111111111")
        else:
            with pytest.raises(CustodyError, match="early"):
                client.delete_webhook("11111111-1111-1111-1111-111111111111")
    assert [(each.status, each.is_complete) for each in found] == [(200, is_complete)]


def test_what_a_compressed_body_becomes_is_bounded_too() -> None:
    packed = gzip.compress(b" " * 10_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    with (
        raw_server(lambda stream: stream.sendall(head + packed)) as (url, _),
        CustodyClient(url, "token", max_response_bytes=1_000_000, max_retries=0) as client,
        pytest.raises(CustodyError, match="larger than 1000000"),
    ):
        client.list_health_checks()
