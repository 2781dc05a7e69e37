"""
Disable a webhook during maintenance, and enable it afterwards, even if the work fails.

The two tasks are setup and teardown. The run fails if the work fails, and also if the webhook cannot be enabled again:
otherwise, a webhook that stays disabled would go unnoticed.

The webhook's UUID comes from the Airflow Variable ``custody_webhook_id``. At the end the webhook is enabled, even if it
was disabled before the run.

The DAG runs on Sundays. **When you switch the DAG on, Airflow also starts its most recent scheduled run**: the webhook
is disabled at once, for as long as the work takes.

What to change: the schedule, and the task ``maintain``, which is a placeholder for your own work.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.operators.webhook import CustodySetWebhookStatusOperator

with DAG(
    dag_id="custody_webhook_maintenance",
    schedule="0 3 * * 0",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    disable = CustodySetWebhookStatusOperator(
        task_id="disable_webhook",
        webhook_id="{{ var.value.custody_webhook_id }}",
        status="disabled",
    ).as_setup()

    enable = CustodySetWebhookStatusOperator(
        task_id="enable_webhook",
        webhook_id="{{ var.value.custody_webhook_id }}",
        status="enabled",
        retries=10,
    ).as_teardown(setups=disable, on_failure_fail_dagrun=True)

    @task
    def maintain(webhook: dict) -> None:
        """Replace this with your own work."""
        print(f"webhook {webhook['webhook_id']} is {webhook['status']}: it is not called while this task runs")

    @task
    def done() -> str:
        """Fail the run if the work fails. With the teardown alone as its last task, the run would succeed."""
        return "maintenance done"

    maintain(disable.output) >> [enable, done()]
