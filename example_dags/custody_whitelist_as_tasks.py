"""
Keep a whitelist as a file, with single tasks, for a DAG that needs another order than the task group's.

The tasks are those of the task group in ``custody_whitelist_as_code``, which is shorter: plan, approve that plan, apply
it, sign, wait until it is in effect, complete, prove the result. Start from this example if other tasks must come in
between, or if plans are approved in advance.

Approving in the UI requires Airflow 3.1 or later with ``apache-airflow-providers-standard``. Without it, a run only
plans: read the plan in the log of ``plan``, and approve it by starting another run with
``{"approved_plan": "<its hash>"}``.

Start a run when ``custody_whitelist.yaml`` has changed. If there is nothing to do, ``plan`` skips all further tasks
except ``prove``. If the plan is rejected, the run ends there. To continue after a failure, clear the failed tasks.

What to change: the file, ``MAY_APPROVE``, the limit in ``plan``. Connections to create: the two signers' users
(``custody_first_signer``, ``custody_second_signer``), and for each signer's P-256 key a connection of any type
with the extra ``private_key`` (``custody_first_key``, ``custody_second_key``).

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

#: The whitelist file, beside this file.
FILE = "custody_whitelist.yaml"
#: The users who may approve a plan: replace them with yours. With Airflow's simple auth manager, an id is a user name
#: (a fresh ``airflow standalone`` has one user, admin); with the FAB provider's, it is a number. All other users see
#: "Access Denied". A task that is already waiting keeps the old names. This list only restricts who can respond. Users
#: who may edit the DAG's task instances (Airflow's role User) can write XCom and mark the task as successful, which
#: approves the plan as well.
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
    dag_id="custody_whitelist_as_tasks",
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
        # A plan that creates more requests fails before the approval.
        max_creates=100,
        # A row whose label, links or types have changed gets a new request in place of the old one.
        replace=True,
        skip_if_nothing_to_do=True,
    )

    if CustodyApproveWhitelistPlanOperator is not None:
        approve = CustodyApproveWhitelistPlanOperator(
            task_id="approve",
            plan=plan.output,
            assigned_users=MAY_APPROVE,
            # Without a response in time, the plan is rejected, and all tasks after this one are skipped.
            response_timeout=timedelta(hours=8),
        )
        # The hash of the approved plan, even if another plan is made later. It exists only after an approval.
        approved_hash = approve.output["plan_hash"]
    else:

        @task.short_circuit(task_id="approve", retries=0)
        def approve_in_advance(plan_hash: str, params: dict | None = None) -> str | None:
            """Return the plan's hash if the user who started the run approved this plan; otherwise skip the rest."""
            approved: str | None = params["approved_plan"]
            if approved not in (None, plan_hash):
                raise AirflowFailException(f"The plan has changed since it was approved. The plan is now {plan_hash}.")
            return approved

        approved_hash = approve_in_advance(plan.output["plan_hash"])

    # The plan's output contains its file and settings. Each task waits for the tasks whose outputs it uses.
    apply = CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan.output, plan_hash=approved_hash)

    signatures = [
        CustodySignWhitelistRequestsOperator(
            task_id=f"sign_{name}",
            custody_conn_id=f"custody_{name}_signer",
            signer=ConnectionSigner(f"custody_{name}_key"),
            request_ids=apply.output["request_ids"],
            # Sign only if each request has exactly this content.
            expected=apply.output["requests"],
            # Skip this task if the plan consists of deletions only.
            skip_if_empty=True,
        )
        for name in ("first", "second")
    ]
    signatures[0] >> signatures[1]

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=apply.output["request_ids"],
        # With pinned keys, the signatures must be for exactly this content.
        expected=apply.output["requests"],
        skip_if_empty=True,
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )

    # Delete the replaced requests, but only if all created requests are in effect.
    complete = CustodyCompleteWhitelistPlanOperator(task_id="complete", applied=apply.output, plan_hash=approved_hash)

    prove = CustodyPlanWhitelistOperator(
        task_id="prove",
        path=FILE,
        # Fail if rows differ, or the service has requests that are not in the file.
        fail_on_changes=True,
        # Also fail if requests of an earlier run are still pending. In that case, clear the failed tasks of that run.
        fail_on_pending=True,
        # Run even if the tasks before it were skipped because there was nothing to do.
        trigger_rule="none_failed",
    )
    signatures[1] >> wait_until_effective >> complete >> prove

    wait_until_healthy >> plan
