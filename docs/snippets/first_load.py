"""
Load a large whitelist file for the first time, in parts.

Each run plans one part of the file, asks for its approval, applies and signs it, and waits until it is in effect. Then
it starts the next run, until no row is left. People only approve.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, task
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

FILE = "custody_whitelist.yaml"
MAY_APPROVE = [{"id": "carol", "name": "carol"}, {"id": "dave", "name": "dave"}]

with DAG(
    dag_id="custody_first_load",
    schedule=None,
    # The run that this run starts waits until this run has ended.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
) as dag:
    plan = CustodyPlanWhitelistOperator(
        task_id="plan",
        path=FILE,
        # Each run loads the first 500 rows that are not requested yet.
        at_most=500,
        # The limits find faulty files, so they apply to the whole file, and not to one part.
        max_creates=10_000,
        skip_if_nothing_to_do=True,
    )
    approve = CustodyApproveWhitelistPlanOperator(task_id="approve", plan=plan.output, assigned_users=MAY_APPROVE)
    approved_hash = approve.output["plan_hash"]
    apply = CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan.output, plan_hash=approved_hash)
    signatures = [
        CustodySignWhitelistRequestsOperator(
            task_id=f"sign_{name}",
            custody_conn_id=f"custody_{name}_signer",
            signer=ConnectionSigner(f"custody_{name}_key"),
            request_ids=apply.output["request_ids"],
            expected=apply.output["requests"],
            skip_if_empty=True,
        )
        for name in ("first", "second")
    ]
    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=apply.output["request_ids"],
        expected=apply.output["requests"],
        skip_if_empty=True,
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )
    complete = CustodyCompleteWhitelistPlanOperator(task_id="complete", applied=apply.output, plan_hash=approved_hash)

    # A part that only deletes has nothing to sign, so the tasks before this one may be skipped.
    @task.short_circuit(trigger_rule="none_failed")
    def is_more_left(counts: dict[str, int]) -> bool:
        """Skip the next task after the last part."""
        return counts["later"] > 0

    start_next_run = TriggerDagRunOperator(task_id="start_next_run", trigger_dag_id="custody_first_load")

    plan >> approve >> apply >> signatures[0] >> signatures[1] >> wait_until_effective >> complete
    complete >> is_more_left(plan.output["counts"]) >> start_next_run
