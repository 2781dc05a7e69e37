"""
Load a large whitelist file for the first time, in parts.

Each run plans one part of the file, asks for its approval, applies and signs it, and waits until it is in effect. Then
it starts the next run, until no row is left. People only approve.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, task
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup

with DAG(
    dag_id="custody_first_load",
    schedule=None,
    # Each run starts the next one, which waits until the first has ended.
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
) as dag:
    whitelist = CustodyWhitelistFileTaskGroup(
        path="custody_whitelist.yaml",
        signers={
            "custody_first_signer": ConnectionSigner("custody_first_key"),
            "custody_second_signer": ConnectionSigner("custody_second_key"),
        },
        assigned_users=[{"id": "carol", "name": "carol"}, {"id": "dave", "name": "dave"}],
        # Each run loads the first 500 rows that are not requested yet.
        at_most=500,
        # The limits find faulty files, so they apply to the whole file, and not to one part.
        task_arguments={"plan": {"max_creates": 10_000}},
    )

    # If there is nothing to do, the tasks before this one are skipped.
    @task.short_circuit(trigger_rule="none_failed")
    def is_more_left(counts: dict[str, int]) -> bool:
        """Skip the next task after the last part."""
        return bool(counts["later"] > 0)

    start_next_run = TriggerDagRunOperator(task_id="start_next_run", trigger_dag_id="custody_first_load")

    whitelist >> is_more_left(whitelist.plan.output["counts"]) >> start_next_run
