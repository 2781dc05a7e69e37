"""The settings that all sensors share, and what a sensor does with an event that it cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task
from support.airflow.airflow_runs import FakeTaskInstance, new_dag, run_dag

from airflow_custody.client import CustodyError
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

pytestmark = pytest.mark.usefixtures("connection")

SENSORS: dict[str, Callable[..., Any]] = {
    "health": lambda **settings: CustodyHealthSensor(task_id="wait", **settings),
    "whitelist": lambda **settings: CustodyWhitelistRequestSensor(task_id="wait", request_id="1", **settings),
}


@pytest.mark.parametrize("name", ["poke_interval", "timeout", "max_wait"])
@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1, "60", True, [60], 1e15, pytest.param(object(), id="object")], ids=repr
)
@pytest.mark.parametrize("sensor", SENSORS)
def test_odd_times_are_refused_when_the_dag_file_is_parsed(sensor: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number from 0 "):
        SENSORS[sensor](**{name: value})


@pytest.mark.parametrize("value", [None, 1, "no", []], ids=repr)
@pytest.mark.parametrize("name", ["deferrable", "start_from_trigger", "require_fresh"])
def test_a_flag_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be True or False"):
        SENSORS["health"](**{name: value})


@pytest.mark.parametrize(
    "event",
    [
        *(None, {}, {"status": "healthy"}, {"status": "healthy", "result": 5}, {"status": "healthy", "result": {}}),
        *({"status": "error"}, {"status": "error", "error": "x"}, {"status": "unknown"}, {"status": ["healthy"]}),
    ],
    ids=repr,
)
def test_an_event_that_lacks_something_is_retried(event: Any) -> None:
    context: Any = {"ti": FakeTaskInstance()}
    with pytest.raises(CustodyError, match="unknown event") as caught:
        SENSORS["health"](deferrable=True).execute_complete(context, event)
    assert caught.value.retryable


def test_a_mapped_sensor_does_not_begin_in_the_triggerer_without_its_parameters(sandbox: Sandbox) -> None:
    with new_dag():
        made = CustodyHealthSensor.partial(task_id="wait", deferrable=True, start_from_trigger=True).expand(
            groups=[["hsm"], ["nowhere"]]
        )
    operator: Any = getattr(made, "operator", made)
    assert operator.start_trigger_args is None


def test_start_from_trigger_takes_no_upstream_output() -> None:
    @task
    def upstream() -> Any:
        return None

    with new_dag(), pytest.raises(ValueError, match="groups: with start_from_trigger"):
        SENSORS["health"](deferrable=True, start_from_trigger=True, groups=upstream())


def test_start_from_trigger_cannot_omit_parameters() -> None:
    settings: dict[str, Any] = {"deferrable": True, "start_from_trigger": True, "omit_if_none": ("groups",)}
    with pytest.raises(ValueError, match="omit_if_none cannot be used with start_from_trigger"):
        SENSORS["health"](groups="{{ none }}", **settings)


@pytest.mark.usefixtures("airflow_db")
def test_a_mapped_sensor_omits_parameters_because_it_starts_in_a_worker(sandbox: Sandbox) -> None:
    with new_dag() as dag:
        CustodyHealthSensor.partial(
            task_id="wait", deferrable=True, start_from_trigger=True, omit_if_none=("groups",)
        ).expand(groups=[["hsm"], None])
    assert run_dag(dag).state == "success"


def test_a_trigger_that_begins_the_wait_has_none_for_what_was_not_given() -> None:
    sensor = SENSORS["health"](deferrable=True, start_from_trigger=True, groups=["hsm"])
    arguments = sensor.start_trigger_args.trigger_kwargs
    assert (arguments["groups"], arguments["components"], arguments["tenant_id"]) == (["hsm"], None, None)
