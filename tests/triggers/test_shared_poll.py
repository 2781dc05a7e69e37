"""The shared poll: supervised, isolated, in threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import pytest
from connections import connection_json

from airflow_custody.client import CustodyAuthenticationError, CustodyClient, CustodyError, CustodyServerError
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _base
from airflow_custody.triggers._base import (
    MAX_CONCURRENT_POLLS,
    PollResult,
    PollSchedule,
    SharedPoll,
    event,
    poll_until,
)

pytestmark = pytest.mark.usefixtures("connection")


def numbers(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
    return {subject: PollResult(len(subject)) for subject in subjects}


def poll(fetch: object = numbers, key: str = "key", custody_conn_id: str = "custody_default") -> SharedPoll[str, int]:
    return SharedPoll(key, custody_conn_id, fetch, PollSchedule(0.05))  # type: ignore[arg-type]


async def first(made: SharedPoll[str, int], subject: str = "abc") -> PollResult[int]:
    with made.subscribe(subject) as results:
        return await asyncio.wait_for(anext(results), 600)


def test_each_gets_what_it_waits_for() -> None:
    async def scenario() -> list[PollResult[int]]:
        return list(await asyncio.gather(first(poll(), "a"), first(poll(), "bb"), first(poll(), "bb")))

    assert [result.value for result in asyncio.run(scenario())] == [1, 2, 2]
    assert SharedPoll.running() == 0


def test_one_that_has_no_result_gets_an_error_and_the_others_their_value() -> None:
    def forgetful(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        return numbers(client, [subject for subject in subjects if subject != "bad"])

    async def scenario() -> list[PollResult[int]]:
        return list(await asyncio.gather(first(poll(forgetful), "bad"), first(poll(forgetful), "good")))

    bad, good = asyncio.run(scenario())
    assert bad.error is not None
    assert bad.error.retryable
    assert good.value == 4


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
            dying = [poll(key="threadless", custody_conn_id="threadless") for _ in range(5)]
            for result in await asyncio.gather(*(first(each) for each in dying)):
                assert result.error is not None
                assert "can't start new thread" in str(result.error)
                assert result.error.retryable
                assert not result.error.transient
        assert SharedPoll.running() == 0
        assert (await first(poll(key="threadless", custody_conn_id="threadless"))).value == 3

    asyncio.run(scenario())


def test_the_results_of_a_poll_that_died_end(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_THREADLESS_TOO", connection_json(sandbox))

    async def scenario() -> list[PollResult[int]]:
        with no_more_threads(), poll(custody_conn_id="threadless_too").subscribe("abc") as results:
            return [result async for result in results]

    assert len(asyncio.run(scenario())) == 1


def test_a_pool_that_takes_no_work_is_told_as_well(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHUT", connection_json(sandbox))
    _base._pool("shut", False).shutdown()

    async def scenario() -> PollResult[int]:
        return await first(poll(custody_conn_id="shut"))

    result = asyncio.run(scenario())
    assert result.error is not None
    assert result.error.retryable
    assert "shutdown" in str(result.error)


@pytest.mark.parametrize("trouble", [MemoryError(), RuntimeError("odd"), KeyError("x"), TimeoutError()])
def test_a_wait_ends_with_an_error_and_not_with_a_time_out(trouble: Exception) -> None:
    def fetch(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        raise trouble

    ended = until(fetch, lambda value: event("done"))
    assert ended["status"] == "error"
    assert ended["error"]["retryable"]


def test_what_a_judge_raises_is_no_time_out() -> None:
    def judge(value: int) -> str:
        raise TimeoutError("of the judge's own")

    assert until(numbers, judge)["status"] == "error"


def until(fetch: Any, judge: Any) -> dict[str, Any]:
    async def scenario() -> Any:
        with poll(fetch).subscribe("abc") as results:
            return await poll_until(results, judge, deadline=time.time() + 600, interval=0.05, log=logging.getLogger())

    payload: dict[str, Any] = asyncio.run(scenario()).payload
    return payload


def test_a_wait_whose_results_end_ends_with_an_error() -> None:
    async def nothing() -> AsyncIterator[PollResult[int]]:
        return
        yield

    async def scenario() -> Any:
        return await poll_until(
            nothing(), lambda value: event("done"), deadline=None, interval=1, log=logging.getLogger()
        )

    payload = asyncio.run(scenario()).payload
    assert payload["status"] == "error"
    assert payload["error"]["retryable"]


@pytest.mark.parametrize("hanging", [8, 40])
def test_polls_that_hang_stop_nobody_else(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, hanging: int) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    release = threading.Event()

    def hang(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        release.wait(600)
        return numbers(client, subjects)

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


def test_polls_that_hang_again_and_again_leave_room_for_those_that_work() -> None:
    calls = 0

    def hang(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        nonlocal calls
        calls += 1
        if calls > 3 * MAX_CONCURRENT_POLLS:
            release.wait(600)
        raise CustodyServerError("it hung")

    release = threading.Event()

    async def scenario() -> None:
        with contextlib.ExitStack() as stack:
            for number in range(3 * MAX_CONCURRENT_POLLS):
                stack.enter_context(poll(hang, f"key {number}").subscribe("abc"))
            while calls < 4 * MAX_CONCURRENT_POLLS:
                await asyncio.sleep(0.05)
            # It would wait for as long as these hang.
            await first(poll(key="works"))
            assert not release.is_set()
            release.set()

    asyncio.run(scenario())


def test_the_trouble_of_one_subject_does_not_make_polls_rarer() -> None:
    async def scenario() -> int:
        def fetch(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
            return {
                each: PollResult(error=CustodyServerError("x")) if each == "bad" else PollResult(1) for each in subjects
            }

        with poll(fetch).subscribe("bad"), poll(fetch).subscribe("good") as results:
            return len([await asyncio.wait_for(anext(results), 600) for _ in range(20)])

    started = time.monotonic()
    assert asyncio.run(scenario()) == 20
    # With a back-off the twentieth poll would come after half an hour.
    assert time.monotonic() - started < 900


def test_who_joins_does_not_wait_for_the_end_of_a_back_off() -> None:
    calls = 0

    def fetch(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise CustodyServerError("down")
        return numbers(client, subjects)

    class Slow(PollSchedule):
        def next_delay(self, polls: int, failures: int, error: CustodyError | None) -> float:
            return 3600.0

    async def scenario() -> None:
        made = SharedPoll("key", "custody_default", fetch, Slow(0.01))
        with made.subscribe("watcher"):
            while not calls:
                await asyncio.sleep(0.05)
            # The next poll is an hour away.
            await asyncio.sleep(0.5)
            assert calls == 1
            assert (await first(made)).value == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", [True, False])
def test_a_service_that_asks_to_wait_is_left_alone(asked: bool) -> None:
    calls = 0

    def fetch(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        nonlocal calls
        calls += 1
        raise CustodyServerError("busy", retry_after=3600 if asked else None)

    async def scenario() -> None:
        made = SharedPoll("key", "custody_default", fetch, PollSchedule(0.05))
        with made.subscribe("abc"):
            await asyncio.sleep(0.5)
            with made.subscribe("def"):
                await asyncio.sleep(0.5)
                while not asked and calls == 1:
                    await asyncio.sleep(0.05)

    asyncio.run(scenario())
    assert (calls == 1) is asked


def test_polls_of_one_connection_share_a_client(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    clients = []

    def fetch(client: CustodyClient, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        clients.append(client)
        return numbers(client, subjects)

    async def scenario() -> None:
        polls = [poll(fetch, f"key {number}") for number in range(5)]
        await asyncio.gather(*(first(each) for each in polls), first(poll(fetch, "6", "other")))

    asyncio.run(scenario())
    assert len({id(client) for client in clients}) == 2
    assert _base._Connection._open == {}


def test_credentials_that_are_refused_are_tried_ever_more_rarely() -> None:
    refused = [PollSchedule(60).next_delay(9, failures, CustodyAuthenticationError("no")) for failures in range(1, 9)]
    assert refused == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    busy = [PollSchedule(60).next_delay(9, failures, CustodyServerError("down")) for failures in range(1, 9)]
    assert busy == [60, 120, 240, 300, 300, 300, 300, 300]


@pytest.mark.parametrize("transient", [True, False])
def test_only_transient_errors_are_waited_out(transient: bool) -> None:
    async def results() -> AsyncIterator[PollResult[int]]:
        yield PollResult(error=CustodyServerError("down", retryable=transient))
        yield PollResult(7)

    async def scenario() -> str:
        ended = await poll_until(
            results(), lambda value: event("done", value=value), deadline=None, interval=1, log=logging.getLogger()
        )
        return str(ended.payload["status"])

    assert asyncio.run(scenario()) == ("done" if transient else "error")


def test_an_event_loop_that_ended_without_cleaning_up_leaves_nothing_behind() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> object:
        subscription = poll(key="abandoned").subscribe("abc")
        subscription.__enter__()
        return subscription

    abandoned = loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    # One turn, in which the cancelled task ends; nobody leaves the poll.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    async def afterwards() -> PollResult[int]:
        return await first(poll())

    assert asyncio.run(afterwards()).value == 3
    assert SharedPoll.running() == 0
    del abandoned
