"""
Send an alert when the custody service stays unhealthy for ten minutes.

An asset watcher polls the service as long as the DAG is switched on. It starts one run each time the service turns
from healthy to unhealthy, not one for each poll. A service that does not respond counts as unhealthy.

The run prints the reason, and waits until the service is healthy again. After ten minutes, the run fails and calls
``notify`` once. If the service cannot be checked, for instance because of a wrong token, it does not wait: it fails and
calls ``notify`` at once.

What to change: the checks to watch (give the trigger and the sensor the same filters), the time-out, and ``notify``:
use your provider's notifier instead, such as ``on_failure_callback=SlackWebhookNotifier(text="...")``.

Requires Airflow 3. On Airflow 2, which has no asset watchers, this file defines no DAG.
"""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.sensors.health import CustodyHealthSensor
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

    def notify(context: dict) -> None:
        """Print a link to the log. Replace this with your own notification."""
        print(f"The custody service is unhealthy or cannot be checked: {context['ti'].log_url}")

    with DAG(
        dag_id="custody_unhealthy_watcher",
        schedule=[custody_unhealthy],
        start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        tags=["custody", "example"],
        doc_md=__doc__,
    ) as dag:

        @task
        def print_reasons(triggering_asset_events=None) -> list[str]:
            """Print why the service is unhealthy."""
            events = triggering_asset_events[custody_unhealthy]
            reasons = [event.extra["payload"]["reason"] for event in events]
            for reason in reasons:
                print(f"custody service: {reason}")
            return reasons

        CustodyHealthSensor(
            task_id="wait_until_healthy",
            deferrable=True,
            poke_interval=30,
            timeout=10 * 60,
            on_failure_callback=notify,
        )
        print_reasons()
