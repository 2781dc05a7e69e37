"""
Readings of services. Few reads run at a time, and no page waits long for them.

While a service is being read or does not respond, pages show its latest reading. The client's own time-outs end its
calls to the service. A read that hangs elsewhere, such as in a secrets backend, is abandoned.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyNotFoundError
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import describe_duration
from airflow_custody.plugin.page_hook import ConnectionKey, PageHook

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

T = TypeVar("T")

log = logging.getLogger(__name__)

#: How long, in seconds, a reading is shown before it must be refreshed.
LIFETIME = 30.0
#: How long, in seconds, a page waits for new readings.
WAIT = 1.0
#: Maximum number of reads that run at a time. For each connection, at most one of them runs or waits.
MAX_READS = 4
#: How long, in seconds, a read may take. After that, its slot and its connection are free again.
MAX_DURATION = 600.0
#: Maximum number of readings kept, of all connections.
MAX_KEPT = 500
#: If a newer reading is awaited, a reading that is older than this no longer counts as proof of a healthy service.
OLD_AFTER = timedelta(minutes=1)
#: How long a reading is shown although later reads fail.
MAX_AGE = timedelta(hours=1)


class NothingReadError(Exception):
    """Raised when no part of a service could be read; its text explains why, and is safe to show."""


@dataclass(frozen=True)
class Query(Generic[T]):
    """
    A description of what to read from a service.

    :param connection: the connection to the service.
    :param subject: a key of the object to read, such as ``("request", "42")``. Queries for the same connection and
        subject share a reading.
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

    def is_overdue(self, now: datetime) -> bool:
        """Return whether a reading is awaited, there is no reading from the last minute, and no problem is known."""
        is_old = self.read_at is None or now - self.read_at >= OLD_AFTER
        return self.is_awaited and is_old and not self.problem

    def describe_problem(self, now: datetime) -> str:
        """Return why the last read failed, and the age of the value; empty if the read succeeded."""
        if self.problem and self.value is not None:
            return f"{self.problem} {self._describe_age(now)}"
        return self.problem

    def describe_wait(self, now: datetime) -> str:
        """Return a text that says that the response is awaited, with the age of the value that is shown meanwhile."""
        if self.value is None:
            return "The service has not responded yet."
        return f"The service has not responded yet. {self._describe_age(now)}"

    def _describe_age(self, now: datetime) -> str:
        return f"This data is {describe_duration((now - (self.read_at or now)).total_seconds())} old."


class _Latest(NamedTuple):
    """The latest reading for a query, and its completion time on the clock of :class:`Readings`."""

    reading: Reading[Any]
    completed_at: float


class Readings:
    """
    The latest readings of all services, and the threads that read them.

    The threads are daemons, so that a service that does not respond cannot keep the API server from ending. A thread
    pool is not used, because Python waits for the threads of a pool before it ends.

    :param clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MAX_READS)
        self._reads: dict[ConnectionKey, Future[None]] = {}
        self._latest: dict[Query[Any], _Latest] = {}
        # Hooks whose password was refused, by connection. They are kept because a new hook would send the password
        # again, which may lock the account.
        self._refused_hooks: dict[ConnectionKey, PageHook] = {}

    def get(self, *queries: Query[T]) -> list[Reading[T]]:
        """Return a reading for each query. Wait no longer than :data:`WAIT` for new ones."""
        until = time.monotonic() + WAIT
        while True:
            with self._lock:
                reads = [self._start(query) for query in queries if not self._is_current(query)]
            # When a connection is free again, read its next query.
            if not reads or not wait(reads, until - time.monotonic(), FIRST_COMPLETED).done:
                break
        with self._lock:
            return [self._reading_of(query) for query in queries]

    def _start(self, query: Query[Any]) -> Future[None]:
        """Return the running read of the query's connection. If no read is running, start one for this query."""
        connection = query.connection
        if connection not in self._reads:
            done = Future[None]()
            threading.Thread(target=self._run, args=(query, done), name="custody-page", daemon=True).start()
            self._reads[connection] = done
        return self._reads[connection]

    def _is_current(self, query: Query[Any]) -> bool:
        return query in self._latest and self._clock() - self._latest[query].completed_at < LIFETIME

    def _reading_of(self, query: Query[Any]) -> Reading[Any]:
        reading = self._latest[query].reading if query in self._latest else Reading()
        return replace(reading, is_awaited=not self._is_current(query))

    def _run(self, query: Query[Any], done: Future[None]) -> None:
        """Carry out a read, and keep its reading."""
        try:
            with self._slots:
                reading = replace(self._read_in_time(query), read_at=datetime.now(timezone.utc))
            with self._lock:
                self._keep(query, reading)
        finally:
            with self._lock:
                del self._reads[query.connection]
            done.set_result(None)

    def _keep(self, query: Query[Any], reading: Reading[Any]) -> None:
        earlier = self._latest.pop(query).reading if query in self._latest else Reading()
        # If the read failed, show the earlier value, unless it is too old.
        shown_until = earlier.read_at + MAX_AGE if earlier.value is not None and earlier.read_at else None
        if reading.problem and shown_until and datetime.now(timezone.utc) < shown_until:
            reading = replace(earlier, problem=reading.problem)
        self._latest[query] = _Latest(reading, self._clock())
        for oldest in list(self._latest)[:-MAX_KEPT]:
            del self._latest[oldest]

    def _read_in_time(self, query: Query[Any]) -> Reading[Any]:
        """Read in a separate thread. If it does not end in time, abandon the thread, and return a problem."""
        read = Future[Reading[Any]]()
        threading.Thread(target=lambda: read.set_result(self._read(query)), name="custody-read", daemon=True).start()
        if wait([read], MAX_DURATION).done:
            return read.result()
        log.error("Reading the custody service of connection %r hangs, so it was abandoned", query.connection.conn_id)
        return Reading(problem="Reading did not end. See the log of the API server.")

    def _read(self, query: Query[T]) -> Reading[T]:
        """Look up the connection and read its service. A failure is returned as a reading, too."""
        connection = query.connection
        service = ""
        hook = self._refused_hooks.get(connection) or PageHook(connection)
        try:
            client = hook.get_conn()
            service = client.settings.base_url
            return Reading(query.read(client), service=service)
        except NothingReadError as error:
            return Reading(problem=str(error), service=service)
        except CustodyError as error:
            return Reading(problem=describe_failure(error), service=service)
        except BaseException:
            # Catch BaseException, because a library that is written in another language may raise it when it crashes.
            log.exception("Could not read the custody service of connection %r", connection.conn_id)
            return Reading(problem="Unexpected error. See the log of the API server.", service=service)
        finally:
            if hook.is_refused:
                self._refused_hooks[connection] = hook
            else:
                if self._refused_hooks.get(connection) is hook:
                    del self._refused_hooks[connection]
                hook.close()


def describe_failure(error: CustodyError) -> str:
    """
    Describe a failed read by the code of its error, with advice.

    The message of the error is not used, because it may quote a response or the value of a setting. Anyone who may
    edit connections can make the API server read any host, so no part of a response is shown.

    :param error: the error.
    """
    return f"{_describe_cause(error)} {label(error.code)}"


def _describe_cause(error: CustodyError) -> str:
    if error.setting == "custody_conn_id":
        return "This connection is not defined, or its secrets backend cannot be read."
    if isinstance(error, CustodyConfigurationError):
        setting = f" ({sanitize(error.setting, 60)})" if error.setting else ""
        return f"A setting of the connection{setting} is missing or wrong. Run 'custody check' for details."
    # A gateway's 404 proves nothing about the requested object.
    if isinstance(error, CustodyNotFoundError) and not error.from_service:
        cause = "response unusable"
    else:
        cause = error.code.replace("-", " ")
    status = "" if error.status is None else f" (status {error.status})"
    advice = f" {sanitize(error.advice, 600)}" if error.advice else ""
    return f"{error.operation or 'Reading'} failed: {cause}{status}.{advice}"
