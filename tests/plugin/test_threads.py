"""Threads in which what hangs keeps nothing from what responds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from airflow_custody.plugin import threads as module
from airflow_custody.plugin.threads import (
    GIVEN_UP_AFTER,
    HANGS_AFTER,
    MAX_ACTIVE,
    MAX_FOR_HANGING,
    MAX_FOR_SLOW,
    MAX_GIVEN_UP,
    MAX_GIVEN_UP_OF_ONE,
    MAX_QUEUED_OF_ONE,
    MAX_THREADS,
    TRIED_AGAIN_AFTER,
    BusyError,
    GivenUpError,
    Threads,
)

SLOW_AFTER = 0.2


class Clock:
    """The time, to which a test adds; ``real`` is what it adds to."""

    def __init__(self) -> None:
        self.added = 0.0
        self.real: Callable[[], float] = time.monotonic

    def __call__(self) -> float:
        return self.real() + self.added


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def threads(clock: Clock) -> Threads:
    return Threads("custody-test", slow_after=SLOW_AFTER, clock=clock)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hang(threads: Threads, gate: threading.Event, *owners: str) -> list[Future[Any]]:
    return [threads.submit(each, lambda: gate.wait(600)) for each in owners]


def hang_all(threads: Threads, clock: Clock, gate: threading.Event, *owners: str) -> list[Future[Any]]:
    """Begin as many calls as may begin, as if nobody looked for a while."""
    futures = hang(threads, gate, *owners)
    for _ in owners:
        clock.added += SLOW_AFTER
        threads._dispatch()
    return futures


def responds(threads: Threads, owner: str, seconds: float = 5) -> bool:
    """Return whether a call of an owner gets a thread while others hang."""
    future = threads.submit(owner, lambda: 1)
    asyncio.run(threads.wait([future], seconds))
    return future.done()


def number_of_threads(at_most: int = MAX_THREADS) -> int:
    """Return how many threads there are, once those that are ending have ended."""
    for _ in range(200):
        if (number := sum(each.name == "custody-test" for each in threading.enumerate())) <= at_most:
            break
        time.sleep(0.01)
    return number


def test_who_responds_waits_for_nobody_who_is_known_to_hang(
    threads: Threads, clock: Clock, gate: threading.Event
) -> None:
    assert responds(threads, "well")
    slow = [f"slow{number}" for number in range(MAX_FOR_HANGING + 2)]
    hanging = hang_all(threads, clock, gate, *slow)
    clock.added += HANGS_AFTER * SLOW_AFTER
    gate.set()
    asyncio.run(threads.wait(hanging, 5))
    gate.clear()
    # Now all of them are known.
    hang_all(threads, clock, gate, *slow)
    assert number_of_threads(at_most=MAX_FOR_HANGING) == MAX_FOR_HANGING
    assert responds(threads, "well")
    assert responds(threads, "other")


def test_nor_for_those_that_begin_to_hang(threads: Threads, clock: Clock, gate: threading.Event) -> None:
    assert responds(threads, "well")
    hang_all(threads, clock, gate, *(f"new{number}" for number in range(30)))
    assert number_of_threads() == MAX_FOR_SLOW
    assert responds(threads, "well")
    gate.set()
    assert responds(threads, "new29")


def test_one_that_is_new_waits_until_those_before_it_are_slow(threads: Threads, gate: threading.Event) -> None:
    hang(threads, gate, *(f"new{number}" for number in range(MAX_ACTIVE)))
    assert number_of_threads() == MAX_ACTIVE
    assert responds(threads, "well")


def test_a_queue_is_bounded_for_each(threads: Threads, gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(threads, gate, *["one"] * (1 + MAX_QUEUED_OF_ONE))
    with pytest.raises(BusyError, match="Try again"):
        threads.submit("one", lambda: 1)
    assert responds(threads, "well")
    monkeypatch.setattr(module, "MAX_QUEUED", MAX_QUEUED_OF_ONE + 1)
    hang(threads, gate, *(f"other{number}" for number in range(MAX_ACTIVE)))
    with pytest.raises(BusyError):
        threads.submit("another", lambda: 1)
    # Who is known to be quick does not wait for long: it is not refused.
    assert responds(threads, "well")


def test_who_has_waited_longest_is_next(threads: Threads, clock: Clock, gate: threading.Event) -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        clock.added += SLOW_AFTER * 3

    threads.submit("slow", slow).result(600)
    hanging = hang(threads, gate, *(f"new{number}" for number in range(MAX_ACTIVE)))
    futures = [threads.submit("slow", slow), threads.submit("slow", slow)]
    # It waits for less than what the call before took longer.
    clock.added += SLOW_AFTER / 10
    futures.append(threads.submit("later", lambda: order.append("later")))
    gate.set()
    asyncio.run(threads.wait([*hanging, *futures], 5))
    assert order == ["slow", "later", "slow", "slow"]


@pytest.mark.parametrize("number", [4, 16])
def test_however_many_hang_again_and_again_one_that_is_slow_gets_its_turns(
    threads: Threads, clock: Clock, number: int
) -> None:
    # In a time of its own: a call takes as long as it is left in here, however busy the machine is.
    clock.real = lambda: 0.0
    takes, ends = {"lawful": 3.0}, dict[str, tuple[float, threading.Event]]()
    waits: list[float] = []
    over, scale = threading.Event(), SLOW_AFTER / 2

    def begin(owner: str) -> Future[Any]:
        event = threading.Event()

        def run() -> None:
            ends[owner] = clock() + takes.get(owner, 25.0) * scale, event
            if not over.is_set():
                event.wait(600)

        return threads.submit(owner, run)

    hanging = {f"hangs{each}": begin(f"hangs{each}") for each in range(number)}
    lawful, asked = begin("lawful"), clock()
    for _ in range(500):
        clock.added += scale / 2
        for owner, (end, event) in list(ends.items()):
            if clock() >= end:
                del ends[owner]
                event.set()
                (lawful if owner == "lawful" else hanging[owner]).result(600)
        threads._dispatch()
        time.sleep(0.001)
        if lawful.done():
            waits.append((clock() - asked) / scale)
            lawful, asked = begin("lawful"), clock()
        # As soon as they are shown, they are asked for again.
        hanging = {owner: begin(owner) if future.done() else future for owner, future in hanging.items()}
    over.set()
    for _, event in list(ends.values()):
        event.set()
    # The first time, they are not known to hang.
    assert waits[0] < 60
    assert len(waits) > 20
    assert max(waits[1:]) < 10


def test_an_error_is_the_callers(threads: Threads) -> None:
    future = threads.submit("one", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        future.result(600)
    assert responds(threads, "one")


def test_who_leaves_an_error_behind_hears_nothing_of_it(
    threads: Threads, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        gate.wait(600)
        raise ValueError

    async def leave() -> None:
        future = threads.submit("one", fail)
        await threads.wait([future], 0.01)
        gate.set()
        await asyncio.sleep(0.05)

    asyncio.run(leave())
    assert "never retrieved" not in caplog.text


def test_a_thread_that_cannot_start_is_the_end_of_one_call_only(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        future = threads.submit("one", lambda: 1)
    with pytest.raises(BusyError, match="No thread can be started"):
        future.result(600)
    assert all(responds(threads, "one") for _ in range(3))


def test_what_never_comes_back_is_given_up(threads: Threads, clock: Clock, gate: threading.Event) -> None:
    owners = [f"one{number}" for number in range(20)]
    assert all(responds(threads, each) for each in owners)
    outage = True
    hanging = [threads.submit(each, lambda: outage and gate.wait(600)) for each in owners]
    for _ in owners:
        clock.added += SLOW_AFTER
        threads._dispatch()
    assert number_of_threads() == MAX_THREADS
    assert not responds(threads, "other", 0.01)
    outage = False
    clock.added += GIVEN_UP_AFTER
    # It is over, though their threads never come back.
    assert all(responds(threads, each) for each in ("other", *owners))
    assert sum(isinstance(each.exception(1), GivenUpError) for each in hanging) == MAX_THREADS
    gate.set()
    assert number_of_threads(at_most=0) == 0
    assert threads._given_up == []


def give_up(threads: Threads, clock: Clock, gate: threading.Event, owner: str, number: int) -> None:
    for _ in range(number):
        (future,) = hang(threads, gate, owner)
        clock.added += GIVEN_UP_AFTER
        threads._dispatch()
        assert isinstance(future.exception(1), GivenUpError)


def test_who_has_several_that_never_came_back_tries_again_now_and_then(
    threads: Threads, clock: Clock, gate: threading.Event
) -> None:
    give_up(threads, clock, gate, "hangs", MAX_GIVEN_UP_OF_ONE - 1)
    last, queued = hang(threads, gate, "hangs", "hangs")
    clock.added += GIVEN_UP_AFTER
    assert responds(threads, "other")
    assert isinstance(last.exception(1), GivenUpError)
    assert isinstance(queued.exception(1), BusyError)
    with pytest.raises(BusyError, match=r"2 earlier calls did not return .*only in 10 minutes"):
        threads.submit("hangs", lambda: 1)
    clock.added += TRIED_AGAIN_AFTER - 60
    with pytest.raises(BusyError, match="only in 1 minute,"):
        threads.submit("hangs", lambda: 1)
    clock.added += 60
    give_up(threads, clock, gate, "hangs", 1)
    with pytest.raises(BusyError, match="3 earlier calls"):
        threads.submit("hangs", lambda: 1)
    clock.added += TRIED_AGAIN_AFTER
    # What is well again is asked as any other.
    assert responds(threads, "hangs")
    assert responds(threads, "hangs")


def test_what_has_come_back_counts_no_more(threads: Threads, clock: Clock, gate: threading.Event) -> None:
    give_up(threads, clock, gate, "hangs", MAX_GIVEN_UP_OF_ONE)
    gate.set()
    assert number_of_threads(at_most=0) == 0
    assert responds(threads, "hangs")


def test_many_that_never_came_back_slow_down_no_others(threads: Threads, clock: Clock, gate: threading.Event) -> None:
    hang_all(threads, clock, gate, *(f"one{number}" for number in range(MAX_FOR_SLOW)))
    clock.added += GIVEN_UP_AFTER
    hang_all(threads, clock, gate, *(f"other{number}" for number in range(MAX_FOR_SLOW)))
    assert len(threads._running) == MAX_FOR_SLOW


def test_who_was_quick_begins_however_many_never_came_back(
    threads: Threads, clock: Clock, gate: threading.Event
) -> None:
    assert responds(threads, "well")
    for number in range((MAX_GIVEN_UP - MAX_ACTIVE) // MAX_GIVEN_UP_OF_ONE):
        give_up(threads, clock, gate, f"one{number}", MAX_GIVEN_UP_OF_ONE)
    hang(threads, gate, *(f"last{number}" for number in range(MAX_ACTIVE)))
    # These wait while the last ones are given up.
    waiting = [threads.submit("well", lambda: 1) for _ in range(3)]
    new = threads.submit("new", lambda: 1)
    clock.added += GIVEN_UP_AFTER
    asyncio.run(threads.wait(waiting, 5))
    assert len(threads._given_up) == MAX_GIVEN_UP
    assert isinstance(new.exception(1), BusyError)
    assert [each.result(0) for each in waiting] == [1] * 3
    with pytest.raises(BusyError, match="whose last one was quick"):
        threads.submit("new", lambda: 1)
    clock.added += TRIED_AGAIN_AFTER
    assert responds(threads, "well")


def test_threads_that_never_come_back_are_bounded(threads: Threads, clock: Clock, gate: threading.Event) -> None:
    futures: list[Future[Any]] = []
    while len(threads._given_up) < MAX_GIVEN_UP:
        number = len(futures)
        futures += hang(threads, gate, f"one{number}", f"other{number}")
        clock.added += GIVEN_UP_AFTER
        threads._dispatch()
    with pytest.raises(BusyError, match="restart the API server"):
        threads.submit("other", lambda: 1)
    # Nobody waits for what will not begin.
    assert all(each.done() for each in futures)
    assert number_of_threads(at_most=MAX_GIVEN_UP + MAX_THREADS) <= MAX_GIVEN_UP + MAX_THREADS
    gate.set()
    for _ in range(200):
        if not threads._given_up:
            break
        time.sleep(0.01)
    assert responds(threads, "other")
