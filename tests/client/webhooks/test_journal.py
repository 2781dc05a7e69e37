"""What a cursor knows of the journal."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyRequestError
from airflow_custody.client.webhooks.journal import MAX_REMEMBERED, MAX_UNDATED, CallCursor, created_micros
from airflow_custody.client.webhooks.models import WebhookCall

START = datetime(2026, 1, 2, tzinfo=timezone.utc)
BASE = 1_767_312_000_000_000
SECOND = 1_000_000


def call(number: int, seconds: float | None) -> WebhookCall:
    created = None if seconds is None else START + timedelta(seconds=seconds)
    return WebhookCall(str(number), "w", created_at=created)


CALLS = st.lists(st.one_of(st.none(), st.integers(0, 700)), max_size=30).map(
    lambda seconds: [call(number, each) for number, each in enumerate(seconds)]
)


def test_times_are_whole_microseconds() -> None:
    assert created_micros(call(1, 0)) == BASE
    assert created_micros(call(1, None)) is None


@given(CALLS, CALLS)
def test_a_cursor_knows_what_it_was_told(first: list[WebhookCall], second: list[WebhookCall]) -> None:
    before = CallCursor(0, {}).after(first)
    second = [replace(each, id=f"second {each.id}") for each in second]
    after = before.after(second)
    assert not any(after.is_new(each) for each in [*first, *second])
    assert after.covers(before)
    assert after.covers(after)
    assert all(created >= after.floor for created in after.recent.values())
    # In whatever order they come.
    assert CallCursor(0, {}).after(reversed(first)).recent == before.recent
    assert CallCursor.from_json(json.loads(json.dumps(after.to_json()))) == after


@given(CALLS)
def test_a_cursor_covers_another_only_if_it_knows_its_calls(calls: list[WebhookCall]) -> None:
    one, two = CallCursor(0, {}).after(calls[::2]), CallCursor(0, {}).after(calls[1::2])
    if one.covers(two):
        assert not any(one.is_new(each) for each in calls[1::2])


@given(st.floats(0, 299.9), st.booleans())
def test_a_late_call_is_new_and_one_that_is_later_is_not(late: float, equal: bool) -> None:
    cursor = CallCursor(0, {}).after([call(1, 1000)])
    assert cursor.is_new(call(2, 1000 if equal else 1000 - late))
    assert not cursor.is_new(call(2, 699.999))
    assert cursor.is_new(call(2, 700))


def test_a_known_id_with_another_time_stamp_is_another_call() -> None:
    cursor = CallCursor(0, {}).after([call(1, 1000)])
    assert not cursor.is_new(call(1, 1000))
    assert cursor.is_new(call(1, 1003))
    assert not cursor.is_new(call(1, None))


@pytest.fixture(scope="module")
def busy() -> CallCursor:
    """Return a cursor after 100 calls a second."""
    return CallCursor(0, {}).after(call(number, number / 100) for number in range(3 * MAX_REMEMBERED))


def test_what_is_remembered_is_bounded_and_never_cut_within_a_second(busy: CallCursor) -> None:
    assert len(busy.recent) == MAX_REMEMBERED
    assert busy.floor == BASE + 2 * MAX_REMEMBERED // 100 * SECOND
    uneven = CallCursor(0, {}).after(call(number, number / 30) for number in range(10, 2 * MAX_REMEMBERED))
    assert len(uneven.recent) <= MAX_REMEMBERED
    equal = CallCursor(0, {}).after(call(number, 5) for number in range(2 * MAX_REMEMBERED))
    assert len(equal.recent) == 2 * MAX_REMEMBERED
    assert equal.is_new(call(-1, 5))


def test_an_overlap_that_is_shorter_is_named_and_ends(busy: CallCursor) -> None:
    assert f"more than {MAX_REMEMBERED // 100} s after" in busy.warning
    assert CallCursor.from_json(json.loads(json.dumps(busy.to_json()))).warning == busy.warning
    last = 3 * MAX_REMEMBERED / 100
    assert busy.after([call(-1, last + 150)]).warning
    assert not busy.after([call(-1, last + 300)]).warning
    # As many as are remembered, in five minutes.
    whole = CallCursor(0, {}).after(call(number, number * 0.061) for number in range(MAX_REMEMBERED))
    assert whole.warning == ""
    assert whole.newest is not None
    assert whole.newest - whole.floor >= 300 * SECOND


def test_a_cursor_is_small(busy: CallCursor) -> None:
    assert len(json.dumps(busy.to_json())) < 9 * MAX_REMEMBERED
    # However long the ids are, and with as many seconds as there may be.
    long = [WebhookCall("x" * 190 + str(number), "w") for number in range(MAX_UNDATED)]
    full = CallCursor(0, {}).after([*long, *(call(number, number * 0.06) for number in range(MAX_REMEMBERED))])
    assert (len(full.undated), len(full.recent)) == (MAX_UNDATED, MAX_REMEMBERED)
    # Of 65,535, which is what Airflow's API accepts for a state store; the rest is for the filters.
    assert len(json.dumps(full.to_json())) < 55_000


def test_a_time_that_cannot_be_moves_no_floor() -> None:
    read = CallCursor(0, {}, read_at=BASE // SECOND)
    assert read.after([call(1, 0), call(2, 250)]).floor == BASE - 300 * SECOND
    ahead = CallCursor(0, {}).after([call(1, 0), call(2, 5000)])
    assert ahead.without_future_times(BASE + 5000 * SECOND) is ahead
    mended = ahead.without_future_times(BASE + 1000 * SECOND)
    assert mended.floor == BASE + 400 * SECOND
    assert mended.newest is None
    # Known by its id alone.
    assert not mended.is_new(call(2, None))
    assert mended.is_new(call(3, 500))
    forged = CallCursor(BASE, {1: BASE, 2: BASE + 10**6 * SECOND}).without_future_times(BASE + 300 * SECOND)
    assert (forged.floor, forged.newest, forged.undated) == (BASE, BASE, (2,))


def test_calls_that_are_not_known_keep_the_floor_down() -> None:
    cursor = CallCursor(0, {}).after([call(1, 1000)], not_beyond=BASE + 10 * SECOND)
    assert cursor.floor == BASE + 10 * SECOND


def test_undated_calls_are_remembered_by_their_ids() -> None:
    cursor = CallCursor(0, {}).after(call(number, None) for number in range(MAX_UNDATED + 5))
    assert len(cursor.undated) == MAX_UNDATED
    assert cursor.is_new(call(4, None))
    assert not cursor.is_new(call(5, None))


DIGEST = "AAAAAAAB"
GOOD: dict[str, Any] = {
    "version": 1,
    "floor": BASE,
    "recent": {"1": DIGEST},
    "undated": DIGEST,
    "newest": BASE + SECOND + 5,
    "read_at": 7,
    "complete_at": 6,
    "ahead": -5,
    "kept_for": 8,
    "kept_rows": 9,
}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "text",
        {},
        {"version": "1"},
        {"version": True},
        {**GOOD, "floor": -1},
        {**GOOD, "floor": 1.5},
        {**GOOD, "floor": 10**30},
        {**GOOD, "recent": None},
        {**GOOD, "recent": {"a": DIGEST}},
        {**GOOD, "recent": {"-1": DIGEST}},
        {**GOOD, "recent": {"9" * 5000: DIGEST}},
        {**GOOD, "recent": {1: DIGEST}},
        {**GOOD, "recent": {"1": 1}},
        {**GOOD, "recent": {"1": "AAAAAAAAAAE="}},
        {**GOOD, "recent": {"1": "\u00e9"}},
        {**GOOD, "undated": "b"},
        {**GOOD, "undated": [1]},
        {**GOOD, "newest": -1},
        {**GOOD, "kept_rows": 10**30},
        {**GOOD, "read_at": "x"},
        {**GOOD, "complete_at": 1.5},
        {**GOOD, "ahead": -(10**30)},
        {**GOOD, "ahead": True},
        {**GOOD, "kept_for": None},
    ],
    ids=str,
)
def test_what_is_no_cursor_is_refused(data: object) -> None:
    assert CallCursor.from_json(GOOD).to_json() == GOOD
    assert CallCursor.from_json({**GOOD, "ahead": 0}).to_json()["ahead"] == 0
    with pytest.raises(CustodyRequestError, match="reading starts anew"):
        CallCursor.from_json(data)


def test_a_cursor_of_a_later_version_is_refused() -> None:
    with pytest.raises(CustodyRequestError, match=r"its version is 2.*a later one"):
        CallCursor.from_json({"version": 2})
