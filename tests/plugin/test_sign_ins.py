"""How a process that makes many hooks signs in: once for each connection as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from airflow_runs import AIRFLOW
from clocks import Clock

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)


from airflow_custody.hooks import _connection
from airflow_custody.overview import read_overview, read_request
from airflow_custody.plugin.readings import LIFETIME, ConnectionKey, Question, Readings
from airflow_custody.sandbox import Sandbox

Ask = Callable[..., Any]
PASSWORD = "correct horse battery"


@pytest.fixture
def ask(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return what reads a connection of a user with a password, a while after the last time."""
    _connection.accounts.clear()
    sandbox.control.add_user("joe", ["TPUser", "Admin"], user_id="77", password=PASSWORD)
    clock = Clock(1000.0)
    readings = Readings(clock)

    def ask(password: str, key: Any = "overview", *, conn_id: str = "custody_joe", **extra: Any) -> Any:
        connection = {"conn_type": "custody", "host": sandbox.url, "login": "joe", "password": password, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
        read = read_overview if key == "overview" else lambda client: read_request(client, str(key))
        # Those at once are of other connections.
        clock.now += LIFETIME if conn_id == "custody_joe" else 0
        (reading,) = readings.get(Question(ConnectionKey(conn_id, None), key, read))
        return reading

    return ask


def sign_ins(sandbox: Sandbox) -> int:
    return sum(each["path"].endswith("/authentication/token") for each in sandbox.control.request_log())


def test_what_was_refused_is_sent_once_whatever_else_differs(ask: Ask, sandbox: Sandbox) -> None:
    for number in range(3):
        assert "not sent again before this process ends" in ask("wrong", number).problem
        for conn_id in ("custody_joe", "custody_other"):
            problem = ask("wrong", conn_id=conn_id, timeout=5 + number).value.health.problem
            assert "not sent again before this process ends" in problem
            assert f"connection {conn_id!r}" in problem
    assert sign_ins(sandbox) == 1
    # A password that was changed is tried.
    assert ask(PASSWORD).value.health.value.healthy
    assert sign_ins(sandbox) == 2
    ask("other")
    assert sign_ins(sandbox) == 3


def test_those_at_once_send_what_is_refused_once(ask: Ask, sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = [*pool.map(lambda number: ask("wrong", conn_id=f"custody_{number}"), range(6))]
    assert all("not sent again" in each.value.health.problem for each in found)
    assert sign_ins(sandbox) == 1


def test_triggers_that_come_and_go(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_custody.client.errors import CustodyAuthenticationError
    from airflow_custody.triggers._base import _Connection

    _connection.accounts.clear()
    connection = {"conn_type": "custody", "host": sandbox.url, "login": "joe", "password": "wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_JOE", json.dumps(connection))
    for _ in range(3):
        with (
            _Connection.shared("custody_joe") as shared,
            pytest.raises(CustodyAuthenticationError, match="not sent again"),
        ):
            shared.client().list_health_checks()
    assert sign_ins(sandbox) == 1
