"""The base of all triggers: shared polls, waits and events."""

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

# Maximum seconds until the next poll while the service fails, unless the interval is longer.
MAX_BACKOFF = 300.0
# Maximum seconds until the next poll after refused credentials, or if the service requests a delay.
MAX_POLL_DELAY = 3600.0
#: Maximum number of concurrent polls of one connection, not counting stuck polls.
MAX_CONCURRENT_POLLS = 8
# Seconds until a poll counts as stuck, and its connection gets a new thread pool: twice the client's default timeout.
_STUCK_AFTER = 60.0
# After its deadline, a wait continues for one interval and this many more seconds, so that a running poll can end.
_PATIENCE = 10.0
# Seconds before the first poll, so that triggers that start together share the poll.
_GATHERING_DELAY = 0.1


_pools: dict[str, ThreadPoolExecutor] = {}


async def within(seconds: float | None, awaitable: Awaitable[T]) -> T:
    """
    Return an awaitable's result, or cancel the awaitable after a time limit.

    This replaces ``asyncio.wait_for``, which before Python 3.12 swallows a cancellation that arrives together with the
    result. Airflow cancels a trigger only once, so the trigger would run forever.

    Do not pass an awaitable that swallows its cancellation, because this function waits until the awaitable ends. A
    thread (``asyncio.to_thread``) cannot be cancelled: it continues, and its result is dropped.

    :param seconds: time limit; None: no limit.
    :raises asyncio.TimeoutError: if the time limit is exceeded.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            # Retrieve the exception, because asyncio would otherwise log a warning after a cancellation of this
            # function.
            task.exception()
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


async def in_thread(custody_conn_id: str, function: Callable[..., T], *arguments: Any) -> T:
    """
    Run a function in a connection's thread pool, and return its result.

    This is like ``asyncio.to_thread``, but a function that hangs blocks neither the event loop's threads nor those of
    another connection. After a minute, the function counts as stuck, and the connection gets a new pool.
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
    A client that all polls of one Airflow connection share.

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
        """
        Share the connection while the ``with`` block runs.

        The connection is closed when the last of its blocks ends.
        """
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
        """
        Return the client.

        Each call reads the Airflow connection again, so a change takes effect. Only one thread reads it at a time.
        """
        with self._lock:
            return self._hook.get_conn()


async def ask_store(store: Any, what: str, *arguments: Any) -> Any:
    """
    Call a method of an asset's state store, in a triggerer.

    :param store: the store.
    :param what: the method, ``get`` or ``set``.
    :param arguments: its arguments.
    :raises asyncio.TimeoutError: if the store does not respond within 30 seconds.
    """
    # Airflow before 3.3.2 has no asynchronous methods.
    method = getattr(store, f"a{what}", None)
    call = asyncio.to_thread(getattr(store, what), *arguments) if method is None else method(*arguments)
    return await within(30.0, call)


# --- arguments and events ------------------------------------------------------------------------------------


def serialized(trigger: BaseTrigger) -> tuple[str, dict[str, Any]]:
    """
    Return a trigger's class path and arguments.

    The trigger must have a field with the name of each parameter.
    """
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
    """
    Return an exception as a :class:`CustodyError`.

    A :class:`CustodyError` is returned unchanged. Any other exception becomes a retryable one.
    """
    if isinstance(exception, CustodyError):
        return exception
    text = f"{type(exception).__name__}: {sanitize(exception, 500)}"
    return CustodyError(text, operation=operation, code="unexpected", retryable=True)


# --- the shared poll -----------------------------------------------------------------------------------------


class Wait(Protocol[T_co]):
    """A trigger's wait, updated after each poll."""

    def update(self, found: Any, /) -> T_co:
        """
        Return the state after a poll.

        Called in the polling thread. Raises a :class:`CustodyError` on failure.
        """


@dataclass(eq=False)
class SharedPoll(Generic[T]):
    """
    A poll that triggers of this process share.

    The poll runs while it has subscribers. It runs in a bounded pool of threads, and uses the same kind of client as a
    sensor in a worker. If the poll dies, all subscribers get an error, and the next subscriber starts a new poll.

    :param key: identifies the poll: triggers with the same key share it.
    :param custody_conn_id: id of the Airflow connection; it is read again at each poll.
    :param fetch: fetches the data for all waits, in a thread. If it fails, its error is the result of every wait. An
        error of a single wait is the result of that wait only.
    :param interval: seconds between two successful polls.
    """

    _running: ClassVar[dict[Hashable, SharedPoll[Any]]] = {}

    key: Hashable
    custody_conn_id: str
    fetch: Callable[[CustodyClient, Sequence[Any]], object]
    interval: float
    # A queue of results for each subscriber. A None in a queue means that the poll has ended.
    _queues: dict[Wait[T], asyncio.Queue[T | CustodyError | None]] = field(default_factory=dict)
    _joined: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, wait: Wait[T]) -> Iterator[asyncio.Queue[T | CustodyError | None]]:
        """
        Join the running poll with the same key, or start this poll.

        Yields the queue of results for one wait. If the poll dies, the queue ends with an error and None, and the
        caller must subscribe to a new poll.
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
                    # Poll less often only if all waits fail.
                    failures = failures + 1 if found and len(errors) == len(found) else 0
                    delay = next_delay(self.interval, failures, errors)
                    # A delay that the service requested is never shortened.
                    is_requested = any(each.retry_after for each in errors)
                    at_least = delay if is_requested else min(delay, self.interval)
                    await asyncio.sleep(at_least)
                    # A new subscriber ends a delay that is due to earlier failures.
                    with suppress(asyncio.TimeoutError):
                        await within(delay - at_least, self._joined.wait())
        except Exception as exception:
            for queue in self._queues.values():
                queue.put_nowait(as_custody_error(exception, "poll"))
                queue.put_nowait(None)
        finally:
            self._forget()

    def _work(self, connection: _Connection, waits: Sequence[Wait[T]]) -> dict[Wait[T], T | CustodyError]:
        """Poll once, in a thread, and return a result for each wait."""
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

    :param interval: seconds between two successful polls.
    :param failures: number of polls in a row, up to the last one, that returned only errors.
    :param errors: the errors of the last poll. The longest delay that they request is used.
    """
    error = max(errors, key=_retry_after, default=None)
    seconds = interval
    # With an interval, the first failure causes no further delay. Without an interval, each failure causes a delay.
    if failures > (1 if interval else 0):
        # Wait longer after refused credentials, because repeated sign-ins may lock the account.
        limit = MAX_POLL_DELAY if isinstance(error, CustodyAuthenticationError) else MAX_BACKOFF
        seconds = max(interval, growing_delay(failures - 1, first=interval or 1.0, maximum=limit))
    return seconds if error is None else max(seconds, min(_retry_after(error), MAX_POLL_DELAY))


def _retry_after(error: CustodyError) -> float:
    return error.retry_after or 0.0


# --- a trigger's wait ----------------------------------------------------------------------------------------


def check_timing(custody_conn_id: object, poke_interval: object, deadline: object) -> None:
    """
    Check the arguments that all waiting triggers have.

    Call this when the wait begins, so that errors can become events. An exception in the constructor cannot.
    """
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

    A transient error is logged, and the wait continues; any other error ends the wait. If the wait has no deadline, a
    host name that does not exist at the first poll also ends it. A wait with a deadline comes from a sensor that has
    already polled, so there the name may exist again later.

    :param poll: the poll; other triggers may share it.
    :param wait: the wait.
    :param status: status of the event for a successful wait.
    :param deadline: Unix time after which the wait times out; None: no limit.
    :param interval: seconds between two polls.
    :param log: the trigger's log.
    :return: the event: ``status``, ``timeout`` or ``error``.
    """
    polls = PollHistory(is_first=deadline is None)
    with poll.subscribe(wait) as results:
        while True:
            # As in poke mode, the first result after the deadline still counts. If it does not come, the wait ends.
            patience = None if deadline is None else max(0.0, deadline - time.time()) + interval + _PATIENCE
            try:
                result = await within(patience, results.get())
            except asyncio.TimeoutError:
                return event("timeout", message=polls.timed_out)
            try:
                state = None if result is None else polls.settle(result, log)
            except CustodyError as error:
                return error_event(error)
            if state is not None:
                return event(status, result=dict(state.result), message=state.summary)
            if deadline is not None and time.time() > deadline:
                return event("timeout", message=polls.timed_out)
