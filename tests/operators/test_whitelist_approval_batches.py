"""Approving and rejecting any number of requests: batches, later tries, and nothing to do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from connections import connection_json
from people import Person
from task_log import TaskLog

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyOutcomeUnknownError,
    CustodyServerError,
    WhitelistRequest,
)
from airflow_custody.client.whitelist import models
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_approval import (
    CustodyApproveWhitelistRequestsOperator,
    CustodyRejectWhitelistRequestsOperator,
)
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

APPROVE = {"method": "POST", "path": "/whitelists/addresses/approve"}
REJECT = {"method": "POST", "path": "/whitelists/addresses/reject"}
FIELDS = {"label": "Treasury", "address": "0x" + "ab" * 20, "blockchain": "ETH"}


@pytest.fixture(autouse=True)
def ann(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Define the user of the default connection, whose key is in another connection."""
    person = Person(sandbox, "ann", "approvers")
    connection = json.loads(connection_json(sandbox)) | {"password": person.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    return person


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch hold two requests."""
    monkeypatch.setattr(models, "MAX_PAGE_SIZE", 2)


def create(sandbox: Sandbox, number: int) -> list[dict[str, Any]]:
    """Create requests, and return them as an apply task pushes them."""
    with CustodyClient(sandbox.url, sandbox.token) as client:
        rows: list[dict[str, Any]] = [{**FIELDS, "label": f"L{each}"} for each in range(number)]
        made = [{"id": client.create_whitelist_request(WhitelistRequest(**row)), **row} for row in rows]
    sandbox.control.clear_request_log()
    return made


def approve(request_ids: Any, expected: Any, try_number: int = 1, **arguments: Any) -> int:
    signed: int = execute(
        lambda: CustodyApproveWhitelistRequestsOperator(
            task_id="approve",
            request_ids=request_ids,
            expected=expected,
            signer=ConnectionSigner("signing_key"),
            **{"comment": "checked", "lookup_wait": 0.2, **arguments},
        ),
        ti=FakeTaskInstance(try_number=try_number),
    )
    return signed


def reject(request_ids: Any, try_number: int = 1, **arguments: Any) -> list[str]:
    rejected: list[str] = execute(
        lambda: CustodyRejectWhitelistRequestsOperator(
            task_id="reject", request_ids=request_ids, **{"comment": "not ours", **arguments}
        ),
        ti=FakeTaskInstance(try_number=try_number),
    )
    return rejected


def statuses(sandbox: Sandbox) -> list[str]:
    return [request["status"] for request in sandbox.control.whitelist_requests()]


def ids_of(made: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in made]


def test_more_than_a_hundred(sandbox: Sandbox) -> None:
    made = create(sandbox, 101)
    with failing_at_once(f"'expected' does not say what {made[100]['id']} must ask for"):
        approve(ids_of(made), made[:100])
    assert approve(ids_of(made), made) == 101
    assert statuses(sandbox) == ["APPROVED"] * 101
    assert [len(call["body"]["ids"]) for call in sandbox.control.request_log(**APPROVE)] == [100, 1]


def test_one_that_differs_in_the_last_batch_signs_nothing(sandbox: Sandbox, task_log: TaskLog) -> None:
    made = create(sandbox, 101)
    with failing_at_once(r"is not what was asked for: label \(.*\); nothing was signed"):
        approve(ids_of(made), [*made[:100], {**made[100], "label": "Other"}])
    assert "This was batch 2 of 2: 1 request" in task_log.text
    assert statuses(sandbox) == ["pending"] * 101
    assert sandbox.control.request_log(**APPROVE) == []


@pytest.mark.usefixtures("small_batches")
def test_a_later_try_goes_on(sandbox: Sandbox) -> None:
    made = create(sandbox, 5)
    sandbox.control.add_fault("drop", **APPROVE, skip=1)
    with pytest.raises(CustodyOutcomeUnknownError, match="2 of 5 requests are signed already"):
        approve(ids_of(made), made)
    assert statuses(sandbox) == ["APPROVED"] * 2 + ["pending"] * 3
    with failing_at_once("not pending this user's approval"):
        approve(ids_of(made), made)
    assert approve(ids_of(made), made, try_number=2) == 5
    assert statuses(sandbox) == ["APPROVED"] * 5
    assert len(sandbox.control.request_log(**APPROVE)) == 4


@pytest.mark.usefixtures("small_batches")
def test_rejecting_goes_on_too(sandbox: Sandbox) -> None:
    ids = ids_of(create(sandbox, 5))
    sandbox.control.add_fault("drop", **REJECT, skip=1, work=True)
    with pytest.raises(CustodyConnectionError, match=r"batch 2 of 3.*2 of 5 requests are rejected already"):
        reject(ids)
    assert statuses(sandbox) == ["rejected"] * 4 + ["pending"]
    with failing_at_once("no longer pending"):
        reject(ids)
    assert reject(ids, try_number=2) == ids
    assert statuses(sandbox) == ["rejected"] * 5
    sandbox.control.add_fault("status", **REJECT, status=503)
    with pytest.raises(CustodyServerError, match="0 of 5 requests are rejected already"):
        reject(ids, try_number=3)


def test_rejecting_more_than_a_hundred(sandbox: Sandbox) -> None:
    ids = ids_of(create(sandbox, 101))
    assert reject(ids) == ids
    assert statuses(sandbox) == ["rejected"] * 101
    assert len(sandbox.control.request_log(**REJECT)) == 2


@pytest.mark.parametrize("empty", [[], (), set(), iter(())], ids=lambda each: type(each).__name__)
def test_nothing_to_do_fails_or_skips_as_one_says(sandbox: Sandbox, empty: Any) -> None:
    with pytest.raises(AirflowSkipException, match="request_ids is an empty list"):
        approve(empty, [], skip_if_empty=True)
    with pytest.raises(AirflowSkipException, match="request_ids is an empty list"):
        reject(empty, skip_if_empty=True)
    with failing_at_once("request_ids is an empty list: there are no ids") as caught:
        approve(empty, None)
    assert "skip_if_empty=True" in str(caught.value.error)
    with failing_at_once("request_ids is an empty list"):
        reject(empty)
    # What is no list is not empty.
    odd: list[Any] = [None, "", "None", {}, [None]]
    for bad in odd:
        with failing_at_once("request_ids"):
            approve(bad, None, skip_if_empty=True)
    assert sandbox.control.request_log() == []


def test_skip_if_empty_is_a_flag() -> None:
    for make in (lambda: approve([], None, skip_if_empty="no"), lambda: reject([], skip_if_empty=None)):
        with pytest.raises(ValueError, match="skip_if_empty must be True or False"):
            make()


@pytest.mark.usefixtures("airflow_db", "small_batches")
def test_in_a_run_from_mapped_tasks_and_with_nothing_to_do(sandbox: Sandbox) -> None:
    from airflow.providers.common.compat.sdk import task

    @task
    def nothing() -> list[str]:
        return []

    with new_dag() as dag:
        made: Any = (
            CustodyCreateWhitelistRequestOperator.partial(
                task_id="create", address=FIELDS["address"], blockchain=FIELDS["blockchain"]
            )
            .expand(label=["a", "b", "c"])
            .output
        )
        signer = ConnectionSigner("signing_key")
        CustodyApproveWhitelistRequestsOperator(
            task_id="approve", request_ids=made, expected=made["request"], signer=signer
        )
        none: Any = nothing()
        CustodyApproveWhitelistRequestsOperator(
            task_id="none", request_ids=none, expected=none, signer=signer, skip_if_empty=True
        )
    run = run_dag(dag)
    assert (run.state_of("approve"), run.state_of("none")) == ("success", "skipped")
    assert run.xcom("approve") == 3
    assert len(sandbox.control.request_log(**APPROVE)) == 2
