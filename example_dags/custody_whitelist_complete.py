"""
Whitelist a destination address, from the request until it has taken effect, with a decision and two signatures.

A health gate waits until the service is healthy. Then the request is created, once, and a person decides in the Airflow
UI (*Required Actions*). If the person approves, two signers sign one after the other, each with their own user and
key, and the DAG waits until the whitelisting has taken effect. If the person rejects, or nobody responds in time, the
request is rejected at the service. Either way, a notification is sent at the end.

Only what the create task asked for is signed: before signing, each signer fetches the request from the service,
verifies it and compares it with what was asked for.

Whoever starts a run gives the address; there is no schedule. If the address is already requested with
the same content, the run uses that request.

What to change: who may decide, and the body of ``tell``. Connections to create: the two signers' users
(``custody_first_signer``, ``custody_second_signer``), and for each signer's P-256 key a connection of any type
with the extra ``private_key`` (``custody_first_key``, ``custody_second_key``).

Deciding in the UI requires Airflow 3.1 or later with ``apache-airflow-providers-standard``. Without it, whoever starts
the run decides in advance, with ``{"decision": "Approve"}``. All other runs reject their request.

Signing and rejecting are undocumented operations of the service.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, AirflowOptionalProviderFeatureException, Param, task

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

try:
    from airflow.providers.standard.operators.hitl import HITLOperator
except (ImportError, AirflowOptionalProviderFeatureException):
    HITLOperator = None

# The params of the address have no defaults, so a run with a misspelled param name does not start.
params = {
    "label": Param(
        type="string",
        minLength=1,
        title="Label",
        description="What the service's users will see instead of the address",
    ),
    "address": Param(
        type="string",
        minLength=1,
        title="Address",
        description="The destination address, taken exactly as it is given",
    ),
    "blockchain": Param(
        type="string", minLength=1, title="Chain", description="Symbol of the address's chain, such as ETH"
    ),
}
if HITLOperator is None:
    params["decision"] = Param(
        "Reject",
        enum=["Approve", "Reject"],
        title="Decision",
        description="Whether to sign the request or to reject it",
    )

with DAG(
    dag_id="custody_whitelist_complete",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params=params,
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    wait_until_healthy = CustodyHealthSensor(
        task_id="wait_until_healthy", deferrable=True, poke_interval=5, timeout=30 * 60
    )

    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="{{ params.label }}",
        address="{{ params.address }}",
        blockchain="{{ params.blockchain }}",
    )

    if HITLOperator is not None:
        decide = HITLOperator(
            task_id="decide",
            # Two requests for the same address differ in their ids only.
            subject=(
                "Request {{ ti.xcom_pull(task_ids='create_request') }}: "
                "whitelist {{ params.label | tojson }} on {{ params.blockchain | tojson }}?"
            ),
            # Whoever starts a run writes these texts. tojson keeps each on its line, and shows what cannot be seen.
            body=(
                "```text\n"
                "Request  {{ ti.xcom_pull(task_ids='create_request') | tojson }}\n"
                "Chain    {{ params.blockchain | tojson }}\n"
                "Address  {{ params.address | tojson }}\n"
                "Label    {{ params.label | tojson }}\n"
                "```\n"
            ),
            options=["Approve", "Reject"],
            # No response in time is a rejection.
            defaults=["Reject"],
            response_timeout=timedelta(hours=8),
        )
        decision = decide.output
        create_request >> decide
    else:

        @task
        def decide(params: dict | None = None) -> dict:
            """Return the decision of the person who started the run."""
            return {"chosen_options": [params["decision"]], "responded_by_user": {"name": "whoever started the run"}}

        decision = decide()
        create_request >> decision

    @task.branch
    def what_was_decided(decision: dict) -> str:
        """Continue with signing, or with rejecting."""
        return "sign_first" if decision["chosen_options"] == ["Approve"] else "reject"

    branch = what_was_decided(decision)

    sign_first = CustodySignWhitelistRequestsOperator(
        task_id="sign_first",
        custody_conn_id="custody_first_signer",
        signer=ConnectionSigner("custody_first_key"),
        request_ids=create_request.output,
        # What the create task asked for: a request that differs from it is not signed.
        expected=create_request.output["request"],
    )
    sign_second = CustodySignWhitelistRequestsOperator(
        task_id="sign_second",
        custody_conn_id="custody_second_signer",
        signer=ConnectionSigner("custody_second_key"),
        request_ids=create_request.output,
        expected=create_request.output["request"],
    )
    # Without this, nothing waits for the decision.
    branch >> sign_first >> sign_second

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=create_request.output,
        # With pinned keys: the very address that was asked for must be signed.
        expected=create_request.output["request"],
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )
    sign_second >> wait_until_effective

    reject = CustodyRejectWhitelistRequestsOperator(
        task_id="reject",
        custody_conn_id="custody_first_signer",
        request_ids=create_request.output,
        comment="rejected in Airflow, {{ run_id }}",
    )
    branch >> reject

    @task(trigger_rule="none_failed_min_one_success")
    def tell(request_id: str, decision: dict) -> str:
        """Report the outcome. REPLACE THIS WITH YOUR OWN NOTIFICATION."""
        outcome = "has taken effect" if decision["chosen_options"] == ["Approve"] else "was rejected"
        name = (decision.get("responded_by_user") or {}).get("name")
        message = f"Request {request_id} {outcome}; {f'decided by {name}' if name else 'nobody decided in time'}."
        print(message)
        return message

    wait_until_healthy >> create_request
    [wait_until_effective, reject] >> tell(create_request.output, decision)
