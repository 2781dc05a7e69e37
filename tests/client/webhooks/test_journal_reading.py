"""Any sequence of readings of a journal that changes in between, and while it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from airflow_custody.client import CustodyResponseError
from airflow_custody.client.http.listings import CursorPage
from airflow_custody.client.webhooks import journal, reading
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.client.webhooks.models import WebhookCall
from airflow_custody.client.webhooks.operations import LIST_WEBHOOK_CALLS
from airflow_custody.client.webhooks.reading import JournalReader, Order
from airflow_custody.client.webhooks.results import NewCalls

START = datetime(2026, 1, 2, tzinfo=timezone.utc)
PAGE = 3


class Journal:
    """A journal, listed in pages by offset, which changes between one page and the next if it is told to."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, int, bool]] = []
        self.number = 0
        self.clock = 0.0
        self.newest = 0.0
        self.removed: set[str] = set()
        self.changes: list[Callable[[], None]] = []
        self.fetched = 0

    def add(self, ago: float = 0.0, *, dated: bool = True) -> str:
        self.number += 1
        at = max(0.0, self.clock - ago)
        self.rows.append((at, self.number, dated))
        self.newest = max(self.newest, at) if dated else self.newest
        self.rows.sort()
        return str(self.number)

    def remove(self, index: int) -> None:
        if self.rows:
            self.removed.add(str(self.rows.pop(min(index, len(self.rows) - 1))[1]))

    def fetch(self, order: Order, name: str | None) -> CursorPage[WebhookCall]:
        self.fetched += 1
        if name is not None and self.changes:
            self.changes.pop(0)()
        start = int(name or 0)
        rows = self.rows if order == "ASC" else self.rows[::-1]
        calls = [self.call(*row) for row in rows[start : start + PAGE]]
        after = start + PAGE
        return CursorPage([(call.id, call) for call in calls], str(after) if after < len(rows) else None)

    def call(self, at: float, number: int, dated: bool) -> WebhookCall:
        created = START + timedelta(seconds=at)
        return WebhookCall(str(number), "w", created_at=created if dated else None)

    def now(self) -> float:
        return (START + timedelta(seconds=self.clock)).timestamp()

    def reader(self) -> JournalReader:
        return JournalReader(LIST_WEBHOOK_CALLS, self.fetch, now=self.now)


class Readings(RuleBasedStateMachine):
    """Each call is returned at least once, whatever happens between two readings, or while one goes on."""

    #: Seconds by which a call may be late.
    lateness = 299.0

    @initialize(beginning=st.booleans(), calls=st.integers(0, 12), limit=st.integers(1, 20))
    def begin(self, beginning: bool, calls: int, limit: int) -> None:
        self.journal = Journal()
        self.returned: set[str] = set()
        for _ in range(calls):
            self.journal.clock += 50
            self.journal.add()
        self.cursor: CallCursor
        if beginning:
            self.cursor = CallCursor(0, {})
            self.take(self.journal.reader().read_from_beginning(limit))
        else:
            self.cursor = self.journal.reader().read_position()
            self.returned |= {str(row[1]) for row in self.journal.rows}

    @rule(seconds=st.sampled_from([0.0, 0.001, 1, 100, 301]), number=st.integers(1, 8), step=st.booleans())
    def call_comes(self, seconds: float, number: int, step: bool) -> None:
        self.journal.clock += seconds
        for _ in range(number):
            self.journal.clock += 0.5 * step
            self.journal.add()

    @rule(share=st.floats(0, 1))
    def call_comes_late(self, share: float) -> None:
        self.late(share)

    @rule()
    def call_without_a_time_comes(self) -> None:
        self.journal.add(dated=False)

    @rule(index=st.integers(0, 5))
    def call_is_removed(self, index: int) -> None:
        self.journal.remove(index)

    @precondition(lambda self: self.journal.rows)
    @rule(limit=st.sampled_from([1, 2, 5, 100]), changes=st.lists(st.sampled_from("nnlroo"), max_size=6))
    def read(self, limit: int, changes: str) -> None:
        actions: dict[str, Callable[[], Any]] = {
            "n": lambda: self.call_comes(0.01, 2, True),
            "l": lambda: self.late(0.5),
            "r": lambda: self.journal.remove(4),
            "o": lambda: None,
        }
        self.journal.changes = [actions[each] for each in changes]
        self.read_once(limit)
        self.journal.changes = []

    def late(self, share: float) -> None:
        # Also if the newest was removed since.
        self.journal.add(self.journal.clock - self.journal.newest + self.lateness * share)

    def read_once(self, limit: int) -> NewCalls | None:
        found = None
        try:
            found = self.journal.reader().read_after(self.cursor, limit)
        except CustodyResponseError as error:
            if not error.retryable:
                raise
        else:
            self.take(found)
        return found

    def take(self, found: NewCalls) -> None:
        times = [each for each in map(journal.created_micros, found.calls) if each is not None]
        assert times == sorted(times)
        newest = self.cursor.newest
        assert found.late == {
            each.id for each in found.calls if newest and (journal.created_micros(each) or newest) < newest
        }
        assert all(self.cursor.is_new(each) for each in found.calls)
        assert not any(found.cursor.is_new(each) for each in found.calls)
        assert found.cursor.floor >= self.cursor.floor
        assert found.cursor.covers(CallCursor(0, {})) or found.cursor.floor == 0
        self.returned |= {each.id for each in found.calls}
        self.cursor = CallCursor.from_json(json.loads(json.dumps(found.cursor.to_json())))
        assert self.cursor == found.cursor

    def teardown(self) -> None:
        if not hasattr(self, "cursor"):
            return
        for _ in range(200):
            found = self.read_once(7)
            if found is not None and not found.more:
                break
        dated = {str(number) for _, number, has_date in self.journal.rows if has_date}
        # Those without a time are looked for where they are listed among calls that may be new.
        assert dated <= self.returned
        again = self.read_once(100)
        assert again is not None
        assert again.calls == ()


class FewRemembered(Readings):
    """The same where more calls come within the overlap than are remembered."""

    lateness = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (journal, reading):
            self.patch.setattr(module, "MAX_REMEMBERED", 4)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.undo()


Readings.TestCase.settings = settings(max_examples=100, stateful_step_count=20)
FewRemembered.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestReadings = Readings.TestCase
TestFewRemembered = FewRemembered.TestCase


@pytest.fixture
def calls() -> Journal:
    """Return a journal with 30 calls, one every 100 seconds."""
    found = Journal()
    for _ in range(30):
        found.clock += 100
        found.add()
    return found


def ids(found: NewCalls) -> list[int]:
    return [int(each.id) for each in found.calls]


def test_what_a_removed_call_has_pulled_to_an_earlier_page_is_found(calls: Journal) -> None:
    # The newest goes after three pages: the first row of the fourth is then the last one of the third.
    calls.changes = [lambda: None, lambda: None, lambda: calls.remove(29)]
    found = calls.reader().read_after(CallCursor(0, {}), 100)
    assert ids(found) == list(range(1, 30))


def test_a_journal_that_never_stays_the_same_is_an_error(calls: Journal) -> None:
    for _ in range(70):
        calls.add()
    calls.changes = [lambda: calls.remove(len(calls.rows) - 1)] * 1000
    with pytest.raises(CustodyResponseError, match="missed") as caught:
        calls.reader().read_after(CallCursor(0, {}), 1000)
    assert caught.value.retryable


def test_calls_within_the_overlap_that_were_missed_are_found_the_next_time(calls: Journal) -> None:
    calls.rows = [(2700.0 + number, number, True) for number in range(1, 100)]
    calls.number = 99
    # Not in step with the pages: each reading misses other ones.
    calls.changes = [lambda: calls.remove(len(calls.rows) - 1), lambda: None, lambda: None] * 100
    first = calls.reader().read_after(CallCursor(0, {}), 1000)
    calls.changes = []
    second = calls.reader().read_after(first.cursor, 1000)
    returned = {*ids(first), *ids(second)}
    assert returned >= {number for _, number, _ in calls.rows}


def test_the_oldest_may_be_removed_while_all_are_read(calls: Journal) -> None:
    calls.changes = [lambda: calls.remove(0)] * 28
    found = calls.reader().read_from_beginning(100)
    assert set(ids(found)) >= {number for _, number, _ in calls.rows}
    assert ids(found) == sorted(ids(found))


@pytest.mark.parametrize("dated", [True, False])
def test_where_few_are_remembered_late_calls_that_were_not_returned_are_not_lost(
    calls: Journal, monkeypatch: pytest.MonkeyPatch, dated: bool
) -> None:
    for module in (journal, reading):
        monkeypatch.setattr(module, "MAX_REMEMBERED", 4)
    base = journal.created_micros(calls.call(0, 0, True))
    assert base is not None
    cursor = CallCursor(base, dict.fromkeys(range(4), base + 4000000))
    calls.rows = [(1.0, 1, True), (2.0, 2, dated), (3.0, 3, True)]
    seen: list[int] = []
    for _ in range(3):
        found = calls.reader().read_after(cursor, 1)
        seen += ids(found)
        cursor = found.cursor
        assert found.late == {each.id for each in found.calls if each.created_at}
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_another_order_than_was_asked_for_is_refused(calls: Journal, order: Order) -> None:
    reader = JournalReader(LIST_WEBHOOK_CALLS, lambda _, name: calls.fetch(order, name), now=calls.now)
    position = calls.reader().read_position()
    attempts: list[Callable[[], object]] = [lambda: reader.read_from_beginning(100)]
    if order == "ASC":
        attempts = [reader.read_position, lambda: reader.read_after(position, 100)]
    for attempt in attempts:
        with pytest.raises(CustodyResponseError, match="not listed by their time stamps") as caught:
            attempt()
        assert not caught.value.retryable


def test_that_newer_ones_come_first_must_be_shown_before_reading_stops(calls: Journal) -> None:
    """A first page of equal and old time stamps could be the end of the journal, or its beginning."""
    position = calls.reader().read_position()
    calls.rows = [(0.0, number, True) for number in range(100, 103)] + calls.rows
    reader = JournalReader(LIST_WEBHOOK_CALLS, lambda _, name: calls.fetch("ASC", name), now=calls.now)
    with pytest.raises(CustodyResponseError, match="not listed by their time stamps"):
        reader.read_after(position, 100)


@pytest.mark.parametrize("pages", [{"name": "1"}, {"name": None, "empty": True}])
def test_a_cursor_that_leads_nowhere(calls: Journal, pages: dict[str, Any]) -> None:
    def fetch(order: Order, name: str | None) -> CursorPage[WebhookCall]:
        page = calls.fetch(order, None)
        calls.number += 1
        return CursorPage([] if "empty" in pages else page.rows, pages["name"] or str(calls.number))

    with pytest.raises(CustodyResponseError) as caught:
        JournalReader(LIST_WEBHOOK_CALLS, fetch, now=calls.now).read_after(CallCursor(0, {}), 100)
    assert caught.value.retryable


def test_pages_that_repeat_under_other_names_end(calls: Journal) -> None:
    def fetch(order: Order, name: str | None) -> CursorPage[WebhookCall]:
        return CursorPage(calls.fetch(order, None).rows, str(calls.fetched))

    with pytest.raises(CustodyResponseError, match="lists calls that were listed before"):
        JournalReader(LIST_WEBHOOK_CALLS, fetch, now=calls.now).read_after(CallCursor(0, {}), 100)
    assert calls.fetched < 20


@pytest.mark.parametrize("number", [PAGE + 1, PAGE + 2, 5 * PAGE])
def test_more_than_a_page_of_calls_between_two_pages_is_a_change(calls: Journal, number: int) -> None:
    """A journal that is in order is not said to be out of order."""

    def come() -> None:
        for _ in range(number):
            calls.clock += 0.01
            calls.add()

    calls.changes = [come]
    with pytest.raises(CustodyResponseError, match="calls came between two pages") as caught:
        calls.reader().read_after(CallCursor(0, {}), 100)
    assert caught.value.retryable
    found = calls.reader().read_after(CallCursor(0, {}), 100)
    assert [call.id for call in found.calls] == [str(row[1]) for row in calls.rows]


def test_a_call_that_appears_late_between_known_ones_is_a_change(calls: Journal) -> None:
    """The second page lists again what the first one did, and between that a call that it did not."""

    def come() -> None:
        calls.add(150)
        for _ in range(PAGE - 1):
            calls.add()

    calls.changes = [come]
    with pytest.raises(CustodyResponseError, match="calls came between two pages") as caught:
        calls.reader().read_after(CallCursor(0, {}), 100)
    assert caught.value.retryable


def test_a_reading_ends_where_each_page_has_hardly_a_call_that_is_new(calls: Journal) -> None:
    def come() -> None:
        for _ in range(PAGE - 1):
            calls.clock += 0.01
            calls.add()

    for _ in range(200):
        come()
    calls.fetched = 0
    calls.changes = [come] * 1000
    with pytest.raises(CustodyResponseError, match="lists calls that were listed before") as caught:
        calls.reader().read_after(CallCursor(0, {}), 10_000)
    assert caught.value.retryable
    assert calls.fetched < 100


def test_more_calls_than_a_listing_can_have_are_not_believed(calls: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LISTED_ROWS", 20)
    with pytest.raises(CustodyResponseError, match="has more than") as caught:
        calls.reader().read_after(CallCursor(0, {}), 5)
    assert not caught.value.retryable
