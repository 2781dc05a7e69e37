"""A whitelist file whose corrected rows replace what is in effect."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator

with DAG(dag_id="custody_replace_row", schedule=None, max_active_runs=1) as dag:
    # [START howto_replace_row]
    plan = CustodyPlanWhitelistOperator(
        task_id="plan", path="custody_whitelist.yaml", replace=True, skip_if_nothing_to_do=True
    )
    approve = CustodyApproveWhitelistPlanOperator(
        task_id="approve", plan_hash=plan.output["plan_hash"], body=plan.output["report"]
    )
    apply = CustodyApplyWhitelistPlanOperator(
        task_id="apply", path="custody_whitelist.yaml", replace=True, plan_hash=approve.output["plan_hash"]
    )
    # [END howto_replace_row]
    plan >> approve >> apply
