from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_runs import AIRFLOW, FakeTaskInstance, Run, execute, failing_at_once, new_dag, run_dag
from task_log import TaskLog

from airflow_custody.client import CustodyError, CustodyResponseError
from airflow_custody.sandbox import Sandbox, health_entry
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.usefixtures("connection")
MODES = ["poke", "reschedule", "deferrable"]


class QuickSensor(CustodyHealthSensor):
    """The sensor with a delay so short that no test has to wait for it."""

    recheck_delay = 0.2


def sensor(mode: str = "poke", **kwargs: Any) -> CustodyHealthSensor:
    how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    return QuickSensor(**{"task_id": "gate", "poke_interval": 0.2, "timeout": 600, **how, **kwargs})


def resume_execution(gate: CustodyHealthSensor, next_method: str, next_kwargs: dict[str, Any]) -> Any:
    """Resume a sensor as Airflow does when the trigger's event arrives."""
    context: Any = {"ti": FakeTaskInstance()}
    return gate.resume_execution(next_method, next_kwargs, context)


def run_sensor(mode: str, **kwargs: Any) -> Run:
    if mode == "reschedule" and AIRFLOW == (3, 0):
        pytest.skip("in a test run, Airflow 3.0 gives a sensor the time of its first try as text, and fails by it")
    with new_dag() as dag:
        sensor(mode, **kwargs)
    return run_dag(dag)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
class TestInARun:
    """The same sequence of responses has the same result in every mode, in real Airflow."""

    def test_waits_until_healthy(self, sandbox: Sandbox, mode: str) -> None:
        sandbox.control.add_fault("status", status=503)
        sandbox.control.add_fault("drop")
        sandbox.control.add_fault("rate_limit", retry_after=1)
        run = run_sensor(mode, groups="hsm", require_fresh=True)
        assert run.state_of("gate") == "success"
        result = run.xcom("gate")
        assert result["healthy"] is True
        assert (result["total"], result["groups"]) == (3, {"hsm": {"total": 3, "unhealthy": 0}})
        assert len(sandbox.control.request_log()) == 4

    def test_a_time_out_says_what_is_missing_and_what_to_do(
        self, sandbox: Sandbox, mode: str, task_log: TaskLog
    ) -> None:
        sandbox.control.update_health(group="hsm", check="vault", status="error")
        run = run_sensor(mode, timeout=0.5, retries=2)
        assert run.state_of("gate") == "failed"
        assert (
            "Not healthy within 0.5 s. Last result: the service is not healthy (1 of 9 checks unhealthy): hsm / hsm-1 "
            "/ vault (tenant 1): its status is 'error'. `custody health` lists all checks. If the service needs "
            "longer, raise 'timeout'. [custody/wait-timed-out]"
        ) in task_log.text

    def test_a_time_out_is_skipped_with_soft_fail(self, sandbox: Sandbox, mode: str) -> None:
        sandbox.control.update_health(group="hsm", status="error")
        assert run_sensor(mode, timeout=0.5, soft_fail=True).state_of("gate") == "skipped"

    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_an_error_fails_at_once_with_soft_fail_too(self, sandbox: Sandbox, mode: str, status: int) -> None:
        sandbox.control.add_fault("status", status=500)
        sandbox.control.add_fault("status", status=status, times=None)
        run = run_sensor(mode, soft_fail=True, retries=2)
        assert run.state_of("gate") == "failed"
        assert len(sandbox.control.request_log()) == 2

    def test_a_malformed_response_ends_the_wait(self, sandbox: Sandbox, mode: str) -> None:
        sandbox.control.add_fault("status", status=500)
        sandbox.control.add_fault("html", times=None)
        assert run_sensor(mode, soft_fail=True).state_of("gate") == "failed"
        assert len(sandbox.control.request_log()) == 2

    def test_a_name_that_does_not_exist_ends_the_wait(self, sandbox: Sandbox, mode: str) -> None:
        sandbox.control.add_fault("status", status=503)
        run = run_sensor(mode, groups=["hsm", "hsn"], soft_fail=True, retries=2, timeout=600)
        assert run.state_of("gate") == "failed"
        assert run.tries["gate", -1] == 1
        assert len(sandbox.control.request_log()) == 3

    def test_a_name_that_is_listed_late_does_not(self, sandbox: Sandbox, mode: str) -> None:
        others = {"groups": {"database": {"healthChecks": [health_entry(group="database")]}}}
        sandbox.control.add_fault("status", status=200, body=others)
        assert run_sensor(mode, groups="hsm").state_of("gate") == "success"


def test_a_time_out_of_poke_reports_the_last_result(sandbox: Sandbox) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    with pytest.raises(AirflowSensorTimeout, match="'error'"):
        execute(lambda: sensor(timeout=0.1))
    with pytest.raises(AirflowSkipException, match="'error'"):
        execute(lambda: sensor(timeout=0.1, soft_fail=True))


def test_poke_fails_on_an_error_although_soft_fail_is_set(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=401)
    with failing_at_once("token is wrong"):
        execute(lambda: sensor(soft_fail=True))


@pytest.mark.parametrize(
    ("criteria", "existing"),
    [
        ({"groups": "hsn"}, "'blockchain', 'database', 'hsm'"),
        ({"components": ["hsm-1", "hsm-3"]}, "'chain-gateway', 'database', 'hsm-1', 'hsm-2'"),
        ({"checks": ["pong"], "groups": ["database"]}, "the checks are 'ping', 'replication'"),
        ({"groups": ["database"], "checks": ["vault"]}, "the checks are 'ping', 'replication'"),
        ({"require_results": ["BTC", "DOGE"]}, "the results are 'ADA', 'BTC', 'ETH', 'SOL', 'XLM', 'XRP'"),
        ({"require_results": ["BTC"], "groups": ["hsm"]}, "there are no results"),
    ],
)
def test_the_error_names_what_exists(sandbox: Sandbox, criteria: dict[str, Any], existing: str) -> None:
    with failing_at_once(existing) as caught:
        execute(lambda: sensor(timeout=600, **criteria))
    assert "0 of" not in str(caught.value.error)
    assert "names are compared exactly" in str(caught.value.error)


def test_deferrable_polls_once_before_it_defers(sandbox: Sandbox) -> None:
    assert execute(lambda: sensor("deferrable"))["healthy"]
    sandbox.control.update_health(group="hsm", status="error")
    before = time.time()
    with pytest.raises(TaskDeferred) as deferred:
        execute(lambda: sensor("deferrable", timeout=100, tenant_id="1"))
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_custody.triggers.health.CustodyHealthTrigger"
    assert before + 100 <= arguments["deadline"] <= time.time() + 100
    assert arguments["tenant_id"] == "1"
    assert sandbox.token not in repr(arguments)
    # Airflow's own time-out is only for a triggerer that is down.
    assert deferred.value.timeout.total_seconds() > 100


class TestResuming:
    """The sensor after the trigger's event."""

    def resume(self, event: dict[str, Any] | None, **kwargs: Any) -> Any:
        return resume_execution(sensor("deferrable", **kwargs), "execute_complete", {"event": event})

    def test_healthy(self) -> None:
        assert self.resume({"status": "healthy", "result": {"healthy": True, "total": 1}})["total"] == 1

    def test_timeout(self) -> None:
        event = {"status": "timeout", "message": "node is down"}
        with pytest.raises(AirflowSensorTimeout, match="node is down"):
            self.resume(event)
        with pytest.raises(AirflowSkipException, match="node is down"):
            self.resume(event, soft_fail=True)

    def test_error_is_never_skipped(self) -> None:
        wrong = CustodyResponseError("not a response").to_json()
        with failing_at_once("not a response"):
            self.resume({"status": "error", "error": wrong}, soft_fail=True)
        transient = CustodyError("the secrets backend is away", retryable=True).to_json()
        with pytest.raises(CustodyError, match="away"):
            self.resume({"status": "error", "error": transient}, soft_fail=True)

    @pytest.mark.parametrize("event", [None, {}, {"status": "well"}])
    def test_an_unknown_event_fails(self, event: dict[str, Any] | None) -> None:
        with pytest.raises(CustodyError, match="unknown event"):
            self.resume(event, soft_fail=True)

    @pytest.mark.parametrize("error", ["Trigger timeout", "Trigger/execution timeout"])
    def test_airflows_own_time_out_of_a_deferral(self, sandbox: Sandbox, error: str) -> None:
        # What the triggerer saw is lost. As in poke mode, one poll after the deadline counts.
        assert resume_execution(sensor("deferrable"), "__fail__", {"error": error})["healthy"]
        sandbox.control.update_health(group="hsm", status="error")
        text = r"^Not healthy within 600 s\. Last result: the service is not healthy .* raise 'timeout'\. "
        with pytest.raises(AirflowSensorTimeout, match=text):
            resume_execution(sensor("deferrable"), "__fail__", {"error": error})
        with pytest.raises(AirflowSkipException, match=text):
            resume_execution(sensor("deferrable", soft_fail=True), "__fail__", {"error": error})

    def test_a_broken_trigger_is_not_skipped(self) -> None:
        try:
            from airflow.sdk.exceptions import TaskDeferralError
        except ImportError:
            from airflow.exceptions import TaskDeferralError  # type: ignore[no-redef]

        with pytest.raises(TaskDeferralError):
            resume_execution(sensor("deferrable", soft_fail=True), "__fail__", {"error": "Trigger failure"})


@pytest.mark.parametrize("setting", ["never_fail", "silent_fail"])
def test_settings_that_hide_errors_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        sensor("poke", **{setting: True})


def test_start_from_trigger_hands_over_everything_the_trigger_needs() -> None:
    gate = sensor("deferrable", start_from_trigger=True, groups=("hsm",), timeout=77)
    assert gate.start_from_trigger
    assert gate.start_trigger_args is not None
    arguments = gate.start_trigger_args.trigger_kwargs
    assert arguments is not None
    assert arguments["groups"] == ["hsm"]
    assert gate.start_trigger_args.timeout == timedelta(seconds=77)
    assert CustodyHealthSensor.start_trigger_args is None
    assert not sensor(start_from_trigger=True).start_from_trigger
    from airflow_custody.triggers.health import CustodyHealthTrigger

    CustodyHealthTrigger(**arguments)
    if AIRFLOW >= (3, 0):
        # Templates are rendered in the triggerer for what is a field of both.
        assert set(gate.template_fields) <= set(arguments)
