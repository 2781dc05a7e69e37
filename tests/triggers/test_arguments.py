"""Arguments of triggers: plain JSON, the same in each process; a wrong one ends only its own trigger."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.triggers.base import BaseTrigger
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.request_triggers import first
from support.airflow.task_log import TaskLog

from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")

FILTERS = ("webhook_ids", "webhook_types", "event_ids", "statuses", "data_statuses")
MANY = {f"name {number}" for number in range(20)}


@pytest.mark.parametrize(
    "made",
    [
        CustodyHealthTrigger(tenant_id="1", groups=("hsm",), require_results=MANY, deadline=5.0),
        CustodyWhitelistRequestTrigger(request_id=("7", "12"), deadline=5.0),
        CustodyWebhookCallTrigger(webhook_types="a.b", statuses=MANY, start="beginning", poke_interval=timedelta(1)),
        CustodyWebhookCallTrigger(),
    ],
    ids=lambda made: type(made).__name__,
)
def test_arguments_survive_json_and_are_the_same_in_each_process(made: BaseTrigger) -> None:
    path, arguments = made.serialize()
    assert path == f"{type(made).__module__}.{type(made).__name__}"
    assert json.loads(json.dumps(arguments)) == arguments
    assert type(made)(**arguments).serialize() == (path, arguments)
    assert all(value == sorted(MANY) for value in arguments.values() if isinstance(value, list) and len(value) == 20)


def assert_refused(sandbox: Sandbox, made: BaseTrigger, name: str) -> None:
    event = asyncio.run(first(made))
    assert event["status"] == "error"
    assert event["error"]["type"] in ("CustodyRequestError", "CustodyConfigurationError")
    assert not event["error"]["retryable"]
    assert name in event["error"]["message"]
    assert sandbox.control.request_log() == []


def whitelist_trigger(**arguments: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(**{"request_id": "1", **arguments})


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (whitelist_trigger, "request_id", "1/2"),
        (whitelist_trigger, "request_id", []),
        (whitelist_trigger, "request_id", ["1", None]),
        (whitelist_trigger, "custody_conn_id", 5),
        (whitelist_trigger, "deadline", "soon"),
        (CustodyHealthTrigger, "poke_interval", float("nan")),
        (CustodyHealthTrigger, "groups", [""]),
        (CustodyHealthTrigger, "require_fresh", 5),
    ],
)
def test_an_odd_argument_ends_its_trigger(sandbox: Sandbox, make: Any, name: str, value: Any) -> None:
    assert_refused(sandbox, make(**{name: value}), name)


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="the triggerer renders templates from Airflow 3 on")
@pytest.mark.parametrize("name", CustodyHealthSensor.template_fields)
def test_a_template_that_the_triggerer_renders_to_none(sandbox: Sandbox, name: str) -> None:
    template: dict[str, Any] = {name: "{{ nothing }}"}
    sensor: Any = CustodyHealthSensor(task_id="wait", deferrable=True, start_from_trigger=True, **template)
    # Most templates render to text, whatever the DAG's settings are.
    for rendered in ("None", None):
        trigger = CustodyHealthTrigger(**sensor.start_trigger_args.trigger_kwargs)
        # Render the fields in place, like the triggerer.
        setattr(trigger, name, rendered)
        assert trigger.shared_stream_key() is None
        assert_refused(sandbox, trigger, name)


# --- the trigger of webhook calls, also where Airflow is too old for it --------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 5) for name in FILTERS),
        *((name, []) for name in FILTERS),
        *(("poke_interval", value) for value in (0, "30", float("nan"))),
        *((name, value) for name in ("custody_conn_id", "cursor_name") for value in ("", 5, "{{ var.x }}")),
        ("webhook_ids", ["no uuid"]),
        ("start", "yesterday"),
        ("with_payload", "yes"),
    ],
    ids=repr,
)
def test_a_wrong_argument_of_a_watcher_is_refused_in_the_dag_file(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        CustodyWebhookCallTrigger(**{name: value})


def test_a_wrong_fire_on_is_refused_in_the_dag_file() -> None:
    with pytest.raises(ValueError, match="fire_on"):
        CustodyHealthTrigger(fire_on="sometimes")  # type: ignore[arg-type]


def test_a_task_that_defers_to_a_watcher_of_calls_fails(sandbox: Sandbox) -> None:
    made = CustodyWebhookCallTrigger()
    made.task_instance = cast(Any, SimpleNamespace(task_id="wait", task=None))
    if hasattr(made, "shared_stream_key"):
        assert made.shared_stream_key() is None
    event = asyncio.run(first(made))
    assert event["status"] == "error"
    assert event["error"]["type"] == "CustodyConfigurationError"
    assert "AssetWatcher" in str(event["error"])
    assert sandbox.control.request_log() == []


def test_without_a_shared_stream_a_watcher_of_calls_waits_and_says_so(sandbox: Sandbox, task_log: TaskLog) -> None:
    async def scenario() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first(CustodyWebhookCallTrigger()), 0.3)

    asyncio.run(scenario())
    assert "does not acknowledge events" in task_log.text
    assert "CustodyReadWebhookCallsOperator" in task_log.text
    assert sandbox.control.request_log() == []
