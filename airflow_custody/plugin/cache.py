"""How the service is asked: rarely, in few threads, and without anybody waiting for it for long."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.overview.budget import for_people
from airflow_custody.plugin.limits import ResponseLimits
from airflow_custody.plugin.pauses import Pauses
from airflow_custody.plugin.threads import GIVEN_UP_AFTER, BusyError, GivenUpError, Threads

if TYPE_CHECKING:
    from airflow.models.connection import Connection

    from airflow_custody.client import ClientSettings, CustodyClient
    from airflow_custody.plugin.access import CustodyConnection

T = TypeVar("T")

log = logging.getLogger(__name__)

#: For how many seconds what was read is shown without asking again.
LIFETIME = 15.0
#: For how many seconds it is shown, with its age, while the service does not respond to a later reading.
MAX_AGE = 300.0
#: How many seconds a page waits for the service.
BUDGET = 8.0
#: The key of what is read of a connection at most once in ``LIFETIME``; of all others together, this many are.
OVERVIEW = "overview"
MAX_OTHERS = 20
#: How many readings other than overviews are kept of one connection, and of all.
MAX_KEPT_OF_ONE = 40
MAX_KEPT = 400
#: How many overviews are kept, of as many connections.
MAX_OVERVIEWS = 400

_BROKEN = "Something unexpected went wrong. The log of the API server says what."
_GIVEN_UP = (
    f"The service did not respond within {GIVEN_UP_AFTER:.0f} s, and the reading was given up. Refresh this page."
)
_TOO_MANY = "So many readings of this connection were asked for lately that the service was not asked. Try again in "
_CHANGED = (
    "This connection was changed after its service had been read, which happens at most once in {0:.0f} seconds. "
    "Refresh this page in {0:.0f} seconds."
)


@dataclass(frozen=True)
class Reading(Generic[T]):
    """
    What was read of a service.

    :param value: what was read; None if nothing was.
    :param problem: why nothing was read, and what to do; empty if something was. With a value: why the service was not
        asked again.
    :param late: whether what was asked last is not known (yet): nothing is said of how the service is. With a value: an
        earlier one.
    """

    value: T | None = None
    problem: str = ""
    late: bool = False


@dataclass(frozen=True)
class Question(Generic[T]):
    """
    What to read of a service.

    :param connection: the connection.
    :param key: what is read, such as ``("request", "42")``.
    :param read: reads it, with a client of the connection.
    """

    connection: CustodyConnection
    key: Hashable
    read: Callable[[CustodyClient], T]


@dataclass
class _Entry:
    """
    What is known of one question.

    :param reading: what was read last; None: nothing yet.
    :param digest: that of the connection that it was read with.
    :param finished: when.
    :param future: the reading that goes on, and when it will have finished; None: there is none.
    :param asked: the digest of the connection that it is made with.
    :param begun: when the last one began.
    :param why: why the last one has brought nothing; empty if it has, or goes on.
    :param left: an earlier one that goes on, of the connection before it was changed; what it brings is not shown.
    """

    reading: Reading[Any] | None = None
    digest: bytes = b""
    finished: float = -math.inf
    future: Future[_Made] | None = None
    asked: bytes = b""
    begun: float = -math.inf
    why: str = ""
    left: Future[_Made] | None = None

    @property
    def has_left(self) -> bool:
        """Whether a reading of the connection before it was changed goes on."""
        return self.left is not None and not self.left.done()


@dataclass(frozen=True)
class _Made:
    """
    What a reading has brought.

    :param reading: what was read.
    :param finished: when.
    """

    reading: Reading[Any]
    finished: float


class Readings:
    """
    The latest readings of all services, and the threads that they are made in.

    Each is made at most once at a time, and again only after ``lifetime``, whatever changes in its connection. What was
    read before a change is not shown after it.

    :param lifetime: for how many seconds a reading is current.
    :param clock: returns the time in seconds.
    """

    def __init__(self, *, lifetime: float = LIFETIME, clock: Callable[[], float] = time.monotonic) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = Threads("custody-page")
        self._entries: OrderedDict[tuple[str, Hashable], _Entry] = OrderedDict()
        #: When the latest readings other than overviews began, by their connections.
        self._begun: dict[str, deque[float]] = {}
        self._pauses = Pauses(clock)

    async def read(self, question: Question[T], *, budget: float = BUDGET) -> Reading[T]:
        """Return one reading, as :meth:`read_all` does."""
        return (await self.read_all([question], budget=budget))[0]

    async def read_all(self, questions: Sequence[Question[T]], *, budget: float = BUDGET) -> list[Reading[T]]:
        """
        Return a reading for each question; waits no longer than ``budget`` seconds for all of them.

        A reading that takes longer goes on, and is there at the next call.
        """
        started = [self._start(each) for each in questions]
        await self._threads.wait([entry.future for entry, why in started if entry.future and not why], budget)
        return [self._result(each, *found) for each, found in zip(questions, started, strict=True)]

    def _start(self, question: Question[Any]) -> tuple[_Entry, str]:
        """Return the entry of a question, and why a reading that it needs has not begun."""
        connection = question.connection
        if connection.connection is None:
            reading: Reading[Any] = Reading(problem=connection.problem, late=connection.late)
            return _Entry(reading, connection.digest, self._clock()), ""
        key = (connection.conn_id, question.key)
        with self._lock:
            entry = self._entries.get(key) or _Entry()
            self._settle(entry)
            self._forget(connection.conn_id)
            if entry.future is not None and entry.asked == connection.digest:
                return entry, ""
            if entry.future is not None:
                if entry.has_left or self._clock() - entry.begun < self._lifetime:
                    return entry, _CHANGED.format(self._lifetime)
                # What hangs may be why it was changed.
                entry.left, entry.future = entry.future, None
            # One that was never read has not changed since.
            is_changed = entry.digest not in (b"", connection.digest)
            if is_changed and self._clock() - entry.begun < self._lifetime:
                refusal = _CHANGED.format(self._lifetime)
            elif is_changed or not self._is_current(entry):
                refusal = self._begin(entry, question)
            else:
                refusal = ""
            if key in self._entries or entry.future is not None:
                self._entries[key] = entry
                self._entries.move_to_end(key)
            return entry, refusal

    def _is_current(self, entry: _Entry) -> bool:
        return self._clock() - entry.finished < self._lifetime

    def _begin(self, entry: _Entry, question: Question[Any]) -> str:
        """Begin a reading; return why not."""
        conn_id, is_overview, now = question.connection.conn_id, question.key == OVERVIEW, self._clock()
        begun = self._begun.get(conn_id, deque())
        if not is_overview and len(begun) >= MAX_OTHERS:
            return f"{_TOO_MANY}{self._lifetime:.0f} seconds."
        try:
            # Request pages do not keep the overview waiting, nor does it keep them.
            owner = (conn_id, is_overview, entry.has_left)
            entry.future = self._threads.submit(owner, lambda: _make(question, self._pauses, self._clock))
        except BusyError as error:
            return str(error)
        entry.asked, entry.begun, entry.why = question.connection.digest, now, ""
        if not is_overview:
            begun.append(now)
            self._begun[conn_id] = begun
        return ""

    def _settle(self, entry: _Entry) -> None:
        """Take what a reading has brought that has ended."""
        if entry.future is None or not entry.future.done():
            return
        future, entry.future = entry.future, None
        error = future.exception()
        if isinstance(error, (BusyError, GivenUpError)):
            # Nothing is known of the service: what was read before is still all there is.
            entry.why = _GIVEN_UP if isinstance(error, GivenUpError) else str(error)
            if isinstance(error, BusyError):
                # It was not asked.
                entry.begun = -math.inf
            return
        entry.digest = entry.asked
        made = future.result() if error is None else _Made(Reading(problem=_BROKEN), self._clock())
        entry.reading, entry.finished = made.reading, made.finished

    def _forget(self, conn_id: str) -> None:
        """Drop what is too old to be shown, and the oldest if there are too many."""
        now = self._clock()
        for each, begun in list(self._begun.items()):
            while begun and now - begun[0] >= self._lifetime:
                begun.popleft()
            if not begun:
                del self._begun[each]
        others = [key for key in self._entries if key[1] != OVERVIEW]
        overviews = [key for key in self._entries if key[1] == OVERVIEW]
        too_many = {*_all_but(MAX_KEPT - 1, others), *_all_but(MAX_OVERVIEWS - 1, overviews)}
        too_many |= {*_all_but(MAX_KEPT_OF_ONE - 1, [key for key in others if key[0] == conn_id])}
        for key, entry in list(self._entries.items()):
            self._settle(entry)
            # When the last overview was read is known as long as it says when the next one may be.
            is_needed = entry.future is not None or (key[1] == OVERVIEW and self._is_current(entry))
            if not is_needed and (key in too_many or now - max(entry.finished, entry.begun) > MAX_AGE):
                del self._entries[key]

    def _result(self, question: Question[T], entry: _Entry, refusal: str) -> Reading[T]:
        with self._lock:
            self._settle(entry)
            reading = entry.reading if entry.digest == question.connection.digest else None
            if reading is not None and self._is_current(entry) and not refusal:
                return reading
            # An earlier problem may be over.
            is_shown = reading is not None and self._clock() - entry.finished < MAX_AGE
            value = reading.value if reading is not None and is_shown else None
            return Reading(value, problem=refusal or entry.why, late=True)


def _all_but(number: int, keys: list[T]) -> list[T]:
    """Return all keys but the last ones."""
    return keys[: max(0, len(keys) - number)]


class _PageHook(CustodyHook):
    """The hook of a connection that was read already. A reading is no work of DAGs, so it sends no metrics."""

    sends_metrics = False
    # One for each reading: none sends a password again that another has seen refused.
    shares_sign_in = True

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.conn_id)
        self._given = connection

    def _connection(self) -> Any:
        return self._given

    def _fault(self, error: CustodyConfigurationError | None) -> str:
        # Airflow hides extras from who sees this page: a secret may stand in the wrong one.
        if error is None or error.setting == "base_url":
            return super()._fault(error)
        return "is not what it must be. 'custody check', the test of the connection and a task that uses it say why."

    def _settings(self, base_url: str, extras: dict[str, Any]) -> ClientSettings:
        return for_people(super()._settings(base_url, extras))


def _make(question: Question[Any], pauses: Pauses, clock: Callable[[], float]) -> _Made:
    """Read what is asked for; whatever goes wrong is a reading, too."""
    return _Made(_read(question, pauses), clock())


def _read(question: Question[T], pauses: Pauses) -> Reading[T]:
    try:
        with _PageHook(question.connection.connection) as hook:  # type: ignore[arg-type]
            client = hook.get_conn()
            client.limit_responses(ResponseLimits())
            pauses.keep(client, (question.connection.conn_id, question.connection.digest))
            return Reading(question.read(client))
    except CustodyError as error:
        return Reading(problem=str(error))
    except BaseException:
        # Also what a library written in another language raises when it breaks.
        log.exception("The custody service of the connection %r could not be read", question.connection.conn_id)
        return Reading(problem=_BROKEN)
