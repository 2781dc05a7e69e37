"""
Keep a whitelist as a file: plan, have a person approve that very plan, apply it, sign, wait for the effect, prove it.

``custody_whitelist.yaml`` beside this file says which destination addresses should be at the service. Keep both where
changes are reviewed, in a DAG bundle from Git, say. A run plans first: what the file has and the service does not. A
person reads the plan in the Airflow UI (*Required Actions*) and approves or rejects it; no response in time is a
rejection. Only the plan that was approved is applied: if the file or the service has changed since, nothing is sent.
Each row is requested at most once, also if the task is killed, retried or cleared. Then two signers sign, each with
their own user and key, and only what was applied. When all of it has taken effect, what it replaces is deleted: a row
with a new label gets a new request, and the address is in effect throughout. The last task plans again, and fails
unless the service has what the file says.

Start a run when the file has changed. If there is nothing to do, only the proof runs. If the plan is rejected, the run
ends there. To go on after a failure, clear the tasks that failed.

What to change: the file, ``MAY_APPROVE``, the limit in ``plan``. Connections to create: the two signers' users
(``custody_first_signer``, ``custody_second_signer``), and for each signer's P-256 key a connection of any type
with the extra ``private_key`` (``custody_first_key``, ``custody_second_key``).

Approving in the UI requires Airflow 3.1 or later with ``apache-airflow-providers-standard``. Without it, a run only
plans: read the plan in the log of ``plan``, and approve it by starting another run with
``{"approved_plan": "<its hash>"}``.

Listing, signing and deleting are undocumented operations of the service.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowFailException,
    AirflowOptionalProviderFeatureException,
    Param,
    task,
)

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

try:
    from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator
except AirflowOptionalProviderFeatureException:
    CustodyApproveWhitelistPlanOperator = None

#: The file, in the folder of this one.
FILE = "custody_whitelist.yaml"
#: The users who may approve a plan: put yours here. With Airflow's simple auth manager an id is a user name (a fresh
#: ``airflow standalone`` has one user, admin), with that of the FAB provider a number. To anybody else Airflow says
#: "Access Denied". A task that waits already keeps the names that it began with. This covers the question only: whoever
#: may edit the DAG's task instances (Airflow's role User) can write XCom, mark the task as successful, and so approve.
MAY_APPROVE = [{"id": "carol", "name": "carol"}, {"id": "dave", "name": "dave"}]

params = {}
if CustodyApproveWhitelistPlanOperator is None:
    params["approved_plan"] = Param(
        None,
        type=["null", "string"],
        title="Approved plan",
        description="Hash of the plan that you have read and approve; without it, the run only plans",
    )

with DAG(
    dag_id="custody_whitelist_as_code",
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params=params,
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    wait_until_healthy = CustodyHealthSensor(
        task_id="wait_until_healthy", deferrable=True, poke_interval=5, timeout=30 * 60
    )

    plan = CustodyPlanWhitelistOperator(
        task_id="plan",
        path=FILE,
        # A plan that creates more than this, or more than the question can show, fails before anybody is asked.
        max_creates=100,
        # A row whose label, links or types have changed gets a new request in place of the old one.
        replace=True,
        skip_if_nothing_to_do=True,
    )

    if CustodyApproveWhitelistPlanOperator is not None:
        approve = CustodyApproveWhitelistPlanOperator(
            task_id="approve",
            plan_hash=plan.output["plan_hash"],
            body=plan.output["report"],
            assigned_users=MAY_APPROVE,
            # No response in time is a rejection, which skips all that follows, the proof as well.
            response_timeout=timedelta(hours=8),
        )
        # The hash of the plan that was shown, whatever is planned later.
        approved_hash = approve.output["plan_hash"]
    else:

        @task.short_circuit(task_id="approve", retries=0)
        def approve_in_advance(plan_hash: str, params: dict | None = None) -> str | None:
            """Go on only if whoever started the run has approved this very plan, and return its hash."""
            approved: str | None = params["approved_plan"]
            if approved not in (None, plan_hash):
                raise AirflowFailException(f"The approved plan is another one. The plan is now {plan_hash}.")
            return approved

        approve = approved_hash = approve_in_advance(plan.output["plan_hash"])

    apply = CustodyApplyWhitelistPlanOperator(task_id="apply", path=FILE, plan_hash=approved_hash, replace=True)
    # Without this, nothing waits for the decision.
    plan >> approve >> apply

    signatures = [
        CustodySignWhitelistRequestsOperator(
            task_id=f"sign_{name}",
            custody_conn_id=f"custody_{name}_signer",
            signer=ConnectionSigner(f"custody_{name}_key"),
            request_ids=apply.output["request_ids"],
            # What was applied: a request that differs from it is not signed.
            expected=apply.output["requests"],
            # A plan may only delete.
            skip_if_empty=True,
        )
        for name in ("first", "second")
    ]
    apply >> signatures[0] >> signatures[1]

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=apply.output["request_ids"],
        # What was applied: with pinned keys, these very addresses must be signed.
        expected=apply.output["requests"],
        skip_if_empty=True,
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )

    # Deletes what was replaced. It deletes nothing unless all that was created is in effect.
    complete = CustodyCompleteWhitelistPlanOperator(task_id="complete", applied=apply.output, plan_hash=approved_hash)

    prove = CustodyPlanWhitelistOperator(
        task_id="prove",
        path=FILE,
        # Also fails if rows differ, or the service has requests that are not in the file.
        fail_on_changes=True,
        # And if requests of an earlier run are still pending: clear the failed tasks of that run.
        fail_on_pending=True,
        # If there was nothing to do, what is in between is skipped, and this runs.
        trigger_rule="none_failed",
    )
    signatures[1] >> wait_until_effective >> complete >> prove

    wait_until_healthy >> plan
