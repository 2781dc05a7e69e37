"""Applying a plan while the service, a gateway or the network fails: no request is created twice or lost."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from support.airflow.apply_tries import ROWS, ApplyTask, address, before, check_all, check_exactly
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import CREATE, LISTING, somebody_creates

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyConflictError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
)
from airflow_custody.idempotency import send
from airflow_custody.idempotency.create import CreateRows
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("earlier")


def body(code: int) -> dict[str, Any]:
    return {"error": "No", "message": "no", "code": code}


# --- faults that one try handles --------------------------------------------------------------------------------


def drop(**more: Any) -> dict[str, Any]:
    return {"kind": "drop", "work": True, **more}


def busy(**more: Any) -> dict[str, Any]:
    return {"kind": "status", "status": 429, "retry_after": 1, **more}


def refused(status: int) -> dict[str, Any]:
    return {"kind": "status", "status": status, "body": body(status)}


def page(status: int, *, work: bool) -> list[dict[str, Any]]:
    return [{"kind": "html", "status": status, "work": work, "skip": skip} for skip in (1, 4)]


IN_THREE = [*(drop(skip=skip) for skip in range(2, 10, 2)), {"kind": "truncate_body", "keep": 8}]


@pytest.mark.parametrize(
    ("faults", "max_parallel"),
    [
        pytest.param([drop(times=None)], 4, id="all are lost"),
        pytest.param([drop(work=False, times=3)], 4, id="lost before the work"),
        pytest.param(IN_THREE, 32, id="one in three is lost, all at once"),
        pytest.param([busy(body=body(429), skip=skip) for skip in (3, 6)], 4, id="429"),
        pytest.param(page(404, work=True), 4, id="404 of a gateway, done"),
        pytest.param(page(200, work=False), 4, id="page of a gateway, not done"),
    ],
)
def test_each_row_is_created_once_although_responses_are_lost(
    sandbox: Sandbox,
    task: ApplyTask,
    faults: list[dict[str, Any]],
    max_parallel: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send, "MAX_LOST", 5)
    # New requests are recognized by comparison with those that existed before, whatever the service's clock says.
    sandbox.control.configure(created_at="0001-01-01T00:00:00Z")
    for fault in faults:
        sandbox.control.add_fault(**CREATE, **fault)
    task.attempt(max_parallel=max_parallel)
    check_all(sandbox, task)


def test_a_pause_that_the_service_asks_of_one_thread_holds_for_all(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "time", time)
    sandbox.control.add_fault(**CREATE, **busy(body=body(429), retry_after=3, skip=4))
    task.attempt()
    log = sandbox.control.request_log("POST")[1:]
    refused = next(each["time"] for each in log if each["status"] == 429)
    # Some requests were already under way. Then none is sent for three seconds.
    assert not [each for each in log if 2 < each["time"] - refused < 2.9]
    assert log[-1]["time"] - refused >= 2.9
    check_all(sandbox, task)


# --- faults that end a try, and the next try continues ----------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "type_", "says", "retryable"),
    [
        pytest.param(busy(body=body(429), retry_after=600), CustodyRateLimitError, "6 left", True, id="long pause"),
        pytest.param(refused(401), CustodyAuthenticationError, "6 left", False, id="401"),
        # The service may have refused the first requests because of their content.
        pytest.param(refused(403), CustodyPermissionError, r"\d refused, \d left", False, id="403"),
        pytest.param({"kind": "html", "status": 404}, CustodyOutcomeUnknownError, "6 left", False, id="gateway"),
        pytest.param({"kind": "status", "status": 500}, CustodyConflictError, "6 left", True, id="no response"),
    ],
)
def test_a_failure_that_ends_a_try_leaves_the_rest_to_the_next(
    sandbox: Sandbox,
    stored: ApplyTask,
    fault: dict[str, Any],
    type_: type[Exception],
    says: str,
    retryable: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send, "MAX_LOST", 5)
    sandbox.control.add_fault("normal", **CREATE, times=6)
    sandbox.control.add_fault(**CREATE, **fault, times=None)
    error = stored.fails()
    assert type(error) is type_
    assert error.retryable == retryable
    assert error.retry_after == fault.get("retry_after")
    assert re.search(rf"\(6 created, {says}\)", str(error))
    assert len(stored.requests) == 6
    assert stored.ti.pushed["return_value"]["counts"]["created"] == 6
    # The task does not send all remaining rows.
    assert len(sandbox.control.request_log("POST")) - 1 <= 6 + 2 * 6
    sandbox.control.clear_faults()
    if not retryable:
        stored.clear()
    stored.attempt()
    check_all(sandbox, stored)


def test_rows_that_cannot_be_searched_for_are_searched_for_by_the_next_try(sandbox: Sandbox, stored: ApplyTask) -> None:
    # The plan and the search for the first window succeed; then the service is gone.
    sandbox.control.add_fault(**CREATE, **drop(times=None))
    sandbox.control.add_fault("normal", **LISTING, times=1, query={"addresses": address(1)})
    sandbox.control.add_fault("status", **LISTING, status=503, times=None, query={"addresses": address(1)})
    error = stored.fails()
    assert error.retryable
    assert "unknown: its response was lost, and the service could not be searched" in str(error)
    sandbox.control.clear_faults()
    stored.attempt()
    check_all(sandbox, stored)


def test_a_batch_that_cannot_be_looked_up_is_left_to_the_next_try(sandbox: Sandbox, stored: ApplyTask) -> None:
    sandbox.control.add_fault("status", **LISTING, status=503, times=None, query={"addresses": address(6)})
    error = stored.fails()
    assert error.retryable
    assert "(5 created, 7 left)" in str(error)
    sandbox.control.clear_faults()
    stored.attempt()
    check_all(sandbox, stored)


# --- other programs ----------------------------------------------------------------------------------------------


def test_rows_that_another_client_requests_after_the_plan_are_not_sent(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog
) -> None:
    def others() -> None:
        somebody_creates(sandbox, label="Label 3", address=address(3))
        somebody_creates(sandbox, label="Another label", address=address(7))

    before(monkeypatch, CreateRows, "run", others)
    # The next try finds the same requests, and uses none of them.
    for _ in range(1 if task.given_store is None else 2):
        error = task.fails()
        assert "10 created, 1 found, 1 refused" in str(error)
        assert "another client has meanwhile created a request for the same destination" in str(error)
        assert len(task.ti.pushed["return_value"]["request_ids"]) == 10
    assert "Not sent: " in task_log.text
    assert "another client has created whitelisting request" in task_log.text
    check_exactly(sandbox, [0, *ROWS], task.requests)
    assert task.ti.pushed["return_value"]["counts"]["found"] == 1
