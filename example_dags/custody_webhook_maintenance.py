"""
Switch a webhook off for the time of a maintenance, and on again whatever happens to it.

Setup and teardown: the webhook is enabled again also if the work fails. The run fails if the work fails, and also if
the webhook cannot be enabled again: one that stays off is not noticed otherwise.

The webhook's UUID comes from the Airflow Variable ``custody_webhook_id``. It is enabled at the end even if it was
disabled before: the operations this package has cannot ask for its status.

Change: the schedule, and put your own work in place of ``maintain``.
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
    # [START howto_custody_webhook_setup_teardown]
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
    # [END howto_custody_webhook_setup_teardown]

    @task
    def maintain(webhook: dict) -> None:
        """Stand for your own work."""
        print(f"webhook {webhook['webhook_id']} is {webhook['status']}: nobody is called while this runs")

    @task
    def done() -> str:
        """Fail with the work: a run is judged by its last tasks, and the teardown succeeds when the work does not."""
        return "maintenance done"

    maintain(disable.output) >> [enable, done()]
