"""Asking people whether a plan may be applied: when nobody is asked. The examples' tests ask them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from support.airflow.apply_tries import write_rows
from support.airflow.task_log import TaskLog

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

if AIRFLOW < (3, 1):
    pytest.skip("nobody is asked there", allow_module_level=True)

from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator


def operator(plan_hash: Any = "a" * 64, body: Any = f"Plan hash: `{'a' * 64}`") -> CustodyApproveWhitelistPlanOperator:
    return CustodyApproveWhitelistPlanOperator(task_id="approve", plan_hash=plan_hash, body=body)


@pytest.mark.parametrize("try_number", [2, 9])
def test_a_run_asks_once(try_number: int) -> None:
    instance = FakeTaskInstance(try_number, max_tries=9)
    with failing_at_once(
        r"an earlier try may have requested an approval.*Start a new run of the DAG\. \[custody/plan-changed\]"
    ):
        execute(operator, ti=instance)
    assert instance.pushed == {}


@pytest.mark.parametrize(
    "plan_hash",
    [None, "", "a" * 12, "A" * 64, {"plan_hash": "a" * 64}],
    ids=["None", "empty", "short", "upper case", "the XCom"],
)
def test_what_is_no_hash_is_not_asked_about(plan_hash: object) -> None:
    instance = FakeTaskInstance()
    with failing_at_once("plan_hash (must be|is missing|is empty)"):
        execute(lambda: operator(plan_hash), ti=instance)
    assert instance.pushed == {}


@pytest.mark.parametrize("body", [None, "", "Plan hash: " + "b" * 64])
def test_what_is_shown_is_about_this_plan(body: str | None) -> None:
    instance = FakeTaskInstance()
    with failing_at_once(
        "body does not contain all operations of the plan with this plan_hash: .*; no approval was requested"
    ):
        execute(lambda: operator(body=body), ti=instance)
    assert instance.pushed == {}


@pytest.mark.usefixtures("connection", "airflow_db")
@pytest.mark.parametrize("body", ["all", "cut"])
def test_nobody_is_asked_about_a_plan_of_which_not_all_operations_are_shown(
    sandbox: Sandbox, tmp_path: Path, task_log: TaskLog, body: str
) -> None:
    numbers, memo = (range(1, 61), "|" * 300) if body == "all" else (range(1, 3), "7")
    dag = new_dag()
    with dag:
        plan: Any = CustodyPlanWhitelistOperator(
            task_id="plan", path=write_rows(tmp_path / "rows.yaml", numbers, memo=memo), max_creates=None
        )
        plan_hash, report = plan.output["plan_hash"], plan.output["report"]
        if body == "cut":
            # Right before the operations' end.
            report = "{{ ti.xcom_pull('plan', key='report').partition('Plan hash')[0] }}"
        approve: Any = CustodyApproveWhitelistPlanOperator(task_id="approve", plan_hash=plan_hash, body=report)
        apply = CustodyApplyWhitelistPlanOperator(
            task_id="apply", path=plan.path, plan_hash=approve.output["plan_hash"]
        )
        plan >> approve >> apply
    run = run_dag(dag)
    states = [run.state_of(each) for each in ("plan", "approve", "apply")]
    assert states == ["success", "failed", "upstream_failed"]
    assert "body does not contain all operations of the plan with this plan_hash" in task_log.text
    assert run.pushed("approve", "plan_hash") is None
    assert sandbox.control.request_log("POST") == []


def test_nobody_is_asked_in_a_mapped_task() -> None:
    instance = FakeTaskInstance()
    instance.map_index = 0
    with failing_at_once("a plan cannot be approved in a mapped task: .*no approval was requested"):
        execute(operator, ti=instance)
    assert instance.pushed == {}


def test_no_response_in_time_is_a_rejection_that_skips_all() -> None:
    task = operator()
    assert task.defaults == ["Reject"]
    assert task.ignore_downstream_trigger_rules
