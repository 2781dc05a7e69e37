"""Find the new webhook calls in the service's journal since a cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
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

#: A call that appears in the journal after a newer call is still found if it appears at most this much later.
OVERLAP = timedelta(minutes=5)
_VERSION = 2

Fetch = Callable[["str | None"], CursorPage[WebhookCall]]
# The id and creation time of a call.
_Key = tuple[str, datetime]


@dataclass(frozen=True)
class CallCursor:
    """
    A cursor in the journal of webhook calls.

    It has a time, and the known calls that were created up to five minutes before that time, or later. All older calls
    count as known.

    :param at: creation time of the newest known call, but not later than the time of reading by the service's clock. If
        no call is known, the beginning of Unix time.
    :param seen: ids and creation times of these known calls.
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

    def to_json(self) -> dict[str, object]:
        """Return the cursor as plain JSON data."""
        seen = {call_id: created.isoformat() for call_id, created in sorted(self.seen, key=lambda each: each[::-1])}
        return {"version": _VERSION, "at": self.at.isoformat(), "seen": seen}

    @classmethod
    def from_json(cls, data: Any) -> CallCursor:
        """
        Return the cursor for data in the form that :meth:`to_json` returns.

        :raises CustodyRequestError: if the data is not a cursor, or has another version.
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
                advice="Use the version of the package that wrote the cursor, or continue without a cursor, from now "
                "or from the beginning.",
            ) from None


#: The cursor that knows no call.
BEGINNING = CallCursor(EPOCH)


@dataclass(frozen=True)
class NewCalls:
    """
    The new calls in the journal.

    :param before: the cursor before these calls. If there is a gap, the cursor lacks the calls that are no longer
        listed.
    :param read_at: the time of reading by the service's clock.
    :param calls: the calls, in the order of creation.
    :param more: whether there are more new calls than requested.
    :param gap: description of the calls that may be lost; empty: none are lost.
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
        Ids of the calls that appeared late: they were created before a call that was already known.
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

    The newest calls are read first, until a page has a call that is more than five minutes older than the cursor's
    time, or there are no more pages. If there is no cursor, the newest call's time is used instead of the cursor's.
    Both are at most the current time.

    :param operation: the listing, for errors.
    :param fetch: fetches the first page (None), or the page that follows the page with this name; the newest calls come
        first.
    :param cursor: the cursor; None: return no calls, and a cursor that knows all existing calls.
    :param limit: maximum number of calls to return; the oldest new calls come first.
    :raises CustodyResponseError: like :meth:`.WebhookOperations.read_webhook_calls`.
    """
    page = fetch(None)
    now = page.date or datetime.now(timezone.utc)
    newest = max((call.created_at for _, call in page.rows if call.created_at is not None), default=now)
    oldest_time = min(newest if cursor is None else cursor.at, now) - OVERLAP
    listed: set[_Key] = set()
    # Calls are appended with the newest first, so a full queue drops the newest calls, and keeps the oldest ones.
    new: deque[WebhookCall] = deque(maxlen=limit)
    total = 0
    for calls, is_last in _sorted_pages(operation, page, fetch):
        # Skip calls that an earlier page has listed. New calls that are created during the reading move older calls to
        # the next page.
        found = [key for key in calls if key not in listed and key[1] >= oldest_time]
        listed.update(found)
        unknown = [calls[key] for key in found if cursor is not None and key not in cursor.seen]
        new.extend(unknown)
        total += len(unknown)
        if any(created < oldest_time for _, created in calls):
            break
        if not (found or is_last):
            raise listing_changed(operation, "a page lists only calls that were already listed")
    if cursor is None:
        # If the journal is empty, start at the beginning of time and not now, because the service may have several
        # clocks, and may date its first call earlier than now.
        newest = max((created for _, created in listed), default=EPOCH)
        return NewCalls(CallCursor(min(newest, now), frozenset(listed)), now)
    gap = _find_gap(cursor, listed, now)
    before = CallCursor(cursor.at, cursor.seen & listed) if gap else cursor
    return NewCalls(before, now, tuple(reversed(new)), total > limit, gap)


def _sorted_pages(
    operation: Operation, page: CursorPage[WebhookCall], fetch: Fetch
) -> Iterator[tuple[dict[_Key, WebhookCall], bool]]:
    """
    Yield the calls of each page, newest first, and whether the page is the last one.

    :param operation: the listing, for errors.
    :param page: the first page.
    :param fetch: fetches the page that follows the page with this name, when it is needed.
    :raises CustodyResponseError: if the calls are not sorted, a page repeats a call, or there are too many calls.
    """
    newest: datetime | None = None
    pages = rows = 0
    while True:
        pages, rows = pages + 1, rows + len(page.rows)
        check_length(operation, rows, pages)
        calls: dict[_Key, WebhookCall] = {}
        for _, call in page.rows:
            if call.created_at is None:
                raise _unusable(operation, f"call {call.id} has no readable time stamp")
            calls[call.id, call.created_at] = call
        times = [created for _, created in calls]
        is_after_last_page = not times or newest is None or times[0] <= newest
        if len(calls) < len(page.rows) or times != sorted(times, reverse=True) or not is_after_last_page:
            raise _unusable(operation, "the calls are not listed by time stamp, newest first and each once")
        newest = times[0] if times else newest
        yield calls, page.next is None
        if page.next is None:
            return
        page = fetch(page.next)


def _find_gap(cursor: CallCursor, listed: set[tuple[str, datetime]], now: datetime) -> str:
    """Describe the calls that may be lost; empty if no calls are lost."""
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


def _unusable(operation: Operation, why: str) -> CustodyError:
    return operation.failed(
        CustodyResponseError,
        why,
        code="calls-missing",
        advice="New calls cannot be found in such a listing. list_webhook_calls reads all of its calls.",
    )
