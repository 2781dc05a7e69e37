"""What a search proves about a row, for each fact and for combinations; and the times at which it searches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from support.airflow.airflow_runs import FakeTaskInstance
from support.clocks import SkippingTime

from airflow_custody.client.errors import (
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.idempotency.search import Candidate, Resolved, Search, SearchResult, is_new
from airflow_custody.idempotency.store import Batch, Row, Store

RECORDED = datetime(2026, 11, 20, 10, 0, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
LABEL = ("label",)
#: Timeout and lookup wait, with which a request may be under way for 50 seconds.
TIMEOUT, LOOKUP_WAIT, UNDER_WAY = 10.0, 30.0, 50.0


class Things:
    """
    Things at a service, which a test finds as it likes.

    :param find: called with the rows' keys, returns what a search finds, or raises.
    :param got: the thing with any id; None: there is none.
    """

    what = "thing"
    timeout = TIMEOUT
    content: Mapping[str, object] = {}

    def __init__(
        self, find: Callable[[Collection[str]], Mapping[str, SearchResult]], got: Candidate | None = None
    ) -> None:
        self._find = find
        self.got: Candidate | Exception | None = got
        self.is_thorough: list[bool] = []

    def which(self, key: str) -> str:
        return f"row {key}"

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        raise AssertionError("a search sends nothing")

    def find(self, keys: Collection[str], *, thorough: bool) -> Mapping[str, SearchResult]:
        self.is_thorough.append(thorough)
        return self._find(keys)

    def get(self, key: str, identifier: str) -> Candidate | None:
        if isinstance(self.got, Exception):
            raise self.got
        return self.got


def no_search(keys: Collection[str]) -> Mapping[str, SearchResult]:
    raise AssertionError("this test searches nothing")


class Reports(list[tuple[str, int]]):
    def __call__(self, outcome: str, count: int) -> None:
        self.append((outcome, count))


def store_with(**rows: Row) -> Store:
    """Return a store with rows that were recorded just now; it is lost with the process."""
    store = Store(cast("Any", {"ti": FakeTaskInstance()}))
    store.open(store.new_batch(rows, "plan"))
    return store


def sent(*known_ids: str) -> Row:
    return Row(state="sent", known_ids=[*known_ids])


def search_in(store: Store, things: Things, report: Reports | None = None) -> Search:
    return Search(store, things, logging.getLogger("search"), LOOKUP_WAIT, Reports() if report is None else report)


# --- is it new? ---------------------------------------------------------------------------------------------


#: Which ids were known before the send, whether the service's filter finds it, its date, and whether it is new.
FACTS: dict[str, tuple[list[str] | None, bool, datetime | None, bool | None]] = {
    "found before": (["1"], True, None, False),
    "another was found before": (["2"], True, None, True),
    "none was found before": ([], True, RECORDED - 100 * SECOND, True),
    # The filter does not find the request, so only its date can prove that it is new.
    "listed before": (["1"], False, RECORDED + SECOND, False),
    "not filtered, no date": (["2"], False, None, None),
    "not filtered, too early": (["2"], False, RECORDED - 1.001 * SECOND, None),
    "no search, no date": (None, True, None, None),
    "no search, later": (None, True, RECORDED + SECOND, True),
    # The service's clock may be one second behind, but no more.
    "no search, a second earlier": (None, True, RECORDED - SECOND, True),
    "no search, too early": (None, True, RECORDED - 1.001 * SECOND, None),
}


@pytest.mark.parametrize(("known_ids", "is_filtered", "created", "expected"), FACTS.values(), ids=FACTS)
def test_an_object_is_new_if_the_search_before_or_its_date_proves_it(
    known_ids: list[str] | None, is_filtered: bool, created: datetime | None, expected: bool | None
) -> None:
    row = Row(state="sent", known_ids=known_ids)
    batch = Batch(number=0, key="", plan="", try_number=1, recorded_at=RECORDED, rows={"a": row})
    candidate = Candidate("1", created_at=created, filtered=is_filtered)
    assert is_new(batch, row, candidate) is expected
    if expected and known_ids is None:
        # If it is unknown when the row was recorded, no date proves anything.
        assert is_new(batch.model_copy(update={"recorded_at": None}), row, candidate) is None


# --- one row ------------------------------------------------------------------------------------------------

OLD, NEW = Candidate("1"), Candidate("2")
MAYBE = Candidate("3", filtered=False)


#: The candidates, and the id that is the row's own, why it is unknown, or nothing if none is new.
FOUND: dict[str, tuple[list[Candidate], str]] = {
    "one": ([NEW], "2"),
    "one and an old one": ([OLD, NEW], "2"),
    # A request that certainly differs, or is another user's, does not matter.
    "one and another content": ([NEW, Candidate("4", LABEL)], "2"),
    "one and another user's": ([NEW, Candidate("4", by_other=True)], "2"),
    # Only one of the requests can belong to this row.
    "two": ([NEW, Candidate("4")], "Found at the service: 2 is new, and has the requested content; 4 is new, and has"),
    "one and perhaps one": (
        [NEW, MAYBE],
        "2 is new, and has the requested content; 3 may have existed before this task, and",
    ),
    # The request may belong to another row.
    "perhaps one": ([MAYBE], "3 may have existed before this task, and has the requested content."),
    "another content": ([Candidate("4", LABEL)], "4 is new, and it differs in: label."),
    "unclear": ([Candidate("4", unclear="odd")], "4 is new, and odd."),
    "another user's": ([Candidate("4", by_other=True)], "4 is new, and another user created it."),
    "none": ([], ""),
    "an old one": ([OLD], ""),
}


@pytest.mark.parametrize(("candidates", "outcome"), FOUND.values(), ids=FOUND)
def test_a_row_is_created_if_only_one_thing_can_be_its_own(candidates: list[Candidate], outcome: str) -> None:
    for inconclusive in (None, "", "it may hide them"):
        store, report = store_with(a=sent("1")), Reports()
        search = search_in(store, Things(no_search), report)
        unknown = search.judge({"a": SearchResult(candidates, inconclusive)}).get("a", "")
        row = store.rows["a"][1]
        is_created = len(outcome) == 1
        assert report == [("found", int(is_created))]
        if is_created:
            assert row.state == "created"
            assert row.detail == outcome
            assert unknown == ""
        elif outcome or inconclusive:
            assert row.state == "sent"
            assert (
                outcome or "The service does not list the object, but this proves nothing: it may hide them."
            ) in unknown
        else:
            # Only a thorough search proves absence.
            assert row.state == ("sent" if inconclusive is None else "void")
            assert unknown == ""


def test_no_object_belongs_to_two_rows() -> None:
    store = store_with(a=sent("1"), b=sent("1"), c=sent("1"))
    report = Reports()
    search = search_in(store, Things(no_search), report)
    # The request differs from the second row, and equals the third.
    other = SearchResult([Candidate("2", LABEL)], "")
    unknown = search.judge({"a": SearchResult([NEW], ""), "b": other, "c": SearchResult([NEW], "")})
    assert {key: row.state for key, (_, row) in store.rows.items()} == {"a": "created", "b": "void", "c": "sent"}
    assert "2 is new, and has the requested content" in unknown["c"]
    assert report == [("found", 1)]


# --- when ---------------------------------------------------------------------------------------------------


def searches(
    waits: SkippingTime, find: Callable[[float], str | None], **given: float
) -> tuple[list[float], Resolved, str]:
    """Search for a row until it is not open; return the seconds at which, the result, and the row's state."""
    began, times = waits.monotonic(), list[float]()

    def find_at(keys: Collection[str]) -> dict[str, SearchResult]:
        times.append(round(waits.monotonic() - began, 2))
        find(times[-1])
        return {key: SearchResult([], "" if things.is_thorough[-1] else None) for key in keys}

    things = Things(find_at)
    store = store_with(a=sent())
    resolved = search_in(store, things).resolve(["a"], **{name: began + value for name, value in given.items()})
    assert not any(things.is_thorough[:-1])
    return times, resolved, store.rows["a"][1].state


def test_a_row_is_searched_for_until_it_would_have_been_found(waits: SkippingTime) -> None:
    times, resolved, state = searches(waits, lambda _: None)
    assert times == [0, 1, 3, 7, *range(12, 50, 5), UNDER_WAY]
    assert resolved == Resolved()
    assert state == "void"


@pytest.mark.parametrize(("searched_at", "expected"), [(0, [50]), (-20, [30]), (-60, [0])], ids=str)
def test_a_row_that_was_searched_for_is_searched_for_once(
    waits: SkippingTime, searched_at: float, expected: list[float]
) -> None:
    times, _, state = searches(waits, lambda _: None, searched_at=searched_at)
    assert times == expected
    assert state == "void"


def failing(is_failing: Callable[[float], bool], error: CustodyError) -> Callable[[float], None]:
    def find(now: float) -> None:
        if is_failing(now):
            raise error

    return find


AWAY = CustodyConnectionError("no response")


def test_the_wait_begins_anew_when_the_service_responds_again(waits: SkippingTime) -> None:
    times, _, state = searches(waits, failing(lambda now: now == 12, AWAY))
    # The first search that succeeded after the failure was at 17.
    assert times == [0, 1, 3, 7, 12, *range(17, 67, 5), 67]
    assert state == "void"


def test_a_service_that_is_away_ends_the_search_after_twice_the_time(waits: SkippingTime) -> None:
    times, resolved, state = searches(waits, failing(lambda now: True, AWAY))
    assert times == [0, 1, 3, 7, *range(12, 98, 5), 102]
    assert resolved == Resolved({}, AWAY)
    assert state == "sent"


def test_a_service_that_cannot_be_searched_leaves_the_row_to_a_user(waits: SkippingTime) -> None:
    times, resolved, _ = searches(waits, failing(lambda now: True, CustodyResponseError("odd")))
    assert times == [0]
    assert resolved == Resolved({"a": "The service cannot be searched: odd"})


# --- manual overrides ---------------------------------------------------------------------------------------


def override(
    monkeypatch: pytest.MonkeyPatch, value: str, things: Things, row: Row | None = None
) -> tuple[bool, Row, str]:
    """Return whether a user's override of a row is followed, the row afterwards, and why its outcome is unknown."""
    store = store_with(a=sent("1") if row is None else row, b=sent().become("created", "9"))
    monkeypatch.setenv(f"AIRFLOW_VAR_{store.override_variable('a').upper()}", value)
    search = search_in(store, things)
    problem = search.follow_override("a")
    return problem == "", store.rows["a"][1], problem or ""


@pytest.mark.parametrize(
    ("got", "identifier", "problem"),
    [
        (NEW, "2", ""),
        (MAYBE, "3", ""),
        # The user has inspected the request that the service changed.
        (Candidate("2", LABEL), "2", ""),
        (Candidate("2", ("address", "label")), "2", "it differs in: address, label"),
        # The service fills in fields that were not requested.
        (Candidate("2", ("customer_id",), filled_in=("customer_id",)), "2", ""),
        (Candidate("2", LABEL, unclear="it cannot be read"), "2", "it cannot be read"),
        (None, "2", "this object does not exist"),
        (OLD, "1", "this object existed before this task sent its request"),
        (Candidate("9"), "9", "this object belongs to another row"),
    ],
    ids=[
        "new",
        "perhaps new",
        "label changed",
        "address changed",
        "a field filled in",
        "unreadable",
        "none",
        "old",
        "another row's",
    ],
)
def test_a_manual_id_is_checked(
    monkeypatch: pytest.MonkeyPatch, got: Candidate | None, identifier: str, problem: str
) -> None:
    is_followed, row, unknown = override(monkeypatch, identifier, Things(no_search, got))
    assert is_followed is not bool(problem)
    assert (row.state, row.detail) == (("sent", "") if problem else ("created", identifier))
    assert unknown == (f"The variable is set to {identifier}: {problem}." if problem else "")


def test_a_manual_id_may_be_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    created = Row(state="created", detail="1", known_ids=["1"])
    is_followed, row, _ = override(monkeypatch, "1", Things(no_search, OLD), created)
    assert is_followed is True
    assert row.state == "created"
    assert row.detail == "1"


@pytest.mark.parametrize(
    ("found", "value", "problem"),
    [
        ([OLD, MAYBE, Candidate("4", LABEL), Candidate("5", by_other=True), Candidate("9")], "none", ""),
        ([NEW], "none", "2 has the requested content. If this task did not create it, set the variable to 'none 2'"),
        ([NEW], "NONE 2", ""),
        (
            [NEW, Candidate("4")],
            "none 2",
            "4 has the requested content. If this task did not create it, set the variable to 'none 2 4'",
        ),
    ],
    ids=["none that can be it", "one", "one that is named", "two, of which one is named"],
)
def test_a_manual_none_is_checked(
    monkeypatch: pytest.MonkeyPatch, found: list[Candidate], value: str, problem: str
) -> None:
    things = Things(lambda keys: {key: SearchResult(found, "") for key in keys})
    is_followed, row, unknown = override(monkeypatch, value, things)
    assert things.is_thorough == [True]
    assert is_followed is not bool(problem)
    assert row.state == ("sent" if problem else "void")
    assert unknown == (f"The variable is set to {value}: {problem}." if problem else "")


@pytest.mark.parametrize(
    ("error", "is_raised", "problem"),
    [
        # The service cannot be searched at present.
        (CustodyConnectionError("away"), True, ""),
        (CustodyError("odd"), True, ""),
        # The service can never be searched, so the user's override counts.
        (CustodyNotFoundError("no", status=404), False, ""),
        # The value is not an id.
        (CustodyRequestError("too long"), False, "The variable is set to x: this is not a usable id: too long."),
    ],
    ids=["away", "odd", "not offered", "no id"],
)
def test_a_manual_id_that_cannot_be_checked(
    monkeypatch: pytest.MonkeyPatch, error: CustodyError, is_raised: bool, problem: str
) -> None:
    things = Things(no_search)
    things.got = error
    if is_raised:
        with pytest.raises(type(error)):
            override(monkeypatch, "x", things)
        return
    is_followed, row, unknown = override(monkeypatch, "x", things)
    assert is_followed is not bool(problem)
    assert row.state == ("sent" if problem else "created")
    assert unknown == problem


def test_without_a_store_the_advice_for_a_row_of_a_plan_is_a_new_run() -> None:
    assert "start a new run" in search_in(store_with(a=sent()), Things(no_search)).advice("a")
