"""What readings say of a journal that was cut off, and of time stamps that cannot be."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from journal_service import PAGE, START, Service

from airflow_custody.client import CustodyResponseError
from airflow_custody.client.http.listings import CursorPage
from airflow_custody.client.webhooks import journal, reading
from airflow_custody.client.webhooks.journal import CallCursor, digest_of
from airflow_custody.client.webhooks.models import WebhookCall
from airflow_custody.client.webhooks.operations import LIST_WEBHOOK_CALLS
from airflow_custody.client.webhooks.reading import JournalReader, Order
from airflow_custody.client.webhooks.results import NewCalls

DAY = 86_400.0


def ids(found: NewCalls) -> list[str]:
    return [each.id for each in found.calls]


# --- what was cut off ---------------------------------------------------------------------------------------


def every_day(number: int) -> list[float]:
    return [-DAY * each for each in range(number)][::-1]


#: What is left of a journal to which no call came for long.
QUIET = [-30 * DAY, -29 * DAY]


def keep_last(number: int) -> Callable[[Service], None]:
    def cut(service: Service) -> None:
        service.calls = service.calls[-number:]

    return cut


def keep_first(number: int) -> Callable[[Service], None]:
    def cut(service: Service) -> None:
        service.calls = service.calls[:number] + service.calls[-1:]

    return cut


def keep_none(service: Service) -> None:
    service.calls = []


@pytest.mark.parametrize(
    ("before", "later", "new", "cut", "gap"),
    [
        # Nothing was removed.
        (every_day(3), 60, 5, None, False),
        (every_day(3), 60 * DAY, 500, None, False),
        ([], 60, 5, None, False),
        # Only so many calls are kept: as many as there were may be all that are.
        (every_day(50), 60, 500, keep_last(50), True),
        (every_day(50), 60, 50, keep_last(50), True),
        (QUIET, 28 * DAY, 2, keep_last(2), True),
        # They are kept for as long as the oldest one was old, or not much longer.
        (QUIET, 28 * DAY, 1, keep_last(1), False),
        (QUIET, 31 * DAY, 1, keep_last(1), True),
        (QUIET, 28 * DAY, 1, keep_none, False),
        (QUIET, 31 * DAY, 1, keep_none, True),
        # The newest was not as old as the oldest had been: they are not kept for as long any more, if it is the same
        # journal at all.
        (every_day(50), 60, 49, keep_last(49), True),
        (every_day(30), 28 * DAY, 5, keep_last(5), True),
        (every_day(30), 28 * DAY, 5, keep_none, True),
        (QUIET, DAY / 2, 1, keep_none, True),
        # A machine whose clock was set back cannot say how long ago it was.
        (every_day(30), -DAY, 5, keep_last(5), True),
        # A page that is full may be what is left of more.
        (every_day(99), 60, 500, keep_last(100), True),
        (every_day(99), 60, 500, keep_last(150), True),
        # Old ones that stay do not vouch for those in between.
        (every_day(30), 60 * DAY, 5, keep_first(29), True),
        # No call has a time stamp.
        ([None] * 20, 60, 5, None, False),
        ([None] * 20, 60, 20, keep_last(20), True),
        # Nothing was known, and many come, or after long.
        ([], 60, 500, keep_last(50), False),
        ([], 60, 500, None, False),
        ([], 60, 1500, keep_last(1000), True),
        ([], 3 * DAY, 5, None, True),
    ],
)
def test_a_gap_is_ruled_out_only_where_that_is_certain(
    before: Sequence[float | None], later: float, new: int, cut: Callable[[Service], None] | None, gap: bool
) -> None:
    service = Service(*before)
    position = service.reader.read_position()
    assert service.read(position).gap == ""
    service.clock += later
    service.add(*([None] * new if None in before else [abs(later) + 0.01 * number for number in range(new)]))
    service.clock += 10
    if cut is not None:
        cut(service)
    assert bool(service.read(position).gap) is gap
    assert (
        bool(service.read(replace(position, read_at=None, complete_at=None)).gap) is (gap or cut is not None)
        or not before
    )


def test_what_counts_is_the_last_reading() -> None:
    service = Service(-30 * DAY, -20 * DAY, -10 * DAY)
    position = service.reader.read_position()
    assert (position.kept_for, position.kept_rows) == (30 * DAY - 300, 3)
    # The service now keeps calls for a day.
    service.calls = []
    service.add(-10.0)
    found = service.read(position)
    assert "younger than others" in found.gap
    assert (found.cursor.kept_for, found.cursor.kept_rows) == (0, 1)
    service.calls = []
    assert "may have been removed" in service.read(found.cursor).gap
    # None: how old the calls of the one before were still counts, unless it is no longer true. Their number does not.
    empty = service.read(position)
    assert ("younger than others" in empty.gap, empty.cursor.kept_for, empty.cursor.kept_rows) == (True, 0, 0)
    service.clock += 21 * DAY
    empty = service.read(position)
    assert (empty.gap, empty.cursor.kept_for, empty.cursor.kept_rows) == ("", 30 * DAY - 300, 0)


def test_a_journal_that_was_cut_off_is_named_once() -> None:
    service = Service(*(-100.0 * number for number in range(30, 0, -1)))
    position = service.reader.read_position()
    service.calls = []
    service.clock += DAY
    empty = service.read(position)
    assert "may have been removed" in empty.gap
    again = service.read(empty.cursor)
    assert again.gap == ""
    service.clock += DAY
    service.add(2 * DAY - 2, 2 * DAY - 1)
    cut = service.read(again.cursor, 1)
    assert "may have been removed" in cut.gap
    assert service.read(cut.cursor).gap == ""


def test_a_journal_that_was_empty_begins_with_its_first_call() -> None:
    service = Service()
    position = service.reader.read_position()
    assert (position.floor, position.recent) == (0, {})
    service.add(0.0)
    found = service.read(position)
    assert (len(found.calls), found.gap) == (1, "")


# --- time stamps that cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [301.0, 3600.0, 23 * 3600.0, 365 * DAY])
def test_a_time_stamp_that_is_ahead_hides_nothing(ahead: float) -> None:
    service = Service(-60.0)
    position = service.reader.read_position()
    service.add(ahead)
    found = service.read(position)
    assert [(each.id, each.created_at) for each in found.calls] == [(f"1 at {ahead}", None)]
    service.add(*(60.0 * number for number in range(30)))
    for number in range(30):
        service.clock = 60.0 * number + 1
        found = service.read(found.cursor)
    assert len(service.read(position).calls) == 31
    # Also when that time has come, it is not new.
    service.clock = max(service.clock, ahead) + 60
    service.add(service.clock - 1)
    found = service.read(found.cursor)
    assert (ids(found), found.gap) == ([service.calls[-1].id], "")
    assert service.read(found.cursor).calls == ()


@pytest.mark.parametrize("back", [100.0, 299.0])
def test_a_clock_of_the_service_that_is_ahead_and_is_set_right_loses_nothing(back: float) -> None:
    service = Service(-1000.0, back)
    position = service.reader.read_position()
    service.add(*range(1, 10))
    service.clock = 10
    assert len(service.read(position).calls) == 9


@pytest.mark.parametrize("ahead", [700.0, DAY, 7000 * 365 * DAY])
def test_a_cursor_from_the_future_is_not_believed(ahead: float) -> None:
    service = Service(-1000.0, -200.0)
    service.clock = ahead
    service.add(ahead)
    cursor = service.reader.read_position()
    service.clock = 10
    service.add(-100.0, 1.0)
    found = service.read(cursor)
    assert "later than now" in found.gap
    assert [each.created_at is None for each in found.calls] == [False] * 3
    service.add(2.0)
    found = service.read(found.cursor)
    assert (len(found.calls), found.gap) == (1, "")


def test_a_forged_newest_call_makes_no_gap_for_ever() -> None:
    service = Service(-1000.0, 0.0)
    cursor = service.reader.read_position()
    forged = replace(cursor, recent={**cursor.recent, 1: cursor.floor + 10**15}, newest=None)
    found = service.read(forged)
    assert (found.gap, found.late, found.cursor.newest) == ("", frozenset(), cursor.newest)


def test_the_clock_of_the_service_counts_where_this_machine_is_slow() -> None:
    service = Service(-1000.0, 0.0)
    service.service_clock = 10.0
    cursor = service.reader.read_position()
    # Another machine, an hour behind.
    service.clock = -3600
    service.add(5.0)
    found = service.read(cursor)
    assert (len(found.calls), found.gap) == (1, "")
    assert found.calls[0].created_at is not None
    service.service_clock = None
    assert "later than now" in service.read(found.cursor).gap


# --- much, and garbage ----------------------------------------------------------------------------------------


def test_one_id_for_two_calls_is_refused() -> None:
    service = Service(0.0, 1.0)
    service.calls[1] = replace(service.calls[1], id=service.calls[0].id)
    for attempt in (service.reader.read_position, lambda: service.reader.read_from_beginning(10)):
        with pytest.raises(CustodyResponseError, match="for two calls"):
            attempt()
    # The same row twice is one call.
    service.calls[1] = service.calls[0]
    assert len(service.reader.read_from_beginning(10).calls) == 1


def test_an_id_that_was_used_before_is_a_new_call() -> None:
    service = Service(-100.0, -50.0)
    position = service.reader.read_position()
    # As after a restored backup.
    service.calls[1] = replace(service.calls[1], created_at=START)
    assert len(service.read(position).calls) == 1


@pytest.mark.parametrize("dated", [False, True])
def test_garbage_without_end_is_refused(dated: bool) -> None:
    fetched = 0

    def fetch(order: Order, name: str | None) -> CursorPage[WebhookCall]:
        nonlocal fetched
        fetched += 1
        at = START + timedelta(days=fetched) if dated else None
        calls = [WebhookCall(f"{fetched} {number}", "w", created_at=at) for number in range(PAGE)]
        return CursorPage([(call.id, call) for call in calls], str(fetched))

    reader = JournalReader(LIST_WEBHOOK_CALLS, fetch, now=START.timestamp)
    for attempt in (
        reader.read_position,
        lambda: reader.read_from_beginning(10_000),
        lambda: reader.read_after(CallCursor(0, {}), 10),
    ):
        fetched = 0
        with pytest.raises(CustodyResponseError, match="no time stamp that can be read"):
            attempt()
        assert fetched == journal.MAX_UNDATED // PAGE + 1


@pytest.mark.parametrize("beginning", [True, False])
def test_a_reading_is_bounded_by_the_length_of_its_calls(beginning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_RETURNED_LENGTH", 10_000)
    service = Service(*map(float, range(250)))
    service.calls = [replace(call, payload_text="x" * 990) for call in service.calls]
    service.calls[100] = replace(service.calls[100], payload_text="x" * 50_000)
    service.clock = 1000
    found = service.reader.read_from_beginning(1000) if beginning else service.read(CallCursor(0, {}), 1000)
    seen = ids(found)
    while found.more:
        assert 0 < sum(each.length for each in found.calls) <= 10_000 or len(found.calls) == 1
        found = service.read(found.cursor, 1000)
        seen += ids(found)
    assert seen == [call.id for call in service.calls]


def test_payloads_are_held_once_and_as_text() -> None:
    service = Service(*map(float, range(600)))
    text = "[" + ", ".join(['{"a": 1}'] * 2000) + "]"

    def fetch(order: Order, name: str | None) -> CursorPage[WebhookCall]:
        page = service.fetch(order, name)
        # A text of its own, as of another response.
        rows = [(each, replace(call, payload_text=f"{text} ")) for each, call in page.rows]
        return CursorPage(rows, page.next)

    tracemalloc.start()
    reader = JournalReader(LIST_WEBHOOK_CALLS, fetch, now=lambda: START.timestamp() + 1000)
    found = reader.read_after(CallCursor(0, {}), 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.calls) == 600
    # The calls, and a page or two.
    assert peak < 1.5 * len(text) * 600
    assert found.calls[0].payload == [{"a": 1}] * 2000


def test_calls_without_a_time_stamp_that_are_still_listed_are_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_UNDATED", 4)
    service = Service(None)
    known = (service.calls[0].id, "gone", "gone too", "gone as well")
    cursor = CallCursor(0, {}, undated=tuple(map(digest_of, known)))
    service.add(None)
    found = service.read(cursor)
    assert ids(found) == [service.calls[1].id]
    assert set(found.cursor.undated) == {*map(digest_of, (*known[2:], known[0], service.calls[1].id))}
