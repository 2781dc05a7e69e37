"""What the tries of a task instance find of each other, in a store that keeps it and without one."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.airflow.airflow_runs import FakeTaskInstance
from support.airflow.task_tries import KEY, RowsStore, needs_store

from airflow_custody.client import CustodyError, CustodyOutcomeUnknownError
from airflow_custody.idempotency.store import PlanRecord, Row, Store

STARTED = datetime(2026, 11, 20, tzinfo=timezone.utc)
SENT = Row(state="sent")
CREATED = SENT.become("created", "7")
PLAN = PlanRecord(plan="plan", rows="rows", creations={"a": []}, replaced={}, deletions=[], observed=[])


def store_of(
    kept: RowsStore | None, try_number: int = 1, *, max_tries: int = 0, retries: int = 0, clear_number: int = 0
) -> Store:
    """Return the store as a try of the task instance has it."""
    context = {
        "ti": FakeTaskInstance(try_number, max_tries),
        "task": SimpleNamespace(retries=retries),
        "dag_run": SimpleNamespace(clear_number=clear_number, start_date=STARTED),
        "task_state_store": kept,
    }
    return Store(cast("Any", context))


def states_of(store: Store) -> dict[str, tuple[int, str]]:
    return {key: (batch.number, row.state) for key, (batch, row) in store.rows.items()}


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_kept", [pytest.param(True, marks=needs_store), False])
@pytest.mark.parametrize(
    ("try_number", "max_tries", "is_forgotten"),
    [(1, 2, False), (1, 5, False), (2, 2, False), (3, 5, True)],
)
def test_a_try_that_finds_nothing_may_have_been_forgotten(
    is_kept: bool, try_number: int, max_tries: int, is_forgotten: bool
) -> None:
    kept = RowsStore() if is_kept else None
    store = store_of(kept, try_number, max_tries=max_tries, retries=2)
    # Without a store, every try but the first knows nothing.
    assert store.read() is (is_forgotten if is_kept else try_number > 1)
    # What may have been forgotten is not recorded as not begun.
    store.begin()
    store.begin()
    if kept is not None:
        assert kept.states == ([] if is_forgotten else ["begun"])
        assert store_of(kept, 9, max_tries=9).read() is is_forgotten


@needs_store
def test_a_later_try_finds_each_row_as_it_was_last() -> None:
    kept = RowsStore()
    store = store_of(kept, max_tries=3)
    for number in range(3):
        store.open(store.new_batch({"a": SENT, f"b{number}": SENT}, "plan"))
        store.record([(f"b{number}", CREATED)])
    expected = {"a": (2, "sent"), "b0": (0, "created"), "b1": (1, "created"), "b2": (2, "created")}
    assert states_of(store) == expected
    # What becomes of it counts from now on; one that was not recorded is not read.
    again = store_of(kept, 2, max_tries=3)
    assert again.read() is False
    assert states_of(again) == expected
    assert again.rows["b0"][1] == CREATED.model_copy(update={"max_tries": 3})
    again.record([("a", SENT.become("void")), ("b0", SENT.become("void"))])
    again.record([])
    later = store_of(kept, 3)
    later.read()
    assert states_of(later) == states_of(again) == {**expected, "a": (2, "void"), "b0": (0, "void")}
    assert [each.number for each in later.batches] == [0, 1, 2]
    # The newest batch that has a row decides, whichever was written last.
    later.open(later.batches[0])
    assert states_of(later)["a"] == (2, "void")
    assert states_of(later)["b0"] == (0, "void")


@needs_store
def test_an_open_batch_is_written_apart_before_the_next_one_takes_its_place() -> None:
    kept = RowsStore()
    store = store_of(kept)
    store.open(store.new_batch({"a": SENT}, "plan"))
    store.open(store.new_batch({"b": SENT}, "plan"))
    store.record([("b", CREATED)])
    # A closed one is apart already.
    kept.states.clear()
    store.open(store.new_batch({"c": SENT}, "plan"))
    assert kept.states == ["sending"]
    again = store_of(kept, 2)
    again.read()
    assert states_of(again) == {"a": (0, "sent"), "b": (1, "created"), "c": (2, "sent")}


@needs_store
@pytest.mark.parametrize("damage", ["format", "lost", "rows"])
def test_a_damaged_record_is_refused(damage: str) -> None:
    kept = RowsStore()
    store = store_of(kept)
    for name in "abc":
        store.open(store.new_batch({name: SENT}, "plan"))
        store.record([(name, CREATED)])
    if damage == "format":
        kept.values[KEY] = kept.values[KEY].replace('"format": 2', '"format": 3', 1)
    elif damage == "rows":
        kept.values[f"{KEY}_0001"] = kept.values[f"{KEY}_0001"].replace('"created"', '"done"')
    else:
        del kept.values[f"{KEY}_0001"]
    with pytest.raises(CustodyOutcomeUnknownError, match="cannot be read"):
        store_of(kept, 2).read()


@needs_store
def test_the_record_of_a_plan_is_that_of_this_plan() -> None:
    kept = RowsStore()
    store = store_of(kept)
    assert store.read_plan("plan") is None
    store.record_plan(PLAN)
    assert store.read_plan("plan") == PLAN
    assert store_of(None).read_plan("plan") is None
    # A plan begins again if another one was recorded since, also if rows of it were sent.
    store.open(store.new_batch({"a": SENT}, "other"))
    assert store.read_plan("other") is None
    assert store.read_plan("plan") == PLAN
    stored = kept.values.pop(f"{KEY}_plan")
    with pytest.raises(CustodyOutcomeUnknownError, match="cannot be read"):
        store.read_plan("other")
    kept.values[f"{KEY}_plan"] = stored
    kept.values[f"{KEY}_plan"] = kept.values[f"{KEY}_plan"].replace('"format": 2', '"format": 1')
    with pytest.raises(CustodyOutcomeUnknownError, match="cannot be read"):
        store.read_plan("plan")


@needs_store
def test_a_batch_of_which_nothing_was_sent_is_kept_although_it_was_not_closed() -> None:
    kept = RowsStore()
    first = store_of(kept)
    first.open(first.new_batch({"a": SENT.become("found", "8")}))
    for key in "bc":
        later = store_of(kept)
        later.read()
        later.open(later.new_batch({key: SENT}))
    last = store_of(kept)
    last.read()
    assert [*last.rows] == ["a", "b", "c"]


def test_what_is_open_and_what_was_created() -> None:
    store = store_of(None)
    store.open(store.new_batch({"a": SENT, "b": SENT.become("found", "8"), "c": CREATED}, "first"))
    store.open(store.new_batch({"d": SENT, "e": SENT.become("refused", "no"), "f": SENT.become("void")}, ""))
    assert store.open_rows() == ["a", "d"]
    assert store.open_rows("first") == ["a"]
    assert store.open_rows("") == ["d"]
    assert store.open_rows("other") == []
    assert store.ids() == {"7"}


# --- what is written ----------------------------------------------------------------------------------------


@needs_store
@pytest.mark.parametrize(("lost", "is_kept"), [(0, True), (1, True), (2, True), (3, False)])
def test_what_another_try_overwrites_is_written_again(lost: int, is_kept: bool) -> None:
    kept = RowsStore()
    left = [lost]

    def get(key: str, default: Any = None) -> Any:
        if kept.states and left[0]:
            left[0] -= 1
            return {}
        return RowsStore.get(kept, key, default)

    kept.get = get  # type: ignore[method-assign]
    if is_kept:
        store_of(kept).record_plan(PLAN)
    else:
        with pytest.raises(CustodyError) as caught:
            store_of(kept).record_plan(PLAN)
        assert caught.value.code == "task-stopped"
        assert caught.value.nothing_sent
        assert caught.value.retryable
    assert len(kept.states) == min(lost + 1, 3)


@pytest.mark.parametrize("is_kept", [pytest.param(True, marks=needs_store), False])
@pytest.mark.parametrize("clear_number", [0, 1])
def test_only_the_start_of_a_run_that_was_not_cleared_is_a_lower_bound(is_kept: bool, clear_number: int) -> None:
    store = store_of(RowsStore() if is_kept else None, 2, clear_number=clear_number)
    store.open(store.new_batch({"a": CREATED}, "plan"))
    store.add_forgotten("one")
    batch, row = store.rows["one"]
    assert row == SENT
    assert batch.number == 1
    assert batch.plan == ""
    assert batch.try_number == 0
    assert batch.recorded_at == (None if is_kept or clear_number else STARTED)


# --- manual overrides ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("  ", []),
        ("3711", ["3711"]),
        (" Aa \n", ["Aa"]),
        ("None", ["none"]),
        ("NONE 1  Bb", ["none", "1", "Bb"]),
        ("7 8", ["7", "8"]),
    ],
    ids=repr,
)
def test_the_words_of_a_person(monkeypatch: pytest.MonkeyPatch, value: str, expected: list[str]) -> None:
    store = store_of(None)
    store.open(store.new_batch({"a": SENT}, "plan"))
    assert store.manual_override("a") == []
    monkeypatch.setenv(f"AIRFLOW_VAR_{store.override_variable('a').upper()}", value)
    assert store.manual_override("a") == expected


@pytest.mark.parametrize("is_kept", [pytest.param(True, marks=needs_store), False])
def test_no_manual_override_is_used_twice(is_kept: bool) -> None:
    kept = RowsStore() if is_kept else None
    first = store_of(kept)
    first.open(first.new_batch({"a": SENT, "b": SENT}, "plan"))
    names = {first.override_variable(key) for key in "ab"}
    for_next = first.override_variable("a", next_try=True)
    second = store_of(kept, 2)
    if second.is_kept:
        second.read()
        # A retry finds the same batch, and follows what was set for it.
        assert second.override_variable("a") == first.override_variable("a") == for_next
    else:
        second.open(second.new_batch({"a": SENT}, "plan"))
        assert second.override_variable("a") == for_next
        assert for_next not in names
    second.record([("a", CREATED)])
    names |= {for_next, second.override_variable("a")}
    second.record([("a", CREATED.become("created", "8"))])
    names.add(second.override_variable("a"))
    second.record([("a", SENT)])
    second.open(second.new_batch({"a": SENT}, "plan"))
    if is_kept:
        names.add(second.override_variable("a"))
    assert len(names) == 5
