"""
Create whitelisting requests for a list of addresses that is known only when the DAG runs.

Each address is a mapped task instance, with its own log, its own retries and its own id. If one is refused, the others
are still created. The report at the end requires all of them.

There is no schedule: every run creates all requests, also for addresses that were requested before. Start it from the
DAG or the person that knows the addresses. ``custody_whitelist_as_code`` suits a list that is kept, and any number.

What to change: read the addresses from your own source in ``addresses`` (these are samples from public
specifications), and pass the report to your signing step.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator

with DAG(
    dag_id="custody_whitelist_mapping",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    check_health = CustodyHealthCheckOperator(task_id="check_health")

    # [START howto_custody_whitelist_mapping]
    @task
    def addresses() -> list[dict]:
        """Return the operator's arguments for each address."""
        return [
            {
                "label": "Customer payout, Ethereum",
                "blockchain": "ETH",
                "address": "0xde709f2102306220921060314715629080e2fb77",
                # Only these wallets may send funds to the address.
                "linked_wallet_ids": ["12", "15"],
            },
            {
                "label": "Customer payout, Bitcoin",
                "blockchain": "BTC",
                "address": "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3",
            },
            {
                "label": "Customer payout, XRP",
                "blockchain": "XRP",
                "address": "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh",
                "memo": "7919",
                "address_type": "exchange",
            },
        ]

    asked = addresses()
    create_requests = CustodyCreateWhitelistRequestOperator.partial(
        task_id="create_requests",
        map_index_template="{{ task.address_label }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(asked)
    # [END howto_custody_whitelist_mapping]

    @task
    def report(rows: list[dict], request_ids: list[str]) -> dict[str, str]:
        """Return the request's id for each label, in the order of the addresses."""
        return {row["label"]: request_id for row, request_id in zip(rows, request_ids, strict=True)}

    check_health >> create_requests
    report(asked, create_requests.output)
