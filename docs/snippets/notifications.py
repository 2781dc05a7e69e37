"""Situations in which people are notified, each a DAG. Tests run them."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, AssetWatcher, DeadlineAlert, DeadlineReference, SyncCallback  # type: ignore[attr-defined]

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup
from airflow_custody.triggers.health import CustodyHealthTrigger

with DAG(dag_id="custody_notify_approvers", schedule=None) as approve_plan:
    CustodyWhitelistFileTaskGroup(
        path="custody_whitelist.yaml",
        signers={
            "custody_first_signer": ConnectionSigner("custody_first_key"),
            "custody_second_signer": ConnectionSigner("custody_second_key"),
        },
        notifiers=[
            SlackWebhookNotifier(text="{{ task.subject }} <{{ task.form_url(ti) }}|Respond>"),
            SmtpNotifier(
                to="approvers@example.com",
                subject="{{ task.subject }}",
                html_content='<a href="{{ task.form_url(ti) }}">Respond</a>',
            ),
        ],
    )

with DAG(dag_id="custody_notify_approvers_of_a_request", schedule=None) as approve_request:
    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="Supplier Bremen",
        address="0xde709f2102306220921060314715629080e2fb77",
        blockchain="ETH",
    )

    decide = ApprovalOperator(
        task_id="decide",
        subject="Sign request {{ ti.xcom_pull(task_ids='create_request') }}?",
        response_timeout=timedelta(hours=8),
        notifiers=[SlackWebhookNotifier(text="{{ task.subject }} <{{ ti.log_url }}|Respond>")],
    )
    create_request >> decide

custody_unhealthy = Asset(
    "custody_unhealthy",
    watchers=[
        AssetWatcher(
            name="custody_health_watcher",
            trigger=CustodyHealthTrigger(fire_on="unhealthy", poke_interval=10),
        )
    ],
)

with DAG(dag_id="custody_unhealthy_for_ten_minutes", schedule=[custody_unhealthy]) as unhealthy:
    CustodyHealthSensor(
        task_id="wait_until_healthy",
        deferrable=True,
        poke_interval=30,
        timeout=10 * 60,
        on_failure_callback=SlackWebhookNotifier(
            text="Custody service: unhealthy for ten minutes, or cannot be checked. <{{ ti.log_url }}|Log>"
        ),
    )

AIRFLOW_URL = "https://airflow.example.com"

with DAG(
    dag_id="custody_signed_within_four_hours",
    schedule=None,
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=4),
        callback=SyncCallback(
            SlackWebhookNotifier,
            kwargs={
                "text": "Not completed within four hours: "
                f"<{AIRFLOW_URL}/dags/{{{{ dag_run.dag_id }}}}/runs/{{{{ dag_run.dag_run_id }}}}|run>"
            },
        ),
    ),
) as signed_in_time:
    CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="Supplier Bremen",
        address="0xde709f2102306220921060314715629080e2fb77",
        blockchain="ETH",
    )
