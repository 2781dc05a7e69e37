"""How triggers sign in: all triggers of a connection send a refused password once."""

from __future__ import annotations

import asyncio
import json

import pytest
from support.airflow.request_triggers import events

from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


@pytest.fixture(autouse=True)
def wrong_password(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.add_user("joe", ["TPUser"], password="correct horse battery")
    connection = {"conn_type": "custody", "host": sandbox.url, "login": "joe", "password": "wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_JOE", json.dumps(connection))


def sign_ins(sandbox: Sandbox) -> int:
    return sum(each["path"].endswith("/authentication/token") for each in sandbox.control.request_log())


def test_triggers_of_one_connection_send_it_once(sandbox: Sandbox) -> None:
    requests = [CustodyWhitelistRequestTrigger(request_id=str(number), custody_conn_id="joe") for number in range(1, 6)]
    # A different interval means a separate poll.
    seldom = CustodyWhitelistRequestTrigger(request_id="7", custody_conn_id="joe", poke_interval=600)
    found = asyncio.run(events(*requests, seldom, CustodyHealthTrigger(custody_conn_id="joe")))
    assert [(each["status"], each["error"]["code"]) for each in found] == [("error", "credentials-refused")] * 7
    assert sign_ins(sandbox) == 1
