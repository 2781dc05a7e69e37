"""Reading a listing in pages while rows come, leave and move: complete, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client import CustodyResponseError
from airflow_custody.client.http.listings import (
    CursorPage,
    OffsetPage,
    read_journal,
    read_offset_listing,
    read_twice,
)
from airflow_custody.client.http.operation import Operation

LIST = Operation("list", "GET", "/list")
Change = tuple[str, int, int]


@dataclass
class Service:
    """A service whose listing changes between two calls."""

    rows: list[str]
    page_size: int
    changes: list[list[Change]]
    with_total: bool = True
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
        page = self._page(offset)
        return OffsetPage([(row, row) for row in page], len(self.rows) if self.with_total else None)

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
        with_total=st.booleans(),
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
@given(services("insert", "remove") | services("move") | services("insert", "remove", "move", most=1))
def test_by_offset_no_row_is_missed_while_rows_come_and_leave_or_move(service: Service) -> None:
    """Nor if one thing of any kind happens between two pages."""
    assert not missed(service, lambda: read_offset_listing(LIST, service.at_offset))


@given(services(smallest=1))
def test_a_listing_that_does_not_change_is_read_whole(service: Service) -> None:
    assert list(read_twice(LIST, service.after)) == service.rows
    assert list(read_journal(LIST, service.after)) == service.rows
    if service.page_size > 1:
        assert list(read_offset_listing(LIST, service.at_offset)) == service.rows


@settings(max_examples=400)
@given(services("insert", "remove", "move", smallest=1))
def test_by_cursor_and_twice_no_row_is_ever_missed(service: Service) -> None:
    assert not missed(service, lambda: read_twice(LIST, service.after))


@settings(max_examples=400)
@given(services("append", "trim", smallest=1))
def test_of_a_journal_no_row_is_missed_while_it_grows_and_loses_its_oldest(service: Service) -> None:
    assert not missed(service, lambda: read_journal(LIST, service.after))


def test_pages_of_one_row_are_refused_if_there_are_more() -> None:
    service = Service(["0", "1", "2"], 1, [], with_total=False)
    with pytest.raises(CustodyResponseError, match="one row, although there are more"):
        list(read_offset_listing(LIST, service.at_offset))


def test_only_pages_that_are_needed_are_fetched() -> None:
    service = Service([str(each) for each in range(7)], 3, [])
    assert next(read_offset_listing(LIST, service.at_offset)) == "0"
    assert service.calls == 1
    assert len(list(read_offset_listing(LIST, service.at_offset))) == 7
    assert service.calls == 4


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
