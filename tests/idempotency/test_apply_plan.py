"""Applying a plan: each row is requested at most once, and only the approved plan is applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.apply_tries import ROWS, ApplyTask, address, before, check_all, check_exactly, plan, write_rows
from support.airflow.connections import connection_json
from support.airflow.task_tries import CREATE, LISTING, RowsStore, needs_store, somebody_creates

from airflow_custody.client import CustodyConflictError, CustodyRequestError
from airflow_custody.idempotency import send
from airflow_custody.idempotency.apply_plan import ApplyPlan
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("earlier")


def test_each_row_is_created(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    result = task.attempt()
    check_all(sandbox, task)
    assert result["counts"] == {"created": 12, "deleted": 0, "found": 0, "refused": 0, "unknown": 0, "left": 0}
    assert result["request_ids"] == [each["id"] for each in task.requests]
    if task.given_store is not None:
        task.clear()
        assert task.attempt() == result
    again = ApplyTask(plan(path), RowsStore())
    assert again.attempt()["request_ids"] == []
    assert again.requests == []
    check_all(sandbox, task)


# --- the approved plan -----------------------------------------------------------------------------------------


def test_a_file_that_changed_since_the_approval_is_refused(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    write_rows(Path(path), [*ROWS, 99])
    error = task.fails()
    assert isinstance(error, CustodyConflictError)
    assert "is not the approved plan; this try sent nothing" in str(error)
    assert "Now: create 13, delete 0" in str(error)
    check_exactly(sandbox, [0])


def as_eve(sandbox: Sandbox, connection: dict[str, Any]) -> None:
    """Let the connection's user be one of another tenant."""
    roles = ["TPUser", "WhitelistedAddressCreator"]
    user = sandbox.control.add_user("eve", roles, tenant_id="2")
    connection["password"] = sandbox.control.add_token(roles=roles, user_id=user, tenant_id="2")


def elsewhere(sandbox: Sandbox, connection: dict[str, Any]) -> None:
    """Let the connection lead to another base URL."""
    connection["host"] = connection["host"].replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("change", [as_eve, elsewhere])
def test_the_plan_of_another_service_or_tenant_is_refused(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, change: Callable[..., None]
) -> None:
    connection = json.loads(connection_json(sandbox))
    change(sandbox, connection)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    assert isinstance(task.fails(), CustodyConflictError)
    check_exactly(sandbox, [0])


def test_a_change_that_leaves_the_plan_the_same_is_accepted(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    write_rows(Path(path), reversed(ROWS))
    somebody_creates(sandbox, label="Another", address=address(77))
    task.attempt()
    check_exactly(sandbox, [0, *ROWS, 77], task.requests)


@pytest.mark.parametrize("given", ["0" * 63, "g" * 64, None], ids=["short", "not hexadecimal", "None"])
def test_only_a_whole_hash_will_do(sandbox: Sandbox, path: str, given: Any) -> None:
    error = ApplyTask(plan(path), RowsStore(), plan_hash=given).fails()
    assert "plan_hash" in str(error)
    assert not error.retryable
    check_exactly(sandbox, [0])


# --- each row separately ---------------------------------------------------------------------------------------


@needs_store
def test_one_address_is_created_on_each_chain_of_the_file(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "MAX_BATCH", 2)
    chains = ["BASE", "ETH", "Linea", "POL", "ETHW"]
    sandbox.control.configure(currencies=chains)
    rows = "".join(f"- {{label: {each}, address: '{address(1)}', blockchain: {each}}}\n" for each in chains)
    path = tmp_path / "chains.yaml"
    path.write_text(f"version: 1\naddresses:\n{rows}")
    task = ApplyTask(plan(str(path)), RowsStore())
    # The requests that an earlier try has created name chains, too.
    task.dies_at(5, before=True)
    task.attempt()
    assert sorted(each["label"] for each in sandbox.control.whitelist_requests()) == sorted(["Earlier", *chains])
    assert plan(str(path))["counts"]["pending"] == len(chains)


def test_a_row_that_is_refused_stops_nothing_else(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "InvalidArgument", "message": "bad row", "code": 400}
    sandbox.control.add_fault("status", **CREATE, status=400, body=body, times=2)
    error = task.fails()
    assert isinstance(error, CustodyRequestError)
    assert not error.retryable
    assert "10 created, 2 refused" in str(error)
    assert str(error).count("refused: create whitelisting request failed: InvalidArgument: bad row") == 2
    assert len(task.requests) == 10
    # A user has fixed the cause, and clears the task.
    if task.given_store is not None:
        task.clear()
        assert task.attempt()["counts"]["created"] == 12
        check_all(sandbox, task)


@pytest.mark.parametrize("offset", [1, 11, -1], ids=["the next row", "the last row", "something else"])
def test_a_response_with_an_id_of_something_else_is_no_success(sandbox: Sandbox, task: ApplyTask, offset: int) -> None:
    late = somebody_creates(sandbox, label="Another", address=address(77))
    body = {"result": {"id": str(int(late) + 1 + offset)}}
    sandbox.control.add_fault("status", **CREATE, status=200, body=body, work=True, times=1)
    error = task.fails(max_parallel=1)
    assert "11 created, 1 unknown" in str(error)
    why = "for this row, but it differs in: address, label"
    assert why in str(error)
    check_exactly(sandbox, [0, *ROWS, 77], task.requests)


def test_a_row_whose_id_was_named_for_another_one_is_not_sent_again(sandbox: Sandbox, task: ApplyTask) -> None:
    first = int(sandbox.control.whitelist_requests()[0]["id"]) + 1
    sandbox.control.add_fault("drop", **CREATE, work=True, times=1)
    body = {"result": {"id": str(first)}}
    sandbox.control.add_fault("status", **CREATE, skip=1, status=200, body=body, work=True, times=1)
    assert "2 unknown" in str(task.fails(max_parallel=1))
    check_exactly(sandbox, [0, *ROWS])


def test_an_id_that_the_service_does_not_list_is_no_success(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"result": {"id": "99999"}}
    sandbox.control.add_fault("status", **CREATE, skip=2, status=200, body=body, work=True, times=1)
    error = task.fails()
    assert error.retryable is (AIRFLOW >= (3, 3))
    assert "does not list a request that it reported as created" in str(error)
    assert "the service does not list request 99999, which this task created" in str(error)
    check_exactly(sandbox, [0, *ROWS])


@needs_store
def test_a_created_request_that_can_no_longer_be_read_is_no_success(sandbox: Sandbox, task: ApplyTask) -> None:
    task.dies_at(5, before=True)
    number = sandbox.control.whitelist_requests()[1]["id"]
    sandbox.control.set_whitelist_metadata(number, hash="00")
    error = task.fails()
    assert "11 created, 1 unknown" in str(error)
    named = f"the service returned the id {number} for this row"
    assert f"{named}, but whitelisting request {number} cannot be read" in str(error)
    check_exactly(sandbox, [0, *ROWS], task.requests)


def test_a_gateways_page_in_place_of_what_was_created_ends_the_try(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = {"status": 403, "body": "<html>no</html>", "times": 1}
    before(monkeypatch, ApplyPlan, "_check_created", lambda: sandbox.control.add_fault("html", **LISTING, **page))
    assert "12 created" in str(task.fails())
    check_all(sandbox, task)
    if task.given_store is not None:
        task.clear()
        task.attempt()
        check_all(sandbox, task)
