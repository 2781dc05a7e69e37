from __future__ import annotations

import time

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_runs import AIRFLOW, FakeTaskInstance, execute, run_tasks

from airflow_custody.client import CustodyError, CustodyResponseError
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.usefixtures("connection")
MODES = ["poke", "reschedule", "deferrable"]


def sensor(mode: str = "poke", **kwargs) -> CustodyHealthSensor:
    how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    return CustodyHealthSensor(**{"task_id": "gate", "poke_interval": 0.2, "timeout": 10, **how, **kwargs})


def task(mode: str, **kwargs) -> str:
    how = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    arguments = {"task_id": "gate", "poke_interval": 0.2, "timeout": 10, **how, **kwargs}
    return f"CustodyHealthSensor(**{arguments!r})"


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
class TestInARun:
    """The same sequence of answers gives the same result in every mode, in real Airflow."""

    def test_waits_until_healthy(self, sandbox: Sandbox, mode):
        sandbox.control.order_fault("status", status=503)
        sandbox.control.order_fault("drop")
        sandbox.control.order_fault("rate_limit", retry_after=1)
        run = run_tasks(task(mode, groups="hsm", require_fresh=True))
        assert run.state_of("gate") == "success"
        result = run.xcom("gate")
        assert result["healthy"] is True
        assert (result["total"], result["groups"]) == (3, {"hsm": {"total": 3, "unhealthy": 0}})
        assert len(sandbox.control.received()) == 4

    def test_times_out(self, sandbox: Sandbox, mode):
        sandbox.control.update_health(group="hsm", status="error")
        run = run_tasks(task(mode, timeout=0.5, retries=2))
        assert run.state_of("gate") == "failed"

    def test_a_time_out_is_skipped_with_soft_fail(self, sandbox: Sandbox, mode):
        sandbox.control.update_health(group="hsm", status="error")
        assert run_tasks(task(mode, timeout=0.5, soft_fail=True)).state_of("gate") == "skipped"

    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_an_error_fails_at_once_with_soft_fail_too(self, sandbox: Sandbox, mode, status):
        sandbox.control.order_fault("status", status=500)
        sandbox.control.order_fault("status", status=status, times=None)
        run = run_tasks(task(mode, soft_fail=True, retries=2))
        assert run.state_of("gate") == "failed"
        assert len(sandbox.control.received()) == 2

    def test_an_answer_that_cannot_be_understood_ends_the_wait(self, sandbox: Sandbox, mode):
        sandbox.control.order_fault("status", status=500)
        sandbox.control.order_fault("html", times=None)
        assert run_tasks(task(mode, soft_fail=True)).state_of("gate") == "failed"
        assert len(sandbox.control.received()) == 2


def test_poke_says_what_was_seen_last(sandbox: Sandbox):
    sandbox.control.update_health(group="hsm", status="error")
    with pytest.raises(AirflowSensorTimeout, match="'error'"):
        execute(lambda: sensor(timeout=0.1))
    with pytest.raises(AirflowSkipException, match="'error'"):
        execute(lambda: sensor(timeout=0.1, soft_fail=True))


def test_poke_fails_on_an_error_although_soft_fail_is_set(sandbox: Sandbox):
    sandbox.control.order_fault("status", status=401)
    with pytest.raises(AirflowFailException, match="token is wrong"):
        execute(lambda: sensor(soft_fail=True))


def test_deferrable_looks_once_before_it_defers(sandbox: Sandbox):
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
    # Airflow's own time-out only stands in for a triggerer that is down.
    assert deferred.value.timeout.total_seconds() > 100


class TestComingBack:
    """What happens when the trigger's event arrives."""

    def resume(self, event: dict, **kwargs):
        return sensor("deferrable", **kwargs).resume_execution(
            "execute_complete", {"event": event}, {"ti": FakeTaskInstance()}
        )

    def test_healthy(self):
        assert self.resume({"status": "healthy", "result": {"healthy": True, "total": 1}})["total"] == 1

    def test_timeout(self):
        event = {"status": "timeout", "message": "node is down"}
        with pytest.raises(AirflowSensorTimeout, match="node is down"):
            self.resume(event)
        with pytest.raises(AirflowSkipException, match="node is down"):
            self.resume(event, soft_fail=True)

    def test_error_is_never_skipped(self):
        wrong = CustodyResponseError("not an answer").to_json()
        with pytest.raises(AirflowFailException, match="not an answer"):
            self.resume({"status": "error", "error": wrong}, soft_fail=True)
        passing = CustodyError("the secrets backend is away", retryable=True).to_json()
        with pytest.raises(CustodyError, match="away"):
            self.resume({"status": "error", "error": passing}, soft_fail=True)

    @pytest.mark.parametrize("event", [None, {}, {"status": "well"}])
    def test_an_event_that_is_not_understood_fails(self, event):
        with pytest.raises(CustodyError, match="not understood"):
            self.resume(event, soft_fail=True)

    @pytest.mark.parametrize("said", ["Trigger timeout", "Trigger/execution timeout"])
    def test_airflows_own_time_out_of_a_deferral(self, said):
        with pytest.raises(AirflowSensorTimeout):
            sensor("deferrable").resume_execution("__fail__", {"error": said}, {"ti": FakeTaskInstance()})
        with pytest.raises(AirflowSkipException):
            sensor("deferrable", soft_fail=True).resume_execution(
                "__fail__", {"error": said}, {"ti": FakeTaskInstance()}
            )

    def test_a_trigger_that_broke_is_not_skipped(self):
        try:
            from airflow.sdk.exceptions import TaskDeferralError
        except ImportError:
            from airflow.exceptions import TaskDeferralError

        with pytest.raises(TaskDeferralError):
            sensor("deferrable", soft_fail=True).resume_execution(
                "__fail__", {"error": "Trigger failure"}, {"ti": FakeTaskInstance()}
            )


@pytest.mark.parametrize("setting", ["never_fail", "silent_fail"])
def test_settings_that_hide_errors_are_refused(setting):
    with pytest.raises(ValueError, match=setting):
        sensor(**{setting: True})


def test_start_from_trigger_hands_over_everything_the_trigger_needs():
    gate = sensor("deferrable", start_from_trigger=True, groups=("hsm",), timeout=77, max_wait=5)
    assert gate.start_from_trigger
    arguments = gate.start_trigger_args.trigger_kwargs
    assert arguments["groups"] == ["hsm"]
    assert arguments["max_wait"] == 5
    assert gate.start_trigger_args.timeout.total_seconds() == 77
    assert CustodyHealthSensor.start_trigger_args.trigger_kwargs == {}
    assert not sensor(start_from_trigger=True).start_from_trigger
    from airflow_custody.triggers.health import CustodyHealthTrigger

    CustodyHealthTrigger(**arguments)
    if AIRFLOW >= (3, 0):
        # Templates are rendered in the triggerer for what is a field of both.
        assert set(gate.template_fields) <= set(arguments)
