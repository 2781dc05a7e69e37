"""Watchers of webhook calls: the poll that those of a connection share, and each one's cursor and events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import lines, sanitize
from airflow_custody.client.webhooks.call_events import MAX_EVENT_BYTES, CallFilter, to_event
from airflow_custody.client.webhooks.calls import CallCursor, NewCalls
from airflow_custody.metrics import calls_read
from airflow_custody.triggers._base import _Connection, as_custody_error, ask_store, in_thread, next_delay, within

try:
    from airflow.triggers.shared_stream import SharedStreamProducer
except ImportError:  # Before Airflow 3.3.
    SharedStreamProducer = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import AdvanceItem

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.webhooks.models import WebhookCall

MAX_CALLS_PER_EVENT = 100
#: Maximum number of events that a watcher fires at each poll: Airflow stores one after the other, and in 300 seconds.
MAX_EVENTS_PER_POLL = 50
#: Maximum number of calls that a watcher takes of a backlog at once.
MAX_CALLS_PER_READING = MAX_CALLS_PER_EVENT * MAX_EVENTS_PER_POLL
#: Seconds that Airflow has for reading or writing a cursor.
STORE_TIMEOUT = 30.0
#: Seconds between Airflow's word that it has the events and the saving of a cursor; at most a poll's interval. Of a
#: watcher that was just removed, as its DAG was paused, Airflow drops the event and says the same. Then it ends it.
SAVE_DELAY = 2.0
# Size of an event without its calls.
_ENVELOPE_BYTES = 1024
_OWN_NAME = "Give each a cursor_name of its own."

log = logging.getLogger(__name__)


class CursorStore:
    """
    The store of one reader's cursor.

    :param store: Airflow's state store of the asset; None: there is none.
    :param key: the cursor's key in it.
    """

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self.key = key
        self._value: Any = None

    @property
    def is_there(self) -> bool:
        """Whether there is a state store."""
        return self._store is not None

    def __repr__(self) -> str:
        return f"{self._store!r} {self.key}"

    async def load_async(self) -> CallCursor | None:
        """Return the cursor, in a triggerer."""
        self._value = await self._ask("get")
        try:
            return CallCursor.from_stored(self._value)[0]
        except CustodyError as error:
            raise CustodyError(
                error.text,
                advice=f"Nothing is read until the key {self.key!r} in the asset's state store is repaired, or "
                "deleted, which starts over as 'start' says.",
                code="record-unreadable",
            ) from error

    async def save_async(self, cursor: CallCursor) -> bool:
        """
        Store a cursor, in a triggerer, and return whether the one before was this reader's.

        The stored value is read before: a triggerer that is about to end can still write and no longer read, and the
        events of its last moments are lost to it.
        """
        is_own: bool = await self._ask("get") == self._value
        value = cursor.to_stored()
        await self._ask("set", value)
        self._value = value
        return is_own

    async def _ask(self, what: str, *arguments: Any) -> Any:
        return await ask_store(self._store, what, self.key, *arguments)


class PollResult(NamedTuple):
    """
    The result of a poll for one watcher.

    :param cursor: the cursor that it was read with; None: there was none.
    :param gap: in words, which calls may be lost; empty: none are.
    :param portions: the payloads of the events to fire at one poll, and the cursor after them; poll by poll.
    """

    cursor: CallCursor | None
    gap: str
    portions: list[tuple[list[dict[str, Any]], CallCursor]]


@dataclass(eq=False)
class SharedReading:
    """
    The result of one poll, for all watchers.

    :param number: its number, from 1 on.
    :param journal: the shared poll.
    :param found: what each watcher asked for that had a cursor when the poll began; what failed is left out.
    :param savers: for each watcher that has handed over all its events, what saves its cursor.
    """

    number: int
    journal: JournalProducer
    found: Mapping[CallWatcher, PollResult]
    savers: dict[CallWatcher, Callable[[], Awaitable[None]]] = field(default_factory=dict)


class JournalProducer(SharedStreamProducer):
    """
    The journal as a shared stream in Airflow's acknowledgement mode. What has the same cursor is read once.

    A reading is acknowledged when every watcher that it was given to has passed on, and Airflow has the events that
    they fired in its database. Then the watchers' cursors are saved, and only then. A reading that somebody failed to
    acknowledge saves none: the next one's cursors cover it.

    :param custody_conn_id: id of the Airflow connection.
    :param poke_interval: seconds between two polls.
    """

    def __init__(self, custody_conn_id: str, poke_interval: float) -> None:
        self._custody_conn_id = custody_conn_id
        self._interval = poke_interval
        self._save_delay = min(poke_interval, SAVE_DELAY)
        self._number = self._last_distrusted = 0
        self._closed = asyncio.Event()
        #: The cursors of those who wait for what is new; None: there is none yet.
        self.wanted: dict[CallWatcher, CallCursor | None] = {}
        #: Set by a watcher that need not wait for the next poll.
        self.joined = asyncio.Event()

    async def open_stream(self) -> AsyncIterator[tuple[SharedReading, SharedReading]]:
        """
        Yield what each poll finds, as event and as what belongs to it.

        A failure is logged and waited out, also if waiting alone will not help: Airflow restarts a trigger each second.
        """
        failures = 0
        try:
            with _Connection.shared(self._custody_conn_id) as connection:
                while True:
                    self.joined.clear()
                    found, errors = await self._poll(connection)
                    for each in errors:
                        log.log(
                            logging.WARNING if each.transient else logging.ERROR,
                            "%s",
                            lines(
                                f"Webhook calls of connection {self._custody_conn_id!r} cannot be read; it is tried "
                                "again, and no watcher's cursor moves:",
                                str(each),
                            ),
                        )
                    self._number += 1
                    reading = SharedReading(self._number, self, found)
                    yield reading, reading
                    failures = failures + 1 if errors and not found else 0
                    with suppress(asyncio.TimeoutError):
                        await within(next_delay(self._interval, failures, errors), self.joined.wait())
        finally:
            self._closed.set()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Save the cursors of the watchers whose events Airflow has in its database. Raises nothing."""
        savers: dict[CallWatcher, Callable[[], Awaitable[None]]] = {}
        for item in batch:
            reading: SharedReading = item.broker_payload
            if not item.outcome.is_clean:
                # Somebody's events are in doubt, and nothing says whose. Readings that were given out already may
                # hold a cursor of the same watcher that covers those events; to a later one it does not come.
                self._last_distrusted = self._number
            elif reading.number > self._last_distrusted:
                # One watcher's later cursor covers the earlier one.
                savers.update(reading.savers)
        if savers:
            with suppress(asyncio.TimeoutError):
                await within(self._save_delay, self._closed.wait())
        if savers and not self._closed.is_set():
            saving: asyncio.Future[Any] = asyncio.gather(*(save() for save in savers.values()), return_exceptions=True)
            closed: asyncio.Future[Any] = asyncio.ensure_future(self._closed.wait())
            # When the triggerer ends, no process is left that reports a saved cursor.
            await asyncio.wait({saving, closed}, return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            saving.cancel()

    async def _poll(self, connection: _Connection) -> tuple[dict[CallWatcher, PollResult], list[CustodyError]]:
        if not self.wanted:
            return {}, []
        try:
            return await in_thread(self._custody_conn_id, _read_all, connection, dict(self.wanted))
        except Exception as exception:
            return {}, [as_custody_error(exception, "read webhook calls")]


def _read_all(
    connection: _Connection, wanted: Mapping[CallWatcher, CallCursor | None]
) -> tuple[dict[CallWatcher, PollResult], list[CustodyError]]:
    """Read the new calls of each watcher, in a thread, and the failures."""
    client = connection.client()
    new_calls, errors = _read_calls(client, wanted)
    types: dict[str, str] = {}
    filtering = [each for each, new in new_calls.items() if new.calls and each.call_filter.webhook_types]
    if filtering:
        try:
            # Read the webhooks after the calls, because a webhook always exists before its first call.
            types = {each["id"]: each.get("type") or "" for each in client.list_webhooks()}
        except CustodyError as error:
            errors.append(error)
            for watcher in filtering:
                del new_calls[watcher]
    found: dict[CallWatcher, PollResult] = {}
    for watcher, new in new_calls.items():
        found[watcher] = PollResult(wanted[watcher], new.gap, watcher.portions_of(new, types))
    return found, errors


def _read_calls(
    client: CustodyClient, wanted: Mapping[CallWatcher, CallCursor | None]
) -> tuple[dict[CallWatcher, NewCalls], list[CustodyError]]:
    """Read once for all watchers with the same cursor and start."""
    groups: dict[tuple[CallCursor | None, Literal["now", "beginning"]], list[CallWatcher]] = defaultdict(list)
    for watcher, cursor in wanted.items():
        groups[cursor, watcher.start].append(watcher)
    new_calls: dict[CallWatcher, NewCalls] = {}
    errors: list[CustodyError] = []
    for (cursor, start), watchers in groups.items():
        try:
            new = client.read_webhook_calls(cursor, start=start, limit=MAX_CALLS_PER_READING)
        except CustodyError as error:
            errors.append(error)
        else:
            new_calls.update(dict.fromkeys(watchers, new))
    return new_calls, errors


@dataclass(eq=False)
class CallWatcher:
    """
    One watcher: its cursor, and the events that it fires.

    :param custody_conn_id: id of the Airflow connection.
    :param call_filter: which calls it fires for.
    :param store: the store of its cursor.
    :param start: start without a cursor.
    :param with_payload: whether the events hold the calls' payloads.
    :param log: the trigger's log.
    """

    # The watchers that run in this process, by the cursors that they use.
    _running: ClassVar[dict[str, CallWatcher]] = {}

    custody_conn_id: str
    call_filter: CallFilter
    store: CursorStore
    start: Literal["now", "beginning"]
    with_payload: bool
    log: Any
    _wanted: dict[CallWatcher, CallCursor | None] | None = None
    _cursor: CallCursor | None = None
    # What is left of the last reading, and the cursor after what is being handed over.
    _portions: deque[tuple[list[dict[str, Any]], CallCursor]] = field(default_factory=deque)
    _next: CallCursor | None = None
    _saved: CallCursor | None = None
    _complaint: str = ""

    async def take(self, reading: SharedReading) -> list[dict[str, Any]]:
        """Return the payloads of the events to fire for a reading."""
        if self._wanted is None:
            if await self._load():
                self._wanted = reading.journal.wanted
                self._wanted[self] = self._cursor
                reading.journal.joined.set()
            return []
        found = None if self._portions else reading.found.get(self)
        # A poll that began before this watcher's cursor moved does not continue from it.
        if found is not None and found.cursor is self._cursor:
            await self._accept(found)
        if not self._portions:
            return []
        events, self._next = self._portions.popleft()
        return events

    async def _accept(self, found: PollResult) -> None:
        """Take the portions of a poll as the next ones to hand over."""
        self._portions.extend(found.portions)
        number = 0
        for events, _ in found.portions:
            number += sum(each["count"] for each in events)
        calls_read(self.custody_conn_id, number)
        if found.gap:
            self.log.warning("Webhook calls may be missing: %s", found.gap)
        if self._cursor is None and self.start == "now":
            # Save at once, so that a restart goes on from here: there is no event to wait for.
            self.log.info("Watching webhook calls from now on.")
            await self._save(found.portions[0][1])

    def handed_over(self, reading: SharedReading) -> None:
        """Move the cursor past a reading all of whose events were fired; it is saved once Airflow has them."""
        if self._wanted is None:
            return
        if self._next is not None:
            self._cursor, self._next = self._next, None
        if self._portions:
            self._wanted.pop(self, None)
        else:
            self._wanted[self] = self._cursor
        cursor = self._cursor
        if cursor is not None and cursor != self._saved:
            reading.savers[self] = lambda: self._save(cursor)

    def close(self) -> None:
        """Leave the cursor to the next watcher. One that is not saved by now may be of events that Airflow dropped."""
        if self._wanted is not None:
            self._wanted.pop(self, None)
            self._wanted = None
        if self._running.get(repr(self.store)) is self:
            del self._running[repr(self.store)]

    def portions_of(self, new: NewCalls, types: Mapping[str, str]) -> list[tuple[list[dict[str, Any]], CallCursor]]:
        """Return the payloads of the events to fire for new calls, and the cursor after them; poll by poll."""
        parts = self._split(self.call_filter.select(new.calls, types))
        if new.gap and not parts:
            # A gap needs an event even without calls.
            parts = [[]]
        events = [
            to_event(
                part,
                late=new.late,
                gap="" if index > 1 else new.gap,
                more=new.more or index < len(parts),
                with_payload=self.with_payload,
            )
            for index, part in enumerate(parts, 1)
        ]
        place = {id(call): number for number, call in enumerate(new.calls, 1)}
        portions = []
        for first in range(0, max(1, len(events)), MAX_EVENTS_PER_POLL):
            end = first + MAX_EVENTS_PER_POLL
            cursor = new.cursor if end >= len(events) else new.cursor_after(place[id(parts[end - 1][-1])])
            portions.append((events[first:end], cursor))
        return portions

    def _split(self, calls: Sequence[WebhookCall]) -> list[list[WebhookCall]]:
        """Split calls into as many as one event may have."""
        parts: list[list[WebhookCall]] = []
        size = _ENVELOPE_BYTES
        for call in calls:
            # The id may be listed in `late_ids`, too.
            needed = len(json.dumps([call.to_json(with_payload=self.with_payload), call.id])) + 2
            is_full = bool(parts) and (len(parts[-1]) == MAX_CALLS_PER_EVENT or size + needed > MAX_EVENT_BYTES)
            if is_full or not parts:
                parts.append([])
                size = _ENVELOPE_BYTES
            parts[-1].append(call)
            size += needed
        return parts

    # --- the cursor ------------------------------------------------------------------------------------------

    async def _load(self) -> bool:
        """Load the cursor, and tell whether this watcher may go on from it."""
        if not self.store.is_there:
            self._complain(
                "Airflow gives this trigger no state store",
                "It keeps one for the trigger of an AssetWatcher, from Airflow 3.3 on.",
            )
            return False
        if self._running.setdefault(repr(self.store), self) is not self:
            self._complain("another watcher of this asset is using its cursor", _OWN_NAME)
            return False
        try:
            self._cursor = self._saved = await within(STORE_TIMEOUT, self.store.load_async())
        except ValueError as error:
            self._complain(
                f"Airflow keeps state for a trigger of exactly one asset ({sanitize(error)})",
                "Give each asset's watcher a trigger with a cursor_name of its own.",
            )
        except CustodyError as error:
            self._complain("the cursor cannot be loaded; it is tried again:", str(error))
        except Exception as error:
            why = sanitize(error, 500) or repr(error)
            self._complain(f"the cursor cannot be loaded; it is tried again: {why}")
        else:
            self._complaint = ""
            return True
        return False

    async def _save(self, cursor: CallCursor) -> None:
        """Save a cursor; what fails is logged, and made good by the next one."""
        if self._wanted is None:
            return
        try:
            is_own = await within(STORE_TIMEOUT, self.store.save_async(cursor))
        except Exception as error:
            self._complain(f"the cursor cannot be saved; a restart would go on from the last one: {error!r}")
            return
        self._saved = cursor
        if not is_own:
            self._complain(
                "another process has written this watcher's cursor",
                f"If it is another watcher, calls may be lost when they restart. {_OWN_NAME}",
            )

    def _complain(self, *texts: str) -> None:
        """Log what is wrong, and in further lines what to do; once."""
        text = lines(f"Connection {self.custody_conn_id!r}, webhook calls: {texts[0]}", *texts[1:])
        if text != self._complaint:
            self._complaint = text
            self.log.error("%s", text)
