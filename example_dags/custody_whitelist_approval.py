"""
Whitelist a destination address: create the request, ask for approval, sign it, enable a webhook.

The request has no effect until it is signed, and it is signed only after it was approved in the Airflow UI (*Required
Actions*). If it is rejected, the remaining tasks are skipped. Without a response in time, the approval fails. In both
cases, nothing is signed.

The user who starts a run enters the address; there is no schedule. If a request with the same content already exists,
the run reuses it.

What to change: the users who may approve, and **the body of** ``sign``, **which is a placeholder for your own
signer**. Without ``webhook_id``, no webhook is enabled.

Approving in the UI requires Airflow 3.1 or later with ``apache-airflow-providers-standard``. Otherwise, approve in
advance: start the run with ``{"approved_by": "<name>"}``. All other runs fail before anything is created.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import timedelta

from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowFailException,
    AirflowOptionalProviderFeatureException,
    Param,
    task,
)

from airflow_custody.operators.webhook import CustodySetWebhookStatusOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.health import CustodyHealthSensor

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
except (ImportError, AirflowOptionalProviderFeatureException):
    ApprovalOperator = None

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
    "webhook_id": Param(
        None, type=["null", "string"], title="Webhook", description="UUID of a webhook to enable at the end; optional"
    ),
}
if ApprovalOperator is None:
    params["approved_by"] = Param(
        None,
        type=["null", "string"],
        title="Approved by",
        description="Name of the person who has approved the address",
    )

with DAG(
    dag_id="custody_whitelist_approval",
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

    if ApprovalOperator is not None:
        approve = ApprovalOperator(
            task_id="approve",
            # Show the id, because two requests for the same address may differ in nothing else.
            subject=(
                "Sign request {{ ti.xcom_pull(task_ids='create_request') }}: "
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
            # Any user who may edit the DAG may respond. To limit this: assigned_users=[{"id": "1", "name": "carol"}].
            # Users who may edit its task instances (Airflow's role User) can still mark this task as successful.
            response_timeout=timedelta(hours=8),
        )
        approval = approve.output
        wait_until_healthy >> create_request >> approve
    else:

        @task(retries=0)
        def approve(params: dict | None = None) -> dict:
            """Fail unless the user who started the run approved the address."""
            if not params["approved_by"]:
                raise AirflowFailException('Not approved: start the run with {"approved_by": "<name>"}.')
            return {"responded_by_user": {"name": params["approved_by"]}}

        approval = approve()
        wait_until_healthy >> approval >> create_request

    # No automatic retries: only you know whether your signer can safely run twice.
    @task(retries=0)
    def sign(request_id: str, approval: dict) -> dict:
        """Sign the request. REPLACE THIS WITH YOUR OWN SIGNER: no service accepts this placeholder signature."""
        stand_in = hmac.new(b"a stand-in, not a key", request_id.encode(), hashlib.sha256).hexdigest()
        return {
            "request_id": request_id,
            "approved_by": approval["responded_by_user"]["name"],
            "stand_in_signature": stand_in,
        }

    signed = sign(create_request.output, approval)

    @task.short_circuit
    def webhook_given(params: dict | None = None) -> bool:
        """Skip the remaining tasks if the run has no webhook."""
        return bool(params["webhook_id"])

    enable_webhook = CustodySetWebhookStatusOperator(
        task_id="enable_webhook",
        webhook_id="{{ params.webhook_id }}",
        status="enabled",
    )

    signed >> webhook_given() >> enable_webhook
