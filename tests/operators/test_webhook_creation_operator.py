from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow_runs import FakeTaskInstance, execute, redacted, run_tasks
from conftest import connection_json

from airflow_custody.operators.webhook_creation import CustodyCreateWebhookOperator
from airflow_custody.sandbox import Sandbox

TYPE, URL = "requestStatus.updated", "https://hooks.example.com/custody"
SECRET = "kept-in-a-connection"


@pytest.fixture(autouse=True)
def connections(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=1))
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "generic", "password": SECRET}))


def create(try_number: int = 1, **kwargs: Any) -> str:
    arguments = {"webhook_type": TYPE, "url": URL, "lookup_wait": 0.2, **kwargs}
    return execute(lambda: CustodyCreateWebhookOperator(task_id="create", **arguments), ti=FakeTaskInstance(try_number))


def test_a_secret_of_ones_own_comes_from_a_connection(sandbox: Sandbox, task_log):
    number = create(secret_conn_id="hook")
    (webhook,) = sandbox.control.webhooks()
    assert webhook["id"] == number
    (call,) = sandbox.control.received(method="POST")
    assert call["body"] == {"type": TYPE, "url": URL, "secret": SECRET}
    assert SECRET not in task_log.text


def test_a_made_up_secret_goes_where_the_user_says(sandbox: Sandbox, task_log):
    kept: dict[str, str] = {}
    number = create(store_secret=kept.__setitem__)
    assert list(kept) == [number]
    assert kept[number] not in task_log.text
    assert redacted(kept[number]) == "***"


@pytest.mark.parametrize("fault", [{"answer": "drop"}, {"answer": "status", "status": 500}], ids=str)
def test_a_lost_answer_is_found_out(sandbox: Sandbox, fault):
    sandbox.control.order_fault(method="POST", **fault, work=True)
    number = create(secret_conn_id="hook")
    assert [each["id"] for each in sandbox.control.webhooks()] == [number]


def test_a_made_up_secret_that_was_lost_is_for_a_person(sandbox: Sandbox):
    sandbox.control.order_fault("drop", method="POST", work=True)
    kept: dict[str, str] = {}
    with pytest.raises(AirflowFailException, match="its secret was shown once and is lost"):
        create(store_secret=kept.__setitem__)
    assert kept == {}
    assert len(sandbox.control.webhooks()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "http://hooks.example.com", "secret_conn_id": "hook"},
        {"url": "", "secret_conn_id": "hook"},
        {"webhook_type": "something.else", "secret_conn_id": "hook"},
    ],
)
def test_what_is_no_webhook_is_refused(sandbox: Sandbox, arguments):
    with pytest.raises(AirflowFailException):
        create(**arguments)
    assert sandbox.control.webhooks() == []


def test_a_connection_without_a_secret_is_refused(sandbox: Sandbox, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "generic"}))
    with pytest.raises(AirflowFailException, match="no Password"):
        create(secret_conn_id="hook")
    assert sandbox.control.received() == []


@pytest.mark.parametrize("arguments", [{}, {"secret_conn_id": "hook", "store_secret": print}], ids=str)
def test_the_secret_has_one_place(arguments):
    with pytest.raises(ValueError, match="kept somewhere"):
        CustodyCreateWebhookOperator(task_id="create", webhook_type=TYPE, url=URL, **arguments)


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_xcom_has_the_id_and_no_secret(sandbox: Sandbox):
    run = run_tasks(
        f"""
from airflow_custody.operators.webhook_creation import CustodyCreateWebhookOperator
made = CustodyCreateWebhookOperator(task_id="made", webhook_type={TYPE!r}, url={URL!r}, secret_conn_id="hook")
CustodyDeleteWebhookOperator(task_id="delete", webhook_id=made.output)
"""
    )
    assert run.state == "success"
    assert run.xcom("delete")["deleted"] is True
    assert run.xcom("delete")["webhook_id"] == run.xcom("made")
