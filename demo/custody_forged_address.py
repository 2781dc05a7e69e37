"""
Detect a forged address: the service lists it as in effect, but it has no signatures.

With pinned keys, each of these tasks fails and names the request. Without pinned keys, ``sign`` would sign the
request, ``wait_until_effective`` would succeed, and ``reconcile`` would only report an additional address.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

FORGED = "{{ params.request_id }}"

with DAG(
    dag_id="custody_forged_address",
    schedule=None,
    params={"request_id": Param("", type="string", title="The forged request")},
    tags=["custody", "demo"],
    doc_md=__doc__,
) as dag:
    sign = CustodySignWhitelistRequestsOperator(
        task_id="sign",
        custody_conn_id="custody_first_signer",
        signer=ConnectionSigner("custody_first_key"),
        request_ids=FORGED,
        # Do not compare the content, because this DAG shows what happens if the signatures are missing.
        expected=None,
    )
    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective", request_id=FORGED, poke_interval=1, timeout=60, trigger_rule="all_done"
    )
    reconcile = CustodyPlanWhitelistOperator(
        task_id="reconcile", path="custody_whitelist.yaml", fail_on_changes=True, trigger_rule="all_done"
    )

    sign >> wait_until_effective >> reconcile
