"""Which failures are retried, and when."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, new_dag, run_dag

from airflow_custody.client import (
    CustodyConfigurationError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyServerError,
    CustodyVerificationError,
)
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.retry_policy import CustodyRetryPolicy
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="retry policies came with Airflow 3.3")
LATER: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=0)}


@pytest.mark.parametrize(
    "error",
    [
        CustodyConfigurationError("no host", setting="base_url"),
        CustodyOutcomeUnknownError("may exist", retry_after=5, status=503),
        # The error in the form that comes from a triggerer.
        CustodyError.from_json(CustodyVerificationError("nobody has signed it").to_json()),
        CustodyRequestError("x" * 5000),
    ],
    ids=["setting", "unknown outcome", "of a triggerer", "a long message"],
)
def test_errors_that_are_not_retryable_fail_at_once_with_a_reason(error: CustodyError) -> None:
    decision = CustodyRetryPolicy().evaluate(error, 1, 3)
    assert decision.action.value == "fail"
    assert decision.reason is not None
    assert error.reason[:400] in decision.reason
    # The form in which Airflow stores it.
    assert len(decision.reason) <= 500


@pytest.mark.parametrize(
    "error",
    [
        CustodyServerError("broken", status=500, retry_after=5),
        CustodyServerError("busy", status=503),
        ValueError("not ours"),
    ],
    ids=["500", "503", "of others"],
)
def test_other_errors_are_left_to_airflow(error: BaseException) -> None:
    decision = CustodyRetryPolicy().evaluate(error, 1, 3)
    assert decision.action.value == "default"
    assert decision.retry_delay is None
    assert decision.reason is None


@pytest.mark.parametrize(
    ("retry_after", "default", "bounded"),
    [(0, 1, 5), (1, 1, 5), (5.5, 5.5, 5.5), (3600, 3600, 6), (3601.0, 3600, 6), (10**400, 3600, 6)],
    ids=lambda each: str(each)[:9],
)
def test_retry_after_is_honoured_within_bounds(retry_after: Any, default: float, bounded: float) -> None:
    bounds = {"min_delay": timedelta(seconds=5), "max_delay": timedelta(seconds=6)}
    for policy, seconds in ((CustodyRetryPolicy(), default), (CustodyRetryPolicy(**bounds), bounded)):
        for kind, status in ((CustodyRateLimitError, 429), (CustodyServerError, 503)):
            decision = policy.evaluate(kind("busy", status=status, retry_after=retry_after), 1, 3)
            assert decision.action.value == "retry"
            assert decision.retry_delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(("shortest", "longest"), [(7200, 3600), (-1, 3600)])
def test_bounds_that_contradict_each_other_are_refused(shortest: int, longest: int) -> None:
    with pytest.raises(ValueError, match="min_delay"):
        CustodyRetryPolicy(min_delay=timedelta(seconds=shortest), max_delay=timedelta(seconds=longest))


@pytest.mark.usefixtures("airflow_db", "connection")
def test_a_rate_limit_is_retried_after_its_retry_after(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("rate_limit", method="GET", retry_after=3)
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="one", retries=1, retry_delay=timedelta(hours=1))
    started = time.monotonic()
    run = run_dag(dag)
    assert run.state_of("one") == "success"
    assert run.tries["one", -1] == 2
    assert time.monotonic() - started >= 3


@pytest.mark.usefixtures("airflow_db", "connection")
def test_mapped_tasks_and_sensors_have_the_policy(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", times=None, status=401)
    create = {"task_id": "mapped", "address": "0x" + "ab" * 20, "blockchain": "ETH", **LATER}
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator.partial(**create).expand(label=["a", "b"])
        CustodyHealthSensor(task_id="sensor", **LATER)
    run = run_dag(dag)
    assert set(run.states.values()) == {"failed"}
    assert set(run.tries.values()) == {1}


@pytest.mark.usefixtures("airflow_db", "connection")
def test_a_retry_policy_of_the_user_sends_nothing_again(sandbox: Sandbox) -> None:
    from airflow.sdk import RetryDecision, RetryPolicy

    class Stubborn(RetryPolicy):
        def evaluate(self, exception: BaseException, *_: Any, **__: Any) -> RetryDecision:
            return RetryDecision.retry(timedelta(seconds=0))

    stubborn: dict[str, Any] = {"retries": 3, "retry_policy": Stubborn()}
    # The response to a create is lost, and the service does not offer the search.
    sandbox.control.add_fault("drop", method="POST")
    sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", skip=1, times=None, status=404)
    with new_dag() as dag:
        create: dict[str, Any] = {"label": "L", "address": "0x" + "ab" * 20, "blockchain": "ETH", **stubborn}
        CustodyCreateWhitelistRequestOperator(task_id="create", **create)
    run = run_dag(dag)
    assert run.state_of("create") == "failed"
    assert run.tries["create", -1] == 1
    assert len(sandbox.control.request_log(method="POST")) == 1
