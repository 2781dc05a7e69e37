"""A service that asks not to be called for a while is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow_runs import AIRFLOW

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client import CustodyClient
from airflow_custody.client.errors import CustodyError
from airflow_custody.plugin.access import CustodyConnection, _digest
from airflow_custody.plugin.cache import Question, Reading, Readings
from airflow_custody.sandbox import Sandbox


@pytest.mark.parametrize(("status", "asked", "pause"), [(429, 300, 300), (503, 9e9, 3600), (200, 300, 0)])
def test_a_service_that_asks_to_wait_is_asked_after_that(
    sandbox: Sandbox, status: int, asked: float, pause: float
) -> None:
    now = 1000.0
    readings = Readings(clock=lambda: now)

    def read(client: CustodyClient) -> int:
        with contextlib.suppress(CustodyError):
            client.list_health_checks()
        return 1

    def ask(key: Any, **extra: Any) -> list[Reading[Any]]:
        host, password = sandbox.url, sandbox.token
        connection = Connection("custody_a", "custody", host=host, password=password, extra=json.dumps(extra))
        question = Question(CustodyConnection("custody_a", connection, digest=_digest(connection)), key, read)
        return asyncio.run(readings.read_all([question]))

    fault = {"status": status, "headers": {"Retry-After": f"{asked:.0f}"}}
    sandbox.control.add_fault("status", path="/health", times=None, **fault)
    assert ask("overview") == [Reading(1)]
    calls = len(sandbox.control.request_log())
    now += max(pause - 1, 0)
    if pause:
        for key in ("overview", "other"):
            (late,) = ask(key)
            assert late.late
            assert late.problem.endswith("so that it is asked again only in 1 s, when somebody looks.")
        assert len(sandbox.control.request_log()) == calls
        # A changed one leads to another service, maybe.
        assert ask("other", timeout=7) == [Reading(1)]
        now += 1
    assert ask("third") == [Reading(1)]
    assert len(sandbox.control.request_log()) == calls + 1 + bool(pause)
