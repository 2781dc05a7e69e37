"""
Start a DAG as soon as the custody service says that a transaction arrived.

An asset watcher reads the service's journal of webhook calls for as long as the DAG is switched on: one poll in the
triggerer for all watchers of a connection, and no task while nothing happens. Its cursor moves only when Airflow has
stored the event, so no call is lost while Airflow is down, and one may come twice.

What to change: the webhooks' types, the interval, and what ``tell`` does with the calls. What a call says is a message,
not a fact: check at the service what matters, as the example ``custody_on_request_status`` does.

Requires Airflow 3.3. This file defines no DAG on Airflow 2, which has no asset watchers.
"""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

try:
    from airflow.sdk import Asset, AssetWatcher
except ImportError:
    AssetWatcher = None

if AssetWatcher is not None:
    transactions_received = Asset(
        "custody_transactions_received",
        watchers=[
            AssetWatcher(
                name="custody_webhook_call_watcher",
                trigger=CustodyWebhookCallTrigger(
                    webhook_types=["transactionExternal.received", "transactionInternal.received"],
                    poke_interval=10,
                ),
            )
        ],
    )

    with DAG(
        dag_id="custody_watch_webhook_calls",
        schedule=[transactions_received],
        start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        tags=["custody", "example"],
        doc_md=__doc__,
    ) as dag:

        @task
        def tell(triggering_asset_events=None) -> list[str]:
            """Print the ids of the calls; replace this with your own work."""
            ids: list[str] = []
            for event in triggering_asset_events[transactions_received]:
                found = event.extra.get("payload", {})  # one that somebody has emitted by hand has none
                if gap := found.get("gap"):
                    print(f"calls may be lost: {gap}")
                # A call above 64 KiB comes as its id alone: airflow_custody.assets.calls_of reads it.
                ids += found.get("call_ids") or [call["id"] for call in found.get("calls", [])]
            print(f"calls: {', '.join(ids)}")
            return ids

        tell()
