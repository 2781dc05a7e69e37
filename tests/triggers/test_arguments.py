"""Arguments of triggers: plain JSON, the same in each process; one that cannot be right ends nobody else's wait."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.triggers.base import BaseTrigger
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json
from support.airflow.request_triggers import first, until
from support.airflow.task_log import TaskLog

from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")

NUMBERS: list[Any] = [float("nan"), float("inf"), -1, "soon", True, b"1", [1], {}, object(), 10**5000, 1e300]
TEXTS: list[Any] = [None, "", "None", "9" * 20, "9" * 5000, "٣", "1/2"]
FILTERS = ("webhook_ids", "webhook_types", "event_ids", "statuses")
MANY = {f"name {number}" for number in range(20)}


@pytest.mark.parametrize(
    "made",
    [
        CustodyHealthTrigger(tenant_id="1", groups=("hsm",), require_results=MANY, deadline=5.0),
        CustodyWhitelistRequestTrigger(request_id=("7", "12"), effective_statuses=("a",), rejected_statuses=MANY),
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
    ("value", "says"),
    [
        *((value, "request_id must be ") for value in [*NUMBERS, *TEXTS] if value != [1]),
        ([], "request_id is an empty list"),
        *(([*good, bad], f"request_id[{len(good)}] must be") for good in ([], ["1"]) for bad in (None, ["1"], 1.5, "")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_odd_id(sandbox: Sandbox, value: Any, says: str) -> None:
    assert_refused(sandbox, whitelist_trigger(request_id=value), says)


@pytest.mark.parametrize("name", ["poke_interval", "deadline"])
@pytest.mark.parametrize("value", [float("nan"), -1, "soon", object()], ids=lambda value: type(value).__name__)
def test_an_odd_time(sandbox: Sandbox, name: str, value: Any) -> None:
    for made in (whitelist_trigger, CustodyHealthTrigger):
        assert_refused(sandbox, made(**{name: value}), name)


@pytest.mark.parametrize("value", [5, b"x", {"a": 1}, [1], [""]], ids=lambda value: type(value).__name__)
def test_odd_names(sandbox: Sandbox, value: Any) -> None:
    for name in ("effective_statuses", "rejected_statuses", "custody_conn_id"):
        assert_refused(sandbox, whitelist_trigger(**{name: value}), name)
    for name in ("groups", "components", "checks", "require_results", "healthy_statuses", "custody_conn_id"):
        assert_refused(sandbox, CustodyHealthTrigger(**{name: value}), name)
    assert_refused(sandbox, CustodyHealthTrigger(require_fresh=value), "require_fresh")


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="the triggerer renders templates from Airflow 3 on")
@pytest.mark.parametrize("name", CustodyHealthSensor.template_fields)
def test_a_template_that_the_triggerer_renders_to_none(sandbox: Sandbox, name: str) -> None:
    template: dict[str, Any] = {name: "{{ nothing }}"}
    sensor: Any = CustodyHealthSensor(task_id="wait", deferrable=True, start_from_trigger=True, **template)
    # Most render to text, whatever the DAG says.
    for rendered in ("None", None, "null", [None]):
        trigger = CustodyHealthTrigger(**sensor.start_trigger_args.trigger_kwargs)
        # As the triggerer does it: in place.
        setattr(trigger, name, rendered)
        assert trigger.shared_stream_key() is None
        assert_refused(sandbox, trigger, name)


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["request_id", "effective_statuses", "rejected_statuses", "poke_interval"]), value=ANY)
def test_any_value_ends_in_an_event(sandbox: Sandbox, name: str, value: Any) -> None:
    event = asyncio.run(first(whitelist_trigger(**{"deadline": 1.0, name: value})))
    assert event["status"] in ("timeout", "error")
    if event["status"] == "error":
        assert event["error"]["type"] != "CustodyError"


# --- the trigger of webhook calls, also where Airflow is too old for it --------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in FILTERS for value in (5, [], [1])),
        *(("poke_interval", value) for value in (0, -1, "30", None, float("nan"), True, timedelta(0))),
        *((name, value) for name in ("custody_conn_id", "cursor_name") for value in (None, "", " ", 5, "{{ var.x }}")),
        ("start", "yesterday"),
        ("with_payload", "yes"),
    ],
    ids=repr,
)
def test_a_wrong_argument_of_a_watcher_is_refused_in_the_dag_file(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        CustodyWebhookCallTrigger(**{name: value})
    with pytest.raises(ValueError, match="fire_on"):
        CustodyHealthTrigger(fire_on="sometimes")  # type: ignore[arg-type]


HEALTH: list[dict[str, Any]] = [{}, {"groups": ["hsm"]}, {"deadline": time.time() + 9999}, {"fire_on": "change"}]
OWN: list[dict[str, Any]] = [{"poke_interval": 9}, {"custody_conn_id": "other"}]


@pytest.mark.parametrize(
    ("kind", "shared", "own"),
    [
        (CustodyHealthTrigger, HEALTH, [{"tenant_id": "1"}, *OWN]),
        (whitelist_trigger, [{"request_id": "1"}, {"request_id": ["2", "3"]}], OWN),
    ],
    ids=["health", "whitelist"],
)
def test_what_has_a_poll_of_its_own(
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    shared: list[dict[str, Any]],
    own: list[dict[str, Any]],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    sandbox.control.update_health(group="hsm", status="error")

    async def scenario() -> int:
        tasks = [asyncio.create_task(first(kind(**{"poke_interval": 0.1, **each}))) for each in own + shared]
        await until(lambda: len(SharedPoll._running) > len(own))
        # Before they poll: what is on its way would arrive in the next test.
        running = len(SharedPoll._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return running

    assert asyncio.run(scenario()) == len(own) + 1
    assert len(SharedPoll._running) == 0


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
    assert "cannot say that it has stored an event" in task_log.text
    assert "CustodyReadWebhookCallsOperator" in task_log.text
    assert sandbox.control.request_log() == []
