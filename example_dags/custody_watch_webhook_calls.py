"""
Start a DAG as soon as a webhook call reports an incoming transaction.

An asset watcher reads the service's journal of webhook calls as long as the DAG is switched on. All watchers of a
connection share one poll in the triggerer, and no task runs until there is a new call. The cursor moves only when
Airflow has stored the event. So no call is lost while Airflow is down, but a call may arrive twice.

What to change: the webhook types, the interval, and the task ``handle``. Calls are not signed: before you act on one,
check its facts at the service, as the example ``custody_on_currency_status`` does.

Requires Airflow 3.3, because earlier versions do not tell a watcher that its events are stored. On earlier versions,
this file defines no DAG.
"""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

try:
    # Airflow 3.0 to 3.2 have asset watchers, but not this module.
    import airflow.triggers.shared_stream  # noqa: F401
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
        def handle(triggering_asset_events=None) -> list[str]:
            """Print the ids of the calls; replace this with your own work."""
            ids: list[str] = []
            for event in triggering_asset_events[transactions_received]:
                found = event.extra.get("payload", {})  # a manually created event has no payload
                if gap := found.get("gap"):
                    print(f"calls may be lost: {gap}")
                # A call above 64 KiB arrives as an id only: airflow_custody.assets.calls_of reads the call.
                ids += found.get("call_ids") or [call["id"] for call in found.get("calls", [])]
            print(f"calls: {', '.join(ids)}")
            return ids

        handle()
