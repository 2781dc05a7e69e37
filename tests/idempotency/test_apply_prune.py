"""Applying deletions: only of requests that the approved plan deletes, and only once all rows were created."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.apply_tries import ApplyTask, address, before, check_exactly, plan, write_rows
from support.airflow.task_tries import RowsStore, somebody_creates

from airflow_custody.client import CustodyClient, CustodyConflictError, CustodyPermissionError
from airflow_custody.idempotency.deletions import Deletions
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator
from airflow_custody.sandbox import Sandbox

ROWS = range(1, 13)
DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}
LISTING = {"method": "GET", "path": "/whitelists/addresses"}
ALL = {"prune": True, "max_deletes": None, "max_delete_percent": None}

pytestmark = pytest.mark.usefixtures("batches")


@pytest.fixture
def path(sandbox: Sandbox, tmp_path: Path) -> str:
    """Return a file with five rows that are pending, and without seven other existing requests."""
    for number in ROWS:
        somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    return write_rows(tmp_path / "whitelist.yaml", ROWS[7:])


@pytest.fixture
def task(path: str) -> ApplyTask:
    return ApplyTask(plan(path, **ALL), RowsStore())


def left(sandbox: Sandbox) -> list[str]:
    """Return the addresses of the requests that are neither deleted nor removed."""
    found = sandbox.control.whitelist_requests()
    return sorted(each["address"] for each in found if each["status"] not in ("removed", "deleted"))


def addresses(numbers: range) -> list[str]:
    return [address(each) for each in numbers]


def id_of(sandbox: Sandbox, address: str) -> str:
    (found,) = [each["id"] for each in sandbox.control.whitelist_requests() if each["address"] == address]
    return str(found)


def check_done(sandbox: Sandbox, task: ApplyTask, **changes: Any) -> None:
    """Check that a try performs all deletions, or has performed them."""
    counts = task.attempt(**changes)["counts"]
    assert counts == {"created": 0, "deleted": 7, "found": 0, "refused": 0, "unknown": 0, "left": 0}
    assert left(sandbox) == addresses(ROWS[7:])


def test_requests_that_the_file_no_longer_has_are_deleted(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    check_done(sandbox, task)
    assert plan(path, **ALL)["counts"]["undeclared"] == 0


@pytest.mark.parametrize("write", range(2, 7))
@pytest.mark.parametrize("is_before", [True, False])
def test_deletions_that_were_killed_go_on(sandbox: Sandbox, stored: ApplyTask, write: int, is_before: bool) -> None:
    stored.dies_at(write, before=is_before)
    check_done(sandbox, stored)


# --- the approved plan -------------------------------------------------------------------------------------------


def test_a_request_in_effect_since_the_approval_is_not_deleted(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.sign_whitelist_requests([id_of(sandbox, address(3))])
    assert "is not the approved plan" in str(task.fails())
    assert left(sandbox) == addresses(ROWS)


def test_a_request_that_the_file_has_again_is_not_deleted_by_the_next_try(
    sandbox: Sandbox, stored: ApplyTask, path: str
) -> None:
    sandbox.control.add_fault("status", **DELETE, status=503, times=None)
    assert stored.fails().retryable
    sandbox.control.clear_faults()
    write_rows(Path(path), [2, *ROWS[7:]])
    for prune in (True, False):
        assert isinstance(stored.fails(source={"prune": prune}), CustodyConflictError)
    check_exactly(sandbox, ROWS)


def test_a_changed_plan_says_what_earlier_tries_have_deleted(sandbox: Sandbox, stored: ApplyTask, path: str) -> None:
    # The response to the last deletion of the first batch is lost. The task is killed before the second batch.
    sandbox.control.add_fault("drop", **DELETE, skip=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(stored.arguments, "max_parallel", 1)
        stored.dies_at(4)
    there = left(sandbox)
    assert len(there) == 5 + 3
    write_rows(Path(path), ROWS[6:])
    assert "this try sent nothing, and earlier tries deleted 4" in str(stored.fails())
    assert stored.ti.pushed["counts"]["deleted"] == 4
    assert left(sandbox) == there


# --- requests that have changed in the meantime --------------------------------------------------------------------


def test_a_request_that_is_gone_already_counts_as_deleted(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = id_of(sandbox, address(3))
    before(monkeypatch, Deletions, "prepare", lambda: sandbox.control.set_whitelist_status(found, "removed"))
    check_done(sandbox, task)


def test_a_request_that_takes_effect_while_others_are_deleted_is_not_deleted(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Change the last request, after the first deletions were sent.
    found = id_of(sandbox, address(7))
    before(monkeypatch, Deletions, "send", lambda: sandbox.control.sign_whitelist_requests([found]))
    error = task.fails()
    assert "6 deleted, 1 refused" in str(error)
    assert f"request {found}: not deleted: it has changed since the plan was approved" in str(error)
    assert left(sandbox) == [address(7), *addresses(ROWS[7:])]


def test_while_the_service_cannot_be_read_no_request_is_deleted(sandbox: Sandbox, stored: ApplyTask) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault = {**LISTING, "status": 503, "times": None}
        before(patch, Deletions, "prepare", lambda: sandbox.control.add_fault("status", **fault))
        error = stored.fails()
    assert error.retryable
    assert "7 left" in str(error)
    sandbox.control.clear_faults()
    stored.clear()
    check_done(sandbox, stored)


# --- refused, stopped --------------------------------------------------------------------------------------------


def test_one_refused_deletion_stops_nothing_else(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "FailedPrecondition", "message": "in use", "code": 409}
    sandbox.control.add_fault("status", **DELETE, status=409, body=body, skip=2)
    error = task.fails()
    assert not error.retryable
    assert "6 deleted, 1 refused" in str(error)
    assert "not deleted: delete whitelisting request failed: FailedPrecondition: in use" in str(error)
    assert "add the status word that it gives them to 'rejected_statuses' of this task's" in str(error)
    assert len(left(sandbox)) == 6


@pytest.mark.parametrize(("status", "retryable"), [(403, False), (503, True)])
def test_a_service_that_rejects_all_deletions_ends_the_task(
    sandbox: Sandbox, stored: ApplyTask, status: int, retryable: bool
) -> None:
    body = {"error": "No", "message": "no", "code": status}
    sandbox.control.add_fault("status", **DELETE, status=status, body=body, times=None)
    error = stored.fails()
    assert error.retryable is retryable
    assert isinstance(error, CustodyPermissionError) is not retryable
    assert re.search(rf"\d {'unknown' if retryable else 'refused'}, \d left", str(error))
    sandbox.control.clear_faults()
    stored.clear()
    check_done(sandbox, stored)


def test_a_task_that_is_stopped_within_a_window_sends_no_further_deletion(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, operators = CustodyClient.delete_whitelist_request, []

    class Operator(CustodyApplyWhitelistPlanOperator):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            operators.append(self)

    def delete_and_stop(client: CustodyClient, request_id: str, comment: str) -> None:
        delete(client, request_id, comment)
        operators[-1].on_kill()

    with monkeypatch.context() as patch:
        patch.setattr(ApplyTask, "operator", Operator)
        patch.setattr(CustodyClient, "delete_whitelist_request", delete_and_stop)
        error = task.fails(max_parallel=1)
    assert error.code == "task-stopped"
    assert len(left(sandbox)) == 11
    if task.given_store is not None:
        assert error.retryable
        assert "6 left" in str(error)
        check_done(sandbox, task)


# --- deletions that were begun, and whose outcome is unknown -------------------------------------------------------


def test_a_deleted_request_that_is_still_listed_is_deleted_again(sandbox: Sandbox, stored: ApplyTask) -> None:
    # The responses confirm deletions that the service has not made.
    sandbox.control.add_fault("empty", **DELETE, times=7, work=False)
    assert stored.attempt()["counts"]["deleted"] == 7
    assert left(sandbox) == addresses(ROWS)
    stored.clear()
    check_done(sandbox, stored)


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="it keeps no record for later tries")
def test_a_try_deletes_nothing_if_the_file_has_other_rows_than_at_the_first_try(
    sandbox: Sandbox, task: ApplyTask, path: str
) -> None:
    task.dies_at(3)
    before_it = left(sandbox)
    write_rows(Path(path), ROWS[6:])
    assert "the rows of the file have changed since the first try" in str(task.fails())
    assert left(sandbox) == before_it
