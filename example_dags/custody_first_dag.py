"""
Whitelist one destination address, from the request until it is in effect.

A sensor waits until the service is healthy. The next task creates the request, once, however often the task is tried.
Two signers sign it, each with their own user and key, and only if the request has exactly the requested content. The
last task waits until the address may be used.

Each run is started with an address. If a request with the same content already exists, the run reuses it. Anyone who
can start this DAG decides what is signed: the example ``custody_whitelist_complete`` asks for a decision first.

Connections to create: ``custody_default``, the signers' users (``custody_first_signer``, ``custody_second_signer``),
and for each signer's P-256 key a connection of any type with the extra ``private_key`` (``custody_first_key``,
``custody_second_key``). The sandbox prints all of them.

Signing is an undocumented operation of the service.
"""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, Param, chain

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

with DAG(
    dag_id="custody_first_dag",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    # No param has a default, so a run with a misspelled param name does not start.
    params={
        "label": Param(type="string", minLength=1, title="Label", description="Name of the address at the service"),
        "address": Param(type="string", minLength=1, title="Address", description="Destination"),
        "blockchain": Param(type="string", minLength=1, title="Chain", description="Symbol of its chain, such as ETH"),
    },
    tags=["custody", "example"],
) as dag:
    wait_until_healthy = CustodyHealthSensor(task_id="wait_until_healthy", deferrable=True, timeout=30 * 60)

    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="{{ params.label }}",
        address="{{ params.address }}",
        blockchain="{{ params.blockchain }}",
    )

    signatures = [
        CustodySignWhitelistRequestsOperator(
            task_id=f"sign_{name}",
            custody_conn_id=f"custody_{name}_signer",
            signer=ConnectionSigner(f"custody_{name}_key"),
            request_ids=create_request.output,
            # Sign only if the request has exactly this content.
            expected=create_request.output["request"],
        )
        for name in ("first", "second")
    ]

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=create_request.output,
        expected=create_request.output["request"],
        deferrable=True,
        timeout=24 * 60 * 60,
    )

    chain(wait_until_healthy, create_request, *signatures, wait_until_effective)

dag.doc_md = __doc__
