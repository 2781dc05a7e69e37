"""A few threads for calls that may hang: what does not respond keeps no threads from what does."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_custody.client.text import count

T = TypeVar("T")

log = logging.getLogger(__name__)

#: After how many seconds a call counts as slow, and after how many times that as one that hangs.
SLOW_AFTER = 2.0
HANGS_AFTER = 5
#: How many seconds a call may take; after that, nobody waits for it any more.
GIVEN_UP_AFTER = 60.0
#: How many calls run at once that are not slow yet.
MAX_ACTIVE = 4
#: How many threads there are, and how many of them may be taken when a call begins whose last one was slow (or of whom
#: nothing is known), or hung.
MAX_THREADS = 16
MAX_FOR_SLOW = 12
MAX_FOR_HANGING = 8
#: How many more there are with calls that nobody waits for any more; with so many, only those begin whose last call was
#: quick.
MAX_GIVEN_UP = 32
#: With how many of these an owner waits for some seconds after the last one before it begins another.
MAX_GIVEN_UP_OF_ONE = 2
TRIED_AGAIN_AFTER = 600.0
#: How many calls wait for a thread: of one owner, and of all that are not quick.
MAX_QUEUED_OF_ONE = 20
MAX_QUEUED = 256
#: Of how many owners it is kept how long their last calls took.
_MAX_OWNERS = 1024
_NO_THREAD = "No thread can be started for this: the process or the machine has too many. Try again in a minute."


class BusyError(Exception):
    """Raised instead of a call that does not begin; says why, and what to do."""


class GivenUpError(Exception):
    """Raised when a call has taken so long that nobody waits for it any more."""


@dataclass(eq=False)
class _Call:
    owner: Hashable
    run: Callable[[], Any]
    queued: float
    started: float = 0.0
    given_up: float = 0.0
    future: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True)
class _Last:
    """When an owner's last call ended, and how long it took."""

    ended: float
    took: float


class Threads:
    """
    Threads that several owners share.

    Each has one at a time. Who has waited longest since its last call is next; how long that took is added, so that
    those that hang come after those that do not. Some threads are only for owners whose last call did not hang, and
    some only for those whose last call was quick. A call that takes too long is given up: its thread is replaced. Who
    has several that never came back tries again only now and then. All threads end when there is nothing to do, and
    none keeps the process from ending.

    :param name: name of the threads.
    :param slow_after: after how many seconds a call counts as slow.
    :param clock: returns the time in seconds.
    """

    def __init__(
        self, name: str, *, slow_after: float = SLOW_AFTER, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._slow_after = slow_after
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: list[_Call] = []
        self._running: list[_Call] = []
        self._given_up: list[_Call] = []
        self._last: OrderedDict[Hashable, _Last] = OrderedDict()

    def submit(self, owner: Hashable, run: Callable[[], T]) -> Future[T]:
        """
        Return the future of a call.

        :param owner: what shares a fate, such as a connection.
        :param run: what to call.
        :raises BusyError: if too many calls wait already, or too many never came back. So may the future, also if no
            thread can be started.
        """
        with self._lock:
            if (refusal := self._refusal(owner)) is not None:
                raise refusal
            slow = sum(not self._is_quick(each.owner) for each in self._queue)
            too_many = slow >= MAX_QUEUED and not self._is_quick(owner)
            if too_many or sum(each.owner == owner for each in self._queue) >= MAX_QUEUED_OF_ONE:
                raise BusyError("So much is being read that this was not begun. Try again in a minute.")
            call = _Call(owner, run, self._clock())
            # Nobody who leaves cancels it for the others.
            call.future.set_running_or_notify_cancel()
            self._queue.append(call)
        self._dispatch()
        return call.future

    async def wait(self, futures: Iterable[Future[Any]], seconds: float) -> None:
        """Wait until all futures are done, and no longer than some seconds; what they raise is left in them."""
        pending = {asyncio.wrap_future(each) for each in futures}
        for each in pending:
            # Who leaves early does not look at it: that is no reason for asyncio to complain.
            each.add_done_callback(lambda done: done.cancelled() or done.exception())
        end = time.monotonic() + seconds
        while pending and (rest := end - time.monotonic()) > 0:
            # A call that has become slow meanwhile makes room for another.
            _, pending = await asyncio.wait(pending, timeout=min(rest, self._slow_after / 2))
            self._dispatch()

    def _dispatch(self) -> None:
        """Begin what may begin."""
        with self._lock:
            self._give_up()
            while (call := self._next()) is not None:
                try:
                    threading.Thread(target=self._work, args=(call,), name=self._name, daemon=True).start()
                except Exception as error:
                    log.warning("A thread cannot be started: %s", error)
                    self._running.remove(call)
                    call.future.set_exception(BusyError(_NO_THREAD))

    def _give_up(self) -> None:
        """Give up the calls that take too long; and those that wait and may not begin, as others never came back."""
        now = self._clock()
        for call in [each for each in self._running if now - each.started >= GIVEN_UP_AFTER]:
            log.warning("A call in the thread %s has not returned for %.0f s", self._name, now - call.started)
            self._end(call)
            call.given_up = now
            self._given_up.append(call)
            call.future.set_exception(GivenUpError())
        for call in list(self._queue):
            if (refusal := self._refusal(call.owner)) is not None:
                self._queue.remove(call)
                call.future.set_exception(refusal)

    def _refusal(self, owner: Hashable) -> BusyError | None:
        """Return why a call of an owner may not begin, as others never came back; None if it may."""
        if self._is_quick(owner):
            return None
        if len(self._given_up) >= MAX_GIVEN_UP:
            return _none_left()
        own = [each.given_up for each in self._given_up if each.owner == owner]
        rest = max(own, default=0.0) + TRIED_AGAIN_AFTER - self._clock()
        if len(own) < MAX_GIVEN_UP_OF_ONE or rest <= 0:
            return None
        return BusyError(
            f"{count(len(own), 'earlier call')} did not return within {GIVEN_UP_AFTER:.0f} s, so another is begun "
            f"only in {count(math.ceil(rest / 60), 'minute')}, when somebody looks."
        )

    def _next(self) -> _Call | None:
        """Take the call that comes next, if there is one that may begin."""
        now = self._clock()
        active = sum(now - each.started < self._slow_after for each in self._running)
        if active >= MAX_ACTIVE:
            return None
        # Of an owner, the one that was queued first.
        firsts: dict[Hashable, _Call] = {}
        for each in self._queue:
            firsts.setdefault(each.owner, each)
        for each in self._running:
            firsts.pop(each.owner, None)
        may_begin = [
            each
            for each in firsts.values()
            if len(self._running) < self._limit(each.owner) and self._refusal(each.owner) is None
        ]
        if not may_begin:
            return None
        call = min(may_begin, key=self._turn)
        self._queue.remove(call)
        self._running.append(call)
        call.started = now
        return call

    def _turn(self, call: _Call) -> float:
        last = self._last.get(call.owner)
        return call.queued if last is None else max(call.queued, last.ended) + last.took

    def _limit(self, owner: Hashable) -> int:
        """Return how many threads may be taken when a call of an owner begins."""
        if self._is_quick(owner):
            return MAX_THREADS
        last = self._last.get(owner)
        hangs = last is not None and last.took >= HANGS_AFTER * self._slow_after
        return MAX_FOR_HANGING if hangs else MAX_FOR_SLOW

    def _is_quick(self, owner: Hashable) -> bool:
        return owner in self._last and self._last[owner].took < self._slow_after

    def _end(self, call: _Call) -> None:
        """Note that a call has ended, or was given up."""
        self._running.remove(call)
        now = self._clock()
        self._last[call.owner] = _Last(now, now - call.started)
        self._last.move_to_end(call.owner)
        if len(self._last) > _MAX_OWNERS:
            self._last.popitem(last=False)

    def _work(self, call: _Call | None) -> None:
        while call is not None:
            result, error = None, None
            try:
                result = call.run()
            except BaseException as raised:
                error = raised
            with self._lock:
                done, is_awaited = call, call in self._running
                if is_awaited:
                    self._end(done)
                else:
                    self._given_up.remove(done)
                call = self._next()
            if is_awaited and error is not None:
                done.future.set_exception(error)
            elif is_awaited:
                done.future.set_result(result)
            self._dispatch()


def _none_left() -> BusyError:
    return BusyError(
        f"{MAX_GIVEN_UP} calls have not returned for more than {GIVEN_UP_AFTER:.0f} s, so until one of them ends, only "
        "those are begun whose last one was quick. If that goes on, restart the API server."
    )
