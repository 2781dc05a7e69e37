"""The shared poll: supervised, isolated, in threads of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_custody.client import CustodyServerError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import (
    MAX_CONCURRENT_POLLS,
    PollResult,
    PollSchedule,
    SharedPoll,
    event,
    poll_until,
)


def numbers(hook: CustodyHook, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
    return {subject: PollResult(len(subject)) for subject in subjects}


def poll(fetch: object = numbers, key: str = "key", pool: ThreadPoolExecutor | None = None) -> SharedPoll[str, int]:
    return SharedPoll(key, "custody_default", fetch, PollSchedule(0.05), pool)  # type: ignore[arg-type]


async def first(made: SharedPoll[str, int], subject: str = "abc") -> PollResult[int]:
    with made.subscribe(subject) as results:
        return await asyncio.wait_for(anext(results), 10)


def test_each_gets_what_it_waits_for() -> None:
    async def scenario() -> list[PollResult[int]]:
        return list(await asyncio.gather(first(poll(), "a"), first(poll(), "bb"), first(poll(), "bb")))

    assert [result.value for result in asyncio.run(scenario())] == [1, 2, 2]
    assert SharedPoll.running() == 0


def test_one_that_has_no_result_gets_an_error_and_the_others_their_value() -> None:
    def forgetful(hook: CustodyHook, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        return numbers(hook, [subject for subject in subjects if subject != "bad"])

    async def scenario() -> list[PollResult[int]]:
        return list(await asyncio.gather(first(poll(forgetful), "bad"), first(poll(forgetful), "good")))

    bad, good = asyncio.run(scenario())
    assert bad.error is not None
    assert bad.error.retryable
    assert good.value == 4


def test_a_poll_that_dies_tells_all_and_the_next_gets_a_new_one() -> None:
    fails = True

    def fetch(hook: CustodyHook, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        if fails:
            raise RuntimeError("can't start new thread")
        return numbers(hook, subjects)

    async def scenario() -> None:
        nonlocal fails
        for result in await asyncio.gather(*(first(poll(fetch)) for _ in range(5))):
            assert result.error is not None
            assert "can't start new thread" in str(result.error)
            assert result.error.retryable
            assert not result.error.transient
        assert SharedPoll.running() == 0
        fails = False
        assert (await first(poll(fetch))).value == 3

    asyncio.run(scenario())


def test_a_pool_that_takes_no_work_is_told_as_well() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()

    async def scenario() -> PollResult[int]:
        return await first(poll(pool=pool))

    result = asyncio.run(scenario())
    assert result.error is not None
    assert "shutdown" in str(result.error)


def test_a_wait_ends_with_an_error_when_its_poll_dies_and_not_with_a_time_out() -> None:
    def fetch(hook: CustodyHook, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        raise MemoryError

    async def scenario() -> object:
        import logging

        with poll(fetch).subscribe("abc") as results:
            return await poll_until(
                results, lambda value: event("done"), deadline=time.time() + 5, interval=0.05, log=logging.getLogger()
            )

    ended = asyncio.run(scenario())
    assert ended.payload["status"] == "error"  # type: ignore[attr-defined]
    assert ended.payload["error"]["retryable"]  # type: ignore[attr-defined]


def test_polls_that_hang_occupy_their_own_threads_only() -> None:
    release = threading.Event()

    def hang(hook: CustodyHook, subjects: Sequence[str]) -> Mapping[str, PollResult[int]]:
        release.wait(20)
        return numbers(hook, subjects)

    async def scenario() -> float:
        hanging = [
            asyncio.create_task(first(poll(hang, f"key {number}"))) for number in range(4 * MAX_CONCURRENT_POLLS)
        ]
        await asyncio.sleep(0.5)
        started = time.monotonic()
        # What the event loop's own threads are for: a name look-up, say.
        await asyncio.to_thread(time.sleep, 0)
        waited = time.monotonic() - started
        assert sum(thread.name.startswith("custody-poll") for thread in threading.enumerate()) <= MAX_CONCURRENT_POLLS
        release.set()
        await asyncio.gather(*hanging)
        return waited

    assert asyncio.run(scenario()) < 0.5


@pytest.mark.parametrize("transient", [True, False])
def test_only_transient_errors_are_waited_out(transient: bool) -> None:
    async def results() -> AsyncIterator[PollResult[int]]:
        yield PollResult(error=CustodyServerError("down", retryable=transient))
        yield PollResult(7)

    async def scenario() -> str:
        import logging

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
