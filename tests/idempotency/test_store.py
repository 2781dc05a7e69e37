"""What the tries of a task instance know about each other, with a store that keeps its values, and without a store."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.airflow.airflow_runs import FakeTaskInstance
from support.airflow.task_tries import KEY, RowsStore, needs_store

from airflow_custody.client import CustodyOutcomeUnknownError
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
    # If earlier records may have been lost, beginning a try is not recorded.
    store.begin()
    store.begin()
    if kept is not None:
        assert kept.states == ([] if is_forgotten else ["begun"])
        assert store_of(kept, 9, max_tries=9).read() is is_forgotten


@needs_store
def test_the_newest_batch_of_a_row_decides() -> None:
    kept = RowsStore()
    store = store_of(kept)
    store.open(store.new_batch({"a": SENT, "b": SENT}, "plan"))
    store.record([("a", SENT.become("void"))])
    store.open(store.new_batch({"a": SENT}, "plan"))
    store.record([("a", CREATED)])
    # An outcome in the older batch does not make the row void again, so it is not sent twice.
    store.record([("b", SENT.become("void"))])
    again = store_of(kept, 2)
    again.read()
    assert store.rows["a"][1].state == again.rows["a"][1].state == "created"


@needs_store
@pytest.mark.parametrize("damage", ["format", "lost"])
def test_a_damaged_record_is_refused(damage: str) -> None:
    kept = RowsStore()
    store = store_of(kept)
    for name in "abc":
        store.open(store.new_batch({name: SENT}, "plan"))
        store.record([(name, CREATED)])
    if damage == "format":
        kept.values[KEY] = kept.values[KEY].replace('"format": 2', '"format": 3', 1)
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
    # A plan begins again if another plan was recorded since, even if rows of it were sent.
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


# --- what is written ----------------------------------------------------------------------------------------


@needs_store
def test_a_value_that_a_late_try_overwrites_is_written_again() -> None:
    kept = RowsStore()
    overwrites: list[dict[str, Any]] = [{}, {}]

    def get(key: str, default: Any = None) -> Any:
        return overwrites.pop() if kept.states and overwrites else RowsStore.get(kept, key, default)

    kept.get = get  # type: ignore[method-assign]
    store_of(kept).record_plan(PLAN)
    assert len(kept.states) == 3


@pytest.mark.parametrize("is_kept", [pytest.param(True, marks=needs_store), False])
@pytest.mark.parametrize("clear_number", [0, 1])
def test_only_the_start_of_a_run_that_was_not_cleared_is_a_lower_bound(is_kept: bool, clear_number: int) -> None:
    store = store_of(RowsStore() if is_kept else None, 2, clear_number=clear_number)
    store.open(store.new_batch({"a": CREATED}, "plan"))
    store.add_forgotten("one")
    batch, row = store.rows["one"]
    assert row == SENT
    assert batch.recorded_at == (None if is_kept or clear_number else STARTED)


# --- manual overrides ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("  ", []),
        (" Aa \n", ["Aa"]),
        ("NONE 1  Bb", ["none", "1", "Bb"]),
    ],
    ids=repr,
)
def test_the_words_of_a_manual_override(monkeypatch: pytest.MonkeyPatch, value: str, expected: list[str]) -> None:
    store = store_of(None)
    store.open(store.new_batch({"a": SENT}, "plan"))
    monkeypatch.setenv(f"AIRFLOW_VAR_{store.override_variable('a').upper()}", value)
    assert store.manual_override("a") == expected


@needs_store
def test_a_manual_override_is_for_one_state_of_one_batch() -> None:
    kept = RowsStore()
    store = store_of(kept)
    store.open(store.new_batch({"a": SENT, "b": SENT}, "plan"))
    names = {store.override_variable(key) for key in "ab"}
    # A retry finds the same batch, and follows what was set for it.
    again = store_of(kept, 2)
    again.read()
    assert again.override_variable("a") == store.override_variable("a", next_try=True) == store.override_variable("a")
    for row in (CREATED, CREATED.become("created", "8")):
        again.record([("a", row)])
        names.add(again.override_variable("a"))
    again.record([("a", SENT)])
    again.open(again.new_batch({"a": SENT}, "plan"))
    names.add(again.override_variable("a"))
    assert len(names) == 5


def test_without_a_store_a_manual_override_is_for_one_try() -> None:
    first, second = store_of(None), store_of(None, 2)
    for store in (first, second):
        store.open(store.new_batch({"a": SENT}, "plan"))
    assert first.override_variable("a", next_try=True) == second.override_variable("a") != first.override_variable("a")
