"""How the page signs in: a refused password is not sent by each of its readings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.clocks import Clock

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)


from airflow_custody.overview import read_overview, read_request
from airflow_custody.plugin.readings import LIFETIME, ConnectionKey, Question, Readings
from airflow_custody.sandbox import Sandbox

Ask = Callable[..., Any]
PASSWORD = "correct horse battery"


@pytest.fixture
def ask(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return what reads a connection of a user with a password, a while after the last time."""
    sandbox.control.add_user("joe", ["TPUser", "Admin"], user_id="77", password=PASSWORD)
    clock = Clock(1000.0)
    readings = Readings(clock)

    def ask(password: str, key: Any = "overview") -> Any:
        connection = {"conn_type": "custody", "host": sandbox.url, "login": "joe", "password": password}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_JOE", json.dumps(connection))
        read = read_overview if key == "overview" else lambda client: read_request(client, str(key))
        clock.now += LIFETIME
        (reading,) = readings.get(Question(ConnectionKey("custody_joe", None), key, read))
        return reading

    return ask


def sign_ins(sandbox: Sandbox) -> int:
    return sum(each["path"].endswith("/authentication/token") for each in sandbox.control.request_log())


def test_a_refused_password_is_not_sent_by_each_reading(ask: Ask, sandbox: Sandbox) -> None:
    for number in range(3):
        assert "This client does not send the same credentials again" in ask("wrong", number).problem
        assert "does not send the same credentials again" in ask("wrong").value.health.problem
    assert sign_ins(sandbox) == 1
    # A password that was changed is tried.
    assert ask(PASSWORD).value.health.value.healthy
    assert sign_ins(sandbox) == 2
    # Each reading has a client of its own then.
    assert ask(PASSWORD).value.health.value.healthy
    assert sign_ins(sandbox) == 3
    ask("other")
    assert sign_ins(sandbox) == 4
