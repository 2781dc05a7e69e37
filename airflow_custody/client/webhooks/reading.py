"""Reading what is new in the journal of webhook calls, without reading all of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.listings import CursorPage, listing_changed, too_many_rows
from airflow_custody.client.http.operation import MAX_LISTED_ROWS, Operation
from airflow_custody.client.webhooks.journal import (
    MAX_REMEMBERED,
    MAX_UNDATED,
    MICROSECONDS,
    CallCursor,
    created_micros,
    digest_of,
)
from airflow_custody.client.webhooks.models import WebhookCall
from airflow_custody.client.webhooks.results import Clocks, NewCalls, Reading

Order = Literal["ASC", "DESC"]
Fetch = Callable[[Order, "str | None"], CursorPage[WebhookCall]]

#: Maximum length of all calls that a reading returns, in characters of their texts; at least one call is returned.
MAX_RETURNED_LENGTH = 64 * 1024 * 1024

# How often to read again what changed while it was read.
_MAX_READINGS = 4
# So many pages may list calls of the pages before, beyond as many that list others: or more come than can be read, or
# it is always one page.
_MAX_REPEATED_PAGES = 10
_FLOOR_IS_AHEAD = (
    "the time up to which calls were read is later than now: the service's clock was set back, or the cursor is not "
    "from a reading. Calls from before the last five minutes may not have been read"
)


class JournalReader:
    """
    A reader of the journal of webhook calls.

    :param operation: the listing, for errors.
    :param fetch: fetches the first page in an order (None), or the one after the page with this name.
    :param now: returns the Unix time in seconds. Default: this machine's.
    """

    def __init__(self, operation: Operation, fetch: Fetch, *, now: Callable[[], float] = time.time) -> None:
        self._operation = operation
        self._fetch = fetch
        self._clock = now
        # How far the service's clock is ahead of this machine's, by its responses; None: they do not say.
        self._ahead: float | None = None

    def read_after(self, cursor: CallCursor, limit: int) -> NewCalls:
        """
        Read the calls that a cursor does not know: the newest first, until one is older than the cursor's floor.

        Calls that come meanwhile push others to later pages, where they are listed again. What is removed meanwhile
        could pull a call to a page that was read before. So if there is more than one page, they are read again, until
        a reading shows nothing that the one before should have listed.

        :param cursor: the cursor.
        :param limit: maximum number of calls to return: the oldest.
        :raises CustodyResponseError: if the calls are not listed in the order that was asked for; or (retryable) if
            the pages do not fit together, also when they are read again.
        """
        reading = self._read_down(cursor, limit)
        # Now the service's clock is known, too.
        current = cursor.set_back(self._ahead)
        plausible = current.without_future_times(self._clocks().latest_plausible)
        gap = "" if plausible.floor == current.floor else _FLOOR_IS_AHEAD
        if plausible is not cursor:
            cursor = plausible
            reading = self._read_down(cursor, limit)
        for _ in range(_MAX_READINGS):
            if reading.pages == 1:
                break
            again = self._read_down(cursor, limit, reading.calls)
            missed = _missed(reading, again, cursor)
            if not missed:
                break
            previous, reading = reading, again
        else:
            # Calls within the overlap are found the next time.
            floor = previous.result_for(cursor, gap).cursor.floor
            if any(created is None or created < floor for created in missed):
                raise listing_changed(self._operation, "each reading listed calls that the one before had missed")
            reading = previous
        return reading.result_for(cursor, gap)

    def read_from_beginning(self, limit: int) -> NewCalls:
        """
        Read all calls, the oldest first, and stop at the limit; raises as :meth:`read_after` does.

        :param limit: maximum number of calls to return: the oldest.
        """
        for _ in range(_MAX_READINGS - 1):
            calls: list[WebhookCall] = []
            firsts: list[str] = []
            pages = rows = length = 0
            more = False
            for page in self._pages("ASC"):
                pages += 1
                firsts, rows = firsts or [page.first], rows or page.size
                for call in page.calls:
                    length += call.length
                    more = len(calls) >= limit or (length > MAX_RETURNED_LENGTH and bool(calls))
                    if more:
                        break
                    calls.append(call)
                if more:
                    break
            # Calls that leave at the beginning pull others to pages that were read before.
            if pages <= 1 or [each for each, _ in self._fetch("ASC", None).rows[:1]] == firsts:
                oldest = next((each for each in map(created_micros, calls) if each is not None), None)
                cursor = self._clocks().stamp(CallCursor(0, {}), oldest, rows, more=more).after(calls)
                return NewCalls(tuple(calls), cursor, more=more)
        # The oldest are being removed all the time: in the other order, that does no harm.
        return self.read_after(CallCursor(0, {}), limit)

    def read_position(self) -> CallCursor:
        """
        Return a cursor that knows all calls there are; raises as :meth:`read_after` does.

        Where there is none, the first call ever is new.
        """
        calls: list[WebhookCall] = []
        newest: int | None = None
        oldest: int | None = None
        rows = dated = 0
        for page in self._pages("DESC"):
            rows = rows or page.size
            # Their payloads are not needed.
            calls += [replace(each, payload_text=None) for each in page.calls]
            times = [each for each in map(created_micros, page.calls) if each is not None]
            dated += len(times)
            if times:
                newest, oldest = times[0] if newest is None else newest, times[-1]
            if newest is not None and oldest is not None:
                is_enough = dated > MAX_REMEMBERED and oldest // MICROSECONDS < newest // MICROSECONDS
                if is_enough or oldest < self._clocks().stamp(CallCursor(0, {}), None, 0).floor_below(newest):
                    break
        calls.reverse()
        return self._clocks().stamp(CallCursor(0, {}), oldest, rows).after(calls)

    def _read_down(self, cursor: CallCursor, limit: int, found: Iterable[WebhookCall] = ()) -> Reading:
        """Read the calls down to a cursor's floor; those that were found before are not held twice."""
        reading = Reading(deque())
        before = {call.id: call for call in found}
        length = 0
        for page in self._pages("DESC"):
            reading.pages += 1
            reading.rows = reading.rows or page.size
            reading.all_rows += page.size
            reading.is_all = page.is_last
            reading.clocks = self._clocks()
            for call in page.calls:
                created = created_micros(call)
                if created is not None:
                    reading.top = created if reading.top is None else reading.top
                    reading.oldest = created
                    if created < cursor.floor:
                        reading.goes_below = True
                        if created < reading.top:
                            return reading
                        # It is not proved yet that newer ones come first.
                        continue
                reading.listed[call.id] = created
                if cursor.knows(call):
                    if created is not None and digest_of(call.id) in cursor.undated:
                        reading.now_dated.append(replace(call, payload_text=None))
                    continue
                same = before.get(call.id)
                reading.calls.append(same if same == call else call)
                length += call.length
                while len(reading.calls) > limit or (length > MAX_RETURNED_LENGTH and len(reading.calls) > 1):
                    removed = reading.calls.popleft()
                    length -= removed.length
                    dropped = created_micros(removed)
                    reading.more = True
                    reading.held_back = reading.held_back if dropped is None else dropped
        return reading

    def _clocks(self) -> Clocks:
        return Clocks(self._clock(), self._ahead)

    def _fetch_page(self, order: Order, name: str | None) -> CursorPage[WebhookCall]:
        page = self._fetch(order, name)
        if page.date is not None:
            ahead = page.date.timestamp() - self._clock()
            self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
        return page

    def _pages(self, order: Order) -> Iterator[_Page]:
        """Yield the pages, each call once, and refuse those that are not in order."""
        latest = 0
        seen: dict[str, int | None] = {}
        names: set[str] = set()
        name: str | None = None
        first: int | None = None
        last: int | None = None
        size = repeated = undated = 0
        while True:
            page = self._fetch_page(order, name)
            latest = latest or self._clocks().latest_plausible
            calls: list[WebhookCall] = []
            on_page: dict[str, WebhookCall] = {}
            rows = [(identifier, _without_future_time(call, latest)) for identifier, call in page.rows]
            times = [each for each in (created_micros(call) for _, call in rows) if each is not None]
            if times != sorted(times, reverse=order == "DESC"):
                raise self._out_of_order(order)
            first = first if first is not None or not times else times[0]
            is_shifted = any(identifier in seen for identifier, _ in rows)
            for identifier, call in rows:
                created = created_micros(call)
                if on_page.setdefault(identifier, call) != call or seen.get(identifier, created) != created:
                    raise listing_changed(self._operation, f"the id {identifier} came twice, for two calls")
                if identifier in seen:
                    continue
                seen[identifier] = created
                calls.append(call)
                if created is None:
                    undated += 1
                    if undated > MAX_UNDATED:
                        raise self._too_many_undated()
                    continue
                if _precedes(created, last, order):
                    # New calls, or those listed before, push others to this page.
                    if is_shifted or _precedes(created, first, order):
                        raise listing_changed(self._operation, "calls came between two pages")
                    raise self._out_of_order(order)
                last = created
            yield _Page(calls, len(page.rows), page.rows[0][0] if page.rows else "", page.next is None)
            name = page.next
            if name is None:
                return
            size = size or len(page.rows)
            repeated = max(0, repeated + len(page.rows) - 2 * len(calls))
            if not page.rows:
                raise listing_changed(self._operation, "a page is empty and not the last")
            if name in names:
                raise listing_changed(self._operation, "its cursor does not advance")
            if repeated >= _MAX_REPEATED_PAGES * size:
                raise listing_changed(self._operation, "page after page lists calls that were listed before")
            if len(seen) > MAX_LISTED_ROWS:
                raise too_many_rows(self._operation)
            names.add(name)

    def _too_many_undated(self) -> CustodyError:
        return self._operation.failed(
            CustodyResponseError,
            f"more than {MAX_UNDATED} calls have no time stamp that can be read, or one that is later than now",
            code="calls-missing",
            advice="What is new cannot be told from such a listing. Where the service's clock was ahead, wait until "
            "the time that it showed has passed: then what the service still lists is read.",
        )

    def _out_of_order(self, order: Order) -> CustodyError:
        asked = "newest" if order == "DESC" else "oldest"
        return self._operation.failed(
            CustodyResponseError,
            f"the calls are not listed by their time stamps, the {asked} first, as was asked for",
            code="calls-missing",
            advice="What is new cannot be told from such a listing without reading all of it: list_webhook_calls "
            "without a cursor does that.",
        )


@dataclass(frozen=True)
class _Page:
    """
    A page of calls.

    :param calls: those that no page before has listed, without time stamps that cannot be.
    :param size: the number of all that it lists.
    :param first: the id of the first one; empty: there is none.
    :param is_last: whether it is the last page.
    """

    calls: list[WebhookCall]
    size: int
    first: str
    is_last: bool


def _without_future_time(call: WebhookCall, latest: int) -> WebhookCall:
    """Return a call without a time stamp that cannot be."""
    created = created_micros(call)
    return call if created is not None and 0 < created <= latest else replace(call, created_at=None)


def _precedes(created: int, other: int | None, order: Order) -> bool:
    """Tell whether a call must be listed before one that was created at another time; None: there is no other."""
    return other is not None and (created > other if order == "DESC" else created < other)


def _missed(reading: Reading, again: Reading, cursor: CallCursor) -> list[int | None]:
    """Return when those calls were created that a second reading lists, and the first one should have listed."""
    missed: list[int | None] = []
    # A call without a time stamp is as old as its newer neighbour.
    is_newer = True
    for identifier, created in again.listed.items():
        if created is not None:
            is_newer = reading.top is not None and created > reading.top
        is_known = cursor.knows_id(identifier, created)
        if not is_newer and not is_known and identifier not in reading.listed:
            missed.append(created)
    return missed
