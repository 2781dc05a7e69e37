"""What is new in the journal of webhook calls since a cursor. Pure, but for what fetches the pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_custody.client.arguments import describe
from airflow_custody.client.errors import CustodyError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.http.listings import CursorPage, listing_changed
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import EPOCH
from airflow_custody.client.webhooks.models import WebhookCall

#: How late a call may appear, behind one that was created later, and still be found.
OVERLAP = timedelta(minutes=5)
_VERSION = 2

Fetch = Callable[["str | None"], CursorPage[WebhookCall]]


@dataclass(frozen=True)
class CallCursor:
    """
    A cursor in the journal: a time, and the known calls from five minutes before it on. All older calls are known.

    :param at: creation time of the newest known call, but never later than the service's clock was when it was read.
        Where no call was known, that clock's time.
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
        Return the cursor that knows these calls as well.

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

    @classmethod
    def from_json(cls, data: Any) -> CallCursor:
        """
        Return the cursor that :meth:`to_json` returned.

        :raises CustodyRequestError: if it is none, or of another version.
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
                f"the cursor of webhook calls cannot be used: {why}; nothing was sent",
                setting="cursor",
                code="record-unreadable",
                advice="Use the version of the package that wrote it, or go on without a cursor: from now, or from the "
                "beginning.",
            ) from None


#: The cursor that knows no call.
BEGINNING = CallCursor(EPOCH)


@dataclass(frozen=True)
class NewCalls:
    """
    The new calls in the journal.

    :param before: the cursor that they are new to. After a gap, without the calls that are not listed any more.
    :param read_at: the time by the service's clock.
    :param calls: the calls, in the order in which they were created.
    :param more: whether there are more new calls than were asked for.
    :param gap: in words, which calls may be lost; empty: none are.
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
        """Ids of calls that were created before one that was known already, and appeared after it."""
        newest = self.before.newest
        return frozenset(call.id for call in self.calls if newest and call.created_at and call.created_at < newest)

    def cursor_after(self, number: int) -> CallCursor:
        """Return the cursor after the first calls, so many of them."""
        return self.before.after(self.calls[:number], self.read_at)


def read_new_calls(operation: Operation, fetch: Fetch, cursor: CallCursor | None, limit: int) -> NewCalls:
    """
    Read the calls that are new since a cursor: the newest first, until one is older than the cursor's five minutes.

    :param operation: the listing, for errors.
    :param fetch: fetches the first page (None), or the one after the page with this name; the newest calls come first.
    :param cursor: the cursor; None: no call is returned, and a cursor that knows all there are.
    :param limit: maximum number of calls to return: the oldest.
    :raises CustodyResponseError: as :meth:`.WebhookOperations.read_webhook_calls` says.
    """
    new: deque[WebhookCall] = deque()
    listed: set[tuple[str, datetime]] = set()
    now = floor = top = name = None
    more = False
    while True:
        page = fetch(name)
        marks = [(call.id, _created(operation, call)) for _, call in page.rows]
        times = [created for _, created in marks]
        if times != sorted(times, reverse=True) or (top and times and times[0] > top) or len({*marks}) < len(marks):
            raise _unusable(operation, "the calls are not listed by their time stamps, the newest first and each once")
        if now is None or floor is None:
            now = page.date or datetime.now(timezone.utc)
            floor = min(cursor.at if cursor else times[0] if times else now, now) - OVERLAP
        top = times[0] if times else top
        fresh = False
        for mark, (_, call) in zip(marks, page.rows, strict=True):
            # While it is read, new calls push others to the next page.
            if mark in listed or mark[1] < floor:
                continue
            fresh = True
            listed.add(mark)
            if cursor is None or mark in cursor.seen:
                continue
            new.append(call)
            if len(new) > limit:
                more = True
                new.popleft()
        name = page.next
        if name is None or (times and times[-1] < floor):
            break
        if not fresh:
            raise listing_changed(operation, "a page lists nothing that was not listed before")
    if cursor is None:
        # Of an empty journal, the first call may be dated before now: that clock may be another one.
        newest = max((created for _, created in listed), default=EPOCH)
        return NewCalls(CallCursor(min(newest, now), frozenset(listed)), now)
    gap = _find_gap(cursor, listed, now)
    before = CallCursor(cursor.at, cursor.seen & listed) if gap else cursor
    return NewCalls(before, now, tuple(reversed(new)), more, gap)


def _find_gap(cursor: CallCursor, listed: set[tuple[str, datetime]], now: datetime) -> str:
    """Return in words which calls may be lost; empty: none are."""
    gaps = []
    newest = cursor.newest
    if newest and not any(each[1] == newest for each in cursor.seen & listed):
        until = min((created for _, created in listed if created > newest), default=now)
        gaps.append(
            "the newest call that was known is not listed any more: calls that were created between "
            f"{newest:%Y-%m-%d %H:%M:%S} and {until:%Y-%m-%d %H:%M:%S} UTC may have been removed before they were read"
        )
    if now < cursor.at - OVERLAP:
        gaps.append(
            f"the service's clock was set back: calls that it dates between {now:%Y-%m-%d %H:%M:%S} and "
            f"{cursor.at:%Y-%m-%d %H:%M:%S} UTC may be missing, and some come twice"
        )
    return "; ".join(gaps)


def _created(operation: Operation, call: WebhookCall) -> datetime:
    if call.created_at is None:
        raise _unusable(operation, f"call {call.id} has no time stamp that can be read")
    return call.created_at


def _unusable(operation: Operation, why: str) -> CustodyError:
    return operation.failed(
        CustodyResponseError,
        why,
        code="calls-missing",
        advice="What is new cannot be told from such a listing: list_webhook_calls reads all of it.",
    )
