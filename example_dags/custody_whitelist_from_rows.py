"""
Keep the whitelist in step with another system: plan from its rows, apply, and prove the result.

``addresses`` returns all addresses that should be whitelisted. ``plan`` finds the addresses that the service lacks. It
fails if there are more than a few, so that a faulty query requests nothing. ``apply`` requests each row once. The
requests are signed at the service. ``prove`` compares again. It fails if a row differs, or if the service has an
address that the source does not have. This DAG never deletes.

There is no schedule, because the addresses are samples from public specifications. For your own addresses, set a
schedule, such as ``"0 2 * * *"``. Rows that are pending or in effect are not requested again.

What to change: read the addresses from your own source in ``addresses``, and set the limit. To have plans approved and
signed in Airflow, see ``custody_whitelist_as_code``: the task group takes ``rows`` in place of ``path``.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, task

from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup

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

    CustodyWhitelistFileTaskGroup(
        rows=addresses(),
        # The requests are signed at the service, and every plan within the limits is applied.
        signers={},
        approve=False,
        check_health=False,
        prove=True,
        task_arguments={
            # More new addresses in one night are probably a mistake in the source.
            "plan": {"omit_if_none": ("customer_id",), "max_creates": 5},
            "wait_until_effective": {"poke_interval": 5},
        },
    )
