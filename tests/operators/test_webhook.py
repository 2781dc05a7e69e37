"""The operators for webhooks: status, deletion, and a new one, whose secret stays secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Connection
from support.airflow.airflow_runs import AIRFLOW, execute, failing_at_once, new_dag, redacted, run_dag
from support.airflow.apply_tries import before
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyError
from airflow_custody.hooks._lookup import read_connection
from airflow_custody.idempotency.search import Search
from airflow_custody.operators.webhook import (
    CustodyCreateWebhookOperator,
    CustodyDeleteWebhookOperator,
    CustodySetWebhookStatusOperator,
)
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection", "waits")
TYPE, URL = "requestStatus.updated", "https://hooks.example.com/custody"
SECRET = "kept-in-a-connection"


@pytest.fixture(autouse=True)
def secret_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the connection that holds the secret of a new webhook."""
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "generic", "password": SECRET}))


# --- status and deletion -----------------------------------------------------------------------------------


def set_status(webhook_id: Any, status: Any) -> Any:
    return execute(lambda: CustodySetWebhookStatusOperator(task_id="set", webhook_id=webhook_id, status=status))


def delete(webhook_id: Any) -> Any:
    return execute(lambda: CustodyDeleteWebhookOperator(task_id="delete", webhook_id=webhook_id))


def test_status_there_and_back(sandbox: Sandbox) -> None:
    webhook_id = sandbox.control.add_webhook()["id"]
    for status in ("disabled", "disabled", "enabled"):
        assert set_status(webhook_id, status) == {"webhook_id": webhook_id, "status": status}
        assert sandbox.control.webhooks()[0]["status"] == status


def test_delete_and_delete_again(sandbox: Sandbox, task_log: TaskLog) -> None:
    webhook_id = sandbox.control.add_webhook()["id"]
    assert delete(webhook_id) == {"webhook_id": webhook_id, "deleted": True}
    assert sandbox.control.webhooks() == []
    assert delete(webhook_id) == {"webhook_id": webhook_id, "deleted": False}
    assert "does not exist" in task_log.text


# --- creation ----------------------------------------------------------------------------------------------


def create(**kwargs: Any) -> str:
    arguments = {"webhook_type": TYPE, "url": URL, "lookup_wait": 0.2, **kwargs}
    webhook_id: str = execute(lambda: CustodyCreateWebhookOperator(task_id="create", **arguments))
    return webhook_id


def test_a_chosen_secret_comes_from_a_connection(sandbox: Sandbox, task_log: TaskLog) -> None:
    number = create(secret_conn_id="hook")
    (webhook,) = sandbox.control.webhooks()
    assert webhook["id"] == number
    (call,) = sandbox.control.request_log(method="POST")
    assert call["body"] == {"type": TYPE, "url": URL, "secret": "***"}
    assert SECRET not in task_log.text


def test_a_generated_secret_is_passed_to_store_secret(sandbox: Sandbox, task_log: TaskLog) -> None:
    kept: dict[str, str] = {}
    number = create(store_secret=kept.__setitem__)
    assert list(kept) == [number]
    assert kept[number] not in task_log.text
    assert redacted(kept[number]) == "***"


def test_a_webhook_whose_response_is_lost_is_found(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("drop", method="POST", work=True)
    number = create(secret_conn_id="hook")
    assert [each["id"] for each in sandbox.control.webhooks()] == [number]


def test_a_webhook_that_existed_before_is_not_taken_for_the_new_one(sandbox: Sandbox) -> None:
    create(secret_conn_id="hook")
    sandbox.control.add_fault("drop", method="POST")
    with pytest.raises(CustodyError, match="The request had no effect") as caught:
        create(secret_conn_id="hook")
    assert caught.value.retryable
    assert len(sandbox.control.webhooks()) == 1


@pytest.mark.parametrize("is_lost", [False, True], ids=["created", "unknown"])
def test_neither_log_nor_error_has_the_secret_parts_of_the_url(
    sandbox: Sandbox, task_log: TaskLog, is_lost: bool
) -> None:
    url = "https://user:PassW0rd9@hooks.example.com/in/T0KEN1?token=T0KEN2"
    if is_lost:
        sandbox.control.add_fault("drop", method="POST", path="/webhooks")
        with failing_at_once("webhook for requestStatus.updated to https://.*hooks.example.com/") as caught:
            create(secret_conn_id="hook", url=url)
    else:
        create(secret_conn_id="hook", url=url)
        assert sandbox.control.webhooks()[0]["url"] == url
    shown = task_log.text + (str(caught.value) if is_lost else "")
    assert "hooks.example.com" in shown
    assert not [each for each in ("PassW0rd9", "T0KEN1", "T0KEN2") if each in shown]


def test_a_generated_secret_that_is_lost_fails_the_task(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("drop", method="POST", work=True)
    kept: dict[str, str] = {}
    with failing_at_once("its secret is lost"):
        create(store_secret=kept.__setitem__)
    assert kept == {}
    assert len(sandbox.control.webhooks()) == 1


def test_a_connection_without_a_secret_sends_nothing(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "generic"}))
    with failing_at_once("no Password"):
        create(secret_conn_id="hook")
    assert sandbox.control.request_log() == []


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="Airflow 2 does not accept such a connection")
def test_a_secret_that_is_a_number_is_refused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: Any = {"password": 12345678901}
    connection = Connection(conn_id="hook", conn_type="generic", **fields)
    found = read_connection(connection)
    monkeypatch.setattr("airflow_custody.operators.webhook.find_connection", lambda *args, **kwargs: found)
    with failing_at_once("has a Password that is not text"):
        create(secret_conn_id="hook")
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    "arguments", [{}, {"secret_conn_id": "hook", "store_secret": print}], ids=["no place", "two places"]
)
def test_the_secret_comes_from_exactly_one_place(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="stored in one place"):
        CustodyCreateWebhookOperator(task_id="create", webhook_type=TYPE, url=URL, **arguments)


@pytest.mark.usefixtures("airflow_db")
def test_in_a_run_xcom_has_the_id_and_no_secret(sandbox: Sandbox) -> None:
    with new_dag() as dag:
        made = CustodyCreateWebhookOperator(task_id="made", webhook_type=TYPE, url=URL, secret_conn_id="hook")
        webhook_id: Any = made.output  # an XComArg: a str when the task runs
        CustodyDeleteWebhookOperator(task_id="delete", webhook_id=webhook_id)
    run = run_dag(dag)
    assert run.state == "success"
    assert run.xcom("delete")["deleted"] is True
    assert run.xcom("delete")["webhook_id"] == run.xcom("made")


def test_an_error_of_store_secret_does_not_show_the_secret(sandbox: Sandbox, task_log: TaskLog) -> None:
    def store(webhook_id: str, secret: str) -> None:
        given.append(secret)
        raise RuntimeError(f"cannot store {secret}")

    given: list[str] = []
    with pytest.raises(CustodyError, match=r"store_secret failed \(RuntimeError\)") as caught:
        create(store_secret=store)
    assert given[0] not in f"{caught.value!r} {caught.value.__context__!r} {caught.value.__cause__!r} {task_log.text}"
    assert sandbox.control.webhooks()[0]["id"] in str(caught.value)


def test_another_secret_than_the_one_that_was_given_is_noticed(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    webhook_id = "123e4567-e89b-12d3-a456-426614174000"
    body = {"webhook": {"id": webhook_id}, "secret": "quite-another-secret"}
    sandbox.control.add_fault("status", method="POST", status=200, body=body)
    assert create(secret_conn_id="hook") == webhook_id
    assert "with a secret that differs from the connection's" in caplog.text
    assert "quite-another-secret" not in caplog.text


@pytest.mark.parametrize(
    "url", [URL.replace(".com", ".com:443"), URL.replace("custody", "%63ustody")], ids=["its port", "an escape"]
)
def test_a_webhook_whose_url_the_service_writes_otherwise_is_not_created_twice(
    sandbox: Sandbox, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault("drop", method="POST", path="/webhooks")
    sandbox.control.add_webhook(type=TYPE, url=URL.replace("/custody", "/another"))
    before(monkeypatch, Search, "resolve", lambda: sandbox.control.add_webhook(type=TYPE, url=url))
    with failing_at_once("differs in: url|spelled differently"):
        create(secret_conn_id="hook")


def test_an_empty_listing_of_webhooks_proves_no_absence(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("drop", method="POST", path="/webhooks")
    with failing_at_once("proves nothing: it lists no webhooks at all"):
        create(secret_conn_id="hook")
