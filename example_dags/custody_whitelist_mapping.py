"""
Whitelist a list of addresses that is known only when the DAG runs, each night if you like.

Each address is a mapped task instance with its own log, retries and request id. If a request with the same content is
already pending or in effect, it is reused, whichever user created it. So running the same list again creates nothing
and signs nothing twice. If the service rejects one address, the other requests are still created, but nothing is
signed.

There is no schedule, because the addresses are samples from public specifications. For your own addresses, set a
schedule, such as ``"0 2 * * *"``. The example ``custody_whitelist_from_rows`` plans the whole list first, and also
finds addresses that are no longer in the list.

What to change: read the addresses from your own source in ``addresses``. Their text is sent unchanged. Do not map
another package's operators over such rows with ``expand_kwargs``: Airflow would render them as templates.

Connections to create: the two signers' users (``custody_first_signer``, ``custody_second_signer``), and for each
signer's P-256 key a connection of any type with the extra ``private_key`` (``custody_first_key``,
``custody_second_key``). The sandbox prints all of them: ``python -m airflow_custody.sandbox --with-signers``.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, chain, task

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

with DAG(
    dag_id="custody_whitelist_mapping",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    check_health = CustodyHealthCheckOperator(task_id="check_health")

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

    create_requests = CustodyCreateWhitelistRequestOperator.partial(
        task_id="create_requests",
        map_index_template="{{ task.address_label }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(addresses())

    signatures = [
        CustodySignWhitelistRequestsOperator(
            task_id=f"sign_{name}",
            custody_conn_id=f"custody_{name}_signer",
            signer=ConnectionSigner(f"custody_{name}_key"),
            request_ids=create_requests.output,
            # Sign only if the request has exactly this content.
            expected=create_requests.output["request"],
        )
        for name in ("first", "second")
    ]

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=create_requests.output,
        expected=create_requests.output["request"],
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )

    chain(check_health, create_requests, *signatures, wait_until_effective)
