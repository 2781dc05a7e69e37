"""Which failures a wait goes on through, and which end it: the same in a worker and in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from support.airflow.airflow_runs import FakeTaskInstance
from support.airflow.connections import connection_json
from support.airflow.request_triggers import first

from airflow_custody.client import CustodyError
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.faults.store import FaultKind
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

# With or without retries.
ENDED = (CustodyFailException, CustodyError)
# Kind, its options, and whether a wait goes on. What a status or a body makes of an error is tested with the client.
FAULTS: list[tuple[str, dict[str, Any], bool]] = [
    ("normal", {"delay": 3.0}, True),  # longer than the time-out
    ("status", {"status": 401}, False),
    ("status", {"status": 500}, True),
    ("status", {"status": 501}, False),
    ("status", {"status": 200, "body": {"app": "another"}}, False),
    ("html", {}, False),
    ("html", {"status": 503}, True),
    ("redirect", {"location": "https://elsewhere.example"}, False),
    ("rate_limit", {"retry_after": 0}, True),
    ("empty", {}, False),
    ("drop", {}, True),
    ("truncate_body", {}, True),
    ("truncate_headers", {}, True),
    ("trickle", {"pieces_every": 0.2}, True),
    ("large", {"size": 100_000}, False),
]


def test_the_table_has_every_fault_of_the_sandbox() -> None:
    # Nothing bounds how long headers take: docs/promises.md, Limits.
    assert {kind for kind, _, _ in FAULTS} == set(get_args(FaultKind)) - {"trickle_headers"}


@pytest.fixture
def arguments(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the arguments of a sensor that waits for what is in effect: only the fault can be in the way."""
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, max_response_bytes=50_000))
    row = {"label": "L", "address": "0x" + "a" * 40, "blockchain": "ETH"}
    (number,) = sandbox.control.add_whitelist_requests([row], status="APPROVED")
    return {"task_id": "wait", "request_id": number, "poke_interval": 0.1, "timeout": 600}


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
    if kind in ("normal", "trickle"):
        # A later poll that is as slow is waited out as well.
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=1))
    if subject == "health":
        del arguments["request_id"]
    make: Any = CustodyHealthSensor if subject == "health" else CustodyWhitelistRequestSensor
    context: Any = {"ti": FakeTaskInstance()}

    def in_the_triggerer(sensor: Any) -> None:
        event = asyncio.run(first(sensor._trigger(deadline=None)))
        assert event["status"] in ("error", sensor.target_state)
        sensor.resume_execution("execute_complete", {"event": event}, context)

    def in_a_worker(sensor: Any) -> None:
        sensor.execute(context)

    # Deferrable, the first poll is the worker's.
    modes: list[tuple[bool, Callable[[Any], None], type[BaseException] | None]] = [
        (False, in_a_worker, None),
        (True, in_the_triggerer, None),
        (True, in_a_worker, TaskDeferred),
    ]
    for deferrable, wait, deferred in modes:
        sandbox.control.clear_faults()
        sandbox.control.add_fault(kind, **options)
        sensor = make(**arguments, deferrable=deferrable)
        sensor.prepare_template()
        if goes_on and deferred is None:
            wait(sensor)
        else:
            with pytest.raises(deferred if goes_on and deferred else ENDED):
                wait(sensor)
