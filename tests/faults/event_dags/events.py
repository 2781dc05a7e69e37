"""Two watchers of one connection, and a task that reads again and again."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher
from event_journal import CONNECTION, FIRST, PID_FILE, SECOND, WEBHOOKS
from processes import write_pids

from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

if TYPE_CHECKING:
    from airflow_custody.hooks.custody import CustodyHook

START = datetime(2024, 1, 1, tzinfo=timezone.utc)


class ReadOperator(CustodyReadWebhookCallsOperator):
    """The reading operator, which says in which process it runs, and takes a little longer."""

    def _run(self, context: Any, hook: CustodyHook) -> dict[str, Any]:
        write_pids(Path(os.environ["FAULTS_FOLDER"]) / PID_FILE)
        try:
            return super()._run(context, hook)
        finally:
            # Wait, to make it likelier that the task is killed between its reading and the storing of its event.
            time.sleep(0.5)


for name in (FIRST, SECOND):
    trigger = CustodyWebhookCallTrigger(
        webhook_ids=WEBHOOKS[name],
        start="beginning",
        poke_interval=1.0,
        custody_conn_id=CONNECTION,
        cursor_name=name,
    )
    asset = Asset(name, watchers=[AssetWatcher(name=f"{name}_watcher", trigger=trigger)])
    with DAG(name, start_date=START, schedule=[asset]):
        EmptyOperator(task_id="started")

with DAG("read", start_date=START, schedule="@continuous", max_active_runs=1, catchup=False):
    ReadOperator(
        task_id="read",
        start="beginning",
        on_gap="continue",
        custody_conn_id=CONNECTION,
        retries=1000,
        retry_delay=timedelta(seconds=1),
    )
