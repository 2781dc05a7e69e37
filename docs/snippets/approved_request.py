"""One address, with an approval and two signers, in one task group. Tests run it."""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistRequestTaskGroup

with DAG(
    "custody_approved_request",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={name: Param(type="string", minLength=1) for name in ("label", "address", "blockchain")},
) as dag:
    CustodyWhitelistRequestTaskGroup(
        label="{{ params.label }}",
        address="{{ params.address }}",
        blockchain="{{ params.blockchain }}",
        signers={
            "custody_first_signer": ConnectionSigner("custody_first_key"),
            "custody_second_signer": ConnectionSigner("custody_second_key"),
        },
        assigned_users=[{"id": "carol", "name": "carol"}],
        # Without a response in time, the request is rejected.
        response_timeout=timedelta(hours=8),
    )
