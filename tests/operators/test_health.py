"""The operator that checks health once. The client decides what is healthy, and its tests cover that."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.airflow.airflow_runs import execute, failing_at_once, new_dag, run_dag
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyUnhealthyError
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sandbox import Sandbox, health_entry

pytestmark = pytest.mark.usefixtures("connection")


class QuickCheck(CustodyHealthCheckOperator):
    """The operator with a delay so short that no test has to wait for it."""

    recheck_delay = 0.05


def check(**arguments: Any) -> Any:
    return execute(lambda: QuickCheck(task_id="check", **arguments))


def test_healthy_returns_small_plain_json(task_log: TaskLog) -> None:
    result = check(require_results=["ETH"])
    assert json.loads(json.dumps(result)) == result
    assert result["healthy"] is True
    assert result["total"] == 9
    assert result["groups"]["hsm"] == {"total": 3, "unhealthy": 0}
    assert result["oldest_result_age_seconds"] >= 0
    assert "blockchain" in task_log.text


def test_unhealthy_fails_with_the_reasons_and_is_left_to_retries(sandbox: Sandbox, task_log: TaskLog) -> None:
    sandbox.control.update_health(group="hsm", status="degraded")
    with pytest.raises(CustodyUnhealthyError, match="'degraded'") as caught:
        check()
    assert caught.value.retryable
    assert task_log.text.count("NOT HEALTHY") == 3
    result = check(fail_when_unhealthy=False)
    assert result["healthy"] is False
    assert result["unhealthy"] == 3
    assert result["problems"][0]["group"] == "hsm"


@pytest.mark.parametrize("fail_when_unhealthy", [True, False])
def test_a_name_that_does_not_exist_is_a_wrong_parameter(sandbox: Sandbox, fail_when_unhealthy: bool) -> None:
    with failing_at_once("^no group named 'hms' exists; the groups are 'blockchain', 'database', 'hsm'") as caught:
        check(groups=["hms"], fail_when_unhealthy=fail_when_unhealthy)
    assert str(caught.value).endswith("\nCorrect 'groups': names are compared exactly.\n[custody/parameter-wrong]")


def test_stale_results_are_not_healthy_unless_asked_for(sandbox: Sandbox) -> None:
    sandbox.control.set_health([health_entry(validUntilDate="2020-01-01T00:00:00.123456789Z")])
    with pytest.raises(CustodyUnhealthyError, match="it expired at 2020-01-01"):
        check()
    assert check(require_fresh=False)["healthy"]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(("status", "state", "tries"), [(500, "success", 2), (401, "failed", 1)])
def test_in_a_run_with_retries(sandbox: Sandbox, status: int, state: str, tries: int) -> None:
    sandbox.control.add_fault("status", status=status, times=1)
    with new_dag() as dag:
        CustodyHealthCheckOperator(
            task_id="check", groups="{{ 'hsm' }}", tenant_id="{{ 1 }}", retries=2, retry_delay=timedelta(0)
        )
    run = run_dag(dag)
    assert run.state == state
    assert run.tries["check", -1] == tries
    if state == "success":
        assert run.xcom("check")["total"] == 2
