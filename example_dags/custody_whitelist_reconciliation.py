"""
Compare the addresses that are in effect at the service with a list in a CSV file, and fail if they differ.

Every request is verified against its hash first. Then ``compare`` logs a table of the differences, and pushes them in
full to XCom under ``differences``: addresses that are missing at the service, that are not on the list, or that differ
in a field. ``addresses.csv`` next to this file is a sample, which agrees with the service after a run of
``custody_whitelist_batch``. Finding requests is an undocumented operation of the service.

The DAG only reads, and runs daily. When you switch it on, Airflow also starts its most recent scheduled run.

What to change: the default of the param ``file``, the schedule, ``EFFECTIVE_STATUSES``, and what happens when there are
differences.
"""

from __future__ import annotations

import csv
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, Param, task

from airflow_custody.hooks.custody import CustodyHook

#: What your service calls the status of a request that is in effect. Its words are not published.
EFFECTIVE_STATUSES = ("approved",)

#: The columns that the file may have, by the keys of a request's payload.
COLUMNS = {
    "currency": "blockchain",
    "network": "network",
    "addressType": "address_type",
    "address": "address",
    "memo": "memo",
    "label": "label",
    "customerId": "customer_id",
    "exchangeAccountId": "exchange_account_id",
    "linkedInternalAddresses": "linked_internal_address_ids",
    "linkedWallets": "linked_wallet_ids",
    "contractType": "contract_type",
}
LISTS = ("linked_internal_address_ids", "linked_wallet_ids")
REQUIRED = {"label", "blockchain", "address"}


def comparable(row: dict) -> dict:
    """Return a row without empty fields, in a form in which equal rows are equal."""
    given = {name: sorted(value) if name in LISTS else value for name, value in row.items() if value}
    # The service may say that an address is "individual" where nothing was said.
    return {"address_type": "individual", **given, "blockchain": row["blockchain"].upper()}


def by_address(rows: list[dict]) -> dict[tuple, list[dict]]:
    """Return the rows for each chain, address and memo."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["blockchain"], row["address"], row.get("memo", "")), []).append(row)
    return groups


def shorten(text: str, width: int) -> str:
    """Return a text that fits the width: what is too long loses its middle."""
    half = width // 2
    return text if len(text) <= width else f"{text[: width - half - 1]}…{text[-half:]}"


with DAG(
    dag_id="custody_whitelist_reconciliation",
    schedule="0 6 * * *",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={
        "file": Param(
            str(Path(__file__).with_name("addresses.csv")),
            type="string",
            minLength=1,
            title="File",
            description="Path of the CSV file with the addresses that should be in effect, on the workers",
        )
    },
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def wanted(params: dict | None = None) -> list[dict]:
        """Read the addresses that should be in effect."""
        with Path(params["file"]).open(encoding="utf-8-sig", newline="") as file:
            rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]
        for row in rows:
            if not REQUIRED <= row.keys() <= set(COLUMNS.values()):
                raise AirflowFailException(f"a row lacks a required cell, or has one in an unknown column: {row}")
        return [
            comparable({name: cell.split(";") if name in LISTS else cell for name, cell in row.items()}) for row in rows
        ]

    # [START howto_custody_find_whitelist_requests]
    @task
    def there() -> list[dict]:
        """Find the requests that are not pending, and return their verified payloads as rows."""
        rows = []
        with CustodyHook("custody_default").get_conn() as client:
            for request in client.find_whitelist_requests(include_pending=False):
                # A key without a column keeps its name, so that it is a difference.
                row = {COLUMNS.get(key, key): value for key, value in request.payload().items() if value}
                row |= {name: [str(link["id"]) for link in row[name]] for name in LISTS if name in row}
                if (request.status or "").lower() not in EFFECTIVE_STATUSES:
                    row["status"] = request.status or "not given"
                rows.append(comparable(row))
        return rows

    # [END howto_custody_find_whitelist_requests]

    @task(retries=0)
    def compare(on_list: list[dict], at_service: list[dict], *, ti=None) -> int:
        """Log the differences and push them to XCom; fail if there are any."""
        expected, actual = by_address(on_list), by_address(at_service)
        differences = []
        for key in sorted(expected.keys() | actual.keys()):
            listed, found = expected.get(key, []), actual.get(key, [])
            if not found:
                what = "missing at the service"
            elif not listed:
                what = "not on the list"
            elif len(found) > 1 or len(listed) > 1:
                what = f"{len(listed)} times on the list, {len(found)} times at the service"
            elif listed != found:
                names = listed[0].keys() | found[0].keys()
                differing = sorted(name for name in names if listed[0].get(name) != found[0].get(name))
                what = f"differs in {', '.join(differing)}"
            else:
                continue
            label = (listed or found)[0]["label"]
            differences.append({"what": what, "blockchain": key[0], "address": key[1], "label": label})
        print(f"{len(expected)} on the list, {len(actual)} at the service, {len(differences)} differences")
        widths = {"what": 42, "blockchain": 10, "address": 21, "label": 24}
        for each in differences:
            print(" ".join(f"{shorten(each[name], width):<{width}}" for name, width in widths.items()).rstrip())
        ti.xcom_push(key="differences", value=differences)
        if differences:
            raise AirflowFailException(f"{len(differences)} differences between the list and the service")
        return len(actual)

    compare(wanted(), there())
