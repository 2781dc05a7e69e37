"""Reading a listing in pages while rows come, leave, move or are dropped: complete, or an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client import CustodyResponseError
from airflow_custody.client.http.listings import (
    MAX_LISTED_ROWS,
    CursorPage,
    Listing,
    OffsetPage,
    read_all,
    read_journal,
    read_offset_listing,
    read_twice,
)
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.responses import MAX_COUNT

LIST = Operation("list", "GET", "/list")
Change = tuple[str, int, int]


@dataclass
class Service:
    """
    A service whose listing changes between two calls.

    It counts the dropped rows, but does not return them. Either they keep their place among the offsets, or the next
    row takes it. It may return smaller pages than requested.
    """

    rows: list[str]
    page_size: int
    changes: list[list[Change]] = field(default_factory=list)
    dropped: frozenset[str] = frozenset()
    keep_place: bool = True
    smaller_by: int = 0
    stable: set[str] = field(default_factory=set)
    new: int = 0

    def __post_init__(self) -> None:
        self.stable = set(self.rows)
        self.calls = 0

    def _page(self, start: int) -> list[str]:
        if self.calls and self.calls <= len(self.changes):
            for change in self.changes[self.calls - 1]:
                self._change(*change)
        self.calls += 1
        return self.rows[start : start + self.page_size]

    def _change(self, kind: str, where: int, to: int) -> None:
        if kind == "insert":
            self.new += 1
            self.rows.insert(where % (len(self.rows) + 1), f"new {self.new}")
        elif kind == "append":
            self.new += 1
            self.rows.append(f"new {self.new}")
        elif self.rows:
            row = self.rows.pop(where % len(self.rows) if kind != "trim" else 0)
            if kind == "move":
                self.rows.insert(to % (len(self.rows) + 1), row)
            else:
                self.stable.discard(row)

    def at_offset(self, offset: int) -> OffsetPage[str]:
        page = self._page(offset)[: self.page_size - self.smaller_by]
        if self.dropped and not self.keep_place:
            page = self.returned[offset : offset + self.page_size]
        return OffsetPage([(row, row) for row in page if row not in self.dropped], len(self.rows))

    @property
    def returned(self) -> list[str]:
        return [row for row in self.rows if row not in self.dropped]

    def read(self) -> Generator[str, None, int]:
        return read_offset_listing(LIST, self.at_offset, self.page_size)

    def after(self, name: str | None) -> CursorPage[str]:
        start = 0 if name is None else int(name) + self.page_size
        page = self._page(start)
        more = start + self.page_size < len(self.rows)
        return CursorPage([(row, row) for row in page], str(start) if more else None)


def changes_of(*kinds: str, most: int = 4) -> st.SearchStrategy[list[list[Change]]]:
    if not kinds:
        return st.just([])
    change = st.tuples(st.sampled_from(kinds), st.integers(0, 12), st.integers(0, 12))
    return st.lists(st.lists(change, max_size=most), max_size=8)


def services(*kinds: str, smallest: int = 2, most: int = 4) -> st.SearchStrategy[Service]:
    return st.builds(
        Service,
        rows=st.integers(0, 9).map(lambda number: [str(each) for each in range(number)]),
        page_size=st.integers(smallest, 5),
        changes=changes_of(*kinds, most=most),
    )


def missed(service: Service, read: Callable[[], Iterator[str]]) -> set[str]:
    """Read a listing, and return which of the rows that were there all along it misses; none if it is refused."""
    refused, found = None, []
    try:
        for row in islice(read(), 1000):
            found.append(row)
    except CustodyResponseError as error:
        refused = error
    assert len(found) < 1000
    assert len(set(found)) == len(found)
    if refused is None:
        return service.stable - set(found)
    assert refused.retryable
    return set()


@settings(max_examples=400)
@given(services("insert", "remove") | services("insert", "remove", "move", most=1))
def test_by_offset_no_row_is_missed_while_rows_come_and_leave_or_one_moves(service: Service) -> None:
    """Several rows may come and leave between two pages, but only one may move: several moves can hide each other."""
    assert not missed(service, service.read)


@given(services(smallest=1))
def test_a_listing_that_does_not_change_is_read_whole(service: Service) -> None:
    assert list(read_twice(LIST, service.after)) == service.rows
    assert list(read_journal(LIST, service.after)) == service.rows
    service.calls = 0
    assert read_all(service.read()) == Listing(service.rows)
    # There is one call for each page. Each page overlaps with the page before it by one row, if it has room for this
    # row.
    step = max(1, service.page_size - 1)
    assert service.calls == 1 + max(0, math.ceil((len(service.rows) - service.page_size) / step))


@settings(max_examples=400)
@given(services("insert", "remove", "move", smallest=1))
def test_by_cursor_and_twice_no_row_is_ever_missed(service: Service) -> None:
    assert not missed(service, lambda: read_twice(LIST, service.after))


@settings(max_examples=400)
@given(services("append", "trim", smallest=1))
def test_of_a_journal_no_row_is_missed_while_it_grows_and_loses_its_oldest(service: Service) -> None:
    assert not missed(service, lambda: read_journal(LIST, service.after))


@settings(max_examples=400)
@given(st.sets(st.integers(0, 20)), st.integers(0, 20), st.integers(1, 6), st.booleans())
def test_dropped_rows_hide_no_other_row_wherever_they_are(
    dropped: set[int], number: int, page_size: int, keep_place: bool
) -> None:
    rows = [str(each) for each in range(number)]
    service = Service(rows, page_size, dropped=frozenset(map(str, dropped)), keep_place=keep_place)
    assert read_all(service.read()) == Listing(service.returned, number - len(service.returned))
    # Two readings, each of which moves on by at least one row with each page.
    assert service.calls <= 2 * (number + 1)


@settings(max_examples=400)
@given(services("insert", "remove"), st.sets(st.integers(0, 9)), st.booleans())
def test_while_rows_are_dropped_and_change_no_row_is_taken_for_listed_or_hidden(
    service: Service, dropped: set[int], keep_place: bool
) -> None:
    """If a row is missing from the result, the result says that rows are hidden."""
    service.dropped, service.keep_place = frozenset(map(str, dropped)), keep_place
    service.stable -= service.dropped
    found: list[Listing[str]] = []

    def read() -> Iterator[str]:
        found.append(read_all(service.read()))
        return iter(found[0].rows)

    assert not missed(service, read) or found[0].hidden


PLACES = [str(each) for each in range(12)]


def test_a_short_page_is_no_change() -> None:
    """A service may have smaller pages than requested."""
    service = Service([*PLACES], 4, smaller_by=1)
    assert read_all(service.read()) == Listing(PLACES)


@pytest.mark.parametrize(
    "changes",
    [[("remove", 2, 0)], [("append", 0, 0)], [("remove", 2, 0), ("append", 0, 0)]],
    ids=["fewer", "more", "another"],
)
def test_rows_are_hidden_only_if_a_second_reading_agrees(changes: list[Change]) -> None:
    # The first reading takes two calls: a page with new rows, and one without.
    service = Service(["0", "1", "2", "3"], 9, [[], changes], dropped=frozenset({"0"}))
    with pytest.raises(CustodyResponseError, match="a second reading did not list the same rows") as caught:
        read_all(service.read())
    assert caught.value.retryable
    assert caught.value.code == "listing-changed"


# --- bounds ------------------------------------------------------------------------------------------------


def test_a_full_page_without_a_total_has_no_known_end() -> None:
    with pytest.raises(CustodyResponseError, match="a page has 2 rows and no total") as caught:
        read_all(read_offset_listing(LIST, lambda offset: OffsetPage([("1", ""), ("2", "")], None), 2))
    assert not caught.value.retryable
    assert read_all(read_offset_listing(LIST, lambda offset: OffsetPage([("1", "")], None), 2)) == Listing([""])


@pytest.mark.parametrize(("total", "calls"), [(MAX_COUNT, 1), (MAX_LISTED_ROWS + 1, 1), (MAX_LISTED_ROWS, 20_001)])
def test_an_absurd_total_costs_a_limited_number_of_calls(total: int, calls: int) -> None:
    offsets = []

    def fetch(offset: int) -> OffsetPage[str]:
        offsets.append(offset)
        return OffsetPage([("1", "")] if offset == 0 else [], total)

    with pytest.raises(CustodyResponseError, match="at most 1,000,000 rows are read") as caught:
        read_all(read_offset_listing(LIST, fetch, 2))
    assert not caught.value.retryable
    assert len(offsets) == calls


@pytest.mark.parametrize("read", [read_twice, read_journal])
@pytest.mark.parametrize(("page_size", "calls"), [(1, 20_001), (100_000, 11)])
def test_a_listing_with_a_cursor_ends_although_it_says_that_there_is_more(
    read: Callable[..., Iterator[str]], page_size: int, calls: int
) -> None:
    fetched = []

    def fetch(name: str | None) -> CursorPage[str]:
        fetched.append(name)
        start = int(name or 0)
        return CursorPage([(str(start + each), "") for each in range(page_size)], str(start + page_size))

    with pytest.raises(CustodyResponseError, match="at most 1,000,000 rows are read"):
        for _ in read(LIST, fetch):
            pass
    assert len(fetched) == calls


@pytest.mark.parametrize(
    "pages",
    [
        [CursorPage([], "a")],
        [CursorPage([("1", "")], "a"), CursorPage([("1", "")], "b")],
        [CursorPage([("1", ""), ("1", "")], None)],
    ],
)
def test_a_cursor_that_leads_nowhere_is_refused(pages: list[CursorPage[str]]) -> None:
    left = iter(pages)
    with pytest.raises(CustodyResponseError):
        list(read_journal(LIST, lambda name: next(left)))
