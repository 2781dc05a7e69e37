"""Two watchers of one connection, one that does it wrong, and a task that reads again and again."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher
from event_classes import ReadOperator, TooEarlyTrigger
from event_names import CONNECTION, FIRST, SECOND, TOO_EARLY, WEBHOOKS

from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

START = datetime(2024, 1, 1, tzinfo=timezone.utc)

for name in (FIRST, SECOND, TOO_EARLY):
    trigger_class = TooEarlyTrigger if name == TOO_EARLY else CustodyWebhookCallTrigger
    trigger = trigger_class(
        webhook_ids=WEBHOOKS[name],
        start="beginning",
        poke_interval=1.0,
        custody_conn_id=CONNECTION,
        cursor_name=name,
    )
    asset = Asset(name, watchers=[AssetWatcher(name=f"{name}_watcher", trigger=trigger)])
    with DAG(name, start_date=START, schedule=[asset]) as dag:
        EmptyOperator(task_id="started")
    globals()[name] = dag

with DAG("read", start_date=START, schedule="@continuous", max_active_runs=1, catchup=False) as reading:
    ReadOperator(
        task_id="read",
        start="beginning",
        on_gap="continue",
        custody_conn_id=CONNECTION,
        retries=1000,
        retry_delay=timedelta(seconds=1),
    )
