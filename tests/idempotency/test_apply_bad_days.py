"""Applying a plan while the service, a gateway or the network has a bad day: nothing twice, nothing lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from apply_tries import ROWS, ApplyTask, address, check_all, check_exactly, plan
from checksums import eip55
from task_log import TaskLog
from task_tries import CREATE, LISTING, RowsStore, needs_store, somebody_creates, variable_in

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConflictError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    WhitelistRequest,
)
from airflow_custody.idempotency import send
from airflow_custody.idempotency.create import CreateRows
from airflow_custody.sandbox import Sandbox

PAGE = {"body": "<html>no</html>", "content_type": "text/html"}


@pytest.fixture(autouse=True)
def quick(sandbox: Sandbox, connection: str, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "BATCH", 5)
    # While the service lists another request of this user, the absence of one counts.
    somebody_creates(sandbox, label="Earlier", address=address(0))


def body(code: int) -> dict[str, Any]:
    return {"error": "No", "message": "no", "code": code}


# --- the service goes away ----------------------------------------------------------------------------------


@needs_store
def test_a_service_that_cannot_be_reached_in_the_middle_is_retried(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    normal = CustodyClient.create_whitelist_request
    sent = []

    def create(client: CustodyClient, request: WhitelistRequest, **options: Any) -> str:
        sent.append(request)
        if len(sent) > 6:
            client = CustodyClient("http://127.0.0.1:9", "x", max_retries=0)
        return normal(client, request, **options)

    with monkeypatch.context() as patch:
        patch.setattr(CustodyClient, "create_whitelist_request", create)
        error = task.fails()
    assert error.retryable
    assert "6 created, 6 left" in str(error)
    assert "cannot be reached" in str(error)
    task.attempt()
    check_all(sandbox, task)


@needs_store
def test_rows_that_cannot_be_searched_for_are_searched_for_by_the_next_try(sandbox: Sandbox, task: ApplyTask) -> None:
    # The plan and the first window's look-up come through; then the service is gone.
    sandbox.control.add_fault("drop", **CREATE, work=True, times=None)
    sandbox.control.add_fault("normal", **LISTING, times=1, query={"addresses": address(1)})
    sandbox.control.add_fault("status", **LISTING, status=503, times=None, query={"addresses": address(1)})
    error = task.fails()
    assert error.retryable
    assert "unknown: its response was lost, and the service could not be searched" in str(error)
    sandbox.control.clear_faults()
    task.attempt()
    check_all(sandbox, task)


@needs_store
def test_a_service_that_responds_to_nothing_gets_no_more_after_a_while(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "MAX_LOST", 5)
    sandbox.control.add_fault("status", **CREATE, status=500, times=None)
    error = task.fails()
    assert error.retryable
    assert "12 left)" in str(error)
    assert len(sandbox.control.request_log("POST")) - 1 == 5
    sandbox.control.clear_faults()
    task.attempt()
    check_all(sandbox, task)


def test_a_service_whose_responses_are_all_lost_is_no_obstacle(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "MAX_LOST", 5)
    sandbox.control.add_fault("drop", **CREATE, work=True, times=None)
    task.attempt()
    check_all(sandbox, task)


@pytest.mark.parametrize("max_parallel", [1, 32])
def test_one_response_in_three_is_lost(sandbox: Sandbox, task: ApplyTask, max_parallel: int) -> None:
    for skip in range(2, 10, 2):
        sandbox.control.add_fault("drop", **CREATE, work=True, skip=skip)
    sandbox.control.add_fault("truncate_body", **CREATE, keep=8)
    task.attempt(max_parallel=max_parallel)
    check_all(sandbox, task)


@pytest.mark.parametrize("max_parallel", [0, 33, True, 2.0])
def test_max_parallel_has_bounds(max_parallel: Any) -> None:
    with pytest.raises(ValueError, match="from 1 to 32"):
        ApplyTask("x.yaml", "0" * 64, None).attempt(max_parallel=max_parallel)


# --- the service or a gateway refuses -------------------------------------------------------------------------


@pytest.mark.parametrize("page", [{"body": body(429)}, PAGE], ids=["service", "gateway"])
def test_429_after_every_fourth_slows_down(sandbox: Sandbox, task: ApplyTask, page: dict[str, Any]) -> None:
    for skip in (3, 6):
        sandbox.control.add_fault("status", **CREATE, status=429, **page, retry_after="1", skip=skip)
    task.attempt()
    check_all(sandbox, task)


def test_what_the_service_asks_of_one_thread_holds_for_all(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "time", time)
    sandbox.control.add_fault("status", **CREATE, status=429, body=body(429), retry_after="1", skip=4)
    task.attempt()
    log = sandbox.control.request_log("POST")[1:]
    refused = next(each["time"] for each in log if each["status"] == 429)
    # Some were under way already; then there are none for a second.
    assert not [each for each in log if 0.3 < each["time"] - refused < 0.9]
    assert log[-1]["time"] - refused >= 0.9
    check_all(sandbox, task)


@needs_store
def test_a_retry_after_that_is_too_long_becomes_the_tasks(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault("normal", **CREATE, times=6)
    sandbox.control.add_fault("status", **CREATE, status=429, body=body(429), retry_after="600", times=None)
    error = task.fails()
    assert (error.retryable, error.status, error.retry_after) == (True, 429, 600)
    assert "6 created, 6 left" in str(error)
    sandbox.control.clear_faults()
    task.attempt()
    check_all(sandbox, task)


@pytest.mark.parametrize(
    ("status", "type_"), [(401, CustodyAuthenticationError), (403, CustodyPermissionError)], ids=str
)
@needs_store
def test_credentials_that_end_in_the_middle_are_not_retried(
    sandbox: Sandbox, task: ApplyTask, status: int, type_: type[Exception]
) -> None:
    sandbox.control.add_fault("normal", **CREATE, times=6)
    sandbox.control.add_fault("status", **CREATE, status=status, body=body(status), times=None)
    error = task.fails()
    assert type(error) is type_
    assert not error.retryable
    assert error.status == status
    assert len(task.requests) == 6
    assert task.ti.pushed["return_value"]["counts"]["created"] == 6
    sandbox.control.clear_faults()
    task.clear()
    task.attempt()
    check_all(sandbox, task)


@pytest.mark.parametrize("work", [True, False])
@pytest.mark.parametrize("status", [404, 502, 200])
def test_a_gateways_page_says_nothing_about_a_row(sandbox: Sandbox, task: ApplyTask, status: int, work: bool) -> None:
    for skip in (1, 4):
        sandbox.control.add_fault("html", **CREATE, status=status, work=work, skip=skip)
    task.attempt()
    check_all(sandbox, task)


@needs_store
def test_a_gateway_that_refuses_everything_ends_the_task(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault("html", **CREATE, status=404, times=None)
    error = task.fails()
    assert not error.retryable
    assert error.status == 404
    assert "12 left" in str(error)
    assert len(sandbox.control.request_log("POST")) - 1 <= 6
    sandbox.control.clear_faults()
    task.clear()
    task.attempt()
    check_all(sandbox, task)


# --- what the service makes of rows, and shows of them ---------------------------------------------------------


def mixed(path: str) -> None:
    """Write rows whose addresses are in both cases."""
    text = Path(path).read_text()
    for number in ROWS:
        text = text.replace(address(number), "0x" + eip55(f"{'ab' * 4}{number:032x}"))
    Path(path).write_text(text)


@pytest.mark.parametrize("form", ["lower", "upper", "no prefix"])
def test_another_spelling_is_recognized(sandbox: Sandbox, path: str, form: str) -> None:
    mixed(path)
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore())
    sandbox.control.configure(address_form=form)
    sandbox.control.add_fault("drop", **CREATE, work=True, times=3)
    task.attempt()
    made = {each["id"]: each["label"] for each in sandbox.control.whitelist_requests()}
    assert len(made) == len(task.requests) + 1 == len(ROWS) + 1
    assert all(made[each["id"]] == each["label"] for each in task.requests)


@needs_store
def test_what_the_service_changes_is_a_reason_to_ask(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.configure(label_length=4)
    sandbox.control.add_fault("drop", **CREATE, work=True)
    sandbox.control.add_fault("normal", **CREATE, times=None)
    error = task.fails()
    assert isinstance(error, CustodyOutcomeUnknownError)
    assert not error.retryable
    assert "11 created, 1 unknown" in str(error)
    row = next(each for each in sandbox.control.whitelist_requests() if f"{each['id']} is new" in str(error))
    task.clear()
    error = task.fails()
    assert len(sandbox.control.whitelist_requests()) == 13
    # Somebody else's is refused, the row's own is not.
    variable = f"AIRFLOW_VAR_{variable_in(str(error)).upper()}"
    monkeypatch.setenv(variable, task.requests[0]["id"])
    assert "it is another row's" in str(task.fails())
    monkeypatch.setenv(variable, row["id"])
    task.attempt()
    assert row["id"] in [each["id"] for each in task.requests]
    assert len(sandbox.control.whitelist_requests()) == 13


@needs_store
def test_rows_that_the_service_hides_are_left_to_a_person(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.configure(creator_sees_own=False)
    sandbox.control.add_fault("drop", **CREATE, work=False)
    error = task.fails()
    assert isinstance(error, CustodyOutcomeUnknownError)
    assert "11 created, 1 unknown" in str(error)
    assert "proves nothing: it lists no request that the connection's user has created" in str(error)
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(str(error)).upper()}", "none")
    task.clear()
    task.attempt()
    check_all(sandbox, task)


@needs_store
def test_a_clock_that_is_behind_is_no_obstacle_where_a_row_is_new(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.configure(created_at="0001-01-01T00:00:00Z")
    sandbox.control.add_fault("drop", **CREATE, work=True, times=3)
    task.attempt()
    check_all(sandbox, task)


# --- other programs ---------------------------------------------------------------------------------------------


def test_what_another_program_asks_for_between_plan_and_window_is_not_sent(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog
) -> None:
    normal = CreateRows.run

    def run(creator: Any, keys: Any, **options: Any) -> Any:
        somebody_creates(sandbox, label="Label 3", address=address(3))
        somebody_creates(sandbox, label="Another label", address=address(7))
        return normal(creator, keys, **options)

    monkeypatch.setattr(CreateRows, "run", run)
    error = task.fails()
    assert "10 created, 1 found, 1 refused" in str(error)
    assert "somebody else has asked for the same destination meanwhile" in str(error)
    assert "Not sent: somebody else has asked for" in task_log.text
    check_exactly(sandbox, [0, *ROWS], task.requests)
    assert task.ti.pushed["return_value"]["counts"]["found"] == 1


def test_a_plan_of_yesterday_of_which_somebody_created_a_row(sandbox: Sandbox, task: ApplyTask) -> None:
    somebody_creates(sandbox, label="Label 3", address=address(3))
    error = task.fails()
    assert isinstance(error, CustodyConflictError)
    assert not error.retryable
    check_exactly(sandbox, [0, 3])


def test_a_slow_service_renews_the_fence(sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "FENCE", 0.1)
    monkeypatch.setattr(send, "time", time)
    sandbox.control.add_fault("normal", **CREATE, delay=0.1, times=None)
    task.attempt(max_parallel=2)
    check_all(sandbox, task)
    if task.store is not None:
        assert task.store.states.count("sending") > 4
