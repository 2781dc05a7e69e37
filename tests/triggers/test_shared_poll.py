"""The shared poll: supervised, isolated, in threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from connections import connection_json

from airflow_custody.client import CustodyClient, CustodyError, CustodyServerError
from airflow_custody.client.wait_state import WaitState
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _base
from airflow_custody.triggers._base import MAX_CONCURRENT_POLLS, SharedPoll, wait_until_done

pytestmark = pytest.mark.usefixtures("connection")


class Number:
    """A wait that is done at a poll that finds its number or more."""

    def __init__(self, number: int = 1, trouble: Exception | None = None) -> None:
        self.number = number
        self.trouble = trouble

    def update(self, found: int) -> WaitState:
        if self.trouble is not None:
            raise self.trouble
        return WaitState(found >= self.number, f"{found} of {self.number}", {"found": found})


def one(client: CustodyClient, waits: Sequence[Number]) -> int:
    return 1


def poll(fetch: Any = one, key: str = "key", custody_conn_id: str = "custody_default") -> SharedPoll[WaitState]:
    return SharedPoll(key, custody_conn_id, fetch, 0.05)


async def first(made: SharedPoll[WaitState], wait: Number | None = None) -> WaitState | CustodyError | None:
    with made.subscribe(wait or Number()) as results:
        return await asyncio.wait_for(results.get(), 600)


def until_done(fetch: Any, wait: Number | None = None, within: float = 600) -> dict[str, Any]:
    async def scenario() -> Any:
        deadline, log = time.time() + within, logging.getLogger()
        return await wait_until_done(poll(fetch), wait or Number(), "done", deadline=deadline, interval=0.05, log=log)

    payload: dict[str, Any] = asyncio.run(scenario()).payload
    assert SharedPoll.running() == 0
    return payload


@pytest.mark.parametrize("trouble", [CustodyError("bad id"), KeyError("x")], ids=repr)
def test_the_trouble_of_one_is_its_own(trouble: Exception) -> None:
    async def scenario() -> list[Any]:
        return list(await asyncio.gather(first(poll(), Number(trouble=trouble)), first(poll()), first(poll())))

    bad, *good = asyncio.run(scenario())
    assert isinstance(bad, CustodyError)
    assert [each.result for each in good] == [{"found": 1}] * 2
    assert SharedPoll.running() == 0


@contextlib.contextmanager
def no_more_threads() -> Iterator[None]:
    """Let no new thread start, as on a machine that is at its limit: none has room for such a stack."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_a_poll_that_dies_tells_all_at_once_and_the_next_gets_a_new_one(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A connection that no thread has been started for yet.
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
        assert SharedPoll.running() == 0
        assert isinstance(await first(poll(custody_conn_id="threadless")), WaitState)

    asyncio.run(scenario())


@pytest.mark.parametrize("trouble", [MemoryError(), RuntimeError("odd"), KeyError("x"), TimeoutError()])
def test_a_wait_ends_with_an_error_and_not_with_a_time_out(trouble: Exception) -> None:
    def fetch(client: CustodyClient, waits: Sequence[Number]) -> int:
        raise trouble

    for ended in (until_done(fetch), until_done(one, Number(trouble=trouble))):
        assert ended["status"] == "error"
        assert ended["error"]["retryable"]


@pytest.mark.parametrize("transient", [True, False])
def test_only_transient_errors_are_waited_out(transient: bool) -> None:
    calls = iter([CustodyServerError("down", retryable=transient), 7])

    def fetch(client: CustodyClient, waits: Sequence[Number]) -> Any:
        found = next(calls)
        if isinstance(found, CustodyError):
            raise found
        return found

    ended = until_done(fetch)
    assert ended["status"] == ("done" if transient else "error")
    if transient:
        assert ended == {"status": "done", "result": {"found": 7}, "message": "7 of 1"}


def test_a_time_out_says_what_was_found_last() -> None:
    assert until_done(one, Number(2), within=0.3) == {"status": "timeout", "message": "1 of 2"}


@pytest.mark.parametrize("hanging", [8, 40])
def test_polls_that_hang_stop_nobody_else(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, hanging: int) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    release = threading.Event()

    def hang(client: CustodyClient, waits: Sequence[Number]) -> int:
        release.wait(600)
        return 1

    async def scenario() -> None:
        polls = [asyncio.create_task(first(poll(hang, f"key {number}"))) for number in range(hanging)]
        await asyncio.sleep(0.5)
        # What the event loop's own threads are for: a name look-up, say.
        await asyncio.to_thread(time.sleep, 0)
        await first(poll(key="works", custody_conn_id="other"))
        assert not any(each.done() for each in polls)
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("custody-poll")]
        assert len(threads) <= 3 * MAX_CONCURRENT_POLLS
        release.set()
        await asyncio.gather(*polls)

    asyncio.run(scenario())


def test_polls_that_are_stuck_give_their_place_to_those_that_work(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STUCK", connection_json(sandbox))
    monkeypatch.setattr(_base, "_STUCK_AFTER", 0.5)
    release = threading.Event()

    def hang(client: CustodyClient, waits: Sequence[Number]) -> int:
        release.wait(600)
        return 1

    async def scenario() -> None:
        stuck = [poll(hang, f"key {each}", "stuck") for each in range(MAX_CONCURRENT_POLLS)]
        polls = [asyncio.create_task(first(each)) for each in stuck]
        await asyncio.sleep(1)
        assert isinstance(await first(poll(custody_conn_id="stuck")), WaitState)
        assert not any(each.done() for each in polls)
        release.set()
        # Their results count all the same.
        assert all(isinstance(each, WaitState) for each in await asyncio.gather(*polls))

    asyncio.run(scenario())


def test_the_trouble_of_one_wait_does_not_make_polls_rarer() -> None:
    async def scenario() -> None:
        with poll().subscribe(Number(trouble=CustodyServerError("x"))), poll().subscribe(Number()) as results:
            for _ in range(20):
                assert isinstance(await asyncio.wait_for(results.get(), 600), WaitState)

    started = time.monotonic()
    asyncio.run(scenario())
    # With a back-off the twentieth poll would come after half an hour.
    assert time.monotonic() - started < 900


@pytest.mark.parametrize("asked", [True, False])
def test_who_joins_waits_for_no_back_off_but_as_long_as_the_service_asks(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "next_delay", lambda interval, failures, error: 3600.0)
    calls = 0

    def fetch(client: CustodyClient, waits: Sequence[Number]) -> int:
        nonlocal calls
        calls += 1
        raise CustodyServerError("busy", retry_after=3600 if asked else None)

    async def scenario() -> None:
        made = poll(fetch)
        with made.subscribe(Number()):
            await asyncio.sleep(0.5)
            assert calls == 1
            with made.subscribe(Number()):
                await asyncio.sleep(0.5)
                while not asked and calls == 1:
                    await asyncio.sleep(0.05)

    asyncio.run(scenario())
    assert (calls == 1) is asked


def test_polls_of_one_connection_share_a_client(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    clients = []

    def fetch(client: CustodyClient, waits: Sequence[Number]) -> int:
        clients.append(client)
        return 1

    async def scenario() -> None:
        polls = [poll(fetch, f"key {number}") for number in range(5)]
        await asyncio.gather(*(first(each) for each in polls), first(poll(fetch, "6", "other")))

    asyncio.run(scenario())
    assert len({id(client) for client in clients}) == 2
    assert _base._Connection._open == {}


def test_an_event_loop_that_ended_without_cleaning_up_leaves_nothing_behind() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> object:
        subscription = poll(key="abandoned").subscribe(Number())
        subscription.__enter__()
        return subscription

    abandoned = loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    # One turn, in which the cancelled task ends; nobody leaves the poll.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert isinstance(asyncio.run(first_of_new_loop()), WaitState)
    assert SharedPoll.running() == 0
    del abandoned


async def first_of_new_loop() -> WaitState | CustodyError | None:
    return await first(poll())
