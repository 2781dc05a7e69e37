"""
Compare the service with the whitelist file every morning, and fail if they differ.

The task plans, but changes nothing: it compares every request that the service lists with the file. It fails if a row
is missing, differs or was rejected, or if the service has a request that is unreadable or not in the file. Pending
requests do not make the task fail. The whole plan is in the log, and a report of it in XCom.

If the connection pins super-administrators' keys, the task also verifies the signatures. It then fails if the
signatures do not prove a request, such as an unsigned address that the service lists as whitelisted.

The DAG only reads. When you switch it on, Airflow also starts its most recent scheduled run. Listing is an undocumented
operation of the service.

What to change: the schedule, the file (now that of ``custody_whitelist_as_code``), and a notification on failure.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator

with DAG(
    dag_id="custody_whitelist_reconciliation",
    schedule="0 6 * * *",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    reconcile = CustodyPlanWhitelistOperator(
        task_id="reconcile",
        path="custody_whitelist.yaml",
        fail_on_changes=True,
    )
