"""Watchers of webhook calls: their shared poll, cursors and events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
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

    from airflow_custody.client.webhooks.models import WebhookCall, WireWebhook

MAX_CALLS_PER_EVENT = 100
#: Maximum number of events that a watcher fires per poll. Airflow stores events one by one, and must store all of them
#: within 300 seconds.
MAX_EVENTS_PER_POLL = 50
#: Maximum number of calls of a backlog that are read at once.
MAX_CALLS_PER_READING = MAX_CALLS_PER_EVENT * MAX_EVENTS_PER_POLL
#: How many seconds the saving of a cursor is delayed after Airflow has acknowledged its events; at most a poll's
#: interval. The delay is for a watcher that was just removed because its DAG was paused: Airflow drops its events,
#: acknowledges them all the same, and then ends the watcher. An ended watcher saves no cursor, so the dropped events
#: are fired again when the watcher restarts.
SAVE_DELAY = 2.0
# Size of an event without its calls, in bytes.
_ENVELOPE_BYTES = 1024
_OWN_NAME = "Give each watcher its own cursor_name."

log = logging.getLogger(__name__)


class PollResult(NamedTuple):
    """
    The result of a poll for one watcher.

    :param cursor: the cursor before the poll; None: there was none.
    :param events: the payloads of the events to fire.
    :param after: the cursor after these events.
    :param unknown: warnings about ids and types in the watcher's filter that no webhook has; empty if the webhooks were
        not read.
    """

    cursor: CallCursor | None
    events: list[dict[str, Any]]
    after: CallCursor
    unknown: frozenset[str]


@dataclass(eq=False)
class SharedReading:
    """
    The result of one poll, for all watchers.

    :param number: number of the poll, from 1 on.
    :param journal: the shared poll.
    :param found: the result of each watcher that waited for calls when the poll began. Watchers whose read failed are
        left out.
    :param savers: for each watcher that has fired its events for this reading, the function that saves its cursor.
    """

    number: int
    journal: JournalProducer
    found: Mapping[CallWatcher, PollResult]
    savers: dict[CallWatcher, Callable[[], Awaitable[None]]] = field(default_factory=dict)


class JournalProducer(SharedStreamProducer):
    """
    The service's journal of webhook calls, as a shared stream in Airflow's acknowledgement mode.

    Watchers with the same cursor share one read. Airflow acknowledges a reading when all of its watchers have finished
    it, and their events are in Airflow's database. The watchers' cursors are saved only after that. If Airflow could
    not store the events of a watcher, no cursor of the reading is saved, because Airflow does not report which watcher
    it was. The next good reading saves the then current cursors.

    :param custody_conn_id: id of the Airflow connection.
    :param poke_interval: seconds between two polls.
    """

    def __init__(self, custody_conn_id: str, poke_interval: float) -> None:
        self._custody_conn_id = custody_conn_id
        self._interval = poke_interval
        self._save_delay = min(poke_interval, SAVE_DELAY)
        self._number = self._last_distrusted = 0
        self._closed = asyncio.Event()
        #: The cursors of the watchers that wait for new calls; None: the watcher has no cursor yet.
        self.wanted: dict[CallWatcher, CallCursor | None] = {}
        #: Set by a watcher that joins, so that the next poll begins at once.
        self.joined = asyncio.Event()

    async def open_stream(self) -> AsyncIterator[tuple[SharedReading, SharedReading]]:
        """
        Yield the reading of each poll, as event and as payload.

        Airflow passes the payload to :meth:`advance` later. A failure is logged, and polling continues even if the
        failure is permanent, because Airflow would restart an ended trigger every second.
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
                                f"Webhook calls of connection {self._custody_conn_id!r} cannot be read. The next poll "
                                "tries again. Until then, the cursors of the affected watchers stay where they are:",
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
        """
        Save the cursors of the watchers whose events are in Airflow's database.

        Never raise an exception.
        """
        savers: dict[CallWatcher, Callable[[], Awaitable[None]]] = {}
        for item in batch:
            reading: SharedReading = item.broker_payload
            if not item.outcome.is_clean:
                # A watcher's events may be lost, but Airflow does not report which watcher's. Every reading yielded so
                # far may move that watcher's cursor past these events, so do not save cursors from any of these
                # readings.
                self._last_distrusted = self._number
            elif reading.number > self._last_distrusted:
                # Save only the latest cursor of a watcher, because it replaces the earlier ones.
                savers.update(reading.savers)
        if savers:
            with suppress(asyncio.TimeoutError):
                await within(self._save_delay, self._closed.wait())
        if savers and not self._closed.is_set():
            saving: asyncio.Future[Any] = asyncio.gather(*(save() for save in savers.values()), return_exceptions=True)
            closed: asyncio.Future[Any] = asyncio.ensure_future(self._closed.wait())
            # If the triggerer ends, stop waiting, because Airflow would no longer confirm that the cursors are saved.
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
    """
    Return the result of each watcher, and the failures.

    This runs in a thread. Watchers with the same cursor and start share one read.
    """
    client = connection.client()
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
    webhooks: list[WireWebhook] | None = None
    needing = [each for each, new in new_calls.items() if new.calls and each.call_filter.webhook_types]
    if needing or any(new.calls and each.call_filter.webhook_ids for each, new in new_calls.items()):
        try:
            # Read the webhooks after the calls, because a webhook always exists before its first call.
            webhooks = list(client.list_webhooks())
        except CustodyError as error:
            # Only filters by type need the webhooks. For filters by id, they would only have shown whether the ids
            # exist.
            errors += [error] if needing else []
            for watcher in needing:
                del new_calls[watcher]
    found: dict[CallWatcher, PollResult] = {}
    for watcher, new in new_calls.items():
        unknown = () if webhooks is None else watcher.call_filter.unknown(webhooks)
        events, after = watcher.events_of(new, watcher.call_filter.select(new.calls, webhooks or ()))
        found[watcher] = PollResult(wanted[watcher], events, after, frozenset(unknown))
    return found, errors


@dataclass(eq=False)
class CallWatcher:
    """
    A watcher of webhook calls, with its cursor.

    :param custody_conn_id: id of the Airflow connection.
    :param call_filter: selects the calls to fire.
    :param store: Airflow's state store of the asset, which keeps the cursor; None: there is none.
    :param key: the cursor's key in the store.
    :param start: where to start if there is no cursor.
    :param with_payload: whether the events hold the calls' payloads.
    :param log: the trigger's log.
    """

    # The watchers that run in this process, by the place of their cursor.
    _running: ClassVar[dict[str, CallWatcher]] = {}

    custody_conn_id: str
    call_filter: CallFilter
    store: Any
    key: str
    start: Literal["now", "beginning"]
    with_payload: bool
    log: Any
    _wanted: dict[CallWatcher, CallCursor | None] | None = None
    _cursor: CallCursor | None = None
    _saved: CallCursor | None = None
    # The last known value in the store.
    _stored: Any = None
    _complaint: str = ""
    # The warnings that were already logged about values of the filter that no webhook has.
    _reported: frozenset[str] = frozenset()

    async def take(self, reading: SharedReading) -> PollResult | None:
        """Return the result that a reading has for this watcher; None: it has none."""
        if self._wanted is None:
            if await self._load():
                self._wanted = reading.journal.wanted
                self._wanted[self] = self._cursor
                reading.journal.joined.set()
            return None
        found = reading.found.get(self)
        # Ignore the result of a poll that began before this watcher's cursor moved.
        if found is None or found.cursor is not self._cursor:
            return None
        calls_read(self.custody_conn_id, sum(each["count"] for each in found.events))
        for each in found.events:
            if each["gap"]:
                self.log.warning("Webhook calls may be lost: %s", each["gap"])
        for text in sorted(found.unknown - self._reported):
            self.log.warning("%s", text)
        self._reported |= found.unknown
        if self._cursor is None and self.start == "now":
            # Save the first cursor at once, because there is no event to wait for, so that a restart continues from it.
            self.log.info("Watching webhook calls from now on.")
            await self._save(found.after)
        return found

    def handed_over(self, reading: SharedReading, found: PollResult | None) -> None:
        """
        Move the cursor past a reading whose events were fired.

        The cursor is saved once Airflow has stored these events.
        """
        if self._wanted is None:
            return
        if found is not None:
            self._cursor = self._wanted[self] = found.after
        cursor = self._cursor
        if cursor is not None and cursor != self._saved:
            reading.savers[self] = lambda: self._save(cursor)

    def close(self) -> None:
        """
        Release the cursor.

        A cursor that is not saved yet is discarded, because Airflow may have dropped its events.
        """
        if self._wanted is not None:
            self._wanted.pop(self, None)
            self._wanted = None
        if self._running.get(self._place) is self:
            del self._running[self._place]

    def events_of(self, new: NewCalls, selected: Sequence[WebhookCall]) -> tuple[list[dict[str, Any]], CallCursor]:
        """Return the events of one poll for the selected calls, and the cursor after these events."""
        parts: list[list[WebhookCall]] = []
        size = 0
        for call in selected:
            # Count the id twice, because `late_ids` may contain it, too.
            needed = len(json.dumps([call.to_json(with_payload=self.with_payload), call.id])) + 2
            if not parts or len(parts[-1]) == MAX_CALLS_PER_EVENT or size + needed > MAX_EVENT_BYTES:
                parts.append([])
                size = _ENVELOPE_BYTES
            parts[-1].append(call)
            size += needed
        if new.gap and not parts:
            # Fire an event for a gap even without calls.
            parts = [[]]
        events = [
            to_event(
                part,
                late=new.late,
                gap=new.gap if index == 1 else "",
                more=new.more or index < len(parts),
                with_payload=self.with_payload,
            )
            for index, part in enumerate(parts[:MAX_EVENTS_PER_POLL], 1)
        ]
        if len(events) == len(parts):
            return events, new.cursor
        # The other calls do not fit into this poll's events. The next poll reads them again.
        last = parts[len(events) - 1][-1]
        return events, new.cursor_after(1 + new.calls.index(last))

    # --- the cursor ------------------------------------------------------------------------------------------

    @property
    def _place(self) -> str:
        """A text that identifies the cursor among the cursors of all watchers: its store and its key."""
        return f"{self.store!r} {self.key}"

    async def _load(self) -> bool:
        """Load the cursor, and return whether this watcher may continue from it."""
        if self.store is None:
            self._complain(
                "Airflow gives this trigger no state store, so it cannot keep a cursor",
                "Use the trigger with an AssetWatcher on Airflow 3.3 or later.",
            )
            return False
        if self._running.setdefault(self._place, self) is not self:
            self._complain("another watcher of this asset is using its cursor", _OWN_NAME)
            return False
        try:
            self._stored = await ask_store(self.store, "get", self.key)
            if self._stored is not None:
                data = self._stored.get("cursor") if isinstance(self._stored, Mapping) else self._stored
                self._cursor = self._saved = CallCursor.from_json(data)
        except ValueError as error:
            self._complain(
                f"Airflow only stores state for a trigger of exactly one asset ({sanitize(error)})",
                "Give each asset's watcher a trigger with its own cursor_name.",
            )
        except CustodyError as error:
            advice = (
                f"No calls are read until the key {self.key!r} in the asset's state store is repaired. If you delete "
                "the key, the watcher starts over at the point that its 'start' names."
            )
            self._complain("the cursor cannot be loaded. Trying again:", str(error.with_facts(advice=advice)))
        except Exception as error:
            why = sanitize(error, 500) or repr(error)
            self._complain(f"the cursor cannot be loaded. Trying again: {why}")
        else:
            self._complaint = ""
            return True
        return False

    async def _save(self, cursor: CallCursor) -> None:
        """
        Save a cursor. If this fails, log the failure; the next cursor is saved instead.

        When a triggerer is about to end, Airflow does not store its last events, so their cursor must not be stored
        either. Such a triggerer can still write to the store, but no longer read from it. Therefore the stored value is
        read first: if reading fails, nothing is written.
        """
        if self._wanted is None:
            return
        value = {"cursor": cursor.to_json()}
        try:
            is_own = await ask_store(self.store, "get", self.key) == self._stored
            await ask_store(self.store, "set", self.key, value)
        except Exception as error:
            self._complain(f"the cursor cannot be saved. A restart continues from the last saved cursor: {error!r}")
            return
        self._stored, self._saved = value, cursor
        if not is_own:
            self._complain(
                "another process has written this watcher's cursor",
                f"If that process runs another watcher, calls may be lost when the watchers restart. {_OWN_NAME}",
            )

    def _complain(self, *texts: str) -> None:
        """Log an error and its advice, unless they were just logged."""
        text = lines(f"Connection {self.custody_conn_id!r}, webhook calls: {texts[0]}", *texts[1:])
        if text != self._complaint:
            self._complaint = text
            self.log.error("%s", text)
