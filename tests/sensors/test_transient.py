"""Which failures a wait goes on through, and which end it: the same in a worker and in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.triggers.base import TriggerEvent
from airflow_runs import FakeTaskInstance
from connections import connection_json

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.faults.store import FAULT_KINDS
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

# With or without retries.
ENDED = (CustodyFailException, CustodyError)
# Kind, its options, and whether a wait goes on.
TIMED_OUT = ("normal", "trickle")
FAULTS: list[tuple[str, dict[str, Any], bool]] = [
    ("normal", {"delay": 3.0}, True),  # longer than the time-out
    *(("status", {"status": status}, False) for status in (400, 401, 403, 404, 405, 409, 422, 501)),
    *(("status", {"status": status}, True) for status in (408, 500, 504)),
    ("status", {"status": 502, "body": "<html>"}, True),
    ("status", {"status": 503, "retry_after": 0}, True),
    ("status", {"status": 200, "body": {"app": "another"}}, False),
    ("status", {"status": 200, "body": []}, False),
    ("status", {"status": 200, "body": "no JSON"}, False),
    ("html", {}, False),
    ("html", {"status": 503}, True),
    ("html", {"status": 404}, False),
    ("redirect", {"location": "https://elsewhere.example"}, False),
    ("rate_limit", {"retry_after": 0}, True),
    ("rate_limit", {}, True),
    ("empty", {}, False),
    ("empty", {"status": 503}, True),
    ("drop", {}, True),
    ("truncate_body", {}, True),
    ("truncate_body", {"keep": 0}, True),
    ("truncate_headers", {}, True),
    ("trickle", {"pieces_every": 0.2}, True),
    ("large", {"size": 100_000}, False),
]


def test_the_table_has_every_fault_of_the_sandbox() -> None:
    # Nothing bounds how long headers take: docs/explanation/failures.md, Limits.
    assert {kind for kind, _, _ in FAULTS} == set(FAULT_KINDS) - {"trickle_headers"}


@pytest.fixture
def arguments(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, max_response_bytes=50_000))
    with CustodyClient(sandbox.url, sandbox.token) as client:
        number = client.create_whitelist_request(WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH"))
    # In effect: the fault is the only thing that can be in the way.
    sandbox.control.set_whitelist_status(number, "APPROVED")
    return {"task_id": "wait", "request_id": number, "poke_interval": 0.1, "timeout": 600}


def make(subject: str, arguments: dict[str, Any], **how: Any) -> Any:
    if subject == "whitelist":
        return CustodyWhitelistRequestSensor(**arguments, **how)
    return CustodyHealthSensor(**{name: value for name, value in arguments.items() if name != "request_id"}, **how)


def goes_on_in_a_worker(sensor: Any) -> bool:
    try:
        sensor.execute({"ti": FakeTaskInstance()})
    except ENDED:
        return False
    return True


def goes_on_in_the_triggerer(sensor: Any) -> bool:
    async def first() -> Any:
        stream = cast(AsyncGenerator[TriggerEvent, None], sensor._trigger(deadline=None).run())
        try:
            return (await asyncio.wait_for(anext(stream), 600)).payload
        finally:
            await stream.aclose()

    event = asyncio.run(first())
    if event["status"] == "error":
        # What the task makes of it.
        with pytest.raises(ENDED):
            sensor.resume_execution("execute_complete", {"event": event}, {"ti": FakeTaskInstance()})
        return False
    return bool(event["status"] == sensor.target_state)


@pytest.mark.parametrize("subject", ["health", "whitelist"])
@pytest.mark.parametrize(("kind", "options", "goes_on"), FAULTS, ids=lambda value: str(value))
def test_a_fault_is_waited_out_or_not_in_every_mode(
    sandbox: Sandbox,
    arguments: dict[str, Any],
    subject: str,
    kind: str,
    options: dict[str, Any],
    goes_on: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind in TIMED_OUT:
        # A later poll that is as slow is waited out as well.
        connection = connection_json(sandbox, timeout=1)
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection)
    sandbox.control.add_fault(kind, **options)
    assert goes_on_in_a_worker(make(subject, arguments, deferrable=False)) is goes_on
    sandbox.control.clear_faults()
    sandbox.control.add_fault(kind, **options)
    assert goes_on_in_the_triggerer(make(subject, arguments, deferrable=True)) is goes_on
    sandbox.control.clear_faults()
    # Deferrable, the first poll is the worker's.
    sandbox.control.add_fault(kind, **options)
    sensor = make(subject, arguments, deferrable=True)
    with pytest.raises(TaskDeferred if goes_on else ENDED):
        sensor.execute({"ti": FakeTaskInstance()})
