"""Applying a plan: each row at most once, whatever happens to the task, the service and the file."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import AIRFLOW
from apply_tries import ROWS, ApplyTask, address, check_exactly, plan, write_rows
from clocks import SkippingTime
from connections import connection_json
from task_tries import CREATE, RowsStore, needs_store, somebody_creates

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyConflictError,
    CustodyRequestError,
)
from airflow_custody.idempotency import send
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator
from airflow_custody.sandbox import Sandbox


@pytest.fixture(autouse=True)
def quick(connection: str, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several windows although there are few rows.
    monkeypatch.setattr(send, "BATCH", 5)


def test_each_row_is_created(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    result = task.attempt()
    check_exactly(sandbox, ROWS, task.requests)
    assert result["counts"] == {"created": 12, "deleted": 0, "found": 0, "refused": 0, "unknown": 0, "left": 0}
    assert result["request_ids"] == [each["id"] for each in task.requests]
    assert plan(path)["counts"]["pending"] == 12


def test_the_calls_beside_the_creations_are_few(sandbox: Sandbox, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
    path = write_rows(tmp_path / "many.yaml", range(200))
    task = ApplyTask(path, plan(path, max_creates=None)["plan_hash"], RowsStore())
    sandbox.control.clear_request_log()
    task.attempt()
    calls = sandbox.control.request_log()
    creates = [each for each in calls if each["method"] == "POST"]
    assert len(creates) == 200
    assert len(calls) - len(creates) <= 20


@needs_store
def test_one_address_is_created_on_each_chain_of_the_file(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "BATCH", 2)
    chains = ["BASE", "ETH", "Linea", "POL", "ETHW"]
    sandbox.control.configure(currencies=chains)
    rows = "".join(f"- {{label: {each}, address: '{address(1)}', blockchain: {each}}}\n" for each in chains)
    path = tmp_path / "chains.yaml"
    path.write_text(f"version: 1\naddresses:\n{rows}")
    task = ApplyTask(str(path), plan(str(path))["plan_hash"], RowsStore())
    # The rows that a try before has created name chains, too.
    task.dies_at(4, before=True)
    task.attempt()
    assert sorted(each["label"] for each in sandbox.control.whitelist_requests()) == sorted(chains)
    assert plan(str(path))["counts"]["pending"] == len(chains)


@needs_store
@pytest.mark.parametrize("write", range(2, 8))
@pytest.mark.parametrize("before", [True, False])
def test_a_task_that_was_killed_goes_on_where_it_was(
    sandbox: Sandbox, task: ApplyTask, write: int, before: bool
) -> None:
    task.dies_at(write, before=before)
    result = task.attempt()
    check_exactly(sandbox, ROWS, task.requests)
    assert result["counts"]["created"] == 12


@needs_store
def test_a_task_that_was_cleared_sends_nothing_and_returns_the_same(sandbox: Sandbox, task: ApplyTask) -> None:
    first = task.attempt()
    task.clear()
    assert task.attempt() == first
    check_exactly(sandbox, ROWS, task.requests)


@needs_store
def test_lost_responses_are_found(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=True, times=4)
    task.attempt()
    check_exactly(sandbox, ROWS, task.requests)


def test_what_had_no_effect_is_sent_again(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=False, times=3)
    task.attempt()
    check_exactly(sandbox, ROWS, task.requests)


def test_lost_responses_of_a_service_that_lists_late_are_found(
    sandbox: Sandbox, task: ApplyTask, waits: SkippingTime
) -> None:
    sandbox.control.configure(whitelist_lag=3600)
    waits.after(20, lambda: sandbox.control.configure(whitelist_lag=0))
    sandbox.control.add_fault("drop", **CREATE, work=True, times=4)
    task.attempt(lookup_wait=60)
    check_exactly(sandbox, ROWS, task.requests)


def test_a_row_that_is_refused_stops_nothing_else(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "InvalidArgument", "message": "bad row", "code": 400}
    sandbox.control.add_fault("status", **CREATE, status=400, body=body, times=2)
    error = task.fails()
    assert isinstance(error, CustodyRequestError)
    assert not error.retryable
    assert "10 created, 2 refused" in str(error)
    assert str(error).count("refused: create whitelisting request failed: InvalidArgument: bad row") == 2
    assert len(task.requests) == 10
    # Whoever clears the task has mended it.
    if task.store is not None and "custody_apply" in task.store.values:
        task.clear()
        task.attempt()
        check_exactly(sandbox, ROWS, task.requests)


def test_a_file_that_changed_since_the_approval_is_refused(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    write_rows(Path(path), [*ROWS, 99])
    error = task.fails()
    assert isinstance(error, CustodyConflictError)
    assert "is not the one that was approved; nothing was sent" in str(error)
    check_exactly(sandbox, [])


def test_the_order_of_rows_changes_nothing(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    write_rows(Path(path), reversed(ROWS))
    task.attempt()
    check_exactly(sandbox, ROWS, task.requests)


def test_a_row_that_somebody_else_has_asked_for_is_refused(sandbox: Sandbox, task: ApplyTask) -> None:
    somebody_creates(sandbox, label="Label 3", address=address(3))
    assert isinstance(task.fails(), CustodyConflictError)
    check_exactly(sandbox, [3])


def test_a_request_that_others_add_meanwhile_does_not_make_the_plan_void(sandbox: Sandbox, task: ApplyTask) -> None:
    somebody_creates(sandbox, label="Another", address=address(77))
    task.attempt()
    check_exactly(sandbox, [*ROWS, 77], task.requests)


def test_the_plan_of_another_service_is_refused(sandbox: Sandbox, task: ApplyTask) -> None:
    with Sandbox() as other, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
        assert isinstance(task.fails(), CustodyConflictError)
        check_exactly(other, [])


def test_a_rate_limit_slows_all_threads_down(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "ResourceExhausted", "message": "slow down", "code": 429}
    for _ in range(3):
        sandbox.control.add_fault("status", **CREATE, status=429, body=body, retry_after="0.2", times=1)
    task.attempt()
    check_exactly(sandbox, ROWS, task.requests)


@needs_store
def test_a_token_that_ends_in_the_middle_ends_the_task_and_the_next_goes_on(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "Unauthenticated", "message": "expired", "code": 401}
    sandbox.control.add_fault("normal", **CREATE, times=6)
    sandbox.control.add_fault("status", **CREATE, status=401, body=body, times=6)
    error = task.fails()
    assert not error.retryable
    sandbox.control.clear_faults()
    task.clear()
    task.attempt()
    check_exactly(sandbox, ROWS, task.requests)
    assert isinstance(error, (CustodyAuthenticationError, CustodyRequestError))


@pytest.mark.parametrize("offset", [1, 5, 11])
def test_a_response_with_the_id_of_another_row_is_mended(sandbox: Sandbox, task: ApplyTask, offset: int) -> None:
    first = somebody_creates(sandbox, label="Before", address=address(77))
    body = {"result": {"id": str(int(first) + 1 + offset)}}
    sandbox.control.add_fault("status", **CREATE, status=200, body=body, work=True, times=1)
    result = task.attempt(max_parallel=1)
    assert result["counts"]["created"] == 12
    check_exactly(sandbox, [*ROWS, 77], task.requests)


def test_a_response_with_an_id_of_something_else_is_mended(sandbox: Sandbox, task: ApplyTask) -> None:
    somebody_creates(sandbox, label="Before", address=address(77))
    late = somebody_creates(sandbox, label="Another", address=address(78))
    sandbox.control.add_fault("status", **CREATE, status=200, body={"result": {"id": late}}, work=True, times=1)
    task.attempt()
    check_exactly(sandbox, [*ROWS, 77, 78], task.requests)


@needs_store
def test_a_refused_row_that_somebody_else_has_asked_for_is_not_sent_again(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "InvalidArgument", "message": "bad row", "code": 400}
    sandbox.control.add_fault("status", **CREATE, status=400, body=body, times=1)
    task.fails(max_parallel=1)
    somebody_creates(sandbox, label="Label 1", address=address(1))
    task.clear()
    assert isinstance(task.fails(), CustodyConflictError)
    check_exactly(sandbox, ROWS, task.requests)


def test_a_task_that_is_stopped_sends_no_further_row(sandbox: Sandbox, path: str) -> None:
    sandbox.control.add_fault("normal", **CREATE, delay=0.2, times=None)
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore())
    operators: list[CustodyApplyWhitelistPlanOperator] = []

    class Noted(CustodyApplyWhitelistPlanOperator):
        def _run(self, context: Any, hook: Any) -> Any:
            operators.append(self)
            return super()._run(context, hook)

    def stop_once_a_row_has_left() -> None:
        while not sandbox.control.whitelist_requests():
            time.sleep(0.05)
        operators[0].on_kill()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apply_tries.CustodyApplyWhitelistPlanOperator", Noted)
        threading.Thread(target=stop_once_a_row_has_left, daemon=True).start()
        error = task.fails(max_parallel=1)
    # Without a record, a later try would only find that the plan has changed.
    assert error.retryable is (AIRFLOW >= (3, 3))
    assert "the task was stopped" in str(error)
    assert 0 < len(sandbox.control.whitelist_requests()) < 12


@pytest.mark.parametrize("given", ["abc123", "0" * 63, "g" * 64, {"plan_hash": "0" * 64}])
def test_only_a_whole_hash_will_do(sandbox: Sandbox, path: str, given: Any) -> None:
    error = ApplyTask(path, given, RowsStore()).fails()
    assert isinstance(error, CustodyRequestError)
    assert "plan_hash must be" in str(error)


def test_the_plan_of_another_tenant_is_refused(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sandbox.control.add_user("eve", ["TPUser", "WhitelistedAddressCreator"], tenant_id="2")
    token = sandbox.control.add_token(roles=["TPUser", "WhitelistedAddressCreator"], user_id=user, tenant_id="2")
    connection = json.loads(connection_json(sandbox))
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps({**connection, "password": token}))
    assert isinstance(task.fails(), CustodyConflictError)
    check_exactly(sandbox, [])


@needs_store
def test_what_was_sent_before_a_time_out_is_not_forgotten(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, waits: SkippingTime
) -> None:
    def timed_out(_: object) -> None:
        """Wait as the main thread does, where the time-out is raised once a row has been sent."""
        while not sandbox.control.request_log("POST"):
            time.sleep(0.01)
        raise RuntimeError("the task's time-out")

    with monkeypatch.context() as patch:
        patch.setattr(send, "wait", timed_out)
        with pytest.raises(RuntimeError, match="time-out"):
            task.attempt()
    sent = len(sandbox.control.whitelist_requests())
    assert sent > 0
    skipped = waits.skipped
    task.attempt(lookup_wait=20)
    # Nothing had to be waited for.
    assert waits.skipped - skipped < 15
    check_exactly(sandbox, ROWS, task.requests)


def test_an_id_that_the_service_does_not_list_is_no_success(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault(
        "status", **CREATE, skip=2, status=200, body={"result": {"id": "99999"}}, work=True, times=1
    )
    error = task.fails()
    assert error.retryable is (AIRFLOW >= (3, 3))
    assert "does not list what it said that it created: 99999" in str(error)
    check_exactly(sandbox, ROWS)


def test_rows_of_one_address_do_not_take_each_others_ids(sandbox: Sandbox, tmp_path: Path) -> None:
    rows = "".join(
        f"  - {{label: L{memo}, address: rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh, blockchain: XRP, memo: '{memo}'}}\n"
        for memo in (1, 2, 3)
    )
    path = tmp_path / "memos.yaml"
    path.write_text(f"version: 1\naddresses:\n{rows}")
    first = int(somebody_creates(sandbox, label="Before", address=address(77)))
    task = ApplyTask(str(path), plan(str(path))["plan_hash"], RowsStore())
    for offset in (2, 1):
        body = {"result": {"id": str(first + offset)}}
        sandbox.control.add_fault("status", **CREATE, status=200, body=body, work=True, times=1)
    error = task.fails(max_parallel=1)
    assert "1 created, 2 unknown" in str(error)
    assert str(error).count("shows something else there (memo, label)") == 2
    assert [each["memo"] for each in task.requests] == ["3"]
    assert len(sandbox.control.whitelist_requests()) == 4


@needs_store
def test_an_unknown_row_is_not_sent_once_its_chain_is_only_planned(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=False, times=None)
    task.dies_at(3, before=False)
    sandbox.control.clear_faults()
    assert isinstance(task.fails(dry_run_chains=["ETH"]), CustodyConflictError)
    check_exactly(sandbox, [])
