"""A DAG with one task, which creates a request, for ``functions.py``."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator

with DAG("single_create", schedule=None) as dag:
    CustodyCreateWhitelistRequestOperator(
        task_id="create", label="Treasury", address="0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", blockchain="ETH"
    )
