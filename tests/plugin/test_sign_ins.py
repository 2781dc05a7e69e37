"""How the page signs in: a refused password is not sent again by each reading."""

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
from airflow_custody.plugin.page_hook import ConnectionKey
from airflow_custody.plugin.readings import LIFETIME, Query, Readings
from airflow_custody.sandbox import Sandbox

ReadWith = Callable[..., Any]
PASSWORD = "correct horse battery"


@pytest.fixture
def read_with(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> ReadWith:
    """Return a function that reads a service with a password, after the last reading is outdated."""
    sandbox.control.add_user("joe", ["TPUser", "Admin"], user_id="77", password=PASSWORD)
    clock = Clock(1000.0)
    readings = Readings(clock)

    def read_with(password: str, request_id: str = "") -> Any:
        connection = {"conn_type": "custody", "host": sandbox.url, "login": "joe", "password": password}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_JOE", json.dumps(connection))
        read = (lambda client: read_request(client, request_id)) if request_id else read_overview
        clock.now += LIFETIME
        (reading,) = readings.get(Query(ConnectionKey("custody_joe", None), request_id, read))
        return reading

    return read_with


def sign_ins(sandbox: Sandbox) -> int:
    return sum(each["path"].endswith("/authentication/token") for each in sandbox.control.request_log())


def test_a_refused_password_is_sent_once(read_with: ReadWith, sandbox: Sandbox) -> None:
    for request_id in ("1", "2", "3"):
        assert "This client does not send the same credentials again" in read_with("wrong", request_id).problem
    assert sign_ins(sandbox) == 1


def test_a_changed_password_is_sent(read_with: ReadWith, sandbox: Sandbox) -> None:
    read_with("wrong")
    assert read_with(PASSWORD).value.health.value.healthy
    assert sign_ins(sandbox) == 2
