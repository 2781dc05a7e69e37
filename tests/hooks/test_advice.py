"""Commands in advice name the connection of the task or page that displays them."""

from __future__ import annotations

import pytest
from support.airflow.airflow_runs import execute
from support.airflow.connections import connection_json

from airflow_custody.client.verification.trust import what_to_do
from airflow_custody.hooks._advice import name_connection
from airflow_custody.operators.webhook import CustodySetWebhookStatusOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("text", "conn_id", "named"),
    [
        ("Run 'custody check', and", "custody_default", "Run 'custody check', and"),
        ("`custody webhooks list` lists", "a", "`custody webhooks list --conn-id a` lists"),
        (what_to_do(["7"])[-69:], "a", "; `custody whitelist verify --id 7 --conn-id a` reports what is verified."),
        ("`custody check`", "a b;c", "`custody check --conn-id 'a b;c'`"),
        ("`custody check --conn-id b`", "a", "`custody check --conn-id b`"),
        ("`custody whitelist validate`", "a", "`custody whitelist validate`"),
        ("the custody check of 'custody health'", "a", "the custody check of 'custody health --conn-id a'"),
    ],
)
def test_each_command_names_the_connection(text: str, conn_id: str, named: str) -> None:
    assert name_connection(text, conn_id).endswith(named)


def test_a_task_names_its_connection(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_PROD", connection_json(sandbox))
    with pytest.raises(CustodyFailException) as caught:
        execute(
            lambda: CustodySetWebhookStatusOperator(
                task_id="enable", webhook_id=UUID, status="enabled", custody_conn_id="custody_prod"
            )
        )
    assert "`custody webhooks list --conn-id custody_prod`" in str(caught.value)
