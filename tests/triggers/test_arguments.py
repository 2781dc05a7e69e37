"""A trigger's argument that cannot be right ends its own wait with an error event, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import DAG
from airflow.triggers.base import BaseTrigger, TriggerEvent
from airflow_runs import AIRFLOW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")

NUMBERS: list[Any] = [float("nan"), float("inf"), -1, "soon", True, b"1", [1], {}, object(), 10**5000, 1e300]
NAMES: list[Any] = [5, 1.5, True, b"x", {"a": 1}, [1], [None], [""], [["a"]], object()]


def first(made: BaseTrigger) -> dict[str, Any]:
    async def wait() -> dict[str, Any]:
        stream = cast(AsyncGenerator[TriggerEvent, None], made.run())
        try:
            payload: dict[str, Any] = (await asyncio.wait_for(anext(stream), 600)).payload
            return payload
        finally:
            await stream.aclose()

    return asyncio.run(wait())


def assert_refused(made: BaseTrigger, name: str) -> None:
    event = first(made)
    assert event["status"] == "error"
    assert event["error"]["type"] in ("CustodyRequestError", "CustodyConfigurationError")
    assert not event["error"]["retryable"]
    assert name in event["error"]["message"]


def whitelist_trigger(**arguments: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(**{"request_id": "1", **arguments})


@pytest.mark.parametrize(
    "value",
    [*(each for each in NUMBERS if each != [1]), None, "", "None", "9" * 20, "9" * 5000, "٣", "1/2"],
    ids=lambda x: repr(type(x)),
)
def test_an_odd_id(sandbox: Sandbox, value: Any) -> None:
    assert_refused(whitelist_trigger(request_id=value), "request_id must be a whole number")
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("value", [[None], [["1"]], [1.5], ["1", ""], ["1", "None"]], ids=repr)
def test_an_odd_id_in_a_list(sandbox: Sandbox, value: Any) -> None:
    assert_refused(whitelist_trigger(request_id=value), f"request_id[{len(value) - 1}] must be a whole number")
    assert_refused(whitelist_trigger(request_id=[]), "request_id is an empty list")
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("name", ["poke_interval", "deadline"])
@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: type(value).__name__)
def test_an_odd_time(sandbox: Sandbox, name: str, value: Any) -> None:
    assert_refused(whitelist_trigger(**{name: value}), name)
    assert_refused(CustodyHealthTrigger(**{name: value}), name)
    assert_refused(CustodyHealthTrigger(**{name: value}, fire_on="change"), name)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("value", NAMES, ids=lambda value: type(value).__name__)
def test_odd_names(sandbox: Sandbox, value: Any) -> None:
    for name in ("effective_statuses", "rejected_statuses", "custody_conn_id"):
        assert_refused(whitelist_trigger(**{name: value}), name)
    for name in ("groups", "components", "checks", "require_results", "healthy_statuses", "custody_conn_id"):
        assert_refused(CustodyHealthTrigger(**{name: value}), name)
    if value != 5:
        assert_refused(CustodyHealthTrigger(tenant_id=value), "tenant_id")
    assert_refused(CustodyHealthTrigger(require_fresh="yes"), "require_fresh")  # type: ignore[arg-type]
    assert sandbox.control.request_log() == []


def test_stored_arguments_hold_none(sandbox: Sandbox) -> None:
    _, arguments = CustodyHealthTrigger().serialize()
    assert None in arguments.values()
    assert first(CustodyHealthTrigger(**arguments))["status"] == "healthy"
    assert first(CustodyHealthTrigger(**{**arguments, "groups": ["hsm"], "tenant_id": 1}))["status"] in "healthy"


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="the triggerer renders templates from Airflow 3 on")
@pytest.mark.parametrize("name", CustodyHealthSensor.template_fields)
def test_a_template_that_the_triggerer_renders_to_none(sandbox: Sandbox, name: str) -> None:
    sensor: Any = CustodyHealthSensor(
        task_id="wait",
        deferrable=True,
        start_from_trigger=True,
        **{name: "{{ nothing }}"},  # type: ignore[arg-type]
    )
    for rendered in (None, "None", "null", [None]):
        trigger = CustodyHealthTrigger(**sensor.start_trigger_args.trigger_kwargs)
        # As the triggerer does it: in place.
        setattr(trigger, name, rendered)
        assert trigger.shared_stream_key() is None
        assert_refused(trigger, name)
    assert sandbox.control.request_log() == []


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["request_id", "effective_statuses", "rejected_statuses", "poke_interval"]), value=ANY)
def test_any_value_ends_in_an_event(sandbox: Sandbox, name: str, value: Any) -> None:
    event = first(whitelist_trigger(**{"deadline": 1.0, name: value}))
    assert event["status"] in ("timeout", "error")
    if event["status"] == "error":
        assert event["error"]["type"] != "CustodyError"


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="the triggerer renders templates like this from Airflow 3.3 on")
@pytest.mark.parametrize("name", CustodyHealthSensor.template_fields)
def test_as_the_triggerer_renders_it(sandbox: Sandbox, name: str) -> None:
    # It always renders to text, whatever the DAG says.
    dag = DAG("native", schedule=None, render_template_as_native_obj=True)
    values: dict[str, Any] = {name: "{{ params.x }}"}
    with dag:
        sensor: Any = CustodyHealthSensor(task_id="wait", deferrable=True, start_from_trigger=True, **values)
    trigger: Any = CustodyHealthTrigger(**sensor.start_trigger_args.trigger_kwargs)
    trigger.task_instance = SimpleNamespace(task_id="wait", task=sensor)
    assert name in trigger.template_fields
    trigger.render_template_fields({"params": {"x": None}, "dag": dag})
    assert getattr(trigger, name) == "None"
    assert_refused(trigger, name)
    assert sandbox.control.request_log() == []
