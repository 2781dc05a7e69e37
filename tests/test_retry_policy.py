"""Which failures are tried again, and when."""

from __future__ import annotations

import math
import time
from datetime import timedelta

import pytest
from airflow_runs import AIRFLOW, run_tasks
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyServerError,
    CustodyUnhealthyError,
)
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="retry policies came with Airflow 3.3")
ADDRESS = "0x" + "ab" * 20


def decide(error: BaseException, **arguments: timedelta):
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
    ],
)
def test_what_another_try_does_not_mend_fails_at_once_and_says_why(error):
    action, _, reason = decide(error)
    assert action == "fail"
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
def test_the_rest_is_left_to_airflow(error):
    assert decide(error) == ("default", None, None)


@given(st.floats(min_value=0, allow_nan=False), st.sampled_from([429, 503]))
def test_the_service_is_waited_for_as_long_as_it_asks_within_bounds(seconds: float, status: int):
    kind = CustodyRateLimitError if status == 429 else CustodyServerError
    action, delay, _ = decide(kind("busy", status=status, retry_after=seconds))
    assert action == "retry"
    assert math.isclose(delay.total_seconds(), min(max(seconds, 1), 3600), abs_tol=1e-6)
    bounds = {"shortest_delay": timedelta(seconds=5), "longest_delay": timedelta(seconds=6)}
    _, delay, _ = decide(kind("busy", status=status, retry_after=seconds), **bounds)
    assert 5 <= delay.total_seconds() <= 6


def test_long_reasons_fit_where_airflow_keeps_them():
    assert len(decide(CustodyRequestError("x" * 5000))[2]) <= 500


@pytest.mark.usefixtures("airflow_db", "connection")
class TestInARun:
    def test_a_rate_limit_is_tried_again_after_the_time_it_names(self, sandbox: Sandbox):
        sandbox.control.order_fault("rate_limit", method="POST", retry_after=3)
        started = time.monotonic()
        run = run_tasks(
            f"""
CustodyCreateWhitelistRequestOperator(
    task_id="one", label="L", address={ADDRESS!r}, blockchain="ETH", retries=1, retry_delay=timedelta(hours=1))
"""
        )
        assert run.state_of("one") == "success"
        assert run.tries["one", -1] == 2
        assert time.monotonic() - started >= 3

    def test_mapped_tasks_and_every_operator_have_it(self, sandbox: Sandbox):
        sandbox.control.order_fault("status", times=None, status=401)
        webhook = "11111111-1111-1111-1111-111111111111"
        run = run_tasks(
            f"""
again = dict(retries=3, retry_delay=timedelta(seconds=0))
CustodyCreateWhitelistRequestOperator.partial(
    task_id="mapped", address={ADDRESS!r}, blockchain="ETH", **again).expand(label=["a", "b"])
CustodyDeleteWebhookOperator(task_id="delete", webhook_id={webhook!r}, **again)
CustodySetWebhookStatusOperator(task_id="status", webhook_id={webhook!r}, status="enabled", **again)
CustodyHealthCheckOperator(task_id="health", **again)
CustodyHealthSensor(task_id="sensor", **again)
"""
        )
        assert set(run.states.values()) == {"failed"}
        assert set(run.tries.values()) == {1}

    def test_a_policy_of_the_users_decides_instead(self, sandbox: Sandbox):
        sandbox.control.order_fault("status", times=2, status=401)
        run = run_tasks(
            """
from airflow.sdk import RetryPolicy, RetryDecision
class Stubborn(RetryPolicy):
    def evaluate(self, exception, try_number, max_tries, context=None):
        assert type(exception).__name__ == "CustodyAuthenticationError"
        return RetryDecision.retry(timedelta(seconds=0))
CustodyHealthCheckOperator(task_id="health", retries=3, retry_policy=Stubborn())
"""
        )
        assert run.state_of("health") == "success"
        assert run.tries["health", -1] == 3
