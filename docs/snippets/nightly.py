"""A bank's nightly whitelist, in one task group. Tests run it."""

from datetime import datetime, timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier

from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup

alert = SlackWebhookNotifier(text="Failed: {{ ti.task_id }} <{{ ti.log_url }}|Log>")

with DAG(
    "custody_whitelist_nightly",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1), "on_failure_callback": alert},
) as dag:
    CustodyWhitelistFileTaskGroup(
        path="custody_whitelist.yaml",
        # Each signing user, and the key to sign with.
        signers={f"custody_{name}_signer": ConnectionSigner(f"custody_{name}_key") for name in ("first", "second")},
        assigned_users=[{"id": "carol", "name": "carol"}],
        notifiers=[SlackWebhookNotifier(text="{{ task.subject }} <{{ task.form_url(ti) }}|Respond>")],
        response_timeout=timedelta(hours=8),
        replace=True,
        evidence="{{ var.value.custody_evidence }}",
        prove=True,
    )
