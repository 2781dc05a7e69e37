"""
Whitelist the addresses of a CSV file: one request for each, one signature for all, one report.

Each request is a mapped task instance of its own, with its own log and retries, and is created once. The approver signs
them together, at most a hundred at a time; a batch is signed as a whole or not at all. The report is an asset: its
event holds the ids, and another DAG can be scheduled on it.

Whoever may change the file decides what is asked for: keep it where changes are reviewed. ``addresses.csv`` beside this
file is a sample with addresses from public specifications.

Change: the file (param ``file``), the schedule. Make the connections of the approver (``custody_first_approver``) and
of the approver's P-256 key (``custody_first_key``, extra ``private_key``). Approving is published knowledge of the
service, not part of the interface this package was given.
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

AT_ONCE = 100
requested = Asset("custody-whitelist-batch")

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
        """Read the file: the operator's arguments for each row."""
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
    def batches(described: list[dict]) -> list[dict]:
        """Cut what was asked for into batches that can be signed at once."""
        described = list(described)
        return [
            {"request_ids": [each["id"] for each in batch], "expected": batch}
            for batch in (described[start : start + AT_ONCE] for start in range(0, len(described), AT_ONCE))
        ]

    # [START howto_custody_whitelist_batch]
    sign = CustodyApproveWhitelistRequestsOperator.partial(
        task_id="sign",
        custody_conn_id="custody_first_approver",
        signer=ConnectionSigner("custody_first_key"),
        max_active_tis_per_dagrun=1,
    ).expand_kwargs(batches(create_requests.output["request"]))
    # [END howto_custody_whitelist_batch]

    @task(outlets=[requested])
    def report(described: list[dict], *, outlet_events: dict | None = None) -> dict[str, str]:
        """Put the ids next to the labels, and into the asset's event."""
        ids = {each["label"]: each["id"] for each in described}
        outlet_events[requested].extra = {"ids": list(ids.values())}
        return ids

    check_health >> create_requests
    sign >> report(create_requests.output["request"])
