"""Rows of a plan are sent, searched for and sent again, until it is known what became of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import pytest
from support.airflow.airflow_runs import FakeTaskInstance
from support.clocks import SkippingTime

from airflow_custody.client.errors import (
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.idempotency.create import CreateRows, Outcome, outcome_of
from airflow_custody.idempotency.search import Candidate, Search, SearchResult
from airflow_custody.idempotency.send import Sent
from airflow_custody.idempotency.store import RecordState, Row, Store

pytestmark = pytest.mark.usefixtures("waits")

#: Seconds that a request may be under way: twice the fence, the timeout, and the lookup wait.
UNDER_WAY = 2 * 5 + 10 + 30
LOST = CustodyOutcomeUnknownError("no response", operation="create a thing")
REFUSED = CustodyRequestError("no", operation="create a thing", status=400, from_service=True)
FORWARD = ["a", "b", "c"]


class Things:
    """
    A service with things.

    :param fail: called with a row's key and how often it was sent; returns its failure.
    :param works: the keys of rows that are created although their response is lost.
    :param inconclusive: why a thorough search proves nothing.
    """

    what = "thing"
    timeout = 10.0
    content: Mapping[str, object] = {}

    def __init__(
        self,
        fail: Callable[[str, int], CustodyError | None] = lambda key, number: None,
        *,
        works: str = "",
        inconclusive: str = "",
        search: Callable[[], object] = lambda: None,
    ) -> None:
        self._fail, self._works, self._inconclusive, self._search = fail, works, inconclusive, search
        self.sent: list[str] = []
        self.created: list[str] = []

    def which(self, key: str) -> str:
        return f"row {key}"

    def prepare(self, keys: Sequence[str]) -> dict[str, Row]:
        return {key: Row(state="sent", known_ids=["old"]) for key in keys}

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        self.sent.append(key)
        failure = self._fail(key, self.sent.count(key))
        before_send()
        if failure is None or key in self._works:
            self.created.append(key)
        if failure is not None:
            raise failure
        return f"id of {key}"

    def find(self, keys: Collection[str], *, thorough: bool) -> dict[str, SearchResult]:
        self._search()
        return {
            key: SearchResult(
                [Candidate(f"id of {key}")] if key in self.created else [], self._inconclusive if thorough else None
            )
            for key in keys
        }

    def get(self, key: str, identifier: str) -> Candidate | None:
        raise AssertionError("no id is looked up")


def store_of() -> Store:
    return Store(cast("Any", {"ti": FakeTaskInstance()}))


def rows_of(things: Things, store: Store | None = None, plan: str = "plan") -> CreateRows:
    found = store_of() if store is None else store
    search = Search(found, things, logging.getLogger("create"), 30.0, lambda outcome, count: None)
    return CreateRows(search, prepare=things.prepare, plan=plan)


def lost_if(*keys: str, times: int = 1) -> Callable[[str, int], CustodyError | None]:
    return lambda key, number: LOST if key in keys and number <= times else None


def test_rows_are_created_and_not_again() -> None:
    things, store = Things(), store_of()
    expected = {key: f"id of {key}" for key in FORWARD}
    for _ in range(2):
        assert rows_of(things, store).run(FORWARD) == Outcome(created=expected)
    assert things.sent == FORWARD
    # Of another plan, or by themselves, they are others.
    rows_of(things, store, "other").run(["a"])
    rows_of(things, store, "").run(["b"])
    assert things.sent == [*FORWARD, "a", "b"]


def test_what_is_found_again_is_not_sent_again(waits: SkippingTime) -> None:
    things = Things(lost_if("b"), works="b")
    assert rows_of(things).run(FORWARD).created == {key: f"id of {key}" for key in FORWARD}
    assert things.sent == FORWARD
    assert waits.skipped == 0


def test_what_had_no_effect_is_sent_again(waits: SkippingTime) -> None:
    things = Things(lost_if("b"))
    assert rows_of(things).run(FORWARD).created == {key: f"id of {key}" for key in FORWARD}
    assert things.sent == [*FORWARD, "b"]
    assert waits.skipped == pytest.approx(UNDER_WAY)


def test_what_is_sent_in_vain_is_left(waits: SkippingTime) -> None:
    things = Things(lambda key, _: LOST if key != "a" else None)
    outcome = rows_of(things).run(FORWARD)
    # As long as something gets through, the rest is sent again.
    assert things.sent == [*FORWARD, "b", "c"]
    assert outcome == Outcome(created={"a": "id of a"}, left=["b", "c"], errors={"b": LOST, "c": LOST})
    assert waits.skipped == pytest.approx(2 * UNDER_WAY)


def test_a_refused_row_is_sent_once_by_each_try() -> None:
    things, store = Things(lambda key, number: REFUSED if key == "b" and number < 3 else None), store_of()
    for number in range(2):
        outcome = rows_of(things, store).run(FORWARD)
        assert [*outcome.created] == ["a", "c"]
        assert outcome.refused == {"b": REFUSED.reason}
        assert things.sent.count("b") == number + 1
    assert [*rows_of(things, store).run(FORWARD).created] == FORWARD


def test_a_row_that_cannot_be_found_out_is_unknown_and_not_sent_again() -> None:
    things = Things(lost_if("b"), inconclusive="it may hide them")
    outcome = rows_of(things).run(FORWARD)
    assert things.sent == FORWARD
    assert [*outcome.unknown] == ["b"]
    assert "but this proves nothing: it may hide them" in outcome.unknown["b"]
    assert "start a new run" in outcome.advice["b"]
    assert outcome.left == []
    assert outcome.stopped is None


@pytest.mark.parametrize(
    ("error", "is_stopped", "why"),
    [
        (CustodyConnectionError("away"), True, "the service could not be searched"),
        (CustodyResponseError("odd"), False, "The service cannot be searched: odd"),
    ],
    ids=["away", "not offered"],
)
def test_a_search_that_fails_ends_the_sending(error: CustodyError, is_stopped: bool, why: str) -> None:
    def search() -> None:
        raise error

    things = Things(lost_if("b"), search=search)
    outcome = rows_of(things).run(FORWARD)
    assert things.sent == FORWARD
    assert [*outcome.created] == ["a", "c"]
    assert why in outcome.unknown["b"]
    # The next try searches again, or a user must decide.
    assert ("b" in outcome.advice) is not is_stopped
    assert outcome.stopped is (error if is_stopped else None)


def test_what_stops_the_sending_ends_it(waits: SkippingTime) -> None:
    away = CustodyConnectionError("away", operation="create a thing", nothing_sent=True)
    things = Things(lambda key, _: away if key == "b" else None)
    outcome = rows_of(things).run(FORWARD)
    assert things.sent == ["a", "b"]
    assert outcome == Outcome(created={"a": "id of a"}, left=["b", "c"], errors={"b": away}, stopped=away)


def test_a_response_with_an_id_that_existed_before_is_no_success() -> None:
    things = Things()
    rows = rows_of(things)
    with pytest.raises(CustodyOutcomeUnknownError, match="id of a, which existed before") as caught:
        rows.send("a", Row(state="sent", known_ids=["id of a"]), lambda: None)
    assert caught.value.operation == "create thing"
    for known in (None, [], ["id of b"]):
        row = rows.send("a", Row(state="sent", known_ids=known), lambda: None)
        assert row.state == "created"
        assert row.detail == "id of a"


def test_a_row_without_a_decision_is_neither_searched_for_nor_sent(waits: SkippingTime) -> None:
    things, store = Things(), store_of()
    store.open(store.new_batch({"b": Row(state="sent", known_ids=[])}, "plan"))
    outcome = rows_of(things, store).run(FORWARD, undecided={"b": "which one?"})
    assert things.sent == ["a", "c"]
    assert outcome.unknown == {"b": "which one?"}
    assert [*outcome.advice] == ["b"]
    assert waits.skipped == 0


@pytest.mark.parametrize(
    ("searched", "is_sent_now", "seconds"),
    [
        # The rows that an earlier try has sent were searched for before.
        (None, False, UNDER_WAY),
        (-20, False, UNDER_WAY - 20),
        (-UNDER_WAY, False, 0),
        # What this try has sent left after that.
        (-UNDER_WAY, True, UNDER_WAY),
    ],
)
def test_an_earlier_search_counts_for_what_was_sent_before_it(
    waits: SkippingTime, searched: float | None, is_sent_now: bool, seconds: float
) -> None:
    store = store_of()
    store.open(store.new_batch({"a": Row(state="sent", known_ids=[])}, "plan"))
    began = waits.monotonic()
    waited: list[float] = []

    def fail(key: str, number: int) -> CustodyError | None:
        if key == "a":
            waited.append(waits.monotonic() - began)
        return LOST if key == "b" and number == 1 else None

    things = Things(fail, works="b")
    keys = ["a", "b"] if is_sent_now else ["a"]
    outcome = rows_of(things, store).run(keys, searched_at=None if searched is None else began + searched)
    assert [*outcome.created] == keys
    assert waited == pytest.approx([seconds])


@pytest.mark.parametrize(
    ("state", "plan", "field"),
    [
        *((state, "plan", state) for state in ("created", "found", "refused", "deleted")),
        ("void", "plan", "left"),
        ("sent", "plan", "unknown"),
        ("created", "other", "left"),
        (None, "plan", "left"),
    ],
)
def test_an_outcome_is_what_is_recorded_under_the_plan(state: RecordState | None, plan: str, field: str) -> None:
    store = store_of()
    if state is not None:
        store.open(store.new_batch({"a": Row(state=state, detail="x")}, plan))
    outcome = outcome_of(store, ["a"], "plan", Sent())
    unknown = "its response was lost, and the service could not be searched"
    value: object = ["a"] if field == "left" else {"a": unknown if field == "unknown" else "x"}
    assert outcome == Outcome(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "error", "level", "text"),
    [
        ("created", None, logging.INFO, "Created thing x for row a."),
        ("refused", None, logging.WARNING, "Refused: row a: x"),
        ("found", None, logging.WARNING, "Not sent: another client has requested row a meanwhile: thing x."),
        ("sent", None, logging.WARNING, "The outcome of the thing for row a is unknown: it was interrupted."),
        ("sent", LOST, logging.WARNING, "The outcome of the thing for row a is unknown: no response."),
        ("void", None, logging.DEBUG, ""),
    ],
    ids=["created", "refused", "found", "interrupted", "no response", "void"],
)
def test_the_log_says_what_became_of_a_row(
    state: RecordState, error: CustodyError | None, level: int, text: str
) -> None:
    assert rows_of(Things()).describe("a", Row(state=state, detail="x"), error) == (level, text)
