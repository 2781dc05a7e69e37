"""
Whitelist the addresses in a CSV file: one request for each address, one signature for all, one report.

Each request is a mapped task instance, with its own log and retries, and is created once. The approver signs up to a
hundred requests together; a batch is signed as a whole or not at all. The report is an asset: its event holds the ids,
and you can schedule another DAG on it.

Whoever can change the file decides which addresses are requested, so keep it where changes are reviewed.
``addresses.csv`` next to this file is a sample with addresses from public specifications.

What to change: the file (param ``file``) and the schedule. Connections to create: the approver's user
(``custody_first_approver``), and the approver's P-256 key (``custody_first_key``, extra ``private_key``).
Approving is an undocumented operation of the service.
"""

from __future__ import annotations

import csv
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, Asset, Param, task

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestsOperator
from airflow_custody.signers import ConnectionSigner

MAX_BATCH_SIZE = 100
whitelist_batch = Asset("custody-whitelist-batch")

with DAG(
    dag_id="custody_whitelist_batch",
    schedule="0 7 * * 1",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={"file": Param(str(Path(__file__).with_name("addresses.csv")), type="string", minLength=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    check_health = CustodyHealthCheckOperator(task_id="check_health")

    @task
    def addresses(params: dict | None = None) -> list[dict]:
        """Read the file and return the operator's arguments for each row."""
        with Path(params["file"]).open(encoding="utf-8", newline="") as file:
            rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]
        for row in rows:
            if "linked_wallet_ids" in row:
                row["linked_wallet_ids"] = row["linked_wallet_ids"].split(";")
        return rows

    create_requests = CustodyCreateWhitelistRequestOperator.partial(
        task_id="create_requests",
        map_index_template="{{ task.address_label }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(addresses())

    @task
    def batches(requests: list[dict]) -> list[dict]:
        """Split the requests into batches that can be signed together."""
        requests = list(requests)
        return [
            {"request_ids": [request["id"] for request in batch], "expected": batch}
            for batch in (requests[i : i + MAX_BATCH_SIZE] for i in range(0, len(requests), MAX_BATCH_SIZE))
        ]

    # [START howto_custody_whitelist_batch]
    sign = CustodyApproveWhitelistRequestsOperator.partial(
        task_id="sign",
        custody_conn_id="custody_first_approver",
        signer=ConnectionSigner("custody_first_key"),
        max_active_tis_per_dagrun=1,
    ).expand_kwargs(batches(create_requests.output["request"]))
    # [END howto_custody_whitelist_batch]

    @task(outlets=[whitelist_batch])
    def report(requests: list[dict], *, outlet_events: dict | None = None) -> dict[str, str]:
        """Return the id for each label, and add the ids to the asset's event."""
        ids = {request["label"]: request["id"] for request in requests}
        outlet_events[whitelist_batch].extra = {"ids": list(ids.values())}
        return ids

    check_health >> create_requests
    sign >> report(create_requests.output["request"])
