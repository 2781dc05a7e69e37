"""The new webhook calls since a cursor. Pure, except for fetching."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_custody.client.arguments import describe
from airflow_custody.client.errors import CustodyError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.http.listings import CursorPage, check_length, listing_changed
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import EPOCH
from airflow_custody.client.webhooks.models import WebhookCall

#: An older call that appears in the journal after a newer call is found if it appears at most this much later.
OVERLAP = timedelta(minutes=5)
#: The beginning of the keys of watchers' cursors in an asset's state store.
WATCHER_CURSOR_KEY = "custody_webhook_calls"
_VERSION = 2

Fetch = Callable[["str | None"], CursorPage[WebhookCall]]


@dataclass(frozen=True)
class CallCursor:
    """
    A cursor in the journal of webhook calls.

    It has a time, and the known calls from five minutes before that time on. All older calls count as known.

    :param at: creation time of the newest known call, but not later than the time of reading by the service's clock.
        If no call was ever known, the beginning of Unix time.
    :param seen: ids and creation times of the known calls.
    """

    at: datetime
    seen: frozenset[tuple[str, datetime]] = frozenset()

    @property
    def newest(self) -> datetime | None:
        """Creation time of the newest known call; None: no call is known."""
        return max((created for _, created in self.seen), default=None)

    def after(self, calls: Iterable[WebhookCall], now: datetime) -> CallCursor:
        """
        Return a cursor that also knows these calls.

        :param calls: the calls, each with its creation time.
        :param now: the time by the service's clock.
        """
        seen = self.seen | {(call.id, call.created_at) for call in calls if call.created_at}
        at = min(max([self.at, *(created for _, created in seen)]), now)
        return CallCursor(at, frozenset(each for each in seen if each[1] >= at - OVERLAP))

    def to_json(self) -> dict[str, Any]:
        """Return the cursor as plain JSON data."""
        seen = {call_id: created.isoformat() for call_id, created in sorted(self.seen, key=lambda each: each[::-1])}
        return {"version": _VERSION, "at": self.at.isoformat(), "seen": seen}

    def to_stored(self) -> dict[str, Any]:
        """Return the stored form of the cursor: one key of an event's ``extra``, or the value in a state store."""
        return {"cursor": self.to_json()}

    @classmethod
    def from_stored(cls, value: Any) -> CallCursor:
        """
        Return a stored cursor.

        :param value: a mapping with the form that :meth:`to_stored` returns; it may have other keys.
        :raises CustodyRequestError: if the value has no usable cursor.
        """
        return cls.from_json(value.get("cursor") if isinstance(value, Mapping) else value)

    @classmethod
    def from_json(cls, data: Any) -> CallCursor:
        """
        Return the cursor for data in the form that :meth:`to_json` returns.

        :raises CustodyRequestError: if the data is not a cursor, or of another version.
        """
        try:
            if data["version"] != _VERSION:
                raise ValueError
            seen = {(str(each), datetime.fromisoformat(at)) for each, at in data["seen"].items()}
            return cls(datetime.fromisoformat(data["at"]), frozenset(seen))
        except (AttributeError, KeyError, TypeError, ValueError):
            version = data.get("version") if isinstance(data, dict) else None
            why = describe(data) if version in (None, _VERSION) else f"its version is {sanitize(str(version), 40)}"
            raise CustodyRequestError(
                f"the cursor of webhook calls cannot be used: {why}; nothing is sent",
                setting="cursor",
                code="record-unreadable",
                advice="Use the version of the package that wrote it, or continue without a cursor, from now or from "
                "the beginning.",
            ) from None


#: The cursor that knows no call.
BEGINNING = CallCursor(EPOCH)


@dataclass(frozen=True)
class NewCalls:
    """
    The new calls in the journal.

    :param before: the cursor before these calls. After a gap, without the calls that are no longer listed.
    :param read_at: the time of reading by the service's clock.
    :param calls: the calls, in the order of creation.
    :param more: whether there are more new calls than requested.
    :param gap: description of the calls that may be lost; empty: none.
    """

    before: CallCursor
    read_at: datetime
    calls: tuple[WebhookCall, ...] = ()
    more: bool = False
    gap: str = ""

    @property
    def cursor(self) -> CallCursor:
        """The cursor after these calls."""
        return self.cursor_after(len(self.calls))

    @property
    def late(self) -> frozenset[str]:
        """
        Ids of calls that appeared late.

        Each was created before a call that was already known.
        """
        newest = self.before.newest
        if newest is None:
            return frozenset()
        return frozenset(call.id for call in self.calls if call.created_at and call.created_at < newest)

    def cursor_after(self, number: int) -> CallCursor:
        """Return the cursor after the first ``number`` calls."""
        return self.before.after(self.calls[:number], self.read_at)


def read_new_calls(operation: Operation, fetch: Fetch, cursor: CallCursor | None, limit: int) -> NewCalls:
    """
    Read the calls that are new since a cursor.

    The newest calls are read first, until a page ends with a call more than five minutes older than the cursor's time,
    or there are no more pages. Without a cursor, the newest call's time counts; the time is at most the current time.

    :param operation: the listing, for errors.
    :param fetch: fetches the first page (None), or the page that follows the page with this name; the newest calls come
        first.
    :param cursor: the cursor; None: return no calls, and a cursor that knows all existing calls.
    :param limit: maximum number of calls to return; the oldest new calls come first.
    :raises CustodyResponseError: like :meth:`.WebhookOperations.read_webhook_calls`.
    """
    page = fetch(None)
    reader = _JournalReader(operation, cursor, limit, now=page.date or datetime.now(timezone.utc))
    pages, rows = 1, len(page.rows)
    while True:
        check_length(operation, rows, pages)
        is_new_to_reader = reader.add(page)
        if page.next is None or reader.is_done:
            return reader.result()
        if not is_new_to_reader:
            raise listing_changed(operation, "a page lists only calls that were already listed")
        page = fetch(page.next)
        pages, rows = pages + 1, rows + len(page.rows)


class _JournalReader:
    """
    The new calls in the pages of a journal, the newest first.

    :param operation: the listing, for errors.
    :param cursor: the cursor; None: no call is new.
    :param limit: maximum number of new calls to keep: the oldest.
    :param now: the time by the service's clock.
    """

    def __init__(self, operation: Operation, cursor: CallCursor | None, limit: int, now: datetime) -> None:
        self._operation = operation
        self._cursor = cursor
        self._limit = limit
        self._now = now
        # Calls from before this time are ignored; None: no page was added yet.
        self._oldest_time: datetime | None = None
        # Creation times of the first and of the last call on the last page.
        self._first_time: datetime | None = None
        self._last_time: datetime | None = None
        self._listed: set[tuple[str, datetime]] = set()
        self._new: deque[WebhookCall] = deque()
        self._has_more = False

    @property
    def is_done(self) -> bool:
        """Whether the last page ends with a call that is too old."""
        if self._last_time is None or self._oldest_time is None:
            return False
        return self._last_time < self._oldest_time

    def add(self, page: CursorPage[WebhookCall]) -> bool:
        """
        Add a page; tell whether it has calls that earlier pages lack.

        :raises CustodyResponseError: if its calls are not in the order of their time stamps.
        """
        calls = [call for _, call in page.rows]
        keys = [(call.id, _created(self._operation, call)) for call in calls]
        times = [created for _, created in keys]
        self._check_order(keys, times)
        if self._oldest_time is None:
            self._oldest_time = self._start(times) - OVERLAP
        self._last_time = times[-1] if times else None
        self._first_time = times[0] if times else self._first_time
        listed_before = len(self._listed)
        for key, call in zip(keys, calls, strict=True):
            # Skip calls that were listed before: calls that are created during the reading move older calls to the next
            # page.
            if key not in self._listed and key[1] >= self._oldest_time:
                self._listed.add(key)
                self._add_if_new(key, call)
        return len(self._listed) > listed_before

    def _check_order(self, keys: list[tuple[str, datetime]], times: list[datetime]) -> None:
        is_sorted = times == sorted(times, reverse=True)
        is_after_last_page = not times or self._first_time is None or times[0] <= self._first_time
        is_each_once = len(set(keys)) == len(keys)
        if not (is_sorted and is_after_last_page and is_each_once):
            raise _unusable(self._operation, "the calls are not listed by time stamp, newest first and each once")

    def _start(self, times: list[datetime]) -> datetime:
        """Return the cursor's or the newest call's time, at most now."""
        if self._cursor is not None:
            return min(self._cursor.at, self._now)
        return min(times[0], self._now) if times else self._now

    def _add_if_new(self, key: tuple[str, datetime], call: WebhookCall) -> None:
        if self._cursor is None or key in self._cursor.seen:
            return
        self._new.append(call)
        if len(self._new) > self._limit:
            self._has_more = True
            self._new.popleft()

    def result(self) -> NewCalls:
        """Return the new calls of all pages."""
        cursor, listed = self._cursor, self._listed
        if cursor is None:
            # If the journal is empty, do not start at the current time: the service may have several clocks, and may
            # date the first call earlier.
            newest = max((created for _, created in listed), default=EPOCH)
            return NewCalls(CallCursor(min(newest, self._now), frozenset(listed)), self._now)
        gap = _find_gap(cursor, listed, self._now)
        before = CallCursor(cursor.at, cursor.seen & listed) if gap else cursor
        return NewCalls(before, self._now, tuple(reversed(self._new)), self._has_more, gap)


def _find_gap(cursor: CallCursor, listed: set[tuple[str, datetime]], now: datetime) -> str:
    """Describe the calls that may be lost; empty if none are."""
    gaps = []
    newest = cursor.newest
    if newest and not any(each[1] == newest for each in cursor.seen & listed):
        until = min((created for _, created in listed if created > newest), default=now)
        gaps.append(
            "the newest known call is no longer listed: calls created between "
            f"{newest:%Y-%m-%d %H:%M:%S} and {until:%Y-%m-%d %H:%M:%S} UTC may have been removed before they were read"
        )
    if now < cursor.at - OVERLAP:
        gaps.append(
            f"the service's clock was set back: calls dated between {now:%Y-%m-%d %H:%M:%S} and "
            f"{cursor.at:%Y-%m-%d %H:%M:%S} UTC may be missing or repeated"
        )
    return "; ".join(gaps)


def _created(operation: Operation, call: WebhookCall) -> datetime:
    if call.created_at is None:
        raise _unusable(operation, f"call {call.id} has no readable time stamp")
    return call.created_at


def _unusable(operation: Operation, why: str) -> CustodyError:
    return operation.failed(
        CustodyResponseError,
        why,
        code="calls-missing",
        advice="New calls cannot be found in such a listing. list_webhook_calls reads all of it.",
    )
