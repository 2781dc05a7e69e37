"""A large plan is planned, applied and completed in parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import FakeTaskInstance
from support.airflow.apply_tries import ApplyTask, address, check_exactly, complete, effective, plan, write_rows
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import RowsStore, failure_of, needs_store, somebody_creates

from airflow_custody.client.whitelist.plans.report import MAX_REPORT_BYTES
from airflow_custody.sandbox import Sandbox

ROWS = range(1, 6)
#: For plans that may delete everything.
FREE: dict[str, Any] = {"max_deletes": None, "max_delete_percent": None}

pytestmark = pytest.mark.usefixtures("connection", "airflow_db", "waits")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_rows(tmp_path / "whitelist.yaml", ROWS)


def counts(result: dict[str, Any]) -> dict[str, int]:
    return {state: number for state, number in result["counts"].items() if number}


def apply(planned: dict[str, Any]) -> dict[str, Any]:
    return ApplyTask(planned, RowsStore()).attempt()


def approve_all(sandbox: Sandbox) -> None:
    """Let all pending requests take effect."""
    for each in sandbox.control.whitelist_requests():
        if each["status"] == "pending":
            sandbox.control.set_whitelist_status(each["id"], "APPROVED")


def test_each_run_applies_the_next_rows_of_the_file(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    made: list[str] = []
    for number, (create, later) in enumerate([(2, 3), (2, 1), (1, 0)]):
        planned = plan(path, at_most=2)
        assert (planned["counts"]["create"], planned["counts"]["later"]) == (create, later)
        assert planned["source"]["at_most"] == (2 if later else None)
        assert bool(later) == planned["report"].startswith(f"**2 of {2 + later} operations; the rest follows in the ")
        assert (f"{later} operation" in planned["question"]) == bool(later)
        assert f"to create, {later} later" in task_log.text or not later
        made += apply(planned)["request_ids"]
        check_exactly(sandbox, range(1, 2 * number + create + 1))
        # The next run may begin while the requests of this run are pending, or in effect.
        if number == 0:
            approve_all(sandbox)
    assert len({*made}) == len(ROWS)
    approve_all(sandbox)
    assert counts(plan(path, at_most=2)) == {"unchanged": len(ROWS)}


def test_the_order_of_the_file_decides(sandbox: Sandbox, path: str) -> None:
    write_rows(Path(path), [4, 2, 5, 1, 3])
    apply(plan(path, at_most=3))
    check_exactly(sandbox, [2, 4, 5])


@pytest.mark.parametrize(
    ("rows", "new"),
    [
        ([9, *ROWS], "new: create line 3; no longer planned: create line 4 (now later)"),
        ([5, 4, 3, 2, 1], "Approved: create 2, delete 0. Now: create 2, delete 0. "),
    ],
    ids=["a row at the top", "another order"],
)
def test_another_part_than_the_approved_one_is_refused(sandbox: Sandbox, path: str, rows: list[int], new: str) -> None:
    planned = plan(path, at_most=2)
    write_rows(Path(path), rows)
    error = ApplyTask(planned, RowsStore()).fails()
    assert error.code == "plan-changed"
    assert new in str(error)
    check_exactly(sandbox, [])


def test_a_change_of_rows_for_later_does_not_matter(sandbox: Sandbox, path: str) -> None:
    planned = plan(path, at_most=2)
    write_rows(Path(path), [2, 1, 5, 4, 7, 8])
    assert apply(planned)["counts"]["created"] == 2
    check_exactly(sandbox, [1, 2])


@pytest.mark.parametrize("edited", [1, 3, None, 0, -1])
def test_an_edited_number_of_operations_is_refused(sandbox: Sandbox, path: str, edited: int | None) -> None:
    task = ApplyTask(plan(path, at_most=2), RowsStore())
    assert task.fails(source={"at_most": edited}).code == "plan-changed"
    check_exactly(sandbox, [])


@pytest.mark.parametrize("source", [{"at_most": "2"}, {"at_most": True}], ids=str)
def test_a_malformed_number_of_operations_is_refused(path: str, source: dict[str, Any]) -> None:
    task = ApplyTask(plan(path, at_most=2), RowsStore())
    assert "its source.at_most is malformed" in str(task.fails(source=source))


def test_the_plan_of_an_older_version_is_refused(path: str) -> None:
    planned = plan(path)
    del planned["source"]["at_most"]
    error = ApplyTask(planned, RowsStore()).fails()
    assert "its source.at_most is malformed" in str(error)
    assert "start a new run, which plans again" in str(error)


@needs_store
@pytest.mark.parametrize("write", [1, 2, 3, 4])
@pytest.mark.parametrize("before", [True, False], ids=["before the record", "after it"])
def test_a_part_that_was_killed_is_continued(sandbox: Sandbox, path: str, write: int, before: bool) -> None:
    # Without any request at the service, a try cannot tell that its listing is complete.
    effective(sandbox, 0)
    task = ApplyTask(plan(path, at_most=3), RowsStore())
    task.dies_at(write, before=before)
    assert task.attempt()["counts"]["created"] == 3
    check_exactly(sandbox, [0, 1, 2, 3], task.requests)
    apply(plan(path, at_most=3))
    check_exactly(sandbox, [0, *ROWS])


@needs_store
def test_a_part_that_was_killed_is_continued_if_only_the_order_has_changed(sandbox: Sandbox, path: str) -> None:
    effective(sandbox, 0)
    task = ApplyTask(plan(path, at_most=3), RowsStore())
    task.dies_at(3, before=False)
    write_rows(Path(path), reversed(ROWS))
    assert task.attempt()["counts"]["created"] == 3
    check_exactly(sandbox, [0, 1, 2, 3], task.requests)


@needs_store
def test_a_new_plan_of_the_same_run_is_the_next_part(sandbox: Sandbox, path: str) -> None:
    """The whole run was cleared."""
    task = ApplyTask(plan(path, at_most=2), RowsStore())
    first = task.attempt()["request_ids"]
    task.clear()
    result = task.attempt(planned=plan(path, at_most=2))
    check_exactly(sandbox, [1, 2, 3, 4])
    # Requests of the first part are still pending, so this run has to sign them, too.
    assert {*first} < {*result["request_ids"]}


def test_a_part_deletes_what_it_replaces_and_only_the_last_part_prunes(sandbox: Sandbox, path: str) -> None:
    old = [effective(sandbox, number, label="Old") for number in (1, 2)]
    undeclared = effective(sandbox, 77)
    same = effective(sandbox, 3)
    arguments = {"prune": True, "replace": True, "at_most": 2, **FREE}
    gone: list[str] = []
    # Rows 1 and 2 are replaced, 4 and 5 are created, and then the undeclared request is deleted.
    for expected, deleted in (
        ({"replace": 2, "later": 3, "unchanged": 1}, old),
        ({"create": 2, "later": 1, "unchanged": 3}, []),
        ({"undeclared": 1, "unchanged": 5}, [undeclared]),
    ):
        planned = plan(path, **arguments)
        assert counts(planned) == expected
        applied = apply(planned)
        approve_all(sandbox)
        gone += deleted
        complete(applied, planned["plan_hash"], RowsStore())
        left = {each["id"] for each in sandbox.control.whitelist_requests()}
        assert not left & {*gone}
        assert left >= {same, *old, undeclared} - {*gone}
    check_exactly(sandbox, ROWS)
    assert counts(plan(path, **arguments)) == {"unchanged": len(ROWS)}


def test_duplicates_of_a_part_that_was_not_completed_are_deleted_last(sandbox: Sandbox, path: str) -> None:
    old = effective(sandbox, 1, label="Old")
    arguments = {"replace": True, "at_most": 3, **FREE}
    apply(plan(path, **arguments))
    approve_all(sandbox)
    assert counts(plan(path, **{**arguments, "at_most": 1})) == {"create": 1, "later": 2, "unchanged": 3}
    planned = plan(path, **arguments)
    # The second part creates two rows, and deletes the duplicate once they are in effect.
    assert counts(planned) == {"create": 2, "duplicate": 1, "unchanged": 3}
    applied = apply(planned)
    assert old in {each["id"] for each in sandbox.control.whitelist_requests()}
    approve_all(sandbox)
    complete(applied, planned["plan_hash"], RowsStore())
    check_exactly(sandbox, ROWS)


def test_rows_of_an_earlier_part_that_are_pending_stay_pending(sandbox: Sandbox, path: str) -> None:
    apply(plan(path, at_most=2))
    assert counts(plan(path, at_most=2)) == {"create": 2, "later": 1, "pending": 2}


def test_limits_are_about_the_whole_plan(sandbox: Sandbox, path: str) -> None:
    error = failure_of(lambda: plan(path, at_most=2, max_creates=4))
    assert error.code == "plan-over-limits"
    assert "it creates 5 requests, but max_creates is 4" in str(error)
    for number in range(20, 40):
        effective(sandbox, number)
    error = failure_of(lambda: plan(path, at_most=2, prune=True))
    assert "it deletes 20 requests, but max_deletes is 10" in str(error)


def test_rows_for_later_are_changes(path: str) -> None:
    ti = FakeTaskInstance()
    error = failure_of(lambda: plan(path, ti=ti, at_most=2, fail_on_changes=True))
    assert "2 create, 3 later" in str(error)
    assert counts(ti.pushed["return_value"]) == {"create": 2, "later": 3}


def test_a_plan_of_3000_rows_fits_into_one_approval(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.yaml", range(3_000))
    planned = plan(path, max_creates=None)
    number = planned["counts"]["create"]
    assert 500 < number == planned["source"]["at_most"]
    assert planned["counts"]["later"] == 3_000 - number
    assert len(planned["report"].encode()) <= MAX_REPORT_BYTES
    assert f"{number} of 3,000 operations; the rest follows in the next run." in planned["report"].splitlines()[0]
    # An operation, the service, and nothing of what is left.
    assert len(planned["parts"]) == number + 1
    assert len(json.dumps(planned)) < 2 * MAX_REPORT_BYTES
    # A larger number than fits has no effect.
    assert plan(path, max_creates=None, at_most=2_999) == planned


def test_a_single_operation_that_is_too_long_stops_the_plan(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "rows.yaml"
    write_rows(path, [1], linked_wallet_ids=[str(number) for number in range(10_000, 20_000)])
    ti = FakeTaskInstance()
    error = failure_of(lambda: plan(str(path), ti=ti))
    assert error.code == "plan-over-limits"
    assert "the creation of line 3 alone is too long for the report of an approval (60,000 bytes)" in str(error)
    assert ti.pushed == {}


def test_another_user_who_creates_a_row_changes_the_part(sandbox: Sandbox, path: str) -> None:
    planned = plan(path, at_most=2)
    somebody_creates(sandbox, label="Label 1", address=address(1))
    error = ApplyTask(planned, RowsStore()).fails()
    assert "new: create line 5; no longer planned: create line 3 (now pending)" in str(error)
    check_exactly(sandbox, [1])
