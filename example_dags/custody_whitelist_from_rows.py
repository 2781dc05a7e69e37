"""
Keep the whitelist as another system has it: plan from its rows, apply, and prove the result.

``addresses`` returns all addresses that should be whitelisted. The plan finds what the service lacks, and fails if that
is more than a few rows: so a faulty query asks for nothing. Applying requests each row once. The people who sign do so
at the service. The last task compares again, and fails the run if a row differs, or if the service has an address that
the source no longer has: nothing is deleted here.

There is no schedule, as the addresses are samples from public specifications. With your own, set one, such as
``"0 2 * * *"``: rows that are pending or in effect are not asked for again.

What to change: read the addresses from your own source in ``addresses``, and the limit. For a decision in Airflow
between planning and applying, see ``custody_whitelist_as_code``.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, chain, task

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

with DAG(
    dag_id="custody_whitelist_from_rows",
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def addresses() -> list[dict]:
        """Return all addresses that should be whitelisted, each with the operator's arguments."""
        return [
            {
                "label": "Supplier, Ethereum",
                "blockchain": "ETH",
                "address": "0xde709f2102306220921060314715629080e2fb77",
            },
            {
                "label": "Supplier, Bitcoin",
                "blockchain": "BTC",
                "address": "bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3",
                # A column of the source that may be empty: see omit_if_none.
                "customer_id": None,
            },
        ]

    rows = addresses()
    plan = CustodyPlanWhitelistOperator(
        task_id="plan",
        rows=rows,
        omit_if_none=("customer_id",),
        # More than this in one night is a mistake in the source.
        max_creates=5,
        skip_if_nothing_to_do=True,
    )
    apply = CustodyApplyWhitelistPlanOperator(
        task_id="apply",
        rows=rows,
        omit_if_none=("customer_id",),
        plan_hash=plan.output["plan_hash"],
    )

    wait_until_effective = CustodyWhitelistRequestSensor(
        task_id="wait_until_effective",
        request_id=apply.output["request_ids"],
        expected=apply.output["requests"],
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    )

    prove = CustodyPlanWhitelistOperator(
        task_id="prove",
        rows=rows,
        omit_if_none=("customer_id",),
        # Fails over rows that differ, and requests that the source does not have: a person decides about these.
        fail_on_changes=True,
        # If there was nothing to apply, what is in between is skipped, and this runs.
        trigger_rule="none_failed",
    )

    chain(plan, apply, wait_until_effective, prove)
