"""
Compare the service with the whitelist file every morning, and fail if they differ.

A plan that changes nothing: every request that the service lists is compared with the file. A row that is missing,
differs or was rejected, a request that the file does not have, or one that cannot be read fails the task; requests that
are pending do not. The log has the whole plan, and XCom a report of it. If the connection pins super-administrators'
keys, the signatures are verified, too, and whatever they do not prove is named and fails the task: an address that the
service shows as whitelisted and that nobody signed.

The DAG only reads. When you switch it on, Airflow also starts its most recent scheduled run. Listing is an undocumented
operation of the service.

What to change: the file, which is the one of ``custody_whitelist_as_code``, the schedule, and whom a failure tells.
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
