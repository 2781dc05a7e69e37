"""Before: a whitelisting request with Airflow's HTTP provider. Tests run this DAG, and show what it does."""

# [START howto_migrate_before]
from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sdk import DAG

HEADERS = {"Authorization": "Bearer {{ conn.custody_http.password }}", "Content-Type": "application/json"}

with DAG(
    dag_id="custody_before",
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
) as dag:
    create = HttpOperator(
        task_id="create",
        http_conn_id="custody_http",
        endpoint="api/rest/v1/whitelists/addresses",
        headers=HEADERS,
        data=json.dumps(
            {
                "label": "Treasury cold wallet",
                "address": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
                "blockchain": "ETH",
            }
        ),
        response_filter=lambda response: response.json()["result"]["id"],
    )
    wait = HttpSensor(
        task_id="wait",
        http_conn_id="custody_http",
        endpoint="api/rest/v1/whitelists/addresses/{{ ti.xcom_pull(task_ids='create') }}",
        headers=HEADERS,
        response_check=lambda response: response.json()["result"]["status"] == "APPROVED",
        poke_interval=5,
        timeout=24 * 60 * 60,
    )
    create >> wait
# [END howto_migrate_before]
