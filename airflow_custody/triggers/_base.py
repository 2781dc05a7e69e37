"""The base of all triggers: one supervised poll for all that wait for the same thing, and the end of a wait."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_custody.client.arguments import check_seconds, check_text, check_time
from airflow_custody.client.delays import growing_delay
from airflow_custody.client.errors import CustodyAuthenticationError, CustodyError
from airflow_custody.client.text import sanitize
from airflow_custody.client.wait_state import PollHistory
from airflow_custody.hooks.custody import CustodyHook

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.wait_state import WaitState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Maximum delay of a poll in seconds while the service fails (or the interval, if that is longer).
MAX_BACKOFF = 300.0
# Maximum delay of a poll in seconds after refused credentials, or if the service asks for a delay.
MAX_POLL_DELAY = 3600.0
#: Maximum number of concurrent polls of one connection, but for those that are stuck.
MAX_CONCURRENT_POLLS = 8
# After so many seconds a poll is stuck, and gives its place to others: twice the client's usual time-out.
_STUCK_AFTER = 60.0
# A wait goes on for so many seconds after its deadline, and for an interval, if a poll is on its way.
_PATIENCE = 10.0
# Triggers that start together are served by one poll.
_GATHERING_DELAY = 0.1


_pools: dict[str, ThreadPoolExecutor] = {}


async def within(seconds: float | None, awaitable: Awaitable[T]) -> T:
    """
    Return the result of an awaitable, or cancel it after some seconds.

    Before Python 3.12 ``asyncio.wait_for`` swallows a cancellation that arrives together with the result. Airflow
    cancels a trigger once: it would go on for good.

    An awaitable that swallows its cancellation is waited for, however long it takes: give it none that does. A thread
    (``asyncio.to_thread``) cannot be ended: it goes on, and what it returns is dropped.

    :param seconds: time limit; None: no limit.
    :raises asyncio.TimeoutError: if it takes longer.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            # Where this is cancelled nobody asks for it, and asyncio would complain.
            task.exception()
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


async def in_thread(custody_conn_id: str, function: Callable[..., T], *arguments: Any) -> T:
    """
    Return a function's result, in one of a connection's threads.

    As ``asyncio.to_thread`` does it, but what hangs occupies neither the event loop's own threads nor those of another
    connection, and gives its place to others when it is stuck.
    """
    if custody_conn_id not in _pools:
        _pools[custody_conn_id] = ThreadPoolExecutor(MAX_CONCURRENT_POLLS, thread_name_prefix="custody-poll")
    pool, run = _pools[custody_conn_id], contextvars.copy_context().run
    work = asyncio.get_running_loop().run_in_executor(pool, run, function, *arguments)
    await asyncio.wait({work}, timeout=_STUCK_AFTER)
    if not work.done() and _pools.get(custody_conn_id) is pool:
        del _pools[custody_conn_id]
    return await work


class _Connection:
    """
    A client that all polls of one Airflow connection share: they sign in once.

    :param custody_conn_id: id of the connection.
    """

    _open: ClassVar[dict[str, _Connection]] = {}

    def __init__(self, custody_conn_id: str) -> None:
        self._hook = CustodyHook(custody_conn_id)
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


async def ask_store(store: Any, what: str, *arguments: Any) -> Any:
    """
    Call a method of an asset's state store, in a triggerer.

    :param store: the store.
    :param what: the method, ``get`` or ``set``.
    :param arguments: its arguments.
    """
    # The asynchronous methods came with Airflow 3.3.2.
    method = getattr(store, f"a{what}", None)
    return await (asyncio.to_thread(getattr(store, what), *arguments) if method is None else method(*arguments))


# --- arguments and events ------------------------------------------------------------------------------------


def serialized(trigger: BaseTrigger) -> tuple[str, dict[str, Any]]:
    """Return the class path and the arguments of a trigger, whose fields have the names of its parameters."""
    made = type(trigger)
    arguments = {name: getattr(trigger, name) for name in inspect.signature(made).parameters}
    return f"{made.__module__}.{made.__qualname__}", arguments


def event(status: str, **facts: Any) -> TriggerEvent:
    """Return an event of a trigger: plain JSON with a status."""
    return TriggerEvent({"status": status, **facts})  # type: ignore[no-untyped-call]


def error_event(error: CustodyError) -> TriggerEvent:
    """Return the event that ends a wait with an error."""
    return event("error", error=error.to_json())


def as_custody_error(exception: Exception, operation: str) -> CustodyError:
    """Return the exception if it is an error of ours, or else one for it; a retry of the task may help then."""
    if isinstance(exception, CustodyError):
        return exception
    text = f"{type(exception).__name__}: {sanitize(exception, 500)}"
    return CustodyError(text, operation=operation, code="unexpected", retryable=True)


# --- the shared poll -----------------------------------------------------------------------------------------


class Wait(Protocol[T_co]):
    """A subject of a poll, which learns from each: a trigger's wait."""

    def update(self, found: Any, /) -> T_co:
        """Return the state after a poll, in the thread that polls; raises the :class:`CustodyError` of a failure."""


@dataclass(eq=False)
class SharedPoll(Generic[T]):
    """
    One poll for everything that triggers of this process wait for at the same place.

    It runs while somebody subscribes, with the same client as in every other mode, in a bounded pool of threads. If
    it dies, all who subscribe get an error, and whoever comes next gets a new one.

    :param key: names the poll: triggers with the same key share it.
    :param custody_conn_id: id of the Airflow connection; it is read again at each poll.
    :param fetch: fetches, in a thread, what all waits learn from. Its error is the result of each of them; what one of
        them raises is its own.
    :param interval: seconds between two polls when all is well.
    """

    _running: ClassVar[dict[Hashable, SharedPoll[Any]]] = {}

    key: Hashable
    custody_conn_id: str
    fetch: Callable[[CustodyClient, Sequence[Any]], object]
    interval: float
    # The results for each subscriber; None: there will be no more.
    _queues: dict[Wait[T], asyncio.Queue[T | CustodyError | None]] = field(default_factory=dict)
    _joined: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, wait: Wait[T]) -> Iterator[asyncio.Queue[T | CustodyError | None]]:
        """
        Join the running poll of the same key, or start this one; yields the queue of the results for one wait.

        If the poll dies, they end with an error and None; then subscribe to a new one.
        """
        poll: SharedPoll[T] = self._running.setdefault(self.key, self)
        queue = poll._queues[wait] = asyncio.Queue()
        poll._joined.set()
        if poll._task is None:
            poll._task = asyncio.create_task(poll._run())
        try:
            yield queue
        finally:
            del poll._queues[wait]
            if not poll._queues:
                poll._task.cancel()
                poll._forget()

    def _forget(self) -> None:
        if self._running.get(self.key) is self:
            del self._running[self.key]

    async def _run(self) -> None:
        failures = 0
        try:
            with _Connection.shared(self.custody_conn_id) as connection:
                await asyncio.sleep(_GATHERING_DELAY)
                while True:
                    self._joined.clear()
                    found = await in_thread(self.custody_conn_id, self._work, connection, list(self._queues))
                    for wait, result in found.items():
                        if queue := self._queues.get(wait):
                            queue.put_nowait(result)
                    errors = [each for each in found.values() if isinstance(each, CustodyError)]
                    # The trouble of one wait is no reason to ask less often for the others.
                    failures = failures + 1 if found and len(errors) == len(found) else 0
                    delay = next_delay(self.interval, failures, errors)
                    # Nothing shortens a delay that the service asked for.
                    is_asked_for = any(each.retry_after for each in errors)
                    at_least = delay if is_asked_for else min(delay, self.interval)
                    await asyncio.sleep(at_least)
                    # A new subscriber does not wait for the end of a back-off that began before.
                    with suppress(asyncio.TimeoutError):
                        await within(delay - at_least, self._joined.wait())
        except Exception as exception:
            for queue in self._queues.values():
                queue.put_nowait(as_custody_error(exception, "poll"))
                queue.put_nowait(None)
        finally:
            self._forget()

    def _work(self, connection: _Connection, waits: Sequence[Wait[T]]) -> dict[Wait[T], T | CustodyError]:
        """Return a result for each wait, in a thread."""
        results: dict[Wait[T], T | CustodyError] = {}
        try:
            found = self.fetch(connection.client(), waits)
        except Exception as exception:
            return dict.fromkeys(waits, as_custody_error(exception, "poll"))
        for wait in waits:
            try:
                results[wait] = wait.update(found)
            except Exception as exception:
                results[wait] = as_custody_error(exception, "wait")
        return results


def next_delay(interval: float, failures: int, errors: Collection[CustodyError]) -> float:
    """
    Return the seconds until the next poll.

    :param interval: seconds between two polls when all is well.
    :param failures: number of the last polls in a row that brought nothing but errors.
    :param errors: the errors of the last poll. The longest delay that one of them asks for counts.
    """
    error = max(errors, key=_retry_after, default=None)
    seconds = interval
    if failures > 1:
        # Credentials that are refused again and again may lock the account.
        limit = MAX_POLL_DELAY if isinstance(error, CustodyAuthenticationError) else MAX_BACKOFF
        seconds = max(interval, growing_delay(failures - 1, first=interval, maximum=limit))
    return seconds if error is None else max(seconds, min(_retry_after(error), MAX_POLL_DELAY))


def _retry_after(error: CustodyError) -> float:
    return error.retry_after or 0.0


# --- a trigger's wait ----------------------------------------------------------------------------------------


def check_timing(custody_conn_id: object, poke_interval: object, deadline: object) -> None:
    """Check what all triggers are given, where the wait begins: errors are events."""
    check_text("custody_conn_id", custody_conn_id)
    check_seconds("poke_interval", poke_interval)
    if deadline is not None:
        check_time("deadline", deadline)


async def wait_until_done(
    poll: SharedPoll[WaitState],
    wait: Wait[WaitState],
    status: str,
    *,
    deadline: float | None,
    interval: float,
    log: Any,
) -> TriggerEvent:
    """
    Poll until a wait ends.

    A transient error is logged and waited out; any other ends the wait. So does a host that does not exist, at the
    first poll of a wait that has no deadline: one that a sensor began has one, and the sensor has polled before.

    :param poll: the poll, which others may share.
    :param wait: the wait.
    :param status: status of the event when it is done.
    :param deadline: Unix time after which the wait times out; None: no limit.
    :param interval: seconds between two polls.
    :param log: the trigger's log.
    :return: the event: ``status``, ``timeout`` or ``error``.
    """
    polls = PollHistory(is_first=deadline is None)
    with poll.subscribe(wait) as results:
        while True:
            # As in poke mode, the first result after the deadline still counts; if none comes, the wait ends.
            patience = None if deadline is None else max(0.0, deadline - time.time()) + interval + _PATIENCE
            try:
                result = await within(patience, results.get())
            except asyncio.TimeoutError:
                return event("timeout", message=polls.timed_out)
            if result is not None and (end := _end_of_wait(result, polls, status, log)):
                return end
            if deadline is not None and time.time() > deadline:
                return event("timeout", message=polls.timed_out)


def _end_of_wait(result: WaitState | CustodyError, polls: PollHistory, status: str, log: Any) -> TriggerEvent | None:
    """Return the event that ends a wait; None if it goes on."""
    if isinstance(result, CustodyError):
        if polls.ends(result):
            return error_event(result)
        log.warning("%s", polls.note(result))
        return None
    for warning in result.warnings:
        log.warning("%s.", warning)
    if result.error is not None:
        return error_event(result.error)
    if result.is_done:
        return event(status, result=dict(result.result), message=result.summary)
    log.info("%s", polls.note(result))
    return None
