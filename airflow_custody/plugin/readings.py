"""
Readings of services: rare, one at a time for a connection and four in all, without blocking a route.

While a service is read, or hangs, the latest reading is shown.
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

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyNotFoundError
from airflow_custody.client.text import sanitize
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.overview import for_people

if TYPE_CHECKING:
    from airflow.models.connection import Connection

    from airflow_custody.client import ClientSettings, CustodyClient

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Seconds for which a reading is shown without a new one.
LIFETIME = 30.0
#: Seconds that a route waits for new readings.
WAIT = 1.0
MAX_READS = 4
#: Seconds after which a read has hung, and its slot is given to another: more than the time-outs of an overview, which
#: makes six calls to a service that responds to none.
HUNG_AFTER = 90.0
#: Maximum number of threads in reads of one connection, hung ones included; and of its queued reads.
MAX_THREADS_OF_ONE = 2
MAX_QUEUED_OF_ONE = 20
#: Maximum number of readings kept, of all connections; and the time for which one is shown although later reads failed.
MAX_KEPT = 500
MAX_AGE = timedelta(hours=1)


class NothingReadError(Exception):
    """Raised when nothing of a service could be read; its text explains why, in our own words."""


class ConnectionKey(NamedTuple):
    """The id of a connection, and the team that it belongs to; None: to no team."""

    conn_id: str
    team: str | None


@dataclass(frozen=True)
class Question(Generic[T]):
    """
    A question to a service.

    :param connection: the connection.
    :param subject: the object to read, such as ``("request", "42")``.
    :param read: reads it, with a client of the connection.
    """

    connection: ConnectionKey
    subject: Hashable
    read: Callable[[CustodyClient], T] = field(compare=False)


@dataclass(frozen=True)
class Reading(Generic[T]):
    """
    The latest reading of a service.

    :param value: the value; None if nothing was read.
    :param problem: why the last read failed, with advice; the value is an earlier one then. Empty: it succeeded, or
        there was none yet.
    :param service: the base URL of the service; empty if it is not known.
    :param read_at: when the value was read; None: nothing was read yet.
    :param awaited_for: for how many seconds a new reading has been awaited; None: this one is current.
    """

    value: T | None = None
    problem: str = ""
    service: str = ""
    read_at: datetime | None = None
    awaited_for: float | None = None


@dataclass(eq=False)
class _Read:
    """A read that is queued or, once started, in progress."""

    question: Question[Any]
    asked: float
    started: float | None = None
    done: Future[None] = field(default_factory=Future)


class Readings:
    """
    The latest readings of all services, and the threads that make them.

    The threads are daemons: a service that hangs keeps no API server from ending.

    :param clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queued: list[_Read] = []
        self._running: list[_Read] = []
        self._latest: dict[Question[Any], tuple[Reading[Any], float]] = {}
        # Hooks with a password that was refused: new ones would send it again.
        self._refused: dict[ConnectionKey, _PageHook] = {}

    def get(self, *questions: Question[T]) -> list[Reading[T]]:
        """Return a reading for each question; wait no longer than :data:`WAIT` for new ones."""
        wait([read.done for each in questions if (read := self._request(each)) is not None], WAIT)
        with self._lock:
            return [self._reading(each) for each in questions]

    def _request(self, question: Question[Any]) -> _Read | None:
        """Return the read that brings the reading of a question; None if there is a current one."""
        with self._lock:
            going_on = [*self._queued, *(each for each in self._running if not self._has_hung(each))]
            read = next((each for each in going_on if each.question == question), None)
            if read is None and not self._is_current(question):
                queued = [each for each in self._queued if each.question.connection == question.connection]
                if len(queued) < MAX_QUEUED_OF_ONE:
                    read = _Read(question, self._clock())
                    self._queued.append(read)
            self._start_queued()
            return read

    def _is_current(self, question: Question[Any]) -> bool:
        return question in self._latest and self._clock() - self._latest[question][1] < LIFETIME

    def _has_hung(self, read: _Read) -> bool:
        return read.started is not None and self._clock() - read.started >= HUNG_AFTER

    def _reading(self, question: Question[Any]) -> Reading[Any]:
        reading = self._latest[question][0] if question in self._latest else Reading()
        if self._is_current(question):
            return reading
        asked = [each.asked for each in (*self._queued, *self._running) if each.question == question]
        return replace(reading, awaited_for=self._clock() - min(asked, default=self._clock()))

    def _start_queued(self) -> None:
        """Start what is queued and may start, the first of each connection first."""
        for read in list(self._queued):
            going_on = [each for each in self._running if not self._has_hung(each)]
            if len(going_on) >= MAX_READS:
                return
            own = [each for each in self._running if each.question.connection == read.question.connection]
            if len(own) >= MAX_THREADS_OF_ONE or any(each in going_on for each in own):
                continue
            threading.Thread(target=self._run, args=(read,), name="custody-page", daemon=True).start()
            read.started = self._clock()
            self._queued.remove(read)
            self._running.append(read)

    def _run(self, read: _Read) -> None:
        reading = replace(self._read(read.question), read_at=datetime.now(timezone.utc))
        with self._lock:
            self._running.remove(read)
            # One that has hung may be older than the latest.
            if not self._has_hung(read):
                earlier, _ = self._latest.pop(read.question, (Reading(), 0))
                may_be_shown = earlier.value is not None and _age(earlier) < MAX_AGE
                if reading.problem and may_be_shown:
                    reading = replace(earlier, problem=reading.problem)
                self._latest[read.question] = (reading, self._clock())
                for oldest in list(self._latest)[:-MAX_KEPT]:
                    del self._latest[oldest]
            self._start_queued()
        read.done.set_result(None)

    def _read(self, question: Question[T]) -> Reading[T]:
        """Look up the connection, and read its service; a failure becomes a reading, too."""
        conn_id = question.connection.conn_id
        service = ""
        hook = self._refused.pop(question.connection, None) or _PageHook(question.connection)
        try:
            client = hook.get_conn()
            service = client.settings.base_url
            return Reading(question.read(client), service=service)
        except NothingReadError as error:
            return Reading(problem=str(error), service=service)
        except CustodyError as error:
            return Reading(problem=describe_failure(error), service=service)
        except BaseException:
            # BaseException, as a crash in a library written in another language may raise one.
            log.exception("The custody service of the connection %r could not be read", conn_id)
            text = "Something unexpected went wrong. The log of the API server says what."
            return Reading(problem=text, service=service)
        finally:
            if hook.is_refused:
                self._refused[question.connection] = hook
            else:
                hook.close()


def _age(reading: Reading[Any]) -> timedelta:
    return timedelta.max if reading.read_at is None else datetime.now(timezone.utc) - reading.read_at


def describe_failure(error: CustodyError) -> str:
    """
    Describe a failed read in our own words: its cause by the error's code, and advice.

    Anyone who may edit connections can have the API server read any host, so no text of a response is shown.

    :param error: the error. Its message is not used: it may quote a response, or the value of a setting.
    """
    if error.setting == "custody_conn_id":
        text = "This connection is not defined, or its secrets backend cannot be read."
    elif isinstance(error, CustodyConfigurationError):
        setting = f" ({sanitize(error.setting, 60)})" if error.setting else ""
        text = f"A setting of the connection{setting} is missing or wrong. 'custody check' says why."
    else:
        # A gateway's 404 proves nothing about the requested object.
        is_foreign = isinstance(error, CustodyNotFoundError) and not error.from_service
        why = "response unusable" if is_foreign else error.code.replace("-", " ")
        status = "" if error.status is None else f" (status {error.status})"
        what = f"{error.operation or 'Reading'} failed: {why}{status}."
        text = f"{what} {sanitize(error.advice, 600)}" if error.advice else what
    return f"{text} {label(error.code)}"


class _PageHook(CustodyHook):
    """The hook of a connection that a team may own. A page is no work of DAGs, so it sends no metrics."""

    sends_metrics = False

    def __init__(self, connection: ConnectionKey) -> None:
        super().__init__(connection.conn_id)
        self._key = connection

    def get_connection(self, conn_id: str) -> Connection:  # type: ignore[override]
        from airflow.models.connection import Connection
        from airflow.providers.common.compat.sdk import AirflowNotFoundException, conf

        # Where teams are switched off, one may be left over in the database: Airflow refuses it.
        team = self._key.team if conf.getboolean("core", "multi_team", fallback=False) else None
        connection = Connection.get_connection_from_secrets(conn_id, team_name=team)
        # Some databases find a row by any casing of its id, and access to that row was not checked.
        if connection.conn_id != conn_id:
            raise AirflowNotFoundException(conn_id)
        return connection

    @property
    def is_refused(self) -> bool:
        """Whether the service has refused the credentials of the client."""
        return self._client is not None and self._client.auth.is_refused

    def _adapt_settings(self, settings: ClientSettings) -> ClientSettings:
        return for_people(settings)
