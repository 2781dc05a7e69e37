"""
Readings of services. Few reads run at a time, and no page waits long for them.

While a service is read or does not respond, its latest reading is shown.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.errors import CustodyError
from airflow_custody.plugin.page_hook import ConnectionKey, PageHook
from airflow_custody.plugin.texts import UNEXPECTED, describe_failure, duration

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

T = TypeVar("T")

log = logging.getLogger(__name__)

#: How long, in seconds, a reading is shown before it must be refreshed.
LIFETIME = 30.0
#: How long, in seconds, a page waits for new readings.
WAIT = 1.0
#: Maximum number of reads that run at a time, not counting hung ones. For each connection, at most one of them runs.
MAX_READS = 4
#: After this many seconds a read counts as hung, and its slot is given to another read. An overview has six sections.
#: If the service does not respond, all of them time out earlier than this.
HUNG_AFTER = 90.0
#: Maximum number of threads that read one connection, hung ones included.
MAX_THREADS_OF_ONE = 2
#: Maximum number of reads of one connection that are queued.
MAX_QUEUED_OF_ONE = 20
#: Maximum number of readings kept, of all connections.
MAX_KEPT = 500
#: How long a reading is shown although later reads fail.
MAX_AGE = timedelta(hours=1)


class NothingReadError(Exception):
    """Raised when no part of a service could be read; its text explains why, and is safe to show."""


@dataclass(frozen=True)
class Query(Generic[T]):
    """
    What to read from a service.

    :param connection: the connection.
    :param subject: the object to read, such as ``("request", "42")``.
    :param read: reads the object with a client of the connection.
    """

    connection: ConnectionKey
    subject: Hashable
    read: Callable[[CustodyClient], T] = field(compare=False)


@dataclass(frozen=True)
class Reading(Generic[T]):
    """
    The latest reading of a service.

    :param value: the value; None if nothing was read.
    :param problem: why the last read failed, with advice; the value is then from an earlier read. Empty if the last
        read succeeded, or if there was none.
    :param service: the base URL of the service; empty if it is unknown.
    :param read_at: the time of the read that returned the value; None if there is no value.
    :param is_awaited: whether this reading is outdated, and a newer one is still missing.
    """

    value: T | None = None
    problem: str = ""
    service: str = ""
    read_at: datetime | None = None
    is_awaited: bool = False

    @property
    def is_first_awaited(self) -> bool:
        """Whether nothing has been read yet, and the first reading is awaited."""
        return self.is_awaited and self.read_at is None and not self.problem

    def describe_problem(self, now: datetime) -> str:
        """Return why the last read failed, and the age of the value; empty if it succeeded."""
        if self.problem and self.value is not None:
            return f"{self.problem} {self._describe_age(now)}"
        return self.problem

    def describe_wait(self, now: datetime) -> str:
        """Return a text about the missing response, with the value's age."""
        if self.value is None:
            return "The service has not responded yet. This page loads itself again."
        return f"The service has not responded yet. {self._describe_age(now)}"

    def _describe_age(self, now: datetime) -> str:
        return f"This data is {duration((now - (self.read_at or now)).total_seconds())} old."


class _Latest(NamedTuple):
    """The latest reading, and its completion time on the clock of :class:`Readings`."""

    reading: Reading[Any]
    completed_at: float


@dataclass(eq=False)
class _Read:
    """A read that is queued or, once started, in progress."""

    query: Query[Any]
    started_at: float | None = None
    done: Future[None] = field(default_factory=Future)


class Readings:
    """
    The latest readings of all services, and the threads that make them.

    The threads are daemons, so a service that hangs does not keep the API server from ending.

    :param clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queued: list[_Read] = []
        self._running: list[_Read] = []
        self._latest: dict[Query[Any], _Latest] = {}
        # Hooks whose password was refused, by connection. Keep them, because a new hook would send the password again.
        self._refused_hooks: dict[ConnectionKey, PageHook] = {}

    def get(self, *queries: Query[T]) -> list[Reading[T]]:
        """Return a reading for each query. Wait no longer than :data:`WAIT` for new ones."""
        reads = [self._find_or_queue(query) for query in queries]
        wait([read.done for read in reads if read is not None], WAIT)
        with self._lock:
            return [self._reading_of(query) for query in queries]

    def _find_or_queue(self, query: Query[Any]) -> _Read | None:
        """Return the read that answers a query; None if its latest reading is current, or the queue is full."""
        with self._lock:
            read = self._find(query)
            if read is None and not self._is_current(query) and self._has_room(query.connection):
                read = _Read(query)
                self._queued.append(read)
            self._start_queued()
            return read

    def _find(self, query: Query[Any]) -> _Read | None:
        for read in (*self._queued, *self._active()):
            if read.query == query:
                return read
        return None

    def _has_room(self, connection: ConnectionKey) -> bool:
        return sum(read.query.connection == connection for read in self._queued) < MAX_QUEUED_OF_ONE

    def _is_current(self, query: Query[Any]) -> bool:
        return query in self._latest and self._clock() - self._latest[query].completed_at < LIFETIME

    def _active(self) -> list[_Read]:
        """Return the running reads that have not hung."""
        return [read for read in self._running if not self._has_hung(read)]

    def _has_hung(self, read: _Read) -> bool:
        return read.started_at is not None and self._clock() - read.started_at >= HUNG_AFTER

    def _reading_of(self, query: Query[Any]) -> Reading[Any]:
        reading = self._latest[query].reading if query in self._latest else Reading()
        return replace(reading, is_awaited=not self._is_current(query))

    def _start_queued(self) -> None:
        """Start the queued reads that may start, in the order of the queue."""
        for read in list(self._queued):
            active = self._active()
            if len(active) >= MAX_READS:
                return
            own = [other for other in self._running if other.query.connection == read.query.connection]
            if len(own) >= MAX_THREADS_OF_ONE or any(other in active for other in own):
                continue
            threading.Thread(target=self._run, args=(read,), name="custody-page", daemon=True).start()
            read.started_at = self._clock()
            self._queued.remove(read)
            self._running.append(read)

    def _run(self, read: _Read) -> None:
        """Carry out a read, and keep its reading."""
        reading = replace(self._read(read.query), read_at=datetime.now(timezone.utc))
        with self._lock:
            self._running.remove(read)
            # The result of a hung read may be older than the latest reading.
            if not self._has_hung(read):
                self._keep(read.query, reading)
            self._start_queued()
        read.done.set_result(None)

    def _keep(self, query: Query[Any], reading: Reading[Any]) -> None:
        earlier = self._latest.pop(query).reading if query in self._latest else Reading()
        if reading.problem and _may_still_be_shown(earlier):
            reading = replace(earlier, problem=reading.problem)
        self._latest[query] = _Latest(reading, self._clock())
        for oldest in list(self._latest)[:-MAX_KEPT]:
            del self._latest[oldest]

    def _read(self, query: Query[T]) -> Reading[T]:
        """Look up the connection and read its service. A failure is returned as a reading, too."""
        connection = query.connection
        service = ""
        hook = self._refused_hooks.pop(connection, None) or PageHook(connection)
        try:
            client = hook.get_conn()
            service = client.settings.base_url
            return Reading(query.read(client), service=service)
        except NothingReadError as error:
            return Reading(problem=str(error), service=service)
        except CustodyError as error:
            return Reading(problem=describe_failure(error), service=service)
        except BaseException:
            # A library written in another language may crash with a BaseException.
            log.exception("Could not read the custody service of connection %r", connection.conn_id)
            return Reading(problem=UNEXPECTED, service=service)
        finally:
            if hook.is_refused:
                self._refused_hooks[connection] = hook
            else:
                hook.close()


def _may_still_be_shown(reading: Reading[Any]) -> bool:
    if reading.value is None or reading.read_at is None:
        return False
    return datetime.now(timezone.utc) - reading.read_at < MAX_AGE
