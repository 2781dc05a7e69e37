"""What an observer learns about a response, whatever the peer sends."""

from __future__ import annotations

import gzip
import math
import socket
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st
from support.service.raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.client.http.responses import Observation, parse_retry_after
from airflow_custody.sandbox import Sandbox

WEBHOOK = "11111111-1111-1111-1111-111111111111"


def seen(date: str | None) -> Observation:
    response = requests.Response()
    response.status_code = 200
    if date is not None:
        response.headers["Date"] = date
    return Observation.of(response)


@pytest.mark.parametrize(
    ("header", "date"),
    [
        ("Wed, 01 Jul 2026 12:00:00 GMT", datetime(2026, 7, 1, 12, tzinfo=timezone.utc)),
        ("Wed, 01 Jul 2026 14:00:00 +0200", datetime(2026, 7, 1, 12, tzinfo=timezone.utc)),
        # Converted to UTC, this date is after the last possible date.
        ("Fri, 31 Dec 9999 23:00:00 -0200", None),
        *((each, None) for each in (None, "2026-07-01T12:00:00Z", "Wed, 01 Jul 2026 12:00:00")),
    ],
)
def test_a_date(header: str | None, date: datetime | None) -> None:
    found = seen(header).date
    assert found == date
    assert found is None or found.utcoffset() == timedelta(0)


@given(st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,9} [A-Z][a-z]{2} \d{1,9} [\d:]{1,12} [+-]?\d{1,9}"))
@example("9" * 5000)
@example("nan")
@example("-5")
@example("\u0663")
def test_every_header_is_read_or_ignored(header: str) -> None:
    found, seconds = seen(header).date, parse_retry_after(header)
    assert found is None or found.tzinfo is not None
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


def test_every_response_is_seen_also_one_that_is_tried_again(sandbox: Sandbox) -> None:
    found: list[Observation] = []
    sandbox.control.add_fault("status", status=503, method="GET", path="/health")
    with CustodyClient(sandbox.url, sandbox.token, max_retries=1) as client:
        client.observe(found.append)
        client.list_health_checks()
    assert [each.status for each in found] == [503, 200]
    assert {each.tls_version for each in found} == {""}


PACKED = gzip.compress(b"{}")


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        (PACKED, None),
        # An empty body would mean that the deletion was done.
        (b"", "early"),
        (PACKED[:-1], "early or is damaged"),
        (PACKED + b"{}", "early or is damaged"),
        (b"not gzip at all", "early or is damaged"),
        (gzip.compress(b" " * 5_000_000), "larger than 1000000"),
    ],
    ids=["whole", "nothing", "all but a byte", "more", "no gzip", "large"],
)
def test_a_compressed_body_is_complete_with_its_end(body: bytes, error: str | None, framing: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    header, sent = {
        "length": (f"Content-Length: {len(body)}", body),
        "chunked": ("Transfer-Encoding: chunked", chunk + b"0\r\n\r\n"),
        "close": ("Connection: close", body),
    }[framing]
    is_complete = error is None or (not body and framing != "close")

    def respond(stream: socket.socket) -> None:
        stream.sendall(f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n{header}\r\n\r\n".encode() + sent)

    found: list[Observation] = []
    settings: dict[str, Any] = {"max_retries": 0, "max_response_bytes": 1_000_000}
    with raw_server(respond) as (url, _), CustodyClient(url, "token", **settings) as client:
        client.observe(found.append)
        if is_complete:
            client.delete_webhook(WEBHOOK)
        else:
            with pytest.raises(CustodyError, match=error):
                client.delete_webhook(WEBHOOK)
    assert [(each.status, each.is_complete) for each in found] == [(200, is_complete)]
