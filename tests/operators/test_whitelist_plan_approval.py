"""Asking people whether a plan may be applied: when nobody is asked. The examples' tests ask them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
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

HASH = "a" * 64
PLAN = {"plan_hash": HASH, "counts": {}, "report": f"Plan hash: `{HASH}`", "question": "Apply it?"}


def operator(plan: Any = PLAN) -> CustodyApproveWhitelistPlanOperator:
    return CustodyApproveWhitelistPlanOperator(task_id="approve", plan=plan)


@pytest.mark.parametrize("try_number", [2, 9])
def test_a_run_asks_once(try_number: int) -> None:
    instance = FakeTaskInstance(try_number, max_tries=9)
    with failing_at_once(
        r"an earlier try may have requested an approval.*Start a new run of the DAG\. \[custody/plan-changed\]"
    ):
        execute(operator, ti=instance)
    assert instance.pushed == {}


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (None, "plan must be the result of a plan task"),
        (HASH, "plan must be the result of a plan task"),
        ({}, "plan_hash is missing"),
        ({**PLAN, "plan_hash": "a" * 12}, "plan_hash must be all 64 hexadecimal digits"),
        ({**PLAN, "plan_hash": "A" * 64}, "plan_hash must be all 64 hexadecimal digits"),
        ({**PLAN, "question": ""}, "the report does not contain every operation"),
        ({**PLAN, "question": True}, "the report does not contain every operation"),
        ({**PLAN, "report": None}, "the report does not contain every operation"),
        ({"plan_hash": HASH, "report": HASH}, "the report does not contain every operation"),
    ],
    ids=["None", "a hash", "empty", "short", "upper case", "too large", "no text", "no report", "without a question"],
)
def test_an_incomplete_plan_is_not_put_up_for_approval(plan: object, why: str) -> None:
    instance = FakeTaskInstance()
    with failing_at_once(why):
        execute(lambda: operator(plan), ti=instance)
    assert instance.pushed == {}


def test_the_body_is_always_the_plans_report() -> None:
    with pytest.raises(TypeError, match="body"):
        CustodyApproveWhitelistPlanOperator(task_id="approve", plan=PLAN, body="looks harmless")


@pytest.mark.usefixtures("connection", "airflow_db")
def test_a_plan_too_large_for_its_report_is_not_put_up_for_approval(
    sandbox: Sandbox, short_path: Path, task_log: TaskLog
) -> None:
    # The file is named after the plan's hash, so the incomplete report contains the hash.
    numbers = range(1, 61)
    name = plan_hash_of(write_rows(short_path / "rows.yaml", numbers, memo="|" * 300))
    path = write_rows(short_path / f"{name}.yaml", numbers, memo="|" * 300)
    dag = new_dag()
    with dag:
        plan: Any = CustodyPlanWhitelistOperator(task_id="plan", path=path, max_creates=None)
        approve: Any = CustodyApproveWhitelistPlanOperator(task_id="approve", plan=plan.output)
        CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan.output, plan_hash=approve.output["plan_hash"])
    run = run_dag(dag)
    assert name == run.pushed("plan", "plan_hash")
    assert name in run.pushed("plan", "report")
    states = [run.state_of(each) for each in ("plan", "approve", "apply")]
    assert states == ["success", "failed", "upstream_failed"]
    assert "the report does not contain every operation of the plan" in task_log.text
    assert run.pushed("approve", "plan_hash") is None
    assert sandbox.control.request_log("POST") == []


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path so short that a report does not shorten it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def plan_hash_of(path: str) -> str:
    """Return the hash of a file's plan."""
    task = CustodyPlanWhitelistOperator(task_id="plan", path=path, max_creates=None)
    found: str = execute(lambda: task)["plan_hash"]
    return found


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
