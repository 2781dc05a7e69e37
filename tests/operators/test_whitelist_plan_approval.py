"""Plans for which no approval is requested. The tests of the examples request one."""

from __future__ import annotations

from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute, failing_at_once

if AIRFLOW < (3, 1):
    pytest.skip("it has no approvals", allow_module_level=True)

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
        ({}, "plan_hash is missing"),
        ({**PLAN, "plan_hash": "a" * 12}, "plan_hash must be all 64 hexadecimal digits"),
        ({**PLAN, "report": "Create 1, delete 0."}, "the plan has no question, or no report with its hash"),
        ({**PLAN, "report": None}, "the plan has no question, or no report with its hash"),
        ({"plan_hash": HASH, "report": HASH}, "the plan has no question, or no report with its hash"),
    ],
    ids=["None", "empty", "short", "another report", "no report", "without a question"],
)
def test_an_incomplete_plan_is_not_put_up_for_approval(plan: object, why: str) -> None:
    instance = FakeTaskInstance()
    with failing_at_once(why):
        execute(lambda: operator(plan), ti=instance)
    assert instance.pushed == {}


def test_the_body_is_always_the_plans_report() -> None:
    with pytest.raises(TypeError, match="body"):
        CustodyApproveWhitelistPlanOperator(task_id="approve", plan=PLAN, body="looks harmless")


def test_a_mapped_task_asks_for_no_approval() -> None:
    instance = FakeTaskInstance()
    instance.map_index = 0
    with failing_at_once("a plan cannot be approved in a mapped task: .*no approval was requested"):
        execute(operator, ti=instance)
    assert instance.pushed == {}


def test_no_response_in_time_is_a_rejection_that_skips_all() -> None:
    task = operator()
    assert task.defaults == ["Reject"]
    assert task.ignore_downstream_trigger_rules
