"""What a service sends is read in the process of all of Airflow: little of it at a time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.health.operations import LIST_HEALTH_CHECKS
from airflow_custody.overview import read_overview
from airflow_custody.plugin import limits
from airflow_custody.plugin.limits import LARGE, MAX_VALUES, ResponseLimits


def pauses() -> tuple[list[float], Callable[[float], None]]:
    found: list[float] = []
    return found, found.append


@contextmanager
def service(body: bytes) -> Iterator[CustodyClient]:
    """Return a client of a service that always responds the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with CustodyClient(f"http://127.0.0.1:{server.server_port}", "token", max_retries=0) as client:
            yield client
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("value", ["{}", "[1]", "1", '{"a":[[1]]}'])
def test_a_response_of_too_many_values_is_refused(value: str) -> None:
    body = f'{{"groups":{{}},"x":[{",".join([value] * (MAX_VALUES + 1))}]}}'.encode()
    with service(body) as client:
        assert client.list_health_checks() == []
        client.limit_responses(ResponseLimits())
        with pytest.raises(CustodyResponseError, match="more than 250000 values") as raised:
            client.list_health_checks()
    assert "custody status" in str(raised.value)


def test_many_rows_and_long_texts_are_not() -> None:
    checks = [{"healthCheck": f"c{number}", "status": "success", "report": {"name": "n"}} for number in range(10_000)]
    body = json.dumps({"groups": {"g": {"healthChecks": checks}}, "x": "a" * 5_000_000}).encode()
    with service(body) as client:
        client.limit_responses(ResponseLimits())
        assert len(client.list_health_checks()) == 10_000


@pytest.mark.parametrize(("name", "maximum"), [("MAX_TOTAL_BYTES", 2 * LARGE + 100), ("MAX_TOTAL_VALUES", 100)])
def test_all_together_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str, maximum: int) -> None:
    monkeypatch.setattr(limits, name, maximum)
    found = ResponseLimits()
    body = b"," * 40 + b" " * (LARGE - 40)
    for _ in range(2):
        with found(LIST_HEALTH_CHECKS, body):
            pass
    for _ in range(2):
        with pytest.raises(CustodyResponseError, match="more than a page reads"), found(LIST_HEALTH_CHECKS, body):
            pass
    # One section that is too large hides no other.
    with found(LIST_HEALTH_CHECKS, body[: LARGE - 1]):
        pass


def test_one_that_is_refused_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TOTAL_VALUES", 2 * MAX_VALUES)
    found = ResponseLimits(sleep=lambda _: None)
    for _ in range(3):
        with pytest.raises(CustodyResponseError, match="250000"), found(LIST_HEALTH_CHECKS, b"," * (MAX_VALUES + 1)):
            pass
    with found(LIST_HEALTH_CHECKS, b"," * MAX_VALUES + b" " * LARGE):
        pass


def test_a_whitelist_with_long_rules_is_lawful() -> None:
    # 5,000 requests of 31 KB, 100 in a response; and how many of these one reading asks for.
    found, body = ResponseLimits(sleep=lambda _: None), b"," * 10_000 + b" " * 3_100_000
    for _ in range(50):
        with found(LIST_HEALTH_CHECKS, body):
            pass


def test_large_ones_are_read_one_at_a_time_with_time_for_others() -> None:
    took, sleep = pauses()
    inside, most = 0, 0

    def read(body: bytes) -> None:
        nonlocal inside, most
        with ResponseLimits(sleep=sleep)(LIST_HEALTH_CHECKS, body):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    def read_all(body: bytes) -> None:
        threads = [threading.Thread(target=read, args=(body,)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(600)

    read_all(b" " * LARGE)
    assert most == 1
    assert len(took) == 4
    assert min(took) >= 0.02
    read_all(b" ")
    assert most > 1
    assert len(took) == 4


def test_one_that_cannot_be_read_ends_its_turn() -> None:
    took, sleep = pauses()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), ResponseLimits(sleep=sleep)(LIST_HEALTH_CHECKS, b" " * LARGE):
            raise ZeroDivisionError
    assert len(took) == 2


def test_others_go_on_while_an_overview_is_read() -> None:
    body = b'{"groups":{},"x":[%s]}' % b",".join([b'{"a":[1]}'] * 700_000)
    stop, longest = threading.Event(), 0.0

    def tick() -> None:
        # In this process's time, as other processes may stop it for longer.
        nonlocal longest
        last = time.process_time()
        while not stop.wait(0.005):
            longest, last = max(longest, time.process_time() - last), time.process_time()

    with service(body) as client:
        client.limit_responses(ResponseLimits())
        ticking = threading.Thread(target=tick)
        ticking.start()
        overview = read_overview(client, deadline=5)
        stop.set()
        ticking.join()
    assert "more than 250000 values" in overview.health.problem
    assert longest < 0.5


@pytest.mark.parametrize("sign", [",", "[", "{"])
@pytest.mark.parametrize("spell", ["\\u{:04x}", "\\u{:04X}", "\\\\u{:04x}"])
def test_values_of_a_payload_count_however_they_are_spelt(sign: str, spell: str) -> None:
    text = spell.format(ord(sign)) * (MAX_VALUES + 1)
    with (
        pytest.raises(CustodyResponseError, match="more than 250000 values"),
        ResponseLimits()(LIST_HEALTH_CHECKS, text.encode()),
    ):
        pass
