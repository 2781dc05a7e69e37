"""The arguments of the trigger of webhook calls, and where it refuses to work; also where Airflow is too old for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.triggers.base import TriggerEvent
from task_log import TaskLog

from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger


def test_arguments_survive_json_and_are_the_same_in_each_process() -> None:
    names = {f"name {number}" for number in range(20)}
    made = CustodyWebhookCallTrigger(webhook_types="requestStatus.updated", statuses=names, start="beginning")
    path, arguments = made.serialize()
    assert path == "airflow_custody.triggers.webhook.CustodyWebhookCallTrigger"
    assert arguments["statuses"] == sorted(names)
    assert arguments["webhook_types"] == ["requestStatus.updated"]
    again = CustodyWebhookCallTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    assert CustodyWebhookCallTrigger(**CustodyWebhookCallTrigger().serialize()[1]).poke_interval == 30.0


def test_an_interval_may_be_a_timedelta() -> None:
    trigger = CustodyWebhookCallTrigger(poke_interval=timedelta(minutes=1))
    assert trigger.serialize()[1]["poke_interval"] == 60.0


@pytest.mark.parametrize("name", ["custody_conn_id", "cursor_name"])
def test_a_template_is_refused(name: str) -> None:
    arguments: dict[str, Any] = {name: "{{ var.value.custody }}"}
    with pytest.raises(ValueError, match="no templates are rendered for a watcher"):
        CustodyWebhookCallTrigger(**arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("webhook_ids", "webhook_types", "event_ids", "statuses")
            for value in (5, [], [1])
        ),
        *(("poke_interval", value) for value in (0, -1, "30", None, float("nan"), True, timedelta(0))),
        *((name, value) for name in ("custody_conn_id", "cursor_name") for value in (None, "", " ", 5)),
        ("start", "yesterday"),
        ("with_payload", "yes"),
    ],
    ids=repr,
)
def test_a_wrong_argument_is_refused_in_the_dag_file(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        CustodyWebhookCallTrigger(**{name: value})


def test_a_task_that_defers_to_it_fails(sandbox: Sandbox) -> None:
    made = CustodyWebhookCallTrigger()
    made.task_instance = cast(Any, SimpleNamespace(task_id="wait", task=None))
    if hasattr(made, "shared_stream_key"):
        assert made.shared_stream_key() is None

    async def all_events() -> list[Any]:
        return [event.payload async for event in made.run()]

    (event,) = asyncio.run(all_events())
    assert event["status"] == "error"
    assert event["error"]["type"] == "CustodyConfigurationError"
    assert "AssetWatcher" in str(event["error"])
    assert sandbox.control.request_log() == []


def test_without_a_shared_stream_it_waits_and_says_so(sandbox: Sandbox, task_log: TaskLog) -> None:
    async def scenario() -> None:
        events = cast(AsyncGenerator[TriggerEvent, None], CustodyWebhookCallTrigger().run())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(events), 0.3)

    asyncio.run(scenario())
    assert "cannot say that it has stored an event" in task_log.text
    assert "CustodyReadWebhookCallsOperator" in task_log.text
    assert sandbox.control.request_log() == []
