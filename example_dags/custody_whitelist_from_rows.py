"""
Keep the whitelist in step with another system: plan from its rows, apply, and prove the result.

``addresses`` returns all addresses that should be whitelisted. ``plan`` finds the addresses that the service lacks. It
fails if there are more than a few, so that a faulty query requests nothing. ``apply`` requests each row once. The
requests are signed at the service. ``prove`` compares again. It fails if a row differs, or if the service has an
address that the source does not have. This DAG never deletes.

There is no schedule, because the addresses are samples from public specifications. For your own addresses, set a
schedule, such as ``"0 2 * * *"``. Rows that are pending or in effect are not requested again.

What to change: read the addresses from your own source in ``addresses``, and set the limit. To have plans approved in
Airflow before they are applied, see ``custody_whitelist_as_code``.
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
                # This column may be empty in the source: see omit_if_none.
                "customer_id": None,
            },
        ]

    rows = addresses()
    plan = CustodyPlanWhitelistOperator(
        task_id="plan",
        rows=rows,
        omit_if_none=("customer_id",),
        # More new addresses in one night are probably a mistake in the source.
        max_creates=5,
        skip_if_nothing_to_do=True,
    )
    apply = CustodyApplyWhitelistPlanOperator(
        task_id="apply",
        # The settings of the plan come with its output, but not the rows.
        plan=plan.output,
        rows=rows,
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
        # Fail if rows differ, or the service has requests that the source does not have.
        fail_on_changes=True,
        # Run even if the tasks before it were skipped because there was nothing to do.
        trigger_rule="none_failed",
    )

    chain(plan, apply, wait_until_effective, prove)
