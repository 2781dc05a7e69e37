"""
Compare what is whitelisted at the service with what the list says should be, and fail when they differ.

Every row that has taken effect is verified against its hash first. The differences are a table in the task's log, and
a list in XCom under ``differences``: addresses that are missing at the service, that nobody has on the list, or that
differ in a field. ``addresses.csv`` beside this file is a sample.

Change: the file (param ``file``), the schedule, and what to do about differences. The look-up is published knowledge of
the service, not part of the interface this package was given.
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
        """Read what should be whitelisted."""
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
        """List what has taken effect, as the verified payloads say."""
        with CustodyHook("custody_default").get_conn() as client:
            payloads = [each.payload() for each in client.find_whitelist_requests(include_waiting=False)]
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
    def compare(wanted: list[dict], there: list[dict], *, ti=None) -> int:
        """Log and push the differences; fail if there are any."""

        def by_address(rows: list[dict]) -> dict[tuple, list[dict]]:
            found: dict[tuple, list[dict]] = {}
            for row in rows:
                found.setdefault((row["blockchain"], row["address"], row["memo"]), []).append(row)
            return found

        list_, service = by_address(wanted), by_address(there)
        differences = []
        for key in sorted(list_.keys() | service.keys()):
            asked, shown = list_.get(key, []), service.get(key, [])
            if not shown:
                what = "missing at the service"
            elif not asked:
                what = "not on the list"
            elif len(shown) > 1 or len(asked) > 1:
                what = f"{len(asked)} times on the list, {len(shown)} times at the service"
            elif asked != shown:
                what = f"differs in {', '.join(name for name in asked[0] if asked[0][name] != shown[0][name])}"
            else:
                continue
            label = (asked or shown)[0]["label"]
            differences.append({"blockchain": key[0], "address": key[1], "label": label, "what": what})
        print(f"{len(list_)} on the list, {len(service)} at the service, {len(differences)} differences")
        for each in differences:
            print(f"{each['blockchain']:<8} {each['address']:<64} {each['label']:<28} {each['what']}")
        ti.xcom_push(key="differences", value=differences)
        if differences:
            raise AirflowFailException(f"{len(differences)} differences between the list and the service")
        return len(service)

    compare(wanted(), there())
