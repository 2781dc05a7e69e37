"""
Write evidence of the whitelist each night, and raise an alarm if an address is not verified.

The task verifies every request that the service lists, with the connection's pinned keys. Each run writes the result to
a new file. The file contains all that is needed to repeat the verification, on another machine or years later::

    custody whitelist verify --from FILE --superadmin-keys superadmins.pem --superadmin-minimum 2

If an address is not verified, the task still writes the file. Then it fails, and ``raise_alarm`` is called. If the
service cannot be read, no file is written and the task is retried. ``raise_alarm`` is called after the last try.

The DAG only reads from the service. When you switch it on, Airflow also starts its most recent scheduled run. Listing
is an undocumented operation of the service.

Connections to create: ``custody_default``, with pinned keys. Airflow variable to set: ``custody_evidence``, an existing
folder on each worker, such as a mounted volume, or a URL in an object storage, such as
``s3://aws_default@bucket/custody``.

What to change: the schedule, and the body of ``raise_alarm``. Or set ``on_failure_callback`` to a provider's notifier,
such as ``airflow.providers.slack.notifications.slack.SlackNotifier``. Each file's SHA-256 is in the log, in XCom and in
the asset event: store it where it cannot be changed.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyVerifyWhitelistOperator


def raise_alarm(context: dict) -> None:
    """Report the failure. REPLACE THIS WITH A MESSAGE TO THE PEOPLE ON CALL."""
    path = context["ti"].xcom_pull(task_ids=context["ti"].task_id, key="path")
    print(f"Verification failed: {context.get('exception')}")
    print(f"Evidence: {path or 'not written'}")


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
        # A scheduled run's id contains its date. Files are never replaced, so each try needs its own file.
        path="{{ var.value.custody_evidence }}/{{ run_id }}-{{ ti.try_number }}.json",
        on_failure_callback=raise_alarm,
    )
