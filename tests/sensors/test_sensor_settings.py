"""The settings that all sensors share, and what a sensor does with an event that it cannot read."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task
from support.airflow.airflow_runs import FakeTaskInstance, new_dag, run_dag

from airflow_custody.client import CustodyError
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = pytest.mark.usefixtures("connection")


def sensor(**settings: Any) -> CustodyHealthSensor:
    return CustodyHealthSensor(task_id="wait", **settings)


@pytest.mark.parametrize("name", ["poke_interval", "timeout", "max_wait"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "60", True, 1e15], ids=repr)
def test_odd_times_are_refused_when_the_dag_file_is_parsed(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number from 0 "):
        sensor(**{name: value})


@pytest.mark.parametrize("name", ["deferrable", "start_from_trigger", "require_fresh"])
def test_a_flag_is_true_or_false(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be True or False"):
        sensor(**{name: 1})


@pytest.mark.parametrize(
    "event",
    [
        *(None, {}, {"status": "healthy", "result": 5}, {"status": "healthy", "result": {}}),
        *({"status": "error", "error": "x"}, {"status": "unknown"}, {"status": ["healthy"]}),
    ],
    ids=repr,
)
def test_an_event_that_lacks_something_is_retried(event: Any) -> None:
    context: Any = {"ti": FakeTaskInstance()}
    with pytest.raises(CustodyError, match="unknown event") as caught:
        sensor(deferrable=True).execute_complete(context, event)
    assert caught.value.retryable


def test_start_from_trigger_takes_no_upstream_output() -> None:
    @task
    def upstream() -> Any:
        return None

    with new_dag(), pytest.raises(ValueError, match="groups: with start_from_trigger"):
        sensor(deferrable=True, start_from_trigger=True, groups=upstream())


def test_start_from_trigger_cannot_omit_parameters() -> None:
    settings: dict[str, Any] = {"deferrable": True, "start_from_trigger": True, "omit_if_none": ("groups",)}
    with pytest.raises(ValueError, match="omit_if_none cannot be used with start_from_trigger"):
        sensor(groups="{{ none }}", **settings)


@pytest.mark.usefixtures("airflow_db")
def test_a_mapped_sensor_omits_parameters_because_it_starts_in_a_worker(sandbox: Sandbox) -> None:
    with new_dag() as dag:
        CustodyHealthSensor.partial(
            task_id="wait", deferrable=True, start_from_trigger=True, omit_if_none=("groups",)
        ).expand(groups=[["hsm"], None])
    assert run_dag(dag).state == "success"
