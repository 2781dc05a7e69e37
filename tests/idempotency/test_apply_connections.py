"""Applying to a service that ends its connections, or sends what was not asked for: each row once, each id its own."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import FakeTaskInstance
from task_tries import Store, needs_store

from airflow_custody.client import CustodyClient
from airflow_custody.client.whitelist.file import read_whitelist_file
from airflow_custody.client.whitelist.listing import Listing, service_name
from airflow_custody.idempotency import send
from airflow_custody.idempotency.apply_plan import Applied, ApplyPlan
from airflow_custody.idempotency.plan_settings import PlanSettings
from airflow_custody.sandbox import Sandbox

pytestmark = needs_store
ROWS = 60
# What becomes of a create, by its number on its connection.
Fate = Callable[[int], str]


class Relay:
    """A gateway before the sandbox that ends connections, and may send the last response but one in place of one."""

    def __init__(self, url: str, fate: Fate, port: int = 0) -> None:
        self._port = int(url.rpartition(":")[2])
        self._fate = fate
        self._listener = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, inner: socket.socket) -> None:
        before, creates = b"", 0
        with contextlib.suppress(OSError), inner, socket.create_connection(("127.0.0.1", self._port)) as outer:
            while request := _read(inner):
                fate = "pass"
                if request.startswith(b"POST"):
                    creates, fate = creates + 1, self._fate(creates)
                if fate == "lose":
                    return
                outer.sendall(request)
                response = _read(outer)
                if fate == "lose the response":
                    return
                inner.sendall(before if fate == "stale" else response)
                before = response
                if fate == "close after":
                    return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _read(stream: socket.socket) -> bytes:
    data = stream.recv(65536)
    length = int((re.findall(rb"(?i)\r\ncontent-length: *(\d+)", data) or [0])[0])
    while data and len(data.partition(b"\r\n\r\n")[2]) < length:
        data += stream.recv(65536)
    return data


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as started:
        yield started


def apply(
    sandbox: Sandbox,
    folder: Path,
    fate: Fate,
    *,
    store: Store | None = None,
    try_number: int = 1,
    port: int = 0,
    **options: Any,
) -> Applied:
    file = folder / "rows.csv"
    rows = "".join(f"Label {each},0x{each:040x},ETH\n" for each in range(ROWS))
    file.write_text(f"label,address,blockchain\n{rows}")
    relay, settings = Relay(sandbox.url, fate, port), PlanSettings()
    with contextlib.closing(relay), CustodyClient(relay.url, sandbox.token, timeout=60) as client:
        read = read_whitelist_file(file)
        hash_ = settings.plan(read, Listing([]), service_name(client)).plan_hash
        context: Any = {"ti": FakeTaskInstance(try_number, 3), "task_state_store": store or Store()}
        options = {"comment": "x", "lookup_wait": 0.3, **options}
        return ApplyPlan(context, client, logging.getLogger("test"), settings, **options).run(read, hash_)


@pytest.mark.parametrize("max_parallel", [1, 4])
@pytest.mark.parametrize("at", [2, 7])
@pytest.mark.parametrize("fate", ["close after", "lose the response", "lose", "stale"])
def test_each_row_exists_once_and_has_its_own_id(
    sandbox: Sandbox, tmp_path: Path, fate: str, at: int, max_parallel: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    tries: Any = {"store": Store(), "port": port, "max_parallel": max_parallel}
    applied = apply(sandbox, tmp_path, lambda number: fate if number == at else "pass", **tries)
    if applied.outcome.left:
        # The relay counts the creates of each connection, so a row that is sent again may be its connection's second,
        # too; and a round that gets nothing through ends the try.
        applied = apply(sandbox, tmp_path, lambda _: "pass", try_number=2, **tries)
    assert_each_once(sandbox, applied)
    # Look-ups and listings are few: a search becomes rarer the longer it takes.
    assert len(sandbox.control.request_log()) < ROWS + 150


def assert_each_once(sandbox: Sandbox, applied: Applied) -> None:
    requests = {each["id"]: each["label"] for each in sandbox.control.whitelist_requests()}
    assert len(requests) == ROWS
    assert not applied.outcome.unknown
    ids = {applied.requests[key].label: identifier for key, identifier in applied.outcome.done.items()}
    assert ids == {label: identifier for identifier, label in requests.items()}


def killed(sandbox: Sandbox, folder: Path, monkeypatch: pytest.MonkeyPatch, after: int, port: int) -> Store:
    """Apply until so many rows were sent; return what a process that was killed then leaves behind."""
    store, calls, create = Store(), [0], CustodyClient.create_whitelist_request
    monkeypatch.setattr(send, "BATCH", 50)

    def dying(*args: Any, **kwargs: Any) -> str:
        calls[0] += 1
        if calls[0] > after:
            # A process that was killed writes nothing more.
            store.failure = RuntimeError("killed")
            raise KeyboardInterrupt
        return create(*args, **kwargs)

    monkeypatch.setattr(CustodyClient, "create_whitelist_request", dying)
    with pytest.raises(KeyboardInterrupt):
        apply(sandbox, folder, lambda _: "pass", store=store, max_parallel=1, port=port)
    monkeypatch.setattr(CustodyClient, "create_whitelist_request", create)
    store.failure = None
    return store


@pytest.mark.parametrize("after", [0, 20, 49])
def test_an_open_window_of_a_killed_try_takes_one_search(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    # The plan's hash has the service's address in it.
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    store = killed(sandbox, tmp_path, monkeypatch, after, port)
    assert len(sandbox.control.whitelist_requests()) == after
    sandbox.control.clear_request_log()
    applied = apply(sandbox, tmp_path, lambda _: "pass", store=store, try_number=2, port=port)
    assert_each_once(sandbox, applied)
    queries = [
        each["query"] for each in sandbox.control.request_log("GET") if each["path"].endswith("/whitelists/addresses")
    ]
    sent = -(-(ROWS - 50) // 50) + 1
    searches = [each for each in queries if "ids" not in each and each.get("offset", ["0"]) == ["0"]]
    # The plan's listing, a look-up for each window that is sent, and one search.
    assert len(searches) == 1 + sent + 1
