"""After: the same request with this package. Tests run this DAG."""

# [START howto_migrate_after]
from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

with DAG(
    dag_id="custody_after",
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
) as dag:
    create = CustodyCreateWhitelistRequestOperator(
        task_id="create",
        label="Treasury cold wallet",
        address="0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        blockchain="ETH",
    )
    wait = CustodyWhitelistRequestSensor(
        task_id="wait",
        request_id=create.output,
        expected=create.output["request"],
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )
# [END howto_migrate_after]
