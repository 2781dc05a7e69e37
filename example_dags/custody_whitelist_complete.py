"""
Whitelist a destination address, from the request until it is in effect, with a decision and two signatures.

A sensor waits until the service is healthy. Then the request is created, once, and a user decides in the Airflow UI
(*Required Actions*). If the request is approved, two signers sign one after the other, each with their own user and
key, and the DAG waits until the address is in effect. If it is rejected, or there is no response in time, the request
is rejected at the service. In both cases, a notification is sent at the end.

Before signing, each signer fetches the request from the service, verifies it, and compares it with the content that the
create task requested. A request with any other content is not signed.

The user who starts a run enters the address; there is no schedule. If a request with the same content already exists,
the run reuses it. The task group ``CustodyWhitelistRequestTaskGroup`` has the same tasks, except ``reject`` and
``notify``.

What to change: the users who may decide, and the body of ``notify``. Connections to create: the two signers' users
(``custody_first_signer``, ``custody_second_signer``), and for each signer's P-256 key a connection of any type
with the extra ``private_key`` (``custody_first_key``, ``custody_second_key``).

Deciding in the UI requires Airflow 3.1 or later with ``apache-airflow-providers-standard``. Otherwise, decide in
advance: start the run with ``{"decision": "Approve"}``. All other runs reject their request.

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
        description="The destination address, used exactly as entered",
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
            # Show the id, because two requests for the same address may differ in nothing else.
            subject=(
                "Request {{ ti.xcom_pull(task_ids='create_request') }}: "
                "whitelist {{ params.label | tojson }} on {{ params.blockchain | tojson }}?"
            ),
            # These texts are user input. tojson keeps each on one line, and escapes hidden characters.
            body=(
                "```text\n"
                "Request  {{ ti.xcom_pull(task_ids='create_request') | tojson }}\n"
                "Chain    {{ params.blockchain | tojson }}\n"
                "Address  {{ params.address | tojson }}\n"
                "Label    {{ params.label | tojson }}\n"
                "```\n"
            ),
            options=["Approve", "Reject"],
            # Without a response in time, the request is rejected.
            defaults=["Reject"],
            response_timeout=timedelta(hours=8),
        )
        decision = decide.output
        create_request >> decide
    else:

        @task
        def decide(params: dict | None = None) -> dict:
            """Return the decision of the user who started the run."""
            return {"chosen_options": [params["decision"]], "responded_by_user": {"name": "the run's starter"}}

        decision = decide()
        create_request >> decision

    @task.branch
    def choose_branch(decision: dict) -> str:
        """Continue with signing, or with rejecting."""
        return "sign_first" if decision["chosen_options"] == ["Approve"] else "reject"

    branch = choose_branch(decision)

    sign_first = CustodySignWhitelistRequestsOperator(
        task_id="sign_first",
        custody_conn_id="custody_first_signer",
        signer=ConnectionSigner("custody_first_key"),
        request_ids=create_request.output,
        # Sign only if the request has exactly this content.
        expected=create_request.output["request"],
    )
    sign_second = CustodySignWhitelistRequestsOperator(
        task_id="sign_second",
        custody_conn_id="custody_second_signer",
        signer=ConnectionSigner("custody_second_key"),
        request_ids=create_request.output,
        expected=create_request.output["request"],
    )
    # Only the tasks of the chosen branch run.
    branch >> sign_first >> sign_second

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=create_request.output,
        # With pinned keys, the signatures must be for exactly this content.
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
    def notify(request_id: str, decision: dict) -> str:
        """Report the outcome. REPLACE THIS WITH YOUR OWN NOTIFICATION."""
        outcome = "is in effect" if decision["chosen_options"] == ["Approve"] else "was rejected"
        name = (decision.get("responded_by_user") or {}).get("name")
        message = f"Request {request_id} {outcome}; {f'decided by {name}' if name else 'no decision in time'}."
        print(message)
        return message

    wait_until_healthy >> create_request
    [wait_until_effective, reject] >> notify(create_request.output, decision)
