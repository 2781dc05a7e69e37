"""
Start scheduled work only if the custody service is healthy.

First, a sensor waits until the whole service is healthy, without occupying a worker slot. Then, right before the work,
an operator checks what the work depends on. If either of them fails, the work does not start.

The DAG runs on working days. When you switch the DAG on, Airflow also starts its most recent scheduled run.

What to change: the connection (``custody_conn_id``, by default ``custody_default``), the schedule, the filters of
``check``, and the task ``work``, which is a placeholder for your own.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sensors.health import CustodyHealthSensor

with DAG(
    dag_id="custody_health_gate",
    schedule="0 7 * * 1-5",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    wait_until_healthy = CustodyHealthSensor(
        task_id="wait_until_healthy",
        deferrable=True,
        poke_interval=30,
        timeout=60 * 60,
    )

    check = CustodyHealthCheckOperator(
        task_id="check",
        groups=["hsm", "blockchain"],
        # Each currency must be reported, and be healthy wherever it is reported.
        require_results=["ETH", "BTC"],
    )

    @task
    def work(verdict: dict) -> str:
        """Replace this with your own work; the verdict is the state of the service at the start."""
        return f"started with {verdict['total']} healthy checks, fetched at {verdict['fetched_at']}"

    wait_until_healthy >> check
    work(check.output)
