"""The base of all triggers: one supervised poll for all that wait for the same thing, and the end of a wait."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from airflow.triggers.base import TriggerEvent

from airflow_custody.client.errors import CustodyAuthenticationError, CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._waiting import within

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

S = TypeVar("S", bound=Hashable)
T = TypeVar("T")

# While the service fails, polls become rarer up to this many seconds (or the interval, if that is longer).
MAX_BACKOFF = 300.0
MAX_RETRY_AFTER = 3600.0
#: Maximum number of concurrent polls of one connection, and of as many more whose last one failed.
MAX_CONCURRENT_POLLS = 8
# Triggers that start together are served by one poll.
_GATHERING_DELAY = 0.1


@cache
def _pool(custody_conn_id: str, failing: bool) -> Executor:
    """
    Return the threads to poll in.

    Polls that hang occupy neither the event loop's own threads, nor those of another connection, nor, once they have
    failed, those of what works.
    """
    return ThreadPoolExecutor(MAX_CONCURRENT_POLLS, thread_name_prefix="custody-poll")


class PollHook(CustodyHook):
    """The hook of a triggerer, where triggers come and go: a password that one has seen refused, none sends again."""

    shares_sign_in = True


class _Connection:
    """
    A client that all polls of one Airflow connection share: they sign in once.

    :param custody_conn_id: id of the connection.
    """

    _open: ClassVar[dict[str, _Connection]] = {}

    def __init__(self, custody_conn_id: str) -> None:
        self._hook = PollHook(custody_conn_id)
        self._lock = threading.Lock()
        self._users = 0

    @classmethod
    @contextmanager
    def shared(cls, custody_conn_id: str) -> Iterator[_Connection]:
        """Share the connection as long as the block runs; the last one to leave closes it."""
        connection = cls._open.setdefault(custody_conn_id, cls(custody_conn_id))
        connection._users += 1
        try:
            yield connection
        finally:
            connection._users -= 1
            if not connection._users:
                del cls._open[custody_conn_id]
                connection._hook.close()

    def client(self) -> CustodyClient:
        """Return the client; the Airflow connection is read at each call, by one thread at a time."""
        with self._lock:
            return self._hook.get_conn()


# --- events ------------------------------------------------------------------------------------------------


def event(status: str, **facts: Any) -> TriggerEvent:
    """Return an event of a trigger: plain JSON with a status."""
    return TriggerEvent({"status": status, **facts})  # type: ignore[no-untyped-call]


def error_event(error: CustodyError) -> TriggerEvent:
    """Return the event that ends a wait with an error."""
    return event("error", error=error.to_json())


def wrap_unexpected(exception: BaseException, operation: str) -> CustodyError:
    """Return an error of ours for one that is not, say of a secrets backend: a retry of the task may help."""
    words = exception.text if isinstance(exception, CustodyError) else exception
    return CustodyError(f"{type(exception).__name__}: {words}", operation=operation, code="unexpected", retryable=True)


# --- how often to poll ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PollSchedule:
    """
    The schedule of a poll.

    :param interval: seconds between two polls when all is well.
    :param exponential_backoff: whether the interval doubles with each poll. Default False.
    :param max_wait: maximum interval in seconds; None (default): no limit.
    :param deadline: Unix time that the last poll should not be later than; None (default): no limit.
    """

    interval: float
    exponential_backoff: bool = False
    max_wait: float | None = None
    deadline: float | None = None

    def next_delay(self, polls: int, failures: int, error: CustodyError | None) -> float:
        """
        Return the seconds until the next poll.

        :param polls: the number of polls so far.
        :param failures: number of the last polls in a row that brought nothing but errors.
        :param error: an error that the last one brought; None if there was none.
        """
        seconds = self.interval
        if self.exponential_backoff:
            seconds = self.interval * 2.0 ** min(polls - 1, 30)
            seconds = min(seconds, self.max_wait or float("inf"))
            if self.deadline:
                seconds = max(self.interval, min(seconds, self.deadline - time.time()))
        if failures > 1:
            backoff = self.interval * 2.0 ** min(failures - 1, 30)
            # Credentials that are refused again and again may lock the account.
            limit = MAX_RETRY_AFTER if isinstance(error, CustodyAuthenticationError) else MAX_BACKOFF
            seconds = max(seconds, min(backoff, max(self.interval, limit)))
        if error is not None and error.retry_after:
            seconds = max(seconds, min(error.retry_after, MAX_RETRY_AFTER))
        return seconds


# --- the shared poll -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PollResult(Generic[T]):
    """
    The result of one poll for one subject.

    :param value: the fetched value; None if there is none.
    :param error: the error of the poll, or of a part of it; None: there was none.
    """

    value: T | None = None
    error: CustodyError | None = None


#: Fetches the state of several subjects, in a thread. Its error is the result of each of them; a subject that it
#: leaves out has none.
Fetch = Callable[["CustodyClient", Sequence[S]], Mapping[S, PollResult[T]]]


class SharedPoll(Generic[S, T]):
    """
    One poll for everything that triggers of this process wait for at the same place.

    It runs while somebody subscribes, with the same client as in every other mode, in a bounded pool of threads. If
    it dies, all who subscribe get an error, and whoever comes next gets a new one.

    :param key: names the poll: triggers with the same key share it.
    :param custody_conn_id: id of the Airflow connection; it is read again at each poll.
    :param fetch: fetches the state of all subjects that somebody waits for.
    :param schedule: the schedule.
    """

    _running: ClassVar[dict[tuple[asyncio.AbstractEventLoop, Hashable], SharedPoll[Any, Any]]] = {}

    def __init__(self, key: Hashable, custody_conn_id: str, fetch: Fetch[S, T], schedule: PollSchedule) -> None:
        self._key = (asyncio.get_running_loop(), key)
        self._custody_conn_id = custody_conn_id
        self._fetch = fetch
        self._schedule = schedule
        # The results for each subscriber; None: there will be no more.
        self._subscribers: dict[S, set[asyncio.Queue[PollResult[T] | None]]] = {}
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def running(cls) -> int:
        """Return how many polls are running in this process."""
        return len(cls._running)

    @contextmanager
    def subscribe(self, subject: S) -> Iterator[AsyncIterator[PollResult[T]]]:
        """
        Join the running poll of the same key, or start this one; yields the results for one subject.

        They end with an error only if the poll dies; then subscribe to a new one.
        """
        for key in [each for each in self._running if each[0].is_closed()]:
            # Its event loop ended without cleaning up.
            del self._running[key]
        poll: SharedPoll[S, T] = self._running.setdefault(self._key, self)
        queue = poll._add(subject)
        try:
            yield _results(queue)
        finally:
            poll._remove(subject, queue)

    def _add(self, subject: S) -> asyncio.Queue[PollResult[T] | None]:
        queue: asyncio.Queue[PollResult[T] | None] = asyncio.Queue()
        self._subscribers.setdefault(subject, set()).add(queue)
        self._joined.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)
        return queue

    def _remove(self, subject: S, queue: asyncio.Queue[PollResult[T] | None]) -> None:
        queues = self._subscribers.get(subject, set())
        queues.discard(queue)
        if not queues:
            self._subscribers.pop(subject, None)
        if not self._subscribers and self._task is not None:
            self._task.cancel()
            self._forget()

    def _forget(self) -> None:
        if self._running.get(self._key) is self:
            del self._running[self._key]

    async def _run(self) -> None:
        polls = failures = 0
        with _Connection.shared(self._custody_conn_id) as connection:
            await asyncio.sleep(_GATHERING_DELAY)
            while True:
                results = await self._poll(connection, failing=failures > 0)
                errors = [result.error for result in results if result.error is not None]
                polls += 1
                # The trouble of one subject is no reason to ask less often for the others.
                failures = failures + 1 if results and all(each.value is None for each in results) else 0
                # The longest pause asked for counts.
                error = max(errors, key=lambda each: each.retry_after or 0.0, default=None)
                delay = self._schedule.next_delay(polls, failures, error)
                asked_to_wait = error is not None and error.retry_after
                first = delay if asked_to_wait else min(delay, self._schedule.interval)
                await asyncio.sleep(first)
                # A new subscriber does not wait for the end of a back-off that began before.
                with suppress(asyncio.TimeoutError):
                    await within(delay - first, self._joined.wait())

    async def _poll(self, connection: _Connection, failing: bool) -> list[PollResult[T]]:
        """Poll once, hand out the results, and return them."""
        self._joined.clear()
        asked = {subject: list(queues) for subject, queues in self._subscribers.items()}
        # As asyncio.to_thread does it, but in a pool that nothing else uses.
        run = contextvars.copy_context().run
        pool = _pool(self._custody_conn_id, failing)
        found = await asyncio.get_running_loop().run_in_executor(pool, run, self._fetch_all, connection, list(asked))
        for subject, queues in asked.items():
            for queue in queues:
                queue.put_nowait(found[subject])
        return list(found.values())

    def _fetch_all(self, connection: _Connection, subjects: Sequence[S]) -> dict[S, PollResult[T]]:
        """Return a result for each subject, in a thread."""
        found: Mapping[S, PollResult[T]] = {}
        try:
            found = self._fetch(connection.client(), subjects)
            error = CustodyError("the poll brought no result", code="unexpected", retryable=True)
        except CustodyError as raised:
            error = raised
        except Exception as exception:
            error = wrap_unexpected(exception, "poll")
        return {subject: found.get(subject) or PollResult(error=error) for subject in subjects}

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell all who wait that the poll has died, unless the last of them has just left."""
        self._forget()
        if task.cancelled() and not self._subscribers:
            return
        exception = None if task.cancelled() else task.exception()
        error = wrap_unexpected(exception or asyncio.CancelledError("the poll was cancelled"), "poll")
        for queues in self._subscribers.values():
            for queue in queues:
                queue.put_nowait(PollResult(error=error))
                queue.put_nowait(None)


async def _results(queue: asyncio.Queue[PollResult[T] | None]) -> AsyncIterator[PollResult[T]]:
    while (result := await queue.get()) is not None:
        yield result


async def poll_until(
    results: AsyncIterator[PollResult[T]],
    judge: Callable[[T], TriggerEvent | str],
    *,
    deadline: float | None,
    interval: float,
    log: Any,
    on_error: Callable[[], object] | None = None,
) -> TriggerEvent:
    """
    Wait until a poll's result ends the wait.

    A transient error is logged and waited out; any other ends the wait.

    :param results: the results, one after the other.
    :param judge: returns the event that a value ends the wait with, or in words why it does not.
    :param deadline: Unix time after which the wait times out; None: no limit.
    :param interval: seconds between two polls.
    :param log: the trigger's log.
    :param on_error: called when a poll brings a transient error instead of a value. Default None.
    :return: the event: what ``judge`` returned, ``timeout`` or ``error``.
    """
    last = "the service has not been polled yet"
    while True:
        # As in poke mode, the first result after the deadline still counts; should none come, the wait ends.
        patience = None if deadline is None else max(0.0, deadline - time.time()) + interval + 1.0
        try:
            result = await within(patience, anext(results))
        except asyncio.TimeoutError:
            return event("timeout", message=last)
        except StopAsyncIteration:
            return error_event(CustodyError("the poll has ended", operation="wait", code="unexpected", retryable=True))
        if result.value is None:
            error = result.error or CustodyError("the poll brought no result", code="unexpected", retryable=True)
            if not error.transient:
                return error_event(error)
            last = error.text
            if on_error is not None:
                on_error()
        else:
            try:
                judged = judge(result.value)
            except Exception as exception:
                return error_event(wrap_unexpected(exception, "wait"))
            if isinstance(judged, TriggerEvent):
                return judged
            last = judged
        log.info("Not yet: %s", last)
        if deadline is not None and time.time() > deadline:
            return event("timeout", message=last)
