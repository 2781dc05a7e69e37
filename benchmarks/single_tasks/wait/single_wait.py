"""A DAG with one task, which waits for health, for ``functions.py``."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.sensors.health import CustodyHealthSensor

with DAG("single_wait", schedule=None) as dag:
    CustodyHealthSensor(task_id="wait", deferrable=True, poke_interval=1, timeout=60)
