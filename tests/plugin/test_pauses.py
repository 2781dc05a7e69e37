"""What a service asks not to be asked for is left alone for a while; all else is read on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow_runs import AIRFLOW
from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.observation import Observation
from airflow_custody.client.http.operation import Operation
from airflow_custody.overview import read_overview
from airflow_custody.plugin.access import CustodyConnection, _digest
from airflow_custody.plugin.cache import LIFETIME, Question, Reading, Readings
from airflow_custody.plugin.pauses import MAX_PAUSE, Pauses
from airflow_custody.sandbox import Sandbox

Ask = Callable[..., Any]
NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def ask(sandbox: Sandbox, clock: Clock) -> Ask:
    """Return what reads a connection to the sandbox."""
    readings = Readings(clock=clock)

    def ask(read: Callable[[CustodyClient], Any] = read_overview, key: Any = "overview", **extra: Any) -> Reading[Any]:
        host, password = sandbox.url, sandbox.token
        connection = Connection("custody_a", "custody", host=host, password=password, extra=json.dumps(extra))
        question = Question(CustodyConnection("custody_a", connection, digest=_digest(connection)), key, read)
        return asyncio.run(readings.read(question))

    return ask


def health(client: CustodyClient) -> str:
    try:
        client.list_health_checks()
    except CustodyError as error:
        return str(error)
    return "well"


def calls(sandbox: Sandbox, path: str = "") -> int:
    return sum(each["path"].endswith(path) for each in sandbox.control.request_log())


@pytest.mark.parametrize(("status", "asked", "pause"), [(429, 200, 200), (503, 9e9, 300), (200, 300, 0), (503, 0, 0)])
def test_a_service_that_asks_to_wait_is_asked_after_that(
    ask: Ask, sandbox: Sandbox, clock: Clock, status: int, asked: float, pause: float
) -> None:
    fault = {"status": status, "headers": {"Retry-After": f"{asked:.0f}"}}
    sandbox.control.add_fault("status", path="/health", times=None, **fault)
    assert "not asked for this before" not in ask(health).value
    before = calls(sandbox)
    clock.now += max(pause - 1, 0)
    if pause:
        for key in ("overview", "other"):
            assert "the service asked for a pause, so that it is not asked for this before" in ask(health, key).value
        assert calls(sandbox) == before
        # A changed one leads to another service, maybe.
        assert "not asked for this before" not in ask(health, "changed", timeout=7).value
        clock.now += 1
    assert "not asked for this before" not in ask(health, "third").value
    assert calls(sandbox) == before + 1 + bool(pause)


def test_a_pause_of_one_listing_hides_no_other(ask: Ask, sandbox: Sandbox, clock: Clock) -> None:
    fault = {"status": 503, "headers": {"Retry-After": "3600"}}
    sandbox.control.add_fault("status", path="/webhooks/calls", times=1, **fault)
    assert ask().value.journal.value is None
    for _ in range(2):
        clock.now += (MAX_PAUSE - 1) / 2
        reading = ask()
        assert not reading.late
        assert reading.value.health.value.healthy
        assert reading.value.webhooks.value is not None
        assert "not asked for this before" in reading.value.journal.problem
        assert "UTC" in reading.value.journal.problem
    assert calls(sandbox, "/webhooks/calls") == 1
    clock.now += LIFETIME
    assert ask().value.journal.value is not None
    assert calls(sandbox, "/webhooks/calls") == 2


OPERATIONS = [Operation(each, "GET", f"/{each}") for each in "ab"]


@given(
    st.lists(
        st.tuples(
            st.floats(0, 200),
            st.sampled_from(OPERATIONS),
            st.sampled_from([200, 429, 503]),
            st.one_of(st.none(), st.floats(0, 1000)),
        )
    )
)
def test_the_longest_pause_of_each_operation_counts(steps: list[tuple[float, Operation, int, float | None]]) -> None:
    clock = Clock(1000.0)
    pauses = Pauses(clock)
    asked: list[tuple[str, float]] = []
    for seconds, operation, status, retry_after in steps:
        clock.now += seconds
        seen = Observation(status, NOW, operation=operation.name, retry_after=retry_after)
        pauses.note("custody_a", seen)
        if status != 200 and retry_after:
            asked.append((operation.name, clock.now + min(retry_after, MAX_PAUSE)))
        for each in OPERATIONS:
            is_paused = any(name == each.name and clock.now < until for name, until in asked)
            with pytest.raises(CustodyError, match="asked for a pause") if is_paused else contextlib.nullcontext():
                pauses.check("custody_a", each)
            pauses.check("custody_b", each)
    assert len(pauses._until) <= len(OPERATIONS)
