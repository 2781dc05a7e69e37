from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow_runs import execute, run_tasks

from airflow_custody.operators.webhook import CustodyDeleteWebhookOperator, CustodySetWebhookStatusOperator
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")


def set_status(webhook_id, status):
    return execute(lambda: CustodySetWebhookStatusOperator(task_id="set", webhook_id=webhook_id, status=status))


def delete(webhook_id):
    return execute(lambda: CustodyDeleteWebhookOperator(task_id="delete", webhook_id=webhook_id))


def test_status_there_and_back(sandbox: Sandbox):
    webhook_id = sandbox.control.add_webhook()["id"]
    for status in ("disabled", "disabled", "enabled"):
        assert set_status(webhook_id, status) == {"webhook_id": webhook_id, "status": status}
        assert sandbox.control.webhooks()[0]["status"] == status


@pytest.mark.parametrize("bad", ["", "../whitelists", "not-a-uuid", "None", None, "{" + "1" * 36 + "}"])
def test_an_id_that_is_no_uuid_sends_nothing(sandbox: Sandbox, bad):
    for call in (lambda: set_status(bad, "enabled"), lambda: delete(bad)):
        with pytest.raises(AirflowFailException, match="UUID"):
            call()
    assert sandbox.control.received() == []


def test_a_status_that_is_none_sends_nothing(sandbox: Sandbox):
    with pytest.raises(AirflowFailException, match="'enabled' or 'disabled'"):
        set_status(sandbox.control.add_webhook()["id"], "on")
    assert sandbox.control.received() == []


def test_status_of_a_webhook_that_is_not_there_fails(sandbox: Sandbox):
    with pytest.raises(AirflowFailException, match="No webhook configuration has this id"):
        set_status("00000000-0000-0000-0000-000000000000", "enabled")


def test_delete_and_delete_again(sandbox: Sandbox, task_log):
    webhook_id = sandbox.control.add_webhook()["id"]
    assert delete(webhook_id) == {"webhook_id": webhook_id, "deleted": True}
    assert sandbox.control.webhooks() == []
    assert delete(webhook_id) == {"webhook_id": webhook_id, "deleted": False}
    assert "is not there" in task_log.text


def test_a_gateways_404_page_is_not_taken_for_a_deletion(sandbox: Sandbox):
    webhook_id = sandbox.control.add_webhook()["id"]
    sandbox.control.order_fault("html", status=404)
    with pytest.raises(AirflowFailException):
        delete(webhook_id)


def test_a_gateways_page_with_200_is_not_a_success(sandbox: Sandbox):
    webhook_id = sandbox.control.add_webhook()["id"]
    sandbox.control.order_fault("html", times=None)
    with pytest.raises(AirflowFailException, match="not an answer of the custody service"):
        set_status(webhook_id, "disabled")
    with pytest.raises(AirflowFailException, match="not an answer of the custody service"):
        delete(webhook_id)


@pytest.mark.usefixtures("airflow_db")
def test_as_setup_and_teardown_around_work_that_fails(sandbox: Sandbox):
    webhook_id = sandbox.control.add_webhook()["id"]
    run = run_tasks(
        f"""
off = CustodySetWebhookStatusOperator(task_id="off", webhook_id={webhook_id!r}, status="disabled").as_setup()
on = CustodySetWebhookStatusOperator(task_id="on", webhook_id={webhook_id!r}, status="enabled").as_teardown(setups=off)
@task
def work():
    raise RuntimeError("the work fails")
off >> work() >> on
"""
    )
    assert run.state_of("work") == "failed"
    assert run.state_of("on") == "success"
    assert sandbox.control.webhooks()[0]["status"] == "enabled"
    assert [each["body"]["status"] for each in sandbox.control.received("PATCH")] == ["disabled", "enabled"]
