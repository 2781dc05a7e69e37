"""
Keep a whitelist as a file: plan, approve that plan, apply it, sign, wait until it is in effect, prove the result.

``custody_whitelist.yaml`` beside this file lists the destination addresses that the service should have. Keep both
files where changes are reviewed, such as a DAG bundle from Git. The task group has these tasks:

- ``wait_until_healthy`` waits for a healthy service.
- ``plan`` compares the file with the service.
- ``approve`` shows the plan in the Airflow UI (*Required Actions*). Without a response in time, the plan is rejected.
- ``apply`` applies the approved plan, and sends nothing if the file or the service has changed since. It requests each
  row at most once, even if the task is killed, retried or cleared.
- Two signers sign the created requests, each with their own user and key, and ``wait_until_effective`` waits.
- ``complete`` deletes the replaced requests once the new ones are in effect. If a label changes, the row gets a new
  request, and the address stays in effect throughout.
- ``prove`` plans again, and fails if the service differs from the file.

Start a run when the file has changed. If there is nothing to do, ``plan`` skips all further tasks except
``prove``. If the plan is rejected, the run ends there. To continue after a failure, clear the failed tasks.

What to change: the file, ``MAY_APPROVE``, the limit of ``plan``. Connections to create: the two signers' users
(``custody_first_signer``, ``custody_second_signer``), and for each signer's P-256 key a connection of any type
with the extra ``private_key`` (``custody_first_key``, ``custody_second_key``).

Approving in the UI requires Airflow 3.1 or later with ``apache-airflow-providers-standard``. Elsewhere, such as on
Airflow 2.11, this file has an import error, so that no plan is applied without an approval: use the example
``custody_whitelist_as_tasks``, which also shows the single tasks.

Listing, signing and deleting are undocumented operations of the service.
"""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup

#: The users who may approve a plan: replace them with yours. With Airflow's simple auth manager, an id is a user name
#: (a fresh ``airflow standalone`` has one user, admin); with the FAB provider's, it is a number. All other users see
#: "Access Denied". A task that is already waiting keeps the old names. This list only restricts who can respond. Users
#: who may edit the DAG's task instances (Airflow's role User) can write XCom and mark the task as successful, which
#: approves the plan as well.
MAY_APPROVE = [{"id": "carol", "name": "carol"}, {"id": "dave", "name": "dave"}]

with DAG(
    dag_id="custody_whitelist_as_code",
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    whitelist = CustodyWhitelistFileTaskGroup(
        path="custody_whitelist.yaml",
        signers={
            "custody_first_signer": ConnectionSigner("custody_first_key"),
            "custody_second_signer": ConnectionSigner("custody_second_key"),
        },
        assigned_users=MAY_APPROVE,
        # Without a response in time, the plan is rejected, and all tasks after the approval are skipped.
        response_timeout=timedelta(hours=8),
        # A row whose label, links or types have changed gets a new request in place of the old one.
        replace=True,
        prove=True,
        task_arguments={
            "wait_until_healthy": {"poke_interval": 5},
            # A plan that creates more requests fails before the approval.
            "plan": {"max_creates": 100},
        },
    )
