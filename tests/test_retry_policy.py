"""Which failures are retried, and when."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow_runs import AIRFLOW, new_dag, run_dag
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyServerError,
    CustodyUnhealthyError,
    CustodyVerificationError,
)
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import CustodyDeleteWebhookOperator, CustodySetWebhookStatusOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="retry policies came with Airflow 3.3")
ADDRESS = "0x" + "ab" * 20


def decide(error: BaseException, **arguments: timedelta) -> tuple[str, timedelta | None, str | None]:
    from airflow_custody.retry_policy import CustodyRetryPolicy

    decision = CustodyRetryPolicy(**arguments).evaluate(error, 1, 3)
    return decision.action.value, decision.retry_delay, decision.reason


@pytest.mark.parametrize(
    "error",
    [
        CustodyConfigurationError("no host", setting="base_url"),
        CustodyAuthenticationError("wrong", status=401),
        CustodyPermissionError("lacks a role", status=403),
        CustodyRequestError("no address"),
        CustodyOutcomeUnknownError("may exist", retry_after=5, status=503),
        CustodyConnectionError("certificate", retryable=False),
        CustodyVerificationError("nobody has signed it"),
        CustodyError.from_json(CustodyVerificationError("nobody has signed it").to_json()),
    ],
)
def test_errors_that_are_not_retryable_fail_at_once_with_a_reason(error: BaseException) -> None:
    action, _, reason = decide(error)
    assert action == "fail"
    assert reason is not None
    assert str(error) in reason


@pytest.mark.parametrize(
    "error",
    [
        CustodyConnectionError("away"),
        CustodyServerError("broken", status=500, retry_after=5),
        CustodyServerError("busy", status=503),
        CustodyRateLimitError("slow down", status=429),
        CustodyUnhealthyError("red"),
        ValueError("not ours"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_are_left_to_airflow(error: BaseException) -> None:
    assert decide(error) == ("default", None, None)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False), st.sampled_from([429, 503]))
def test_retry_after_is_honoured_within_bounds(seconds: float, status: int) -> None:
    kind = CustodyRateLimitError if status == 429 else CustodyServerError
    action, delay, _ = decide(kind("busy", status=status, retry_after=seconds))
    assert action == "retry"
    assert delay is not None
    assert math.isclose(delay.total_seconds(), min(max(seconds, 1), 3600), abs_tol=1e-6)
    bounds = {"min_delay": timedelta(seconds=5), "max_delay": timedelta(seconds=6)}
    _, delay, _ = decide(kind("busy", status=status, retry_after=seconds), **bounds)
    assert delay is not None
    assert 5 <= delay.total_seconds() <= 6


def test_long_reasons_are_truncated_to_what_airflow_stores() -> None:
    assert 0 < len(decide(CustodyRequestError("x" * 5000))[2] or "") <= 500


@pytest.mark.usefixtures("airflow_db", "connection")
class TestInARun:
    def test_a_rate_limit_is_retried_after_its_retry_after(self, sandbox: Sandbox) -> None:
        sandbox.control.add_fault("rate_limit", method="GET", retry_after=3)
        with new_dag() as dag:
            CustodyHealthCheckOperator(task_id="one", retries=1, retry_delay=timedelta(hours=1))
        started = time.monotonic()
        run = run_dag(dag)
        assert run.state_of("one") == "success"
        assert run.tries["one", -1] == 2
        assert time.monotonic() - started >= 3

    def test_mapped_tasks_and_every_operator_have_the_policy(self, sandbox: Sandbox) -> None:
        sandbox.control.add_fault("status", times=None, status=401)
        webhook = "11111111-1111-1111-1111-111111111111"
        again: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=0)}
        with new_dag() as dag:
            CustodyCreateWhitelistRequestOperator.partial(
                task_id="mapped", address=ADDRESS, blockchain="ETH", **again
            ).expand(label=["a", "b"])
            CustodyDeleteWebhookOperator(task_id="delete", webhook_id=webhook, **again)
            CustodySetWebhookStatusOperator(task_id="status", webhook_id=webhook, status="enabled", **again)
            CustodyHealthCheckOperator(task_id="health", **again)
            CustodyHealthSensor(task_id="sensor", **again)
        run = run_dag(dag)
        assert set(run.states.values()) == {"failed"}
        assert set(run.tries.values()) == {1}

    def test_a_retry_policy_of_the_user_takes_precedence(self, sandbox: Sandbox) -> None:
        from airflow.sdk import RetryDecision, RetryPolicy

        class Stubborn(RetryPolicy):
            def evaluate(
                self, exception: BaseException, try_number: int, max_tries: int, context: Any = None
            ) -> RetryDecision:
                assert type(exception).__name__ == "CustodyAuthenticationError"
                return RetryDecision.retry(timedelta(seconds=0))

        sandbox.control.add_fault("status", times=2, status=401)
        with new_dag() as dag:
            CustodyHealthCheckOperator(task_id="health", retries=3, retry_policy=Stubborn())
        run = run_dag(dag)
        assert run.state_of("health") == "success"
        assert run.tries["health", -1] == 3


@pytest.mark.parametrize("retry_after", [math.nan, math.inf, -math.inf, -5, "soon", True, None])
def test_a_time_that_is_none_is_left_to_airflow(retry_after: Any) -> None:
    assert decide(CustodyRateLimitError("busy", status=429, retry_after=retry_after))[:2] == ("default", None)


@pytest.mark.parametrize(("retry_after", "seconds"), [(0, 1), (10**400, 3600)])
def test_an_odd_time_is_bounded(retry_after: Any, seconds: int) -> None:
    decision = decide(CustodyRateLimitError("busy", status=429, retry_after=retry_after))
    assert decision[:2] == ("retry", timedelta(seconds=seconds))


@pytest.mark.parametrize(
    "bounds",
    [
        {"min_delay": timedelta(hours=2)},
        {"max_delay": timedelta(0)},
        {"min_delay": timedelta(seconds=-1)},
        {"min_delay": timedelta(seconds=-2), "max_delay": timedelta(seconds=-1)},
    ],
    ids=str,
)
def test_bounds_that_contradict_each_other_are_refused(bounds: dict[str, timedelta]) -> None:
    from airflow_custody.retry_policy import CustodyRetryPolicy

    with pytest.raises(ValueError, match="min_delay"):
        CustodyRetryPolicy(**bounds)
