"""The sensor for health ends in the same way in every mode. The client's tests cover what is healthy."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, failing_at_once
from support.airflow.sensor_runs import MODES, run_sensor, wait
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyError, CustodyResponseError
from airflow_custody.sandbox import Sandbox, health_entry
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.triggers.health import CustodyHealthTrigger

pytestmark = pytest.mark.usefixtures("connection")


class QuickSensor(CustodyHealthSensor):
    """The sensor with a delay so short that no test has to wait for it."""

    recheck_delay = 0.2


def resume(event: dict[str, Any], next_method: str = "execute_complete", *, soft_fail: bool = False) -> Any:
    """Resume a sensor as Airflow does when the trigger's event arrives."""
    sensor = QuickSensor(task_id="wait", deferrable=True, timeout=600, soft_fail=soft_fail)
    context: Any = {"ti": FakeTaskInstance()}
    return sensor.resume_execution(next_method, event if next_method == "__fail__" else {"event": event}, context)


def status(code: int, **more: Any) -> dict[str, Any]:
    return {"kind": "status", "status": code, **more}


LATE = {"groups": {"database": {"healthChecks": [health_entry(group="database")]}}}
SOFT: dict[str, Any] = {"soft_fail": True, "retries": 2}


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("faults", "arguments", "state", "calls"),
    [
        pytest.param(
            [status(503), {"kind": "drop"}, {"kind": "rate_limit", "retry_after": 1}],
            {"groups": "hsm", "require_fresh": True},
            "success",
            4,
            id="waits out failures",
        ),
        pytest.param([status(500), status(401, times=None)], SOFT, "failed", 2, id="an error ends it"),
        # The sensor looks for the missing name once more, because a starting service may not list everything yet.
        pytest.param([status(503)], {"groups": ["hsm", "hsn"], **SOFT}, "failed", 3, id="no such name"),
        pytest.param([status(200, body=LATE)], {"groups": "hsm"}, "success", 2, id="a name that is listed late"),
    ],
)
def test_a_wait_ends_the_same_in_every_mode(
    sandbox: Sandbox, mode: str, faults: list[dict[str, Any]], arguments: dict[str, Any], state: str, calls: int
) -> None:
    for fault in faults:
        sandbox.control.add_fault(**fault)
    run = run_sensor(QuickSensor, mode, **arguments)
    assert run.state_of("wait") == state
    assert run.tries["wait", -1] == 1
    assert len(sandbox.control.request_log()) == calls
    if state == "success":
        assert run.xcom("wait")["healthy"] is True
        assert run.xcom("wait")["groups"] == {"hsm": {"total": 3, "unhealthy": 0}}


def test_a_sensor_polls_once_before_it_defers_and_hands_on_its_settings(sandbox: Sandbox) -> None:
    assert wait(QuickSensor, deferrable=True)["healthy"]
    before = time.time()
    with pytest.raises(TaskDeferred) as deferred:
        wait(QuickSensor, deferrable=True, timeout=100, require_results=["XYZ"])
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_custody.triggers.health.CustodyHealthTrigger"
    assert before + 100 <= arguments["deadline"] <= time.time() + 100
    assert arguments["require_results"] == ["XYZ"]
    assert sandbox.token not in repr(arguments)
    # Airflow's own time-out only matters if the triggerer is down.
    assert deferred.value.timeout.total_seconds() > 100


# --- after a deferral ----------------------------------------------------------------------------------------------

WRONG = {"status": "error", "error": CustodyResponseError("not a response").to_json()}
AWAY = {"status": "error", "error": CustodyError("the secrets backend is away", retryable=True).to_json()}


def test_the_result_of_the_trigger_is_the_sensors() -> None:
    assert resume({"status": "healthy", "result": {"healthy": True, "total": 1}})["total"] == 1


def test_a_time_out_of_the_trigger_fails_or_is_skipped(task_log: TaskLog) -> None:
    late = {"status": "timeout", "message": "node is down"}
    with pytest.raises(AirflowSensorTimeout, match="node is down"):
        resume(late)
    with pytest.raises(AirflowSkipException, match="Not healthy within"):
        resume(late, soft_fail=True)
    assert "Last result: node is down" in task_log.text


def test_an_error_of_the_trigger_is_never_skipped() -> None:
    with failing_at_once("not a response"):
        resume(WRONG, soft_fail=True)
    with pytest.raises(CustodyError, match="away"):
        resume(AWAY, soft_fail=True)
    # Airflow has several names for the exceptions that it raises.
    with pytest.raises(Exception, match="Trigger failure") as caught:
        resume({"error": "Trigger failure"}, "__fail__", soft_fail=True)
    assert type(caught.value).__name__ == "TaskDeferralError"


@pytest.mark.parametrize("error", ["Trigger timeout", "Trigger/execution timeout"])
def test_airflows_own_time_out_of_a_deferral(sandbox: Sandbox, error: str, task_log: TaskLog) -> None:
    # The triggerer's result is lost. As in poke mode, one poll after the deadline counts.
    assert resume({"error": error}, "__fail__")["healthy"]
    sandbox.control.update_health(group="hsm", status="error")
    text = r"Not healthy within 600 s\nLast result: the service is not healthy .*\n.* increase 'timeout'\.\n\[custody"
    with pytest.raises(AirflowSensorTimeout, match=f"^{text}"):
        resume({"error": error}, "__fail__")
    with pytest.raises(AirflowSkipException, match=r"^Not healthy within 600 s$"):
        resume({"error": error}, "__fail__", soft_fail=True)
    assert re.search(text, task_log.text)


class StoppedSensor(QuickSensor):
    """The sensor, ended by Airflow after its first poll."""

    def poke(self, context: Any) -> Any:
        super().poke(context)
        raise AirflowTaskTimeout("Timeout, PID: 1")


def test_a_time_out_of_the_task_is_not_answered_with_the_sensors_own(sandbox: Sandbox) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    with pytest.raises(
        AirflowTaskTimeout, match=r"^'execution_timeout' has ended the task \(Timeout, PID: 1\)\n"
    ) as caught:
        wait(StoppedSensor, execution_timeout=timedelta(hours=1))
    text = str(caught.value)
    assert "\nLast result: the service is not healthy" in text
    assert "raise 'timeout'" not in text
    assert text.endswith(
        "\nRaise or remove 'execution_timeout', because 'timeout' already limits the wait.\n[custody/wait-timed-out]"
    )


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["never_fail", "silent_fail"])
def test_settings_that_hide_errors_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        wait(QuickSensor, **{setting: True})


def test_start_from_trigger_hands_over_everything_the_trigger_needs() -> None:
    given: Any = {"task_id": "wait", "start_from_trigger": True, "groups": ("hsm",), "timeout": timedelta(seconds=77)}
    gate: Any = CustodyHealthSensor(deferrable=True, **given)
    assert gate.start_from_trigger
    arguments = gate.start_trigger_args.trigger_kwargs
    assert arguments["groups"] == ["hsm"]
    assert gate.start_trigger_args.timeout == timedelta(seconds=77)
    assert CustodyHealthSensor.start_trigger_args is None
    assert not CustodyHealthSensor(deferrable=False, **given).start_from_trigger
    CustodyHealthTrigger(**arguments)
    if AIRFLOW >= (3, 0):
        # The triggerer renders a template if operator and trigger have a field of the same name.
        assert set(gate.template_fields) <= set(arguments)
