"""A watcher of webhook calls: how far it has come, and the events that it fires."""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.text import sanitize
from airflow_custody.triggers._base import _Connection, _pool, wrap_unexpected
from airflow_custody.triggers._cursors import CursorError, CursorStore, why
from airflow_custody.triggers._journal import (
    WEBHOOKS_REPORTED_EVERY,
    SharedReading,
    service_of,
)

if TYPE_CHECKING:
    from airflow_custody.client.webhooks.call_events import CallFilter
    from airflow_custody.client.webhooks.journal import CallCursor
    from airflow_custody.client.webhooks.models import WebhookCall
    from airflow_custody.client.webhooks.results import NewCalls

MAX_CALLS_PER_EVENT = 100
MAX_BYTES_PER_EVENT = 65_536
#: Maximum number of events that a watcher fires at each poll: Airflow stores one after the other, and in 300 seconds.
MAX_EVENTS_PER_POLL = 50
#: Seconds until something that is still wrong is logged again.
COMPLAIN_EVERY = 600.0
#: Seconds after which a gap is said again that each poll finds while the service's clock is behind what is known.
GAP_REPEATED_EVERY = 3600.0
#: Seconds after which a cursor is saved although no call was new.
SAVE_EVERY = 600.0
# Size of an event without its calls.
_ENVELOPE_BYTES = 1024

StartAt = Literal["now", "beginning"]


@dataclass(frozen=True)
class Portion:
    """
    The events that a watcher fires at one poll.

    :param events: the payloads of its events.
    :param cursor: the cursor after them.
    :param is_news: whether the cursor is worth saving at once.
    :param repeats_gap: whether the events say a gap that the next reading finds again.
    """

    events: list[dict[str, Any]]
    cursor: CallCursor
    is_news: bool = True
    repeats_gap: bool = False


class CallWatcher:
    """
    One watcher: takes what is new from the shared readings, or reads itself what they lack.

    :param custody_conn_id: id of the Airflow connection.
    :param call_filter: which calls it fires for.
    :param start: start without a cursor.
    :param with_payload: whether the events hold the calls' payloads.
    :param patience: seconds that it may hold up a shared reading.
    :param cursors: the store of its cursor.
    :param log: the trigger's log.
    """

    def __init__(
        self,
        custody_conn_id: str,
        call_filter: CallFilter,
        *,
        start: StartAt,
        with_payload: bool,
        patience: float,
        cursors: CursorStore,
        log: Any,
    ) -> None:
        self._custody_conn_id = custody_conn_id
        self._filter = call_filter
        self._start = start
        self._with_payload = with_payload
        self._patience = patience
        self._cursors = cursors
        self._log = log
        self._service: str | None = None
        self._cursor: CallCursor | None = None
        # Whether the cursor is of a journal that had another base URL.
        self._base_url_changed = False
        self._unsaved = False
        self._saved_at = time.monotonic()
        self._work: asyncio.Future[list[Portion]] | None = None
        # The portions left of the last reading, and the one that is being handed over.
        self._portions: deque[Portion] = deque()
        self._current: Portion | None = None
        self._complaints: dict[str, float] = {}
        self._reported_at = float("-inf")
        self._gap_said_at = float("-inf")

    async def take(self, reading: SharedReading, connection: _Connection) -> list[dict[str, Any]]:
        """
        Return the payloads of the events that a reading is reason for.

        It waits for no more than its patience: what takes longer comes with a later reading.

        :param reading: the result of the shared poll.
        :param connection: to read with what the shared poll does not have.
        """
        self._current = None
        if not await self._is_ready(reading):
            return []
        self._report(reading)
        if not self._portions:
            self._portions.extend(await self._find_new(reading, connection))
        if not self._portions:
            return []
        self._current = self._portions.popleft()
        return self._current.events

    def handed_over(self, reading: SharedReading) -> None:
        """Move the cursor past a reading all of whose events were fired; it is saved once Airflow has them."""
        if self._current is not None:
            self._cursor, self._unsaved = self._current.cursor, self._unsaved or self._current.is_news
            if self._current.repeats_gap:
                self._gap_said_at = time.monotonic()
            self._current = None
        is_due = self._unsaved or time.monotonic() - self._saved_at >= SAVE_EVERY
        # A cursor that was not read on with here is none of this base URL yet.
        if is_due and self._cursor is not None and self._service == reading.service and not self._base_url_changed:
            cursor, service = self._cursor, reading.service
            reading.savers[self] = lambda: self._save(cursor, service)

    def close(self) -> None:
        """Stop reading, and leave the cursor to the next watcher."""
        if self._work is not None:
            self._work.cancel()
        # A cursor that is not saved by now may be of events that Airflow dropped.
        self._service = None
        self._cursors.release()

    # --- the cursor ------------------------------------------------------------------------------------------

    async def _is_ready(self, reading: SharedReading) -> bool:
        """Load the cursor if that was not done yet, and tell whether there is one to go on from."""
        if self._service != reading.service:
            self._service, self._cursor, self._gap_said_at = None, None, float("-inf")
            # The portions are of another base URL.
            self._portions.clear()
            if self._work is not None:
                self._work.cancel()
                self._work = None
            try:
                self._cursor, service = await self._cursors.load()
            except CursorError as error:
                self._complain(f"no webhook calls are handed on: {error}", error=True)
                return False
            self._service = reading.service
            self._base_url_changed = self._cursor is not None and service != reading.service
            self._unsaved = False
            self._complaints.clear()
        if self._cursor is None and self._start == "now":
            # At once, so that a restart goes on from here: there is no event to wait for.
            self._cursor, self._unsaved = reading.new.cursor, True
            self._log.info("Watching webhook calls from now on.")
            await self._save(self._cursor, reading.service)
            return False
        return True

    async def _save(self, cursor: CallCursor, service: str) -> None:
        """Save a cursor; what fails is logged, and made good by the next one."""
        if service != self._service:
            return
        try:
            same = await self._cursors.save(cursor, service)
        except Exception as exception:
            self._complain(
                f"the cursor cannot be saved; a restart would go on from the last one, or begin anew: {why(exception)}"
            )
            return
        self._saved_at = time.monotonic()
        self._unsaved = self._unsaved and self._cursor is not cursor
        if not same:
            self._complain(
                "somebody else has written this watcher's cursor. If it is another watcher, calls may be lost when "
                "they restart: give each a cursor_name of its own",
                error=True,
            )

    # --- what is new -----------------------------------------------------------------------------------------

    async def _find_new(self, reading: SharedReading, connection: _Connection) -> list[Portion]:
        """Return what is new; nothing if that takes longer than the watcher's patience, or fails."""
        if self._work is None:
            shared = None if self._base_url_changed else share(self._cursor, reading)
            if shared is not None and not shared.calls and not shared.gap:
                return [Portion([], shared.cursor, is_news=False)]
            self._work = self._in_pool(self._find, connection, reading, self._cursor, shared)
        await asyncio.wait({self._work}, timeout=self._patience)
        if not self._work.done():
            self._complain("reading what is new takes long; it goes on, and its events come with a later poll")
            return []
        work, self._work = self._work, None
        try:
            portions, self._base_url_changed = work.result(), False
            return portions
        except Exception as exception:
            error = (
                exception if isinstance(exception, CustodyError) else wrap_unexpected(exception, "read webhook calls")
            )
            self._complain(f"what is new cannot be read; nothing is lost, it is tried again: {error}")
            return []

    def _in_pool(self, function: Callable[..., list[Portion]], *arguments: Any) -> asyncio.Future[list[Portion]]:
        """Run a function in a pool that the shared polls do not use: a backlog holds up none of them."""
        run = contextvars.copy_context().run
        pool = _pool(f"{self._custody_conn_id} (backlogs of webhook calls)")
        try:
            return asyncio.get_running_loop().run_in_executor(pool, run, function, *arguments)
        except RuntimeError as error:
            # No thread can be started.
            failed: asyncio.Future[list[Portion]] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def _find(
        self, connection: _Connection, reading: SharedReading, cursor: CallCursor | None, shared: NewCalls | None
    ) -> list[Portion]:
        """Return what is new, in a thread."""
        from airflow_custody.metrics import calls_read

        client = connection.client()
        if service_of(client) != reading.service:
            raise CustodyResponseError("the connection's base URL has just changed", code="unexpected", retryable=True)
        new = shared
        if new is None:
            new = reading.backlogs.read(client, cursor, self._start, base_url_changed=self._base_url_changed)
        new = self._say_rarely(new)
        types: dict[str, str] = {}
        if self._filter.needs_types and new.calls:
            types = reading.webhooks.types(client, {call.webhook_id for call in new.calls})
        if new.gap:
            self._log.warning("Webhook calls may be missing: %s", new.gap)
        if new.calls and new.warning:
            self._complain(new.warning)
        selected = self._filter.select(new.calls, types)
        calls_read(self._custody_conn_id, len(selected))
        portions = make_portions(cursor, new, selected, with_payload=self._with_payload)
        if new.gap and new.cursor.is_set_back:
            # The first event says it.
            portions[0] = replace(portions[0], repeats_gap=True)
        if self._base_url_changed:
            # The place is one of this base URL from now on.
            portions[-1] = replace(portions[-1], is_news=True)
        return portions

    def _say_rarely(self, new: NewCalls) -> NewCalls:
        """Leave out a gap that was said a short while ago, if only time can rule it out and no call is new."""
        if not new.gap or not new.cursor.is_set_back:
            return new
        is_recent = time.monotonic() - self._gap_said_at < GAP_REPEATED_EVERY
        return replace(new, gap="") if is_recent and not new.calls else new

    # --- the log ---------------------------------------------------------------------------------------------

    def _complain(self, text: str, *, error: bool = False) -> None:
        """Log what is wrong, and again from time to time."""
        now = time.monotonic()
        if now - self._complaints.get(text, float("-inf")) >= COMPLAIN_EVERY:
            if len(self._complaints) > 100:
                self._complaints.clear()
            self._complaints[text] = now
            (self._log.error if error else self._log.warning)("Connection %r: %s", self._custody_conn_id, text)

    def _report(self, reading: SharedReading) -> None:
        """Log which webhooks may not write calls at present: whether they do is not known."""
        if time.monotonic() - self._reported_at < WEBHOOKS_REPORTED_EVERY or not reading.webhooks.listed:
            return
        self._reported_at = time.monotonic()
        if stopped := list(_not_enabled(reading, self._filter)):
            self._log.warning(
                "Connection %r: whether calls are written for these webhooks is not known: %s",
                self._custody_conn_id,
                "; ".join(stopped),
            )


def share(cursor: CallCursor | None, reading: SharedReading) -> NewCalls | None:
    """
    Return what is new in a reading after a cursor; None: the reading does not go on from there.

    Gaps are judged for the cursor itself, never taken over from another one's: how old its last reading is,
    and whether its newest call is listed. A gap only counts in a reading that began with the cursor.
    """
    found = reading.new.reading
    if cursor is None or reading.known is None:
        return None
    if cursor is reading.known:
        return reading.new
    if found is None or not cursor.covers(reading.known):
        return None
    if not found.is_consistent_with(cursor) or reading.new.cursor.floor < reading.known.floor:
        # The service's clock was set back: below this cursor's floor there may be calls that it does not know.
        return None
    # Beyond the shared cursor's floor there may be calls that neither knows.
    new = found.result_for(cursor, not_beyond=reading.new.cursor.floor)
    if new.gap:
        return None
    if reading.new.cursor.covers(new.cursor) and reading.new.cursor.detects_gaps_like(new.cursor):
        # From here on the two are one.
        new = replace(new, cursor=reading.new.cursor)
    return new


def make_portions(
    cursor: CallCursor | None, new: NewCalls, selected: Sequence[WebhookCall], *, with_payload: bool
) -> list[Portion]:
    """
    Return what to fire for new calls, poll by poll, none of the events large.

    :param cursor: the cursor before; None: there was none.
    :param new: the new calls; a gap in them makes an event also without a call.
    :param selected: those of its calls that the events are for.
    :param with_payload: whether they hold the calls' payloads.
    """
    from airflow_custody.client.webhooks.call_events import to_event
    from airflow_custody.client.webhooks.journal import CallCursor

    parts = list(_parts(selected, new.late, with_payload)) or ([[]] if new.gap else [])
    events = [
        to_event(
            replace(
                new,
                calls=tuple(part),
                late=new.late & {call.id for call in part},
                gap="" if index else new.gap,
                more=new.more or index < len(parts) - 1,
            ),
            with_payload=with_payload,
            max_bytes=MAX_BYTES_PER_EVENT,
        )
        for index, part in enumerate(parts)
    ]
    known = new.known or cursor or CallCursor(0, {})
    if known.read_at is None:
        known = replace(known, read_at=new.cursor.read_at)
    place = {call.id: index for index, call in enumerate(new.calls)}
    portions: list[Portion] = []
    done = 0
    for first in range(0, len(events) - MAX_EVENTS_PER_POLL, MAX_EVENTS_PER_POLL):
        end = place[parts[first + MAX_EVENTS_PER_POLL - 1][-1].id] + 1
        known, done = known.after(new.calls[done:end]), end
        portions.append(Portion(events[first : first + MAX_EVENTS_PER_POLL], known))
    rest = events[len(portions) * MAX_EVENTS_PER_POLL :]
    return [*portions, Portion(rest, new.cursor, is_news=bool(new.calls or new.gap))]


def _parts(calls: Sequence[WebhookCall], late: frozenset[str], with_payload: bool) -> Iterator[list[WebhookCall]]:
    """Split calls into parts that an event has room for."""
    part: list[WebhookCall] = []
    size = _ENVELOPE_BYTES
    for call in calls:
        data = call.to_json()
        if not with_payload:
            data.pop("payload", None)
        # In characters of plain ASCII, as they are stored.
        needed = len(json.dumps(data)) + 8 + (len(call.id) + 8 if call.id in late else 0)
        if part and (len(part) == MAX_CALLS_PER_EVENT or size + needed > MAX_BYTES_PER_EVENT):
            yield part
            part, size = [], _ENVELOPE_BYTES
        part.append(call)
        size += needed
    if part:
        yield part


def _not_enabled(reading: SharedReading, call_filter: CallFilter) -> Iterator[str]:
    """Yield in words which of the webhooks that a filter is about are disabled or cooling down."""
    from airflow_custody.client.webhooks.state import cooling_until, has_status

    for webhook in reading.webhooks.listed:
        kind = webhook.get("type") or ""
        if not call_filter.selects_webhook(webhook["id"], kind):
            continue
        status, until = webhook.get("status") or "", cooling_until(webhook)
        if until or not (has_status(webhook, "") or has_status(webhook, "enabled")):
            cooling = f" until {until}" if until else ""
            yield sanitize(f"{webhook['id']} ({kind}) is {status or 'cooling down'}{cooling}", 200)
