"""
Whitelist one destination address, from the request until it is in effect.

The task group has these tasks. A sensor waits until the service is healthy. The next task creates the request, once,
however often the task is tried. Two signers sign it, each with their own user and key, and only if the request has
exactly the requested content. The last task waits until the address may be used.

Each run is started with an address. If a request with the same content already exists, the run reuses it. Anyone who
can start this DAG decides what is signed. With ``approve=True``, a user is asked first (Airflow 3.1 or later); the
example ``custody_whitelist_complete`` also rejects the request at the service if that user rejects it.

Connections to create: ``custody_default``, the signers' users (``custody_first_signer``, ``custody_second_signer``),
and for each signer's P-256 key a connection of any type with the extra ``private_key`` (``custody_first_key``,
``custody_second_key``). The sandbox prints all of them.

Signing is an undocumented operation of the service.
"""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistRequestTaskGroup

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
    CustodyWhitelistRequestTaskGroup(
        label="{{ params.label }}",
        address="{{ params.address }}",
        blockchain="{{ params.blockchain }}",
        signers={
            "custody_first_signer": ConnectionSigner("custody_first_key"),
            "custody_second_signer": ConnectionSigner("custody_second_key"),
        },
        # True: ask a user before signing. This needs Airflow 3.1 or later.
        approve=False,
    )

dag.doc_md = __doc__
