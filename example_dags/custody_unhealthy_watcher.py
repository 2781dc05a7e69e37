"""
Start a DAG when the custody service turns unhealthy.

An asset watcher polls the service as long as the DAG is switched on. It starts one run each time the service turns
from healthy to unhealthy, not one for each poll. A service that does not respond counts as unhealthy.

What to change: the checks to watch (the trigger's filters), the interval, and the task ``alert``.

Requires Airflow 3. On Airflow 2, which has no asset watchers, this file defines no DAG.
"""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.triggers.health import CustodyHealthTrigger

try:
    from airflow.sdk import Asset, AssetWatcher
except ImportError:
    AssetWatcher = None

if AssetWatcher is not None:
    custody_unhealthy = Asset(
        "custody_unhealthy",
        watchers=[
            AssetWatcher(
                name="custody_health_watcher",
                trigger=CustodyHealthTrigger(fire_on="unhealthy", poke_interval=10),
            )
        ],
    )

    with DAG(
        dag_id="custody_unhealthy_watcher",
        schedule=[custody_unhealthy],
        start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        tags=["custody", "example"],
        doc_md=__doc__,
    ) as dag:

        @task
        def alert(triggering_asset_events=None) -> list[str]:
            """Print why the service is unhealthy; replace this with your own alert."""
            events = triggering_asset_events[custody_unhealthy]
            reasons = [event.extra["payload"]["reason"] for event in events]
            for reason in reasons:
                print(f"custody service: {reason}")
            return reasons

        alert()
