"""DAGs of one task each, to see what one task runs."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.health import CustodyHealthSensor

with DAG("single_create", schedule=None) as create:
    CustodyCreateWhitelistRequestOperator(
        task_id="create", label="Treasury", address="0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", blockchain="ETH"
    )

with DAG("single_wait", schedule=None) as wait:
    CustodyHealthSensor(task_id="wait", deferrable=True, poke_interval=1, timeout=60)
