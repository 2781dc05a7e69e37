"""If the host does not exist, the first poll fails. If the service does not respond, the sensor waits."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from support.airflow.airflow_runs import execute, new_dag, run_dag
from support.airflow.request_triggers import first
from support.airflow.sensor_runs import how
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyConnectionError
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Define the connection ``away``, which is not retried within a call."""

    def define(**connection: Any) -> None:
        extra = {"max_retries": 0, "timeout": 60, **connection.pop("extra", {})}
        value = {"conn_type": "custody", "password": "token", **connection, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps(value))

    return define


def sensor(subject: str = "health", **how: Any) -> Any:
    given = {"task_id": "wait", "custody_conn_id": "away", "poke_interval": 0.1, "timeout": 3600, "retries": 0, **how}
    if subject == "health":
        return CustodyHealthSensor(**given)
    return CustodyWhitelistRequestSensor(request_id="3711", **given)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", ["poke", "reschedule", "deferrable", "operator"])
def test_a_host_that_does_not_exist_fails_the_first_try(away: Any, task_log: TaskLog, mode: str) -> None:
    away(host="https://custody.invalid")
    with new_dag() as dag:
        if mode == "operator":
            CustodyHealthCheckOperator(task_id="wait", custody_conn_id="away", retries=0)
        else:
            sensor(**how(mode))
    assert run_dag(dag).state_of("wait") == "failed"
    remedy = "Correct it in the base URL of the Airflow connection 'away'."
    assert f"This machine cannot resolve the host's name. {remedy}\n[custody/unknown-host]" in task_log.text
    assert "Not yet" not in task_log.text


@pytest.mark.parametrize("subject", ["health", "whitelist"])
def test_a_host_whose_name_was_found_before_is_waited_for(
    sandbox: Sandbox, away: Any, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(*_: Any, **__: Any) -> Any:
        raise NO_NAME

    away(host=sandbox.url.replace("127.0.0.1", "localhost"), password=sandbox.token)
    waits, fresh = sensor(subject), sensor(subject)
    sandbox.control.add_fault("status", status=503)
    assert waits.poke({}) is False
    waits.hook.close()
    monkeypatch.setattr(socket, "getaddrinfo", find_nothing)
    assert waits.poke({}) is False
    # In reschedule mode, each poke is a separate process. Airflow 3 tells the sensor that it is not the first.
    assert sensor(subject).poke({"task_reschedule_count": 1}) is False
    with pytest.raises(CustodyConnectionError) as caught:
        fresh.poke({})
    assert caught.value.code == "unknown-host"


def test_trouble_of_the_name_service_is_waited_for(away: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    away(host="https://custody.invalid")
    with pytest.raises(TaskDeferred):
        execute(lambda: sensor(deferrable=True))


@pytest.mark.parametrize("kind", [CustodyHealthTrigger, CustodyWhitelistRequestTrigger])
def test_a_trigger_that_polls_first_ends_and_another_waits(away: Any, kind: Any) -> None:
    away(host="https://custody.invalid")
    given = {"custody_conn_id": "away", "poke_interval": 0.1}
    given |= {} if kind is CustodyHealthTrigger else {"request_id": "3711"}
    ended = asyncio.run(first(kind(**given)))
    assert ended["status"] == "error"
    assert ended["error"]["code"] == "unknown-host"
    # A sensor that was deferred has already polled in the worker, and passes a deadline to its trigger.
    ended = asyncio.run(first(kind(**given, deadline=time.time() + 0.5)))
    assert ended["status"] == "timeout"
    assert "This machine cannot resolve the host's name" in ended["message"]
