"""A service that offers only the four documented operations is enough for whatever needs only these."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import chain
from support.airflow.airflow_runs import new_dag, run_dag
from support.airflow.task_log import TaskLog

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import CustodyDeleteWebhookOperator, CustodySetWebhookStatusOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("response", [None, "", {"webhook": {}}], ids=str)
def test_the_four_operations(sandbox: Sandbox, task_log: TaskLog, response: Any) -> None:
    webhook_id = sandbox.control.add_webhook()["id"]
    sandbox.control.configure(operations="contract", webhook_response=response)
    with new_dag() as dag:
        chain(
            CustodyHealthSensor(task_id="wait", poke_interval=0.1, timeout=600, deferrable=True),
            CustodyHealthCheckOperator(task_id="gate"),
            CustodyCreateWhitelistRequestOperator(
                task_id="create", label="Treasury", address="0x" + "ab" * 20, blockchain="ETH"
            ),
            CustodySetWebhookStatusOperator(task_id="disable", webhook_id=webhook_id, status="disabled"),
            CustodySetWebhookStatusOperator(task_id="enable", webhook_id=webhook_id, status="enabled"),
            CustodyDeleteWebhookOperator(task_id="delete", webhook_id=webhook_id),
        )
    run = run_dag(dag)
    assert run.state == "success", task_log.text[-4000:]
    (request,) = sandbox.control.whitelist_requests()
    assert str(run.xcom("create")) == request["id"]
    assert run.xcom("gate")["healthy"] is True
    assert run.xcom("enable")["status"] == "enabled"
    assert run.xcom("delete")["deleted"] is True
    assert sandbox.control.webhooks() == []
    writes = [each["method"] for each in sandbox.control.request_log() if each["method"] != "GET"]
    assert writes == ["POST", "PATCH", "PATCH", "DELETE"]
    assert ("response's body has an unknown form" in task_log.text) is (bool(response))
