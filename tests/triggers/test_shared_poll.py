"""The shared poll: it is supervised and isolated, and runs in its own threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from support.airflow.connections import connection_json
from support.airflow.request_triggers import no_more_threads, until

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyError,
    CustodyRateLimitError,
    CustodyServerError,
)
from airflow_custody.client.wait_state import WaitState
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _base
from airflow_custody.triggers._base import MAX_CONCURRENT_POLLS, SharedPoll, next_delay, wait_until_done, within

pytestmark = pytest.mark.usefixtures("connection")


class Number:
    """A wait that ends at the first poll that finds at least its number."""

    def __init__(self, number: int = 1, trouble: Exception | None = None) -> None:
        self.number = number
        self.trouble = trouble

    def update(self, found: int) -> WaitState:
        if self.trouble is not None:
            raise self.trouble
        return WaitState(found >= self.number, f"{found} of {self.number}", {"found": found})


class Fetch:
    """The function that a poll calls. It returns or raises the results in order, and may hang until released."""

    def __init__(self, *found: int | Exception, hangs: bool = False) -> None:
        self.found = list(found)
        self.clients: list[CustodyClient] = []
        self.release = threading.Event()
        if not hangs:
            self.release.set()

    def __call__(self, client: CustodyClient, waits: Sequence[Number]) -> int:
        self.clients.append(client)
        self.release.wait(600)
        found = self.found.pop(0) if len(self.found) > 1 else (self.found or [1])[0]
        if isinstance(found, Exception):
            raise found
        return found


def poll(fetch: Any = None, key: str = "key", custody_conn_id: str = "custody_default") -> SharedPoll[WaitState]:
    return SharedPoll(key, custody_conn_id, fetch or Fetch(), 0.05)


async def first(made: SharedPoll[WaitState], wait: Number | None = None) -> WaitState | CustodyError | None:
    with made.subscribe(wait or Number()) as results:
        return await asyncio.wait_for(results.get(), 600)


def until_done(fetch: Any, wait: Number | None = None, within: float = 600) -> dict[str, Any]:
    async def scenario() -> Any:
        deadline, log = time.time() + within, logging.getLogger()
        return await wait_until_done(poll(fetch), wait or Number(), "done", deadline=deadline, interval=0.05, log=log)

    payload: dict[str, Any] = asyncio.run(scenario()).payload
    assert len(SharedPoll._running) == 0
    return payload


def test_the_trouble_of_one_is_its_own() -> None:
    async def scenario() -> list[Any]:
        return list(await asyncio.gather(first(poll(), Number(trouble=KeyError("x"))), first(poll()), first(poll())))

    bad, *good = asyncio.run(scenario())
    assert isinstance(bad, CustodyError)
    assert [each.result for each in good] == [{"found": 1}] * 2
    assert len(SharedPoll._running) == 0


def test_a_poll_that_dies_tells_all_at_once_and_the_next_gets_a_new_one(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A connection for which no thread has been started yet.
    monkeypatch.setenv("AIRFLOW_CONN_THREADLESS", connection_json(sandbox))

    async def scenario() -> None:
        with no_more_threads():
            dying = [poll(custody_conn_id="threadless") for _ in range(5)]
            for result in await asyncio.gather(*(first(each) for each in dying)):
                assert isinstance(result, CustodyError)
                assert "can't start new thread" in str(result)
                assert result.retryable
                assert not result.transient
            with poll(custody_conn_id="threadless").subscribe(Number()) as results:
                assert isinstance(await results.get(), CustodyError)
                assert await results.get() is None
        assert len(SharedPoll._running) == 0
        assert isinstance(await first(poll(custody_conn_id="threadless")), WaitState)

    asyncio.run(scenario())


def test_a_wait_ends_with_an_error_and_not_with_a_time_out() -> None:
    trouble = TimeoutError()
    for ended in (until_done(Fetch(trouble)), until_done(Fetch(), Number(trouble=trouble))):
        assert ended["status"] == "error"
        assert ended["error"]["retryable"]


def test_only_transient_errors_are_waited_out() -> None:
    ended = until_done(Fetch(CustodyServerError("down", retryable=True), 7))
    assert ended == {"status": "done", "result": {"found": 7}, "message": "7 of 1"}
    assert until_done(Fetch(CustodyServerError("down", retryable=False), 7))["status"] == "error"
    # A time-out reports the last result.
    assert until_done(Fetch(), Number(2), within=0.3) == {"status": "timeout", "message": "1 of 2"}


def test_polls_that_hang_stop_nobody_else(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for conn_id in ("OTHER", "STUCK"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id}", connection_json(sandbox))
    fetch = Fetch(hangs=True)

    async def scenario() -> None:
        polls = [asyncio.create_task(first(poll(fetch, f"key {number}", "stuck"))) for number in range(40)]
        await until(lambda: len(fetch.clients) == MAX_CONCURRENT_POLLS)
        await first(poll(key="works", custody_conn_id="other"))
        assert not any(each.done() for each in polls)
        fetch.release.set()
        await asyncio.gather(*polls)

    asyncio.run(scenario())


def test_polls_that_are_stuck_give_their_place_to_those_that_work(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STUCK", connection_json(sandbox))
    monkeypatch.setattr(_base, "_STUCK_AFTER", 0.5)
    fetch = Fetch(hangs=True)

    async def scenario() -> None:
        stuck = [poll(fetch, f"key {each}", "stuck") for each in range(MAX_CONCURRENT_POLLS)]
        polls = [asyncio.create_task(first(each)) for each in stuck]
        await until(lambda: fetch.clients and "stuck" not in _base._pools)
        assert isinstance(await first(poll(custody_conn_id="stuck")), WaitState)
        assert not any(each.done() for each in polls)
        fetch.release.set()
        # Their results count nevertheless.
        assert all(isinstance(each, WaitState) for each in await asyncio.gather(*polls))

    asyncio.run(scenario())


def test_polls_become_rarer_while_the_service_fails() -> None:
    error = CustodyServerError("down")
    delays = [next_delay(10, polls, [error]) for polls in range(1, 9)]
    assert delays[0] == 10
    assert delays[-1] == 300
    assert next_delay(600, 9, [error]) == 600
    # Without an interval, failures do not make a busy loop.
    assert [next_delay(0, polls, [error]) for polls in range(4)] == [0, 1, 2, 4]
    assert next_delay(10, 1, [CustodyRateLimitError("slow", retry_after=42)]) == 42
    # Repeated sign-ins with refused credentials may lock the account.
    assert next_delay(60, 8, [CustodyAuthenticationError("no")]) == 3600


@pytest.mark.parametrize("asked", [True, False])
def test_a_new_subscriber_skips_a_back_off_but_not_a_requested_delay(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "next_delay", lambda interval, failures, errors: 3600.0)
    fetch = Fetch(CustodyServerError("busy", retry_after=3600 if asked else None))

    async def scenario() -> None:
        made = poll(fetch)
        with made.subscribe(Number()) as results:
            await results.get()
            with made.subscribe(Number()):
                await asyncio.sleep(0.5)
                await until(lambda: asked or len(fetch.clients) > 1)

    asyncio.run(scenario())
    assert (len(fetch.clients) == 1) is asked


def test_polls_of_one_connection_share_a_client(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    fetch = Fetch()

    async def scenario() -> None:
        polls = [poll(fetch, f"key {number}") for number in range(5)]
        await asyncio.gather(*(first(each) for each in polls), first(poll(fetch, "6", "other")))

    asyncio.run(scenario())
    assert len({id(client) for client in fetch.clients}) == 2
    assert _base._Connection._open == {}


# --- waiting with a time limit --------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_an_awaitable_that_takes_too_long_is_cancelled(seconds: float) -> None:
    async def scenario() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await within(seconds, asyncio.sleep(60))
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_is_never_swallowed(turns: int) -> None:
    """This is also true if the cancellation arrives in the same turn of the event loop as the result."""

    async def endless(result: asyncio.Future[str]) -> None:
        await within(30, asyncio.ensure_future(result))
        await asyncio.sleep(3600)

    async def scenario() -> None:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(endless(result))
        for turn in range(turns + 2):
            await asyncio.sleep(0)
            if turn == 1:
                result.set_result("done")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 600)

    asyncio.run(scenario())
