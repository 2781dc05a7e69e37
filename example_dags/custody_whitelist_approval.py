"""
Whitelist a destination address: create the request, let a person approve it, sign it, switch a webhook on.

The request has no effect until it is signed, and it is signed only after a person has approved it in the Airflow UI
(*Required Actions*). Rejected: what follows is skipped. No answer in time: the approval fails. Either way nothing is
signed.

Change: the defaults of the params (the address is a sample from a public specification), who may approve, the
schedule, and **put your own signer in place of the body of** ``sign``. Leave ``webhook_id`` empty to skip the webhook.

The approval needs Airflow 3.1 or later with ``apache-airflow-providers-standard``. Elsewhere nobody can be asked in
the middle of a run; there a person approves beforehand, by starting the run with ``{"approved_by": "<name>"}``. Any
other run, so every scheduled one, fails before anything is created.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta, timezone

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

params = {
    "label": Param("Treasury cold wallet", type="string", minLength=1),
    "address": Param("0x52908400098527886E0F7030069857D2E4169EE7", type="string", minLength=1),
    "blockchain": Param("ETH", type="string", minLength=1),
    "webhook_id": Param(None, type=["null", "string"], description="UUID of a webhook to switch on"),
}
if ApprovalOperator is None:
    params["approved_by"] = Param(None, type=["null", "string"], description="who has approved this address")

with DAG(
    dag_id="custody_whitelist_approval",
    schedule="0 8 * * 1",
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params=params,
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    wait_until_healthy = CustodyHealthSensor(
        task_id="wait_until_healthy", deferrable=True, poke_interval=5, timeout=30 * 60
    )

    # [START howto_operator_custody_create_whitelist_request]
    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="{{ params.label }}",
        address="{{ params.address }}",
        blockchain="{{ params.blockchain }}",
    )
    # [END howto_operator_custody_create_whitelist_request]

    if ApprovalOperator is not None:
        # [START howto_custody_approval]
        approve = ApprovalOperator(
            task_id="approve",
            subject="Sign the whitelisting of {{ params.label }} on {{ params.blockchain }}?",
            body="""
| | |
|---|---|
| Request | {{ ti.xcom_pull(task_ids="create_request") }} |
| Chain | {{ params.blockchain }} |
| Address | `{{ params.address }}` |
| Label | {{ params.label }} |
""",
            # Whoever may edit the DAG may answer, unless you name them: assigned_users=[{"id": "1", "name": "alice"}].
            response_timeout=timedelta(hours=8),
        )
        # [END howto_custody_approval]
        approval = approve.output
        wait_until_healthy >> create_request >> approve
    else:

        @task(retries=0)
        def approve(params: dict | None = None) -> dict:
            """Let only a run through that somebody approved when starting it."""
            if not params["approved_by"]:
                raise AirflowFailException('Not approved: start the run with {"approved_by": "<name>"}.')
            return {"responded_by_user": {"name": params["approved_by"]}}

        approval = approve()
        wait_until_healthy >> approval >> create_request

    # [START howto_custody_sign]
    # Not tried again by itself: whether that is safe is for your signer to say.
    @task(retries=0)
    def sign(request_id: str, approval: dict) -> dict:
        """Sign the request. YOUR OWN SIGNER GOES HERE: this stand-in makes nothing that any service would accept."""
        stand_in = hmac.new(b"a stand-in, not a key", request_id.encode(), hashlib.sha256).hexdigest()
        return {
            "request_id": request_id,
            "approved_by": approval["responded_by_user"]["name"],
            "stand_in_signature": stand_in,
        }

    signed = sign(create_request.output, approval)
    # [END howto_custody_sign]

    @task.short_circuit
    def webhook_given(params: dict | None = None) -> bool:
        """Skip what follows if the run names no webhook."""
        return bool(params["webhook_id"])

    # [START howto_operator_custody_set_webhook_status]
    enable_webhook = CustodySetWebhookStatusOperator(
        task_id="enable_webhook",
        webhook_id="{{ params.webhook_id }}",
        status="enabled",
    )
    # [END howto_operator_custody_set_webhook_status]

    signed >> webhook_given() >> enable_webhook
