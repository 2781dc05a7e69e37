"""
Compare the addresses that are whitelisted at the service with a list in a CSV file, and fail if they differ.

Every request that has taken effect is verified against its hash first. Then ``compare`` logs a table of the
differences, and pushes them to XCom under ``differences``: addresses that are missing at the service, that are not on
the list, or that differ in a field. ``addresses.csv`` next to this file is a sample. Finding requests is an
undocumented operation of the service.

What to change: the file (param ``file``), the schedule, and what happens when there are differences.
"""

from __future__ import annotations

import csv
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, Param, task

from airflow_custody.hooks.custody import CustodyHook

with DAG(
    dag_id="custody_whitelist_reconciliation",
    schedule="0 6 * * *",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={"file": Param(str(Path(__file__).with_name("addresses.csv")), type="string", minLength=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def wanted(params: dict | None = None) -> list[dict]:
        """Read the addresses that should be whitelisted."""
        with Path(params["file"]).open(encoding="utf-8", newline="") as file:
            return [
                {
                    "blockchain": row["blockchain"].upper(),
                    "address": row["address"],
                    "label": row["label"],
                    "memo": row["memo"] or "",
                    "linked_wallet_ids": sorted(filter(None, row["linked_wallet_ids"].split(";"))),
                }
                for row in csv.DictReader(file)
            ]

    # [START howto_custody_find_whitelist_requests]
    @task
    def there() -> list[dict]:
        """Find the requests that have taken effect, and return the fields of their verified payloads."""
        with CustodyHook("custody_default").get_conn() as client:
            payloads = [each.payload() for each in client.find_whitelist_requests(include_pending=False)]
        return [
            {
                "blockchain": payload["currency"].upper(),
                "address": payload["address"],
                "label": payload["label"],
                "memo": payload.get("memo") or "",
                "linked_wallet_ids": sorted(str(wallet["id"]) for wallet in payload.get("linkedWallets") or ()),
            }
            for payload in payloads
        ]

    # [END howto_custody_find_whitelist_requests]

    @task(retries=0)
    def compare(on_list: list[dict], at_service: list[dict], *, ti=None) -> int:
        """Log the differences and push them to XCom; fail if there are any."""

        def by_address(rows: list[dict]) -> dict[tuple, list[dict]]:
            groups: dict[tuple, list[dict]] = {}
            for row in rows:
                groups.setdefault((row["blockchain"], row["address"], row["memo"]), []).append(row)
            return groups

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
                what = f"differs in {', '.join(name for name in listed[0] if listed[0][name] != found[0][name])}"
            else:
                continue
            label = (listed or found)[0]["label"]
            differences.append({"blockchain": key[0], "address": key[1], "label": label, "what": what})
        print(f"{len(expected)} on the list, {len(actual)} at the service, {len(differences)} differences")
        for each in differences:
            print(f"{each['blockchain']:<8} {each['address']:<64} {each['label']:<28} {each['what']}")
        ti.xcom_push(key="differences", value=differences)
        if differences:
            raise AirflowFailException(f"{len(differences)} differences between the list and the service")
        return len(actual)

    compare(wanted(), there())
