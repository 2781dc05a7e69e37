"""
Write evidence of the whitelist each night, and raise an alarm if signatures do not prove all of it.

Every request that the service lists is verified with the connection's pinned keys. The result goes into one new file
for each run, with all that it takes to verify it again, on another machine and years later::

    custody whitelist verify --from FILE --superadmin-keys superadmins.pem --superadmin-minimum 2

If an address is not proved, the file is written, too, and then the task fails and ``raise_alarm`` is called. A service
that cannot be read leaves no file; the task is tried again, and ``raise_alarm`` is called after the last try.

The DAG only reads from the service. When you switch it on, Airflow also starts its most recent scheduled run. Listing
is an undocumented operation of the service.

Connections to create: ``custody_default``, with pinned keys. Airflow variable to set: ``custody_evidence``, an existing
folder on each worker, such as a mounted volume, or a URL in an object storage, such as ``s3://aws_default@bucket/custody``.

What to change: the schedule, and what ``raise_alarm`` does; or set ``on_failure_callback`` to a notifier of a provider,
such as ``airflow.providers.slack.notifications.slack.SlackNotifier``. Keep each file's SHA-256, which is in the log, in
XCom and in the asset event, where nobody can change it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyVerifyWhitelistOperator


def raise_alarm(context: dict) -> None:
    """Report the failure. REPLACE THIS WITH A MESSAGE TO THE PEOPLE ON CALL."""
    path = context["ti"].xcom_pull(task_ids=context["ti"].task_id, key="path")
    print(f"The whitelist is not proved: {context.get('exception')}")
    print(f"Evidence: {path or 'none was written'}")


with DAG(
    dag_id="custody_whitelist_evidence",
    schedule="0 3 * * *",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    verify = CustodyVerifyWhitelistOperator(
        task_id="verify",
        # A scheduled run's id has its date. A file is never replaced, so each try needs one of its own.
        path="{{ var.value.custody_evidence }}/{{ run_id }}-{{ ti.try_number }}.json",
        on_failure_callback=raise_alarm,
    )
