from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow_runs import execute, failing_at_once, new_dag, run_dag
from task_log import TaskLog

from airflow_custody.client import CustodyClient, CustodyConnectionError, CustodyServerError, CustodyUnhealthyError
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sandbox import Sandbox, health_entry

pytestmark = pytest.mark.usefixtures("connection")


def check(**kwargs: Any) -> Any:
    return execute(lambda: CustodyHealthCheckOperator(task_id="check", **kwargs))


def test_healthy_returns_small_plain_json(sandbox: Sandbox, task_log: TaskLog) -> None:
    result = check()
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


def test_fail_when_unhealthy_false_returns_the_verdict(sandbox: Sandbox) -> None:
    sandbox.control.update_health(group="hsm", check="vault", status="error")
    result = check(fail_when_unhealthy=False)
    assert result["healthy"] is False
    assert result["unhealthy"] == 1
    assert result["problems"][0]["check"] == "vault"


def test_no_checks_at_all_is_not_healthy(sandbox: Sandbox) -> None:
    sandbox.control.set_health_response({})
    with pytest.raises(CustodyUnhealthyError, match="lists no health checks"):
        check()


def test_a_filter_that_matches_nothing_is_reported_by_name(sandbox: Sandbox) -> None:
    with pytest.raises(CustodyUnhealthyError, match="no group named 'hms' exists") as caught:
        check(groups=["hms"])
    assert "the groups are 'blockchain', 'database', 'hsm'" in str(caught.value)
    # A retry is another look.
    assert caught.value.retryable


def test_required_results(sandbox: Sandbox) -> None:
    assert check(require_results=["ETH"])["healthy"]
    with pytest.raises(CustodyUnhealthyError, match="no check reports a result for 'DOGE'"):
        check(require_results=["ETH", "DOGE"])
    sandbox.control.set_health([health_entry(results={"ETH": "node is behind"})])
    with pytest.raises(CustodyUnhealthyError, match="its result for ETH is 'node is behind'"):
        check(require_results=["ETH"])


def test_stale_results_are_not_healthy_unless_asked_for(sandbox: Sandbox) -> None:
    sandbox.control.set_health([health_entry(validUntilDate="2020-01-01T00:00:00.123456789Z")])
    with pytest.raises(CustodyUnhealthyError, match="valid until 2020-01-01"):
        check()
    assert check(require_fresh=False)["healthy"]


def test_the_listing_has_the_services_time(sandbox: Sandbox) -> None:
    with CustodyClient(sandbox.url, sandbox.token) as client:
        date = client.list_health_checks().date
    assert date is not None
    assert abs(date - datetime.now(timezone.utc)) < timedelta(minutes=5)


def test_ten_thousand_checks_give_a_small_result(sandbox: Sandbox) -> None:
    sandbox.control.set_health([health_entry(group=f"g{i % 300}", check=f"c{i}", status="bad") for i in range(10_000)])
    result = check(fail_when_unhealthy=False)
    assert result["total"] == 10_000
    assert len(json.dumps(result)) < 20_000


@pytest.mark.parametrize(("status", "message"), [(401, "token is wrong"), (403, "TPUser"), (404, "3.14")])
def test_errors_that_are_not_retryable_fail_at_once(sandbox: Sandbox, status: int, message: str) -> None:
    sandbox.control.add_fault("status", status=status)
    with failing_at_once(message):
        check()


def test_transient_errors_are_left_to_retries(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=500)
    with pytest.raises(CustodyServerError):
        check()
    sandbox.control.add_fault("drop")
    with pytest.raises(CustodyConnectionError):
        check()


@pytest.mark.parametrize(
    "setting",
    [{"groups": []}, {"require_results": []}, {"healthy_statuses": []}, {"checks": [""]}, {"groups": 3}],
)
def test_invalid_settings_are_refused_before_sending(sandbox: Sandbox, setting: dict[str, Any]) -> None:
    with failing_at_once(next(iter(setting))):
        check(**setting)
    assert sandbox.control.request_log() == []


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_with_retries(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=500, times=1)
    with new_dag() as dag:
        CustodyHealthCheckOperator(
            task_id="recovers", groups="{{ 'hsm' }}", retries=2, retry_delay=timedelta(seconds=0), tenant_id="{{ 1 }}"
        )
    run = run_dag(dag)
    assert run.state == "success"
    assert run.tries["recovers", -1] == 2
    assert run.xcom("recovers")["total"] == 2
    sandbox.control.add_fault("status", status=401, times=1)
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="fails", retries=2, retry_delay=timedelta(seconds=0))
    run = run_dag(dag)
    assert run.state == "failed"
    assert run.tries["fails", -1] == 1
