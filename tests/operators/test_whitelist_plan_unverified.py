"""Planning, reconciling and applying where the service shows what nobody signed, and keys are pinned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow_runs import FakeTaskInstance, execute, failing_at_once
from apply_tries import address, check_exactly, write_rows
from task_log import TaskLog
from task_tries import somebody_creates

from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.plan import STATES
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox


@pytest.fixture(autouse=True)
def pinned(sandbox: Sandbox, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.loads(sandbox.connection(pins=True))
    connection["extra"] |= {"timeout": 60, "max_retries": 0}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_rows(tmp_path / "whitelist.yaml", [1, 2])


def create(sandbox: Sandbox, number: int, *, signed: bool) -> str:
    """Create a request that the service shows as in effect."""
    request_id = somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    if signed:
        sandbox.control.sign_whitelist_requests([request_id])
    else:
        sandbox.control.set_whitelist_status(request_id, "APPROVED")
    return request_id


def plan(path: str, ti: FakeTaskInstance | None = None, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = execute(
        lambda: CustodyPlanWhitelistOperator(task_id="plan", path=path, **arguments), ti=ti or FakeTaskInstance()
    )
    return result


def test_a_reconciliation_names_what_nobody_signed_and_fails(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    create(sandbox, 1, signed=True)
    forged, elsewhere = create(sandbox, 2, signed=False), create(sandbox, 77, signed=False)
    ti = FakeTaskInstance()
    with failing_at_once("2 unverified: ") as caught:
        plan(path, ti, fail_on_changes=True)
    assert f"line 4 (request {forged}) unverified; request {elsewhere} unverified" in str(caught.value)
    assert "before somebody has found out who put them there; `custody whitelist verify" in str(caught.value.error)
    assert ti.pushed["return_value"]["counts"] == {**dict.fromkeys(STATES, 0), "unchanged": 1, "unverified": 2}
    assert f"whitelisting request {forged} is not verified" in task_log.text
    assert "2 rows are not verified" in ti.pushed["return_value"]["report"]
    for each in (forged, elsewhere):
        sandbox.control.sign_whitelist_requests([each])
    assert plan(path)["counts"] == {**dict.fromkeys(STATES, 0), "unchanged": 2, "undeclared": 1}


def test_a_plan_that_does_nothing_says_what_is_not_verified(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    create(sandbox, 1, signed=True)
    forged = create(sandbox, 2, signed=False)
    with pytest.raises(AirflowSkipException):
        plan(path, skip_if_nothing_to_do=True)
    assert f"Signatures do not prove what the service shows: 1 unverified: line 4 (request {forged})" in task_log.text
    assert f"before somebody has found out who put it there; `custody whitelist verify --id {forged}`" in task_log.text


def test_a_plan_says_once_whose_word_it_is(
    sandbox: Sandbox, path: str, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is verified against 2 pinned keys, of which 2 must have signed" in plan(path)["report"]
    assert NOT_PINNED not in task_log.text
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection())
    assert NOT_PINNED in plan(path)["report"]
    assert task_log.text.count(NOT_PINNED) == 1


def test_applying_goes_on_beside_what_was_seen_and_refuses_what_is_new(sandbox: Sandbox, path: str) -> None:
    create(sandbox, 77, signed=False)
    create(sandbox, 2, signed=False)
    approved = plan(path, prune=True)
    assert approved["counts"] == {**dict.fromkeys(STATES, 0), "create": 1, "unverified": 2}

    def apply() -> dict[str, Any]:
        arguments = {"path": path, "prune": True, "plan_hash": approved["plan_hash"], "lookup_wait": 0.2}
        result: dict[str, Any] = execute(
            lambda: CustodyApplyWhitelistPlanOperator(task_id="apply", **arguments), ti=FakeTaskInstance()
        )
        return result

    # It changes nothing that applying would do; but whoever approved has not seen it.
    forged = create(sandbox, 78, signed=False)
    with failing_at_once(f"Now it has 1 create, 3 unverified: .*request {forged}"):
        apply()
    check_exactly(sandbox, [77, 2, 78])
    sandbox.control.set_whitelist_status(forged, "removed")
    result = apply()
    # Neither created again nor deleted.
    assert result["counts"]["created"] == 1
    check_exactly(sandbox, [77, 2, 1])
