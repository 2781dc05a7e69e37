"""One DAG for each scenario in which a whitelist file is planned and applied; the runner kills the task."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG
from scenarios import APPLY_SCENARIOS

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator


class KilledApplyOperator(CustodyApplyWhitelistPlanOperator):
    """The apply operator, which tells the runner its process; with a fence so short that the scenario ends soon."""

    def execute(self, context: Any) -> Any:
        pid_file = Path(os.environ["FAULTS_FOLDER"]) / f"{self.custody_conn_id}.pid"
        # Whole or not at all.
        new = pid_file.with_suffix(".new")
        new.write_text(f"{os.getpid()} {os.getppid()}")
        new.replace(pid_file)
        return super().execute(context)


for scenario in APPLY_SCENARIOS:
    with DAG(scenario.name, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), schedule=None) as dag:
        arguments: dict[str, Any] = {
            "path": str(Path(os.environ["FAULTS_FOLDER"]) / f"{scenario.name}.csv"),
            "custody_conn_id": scenario.name,
        }
        # Its rows are more than a plan may create by default.
        plan = CustodyPlanWhitelistOperator(
            task_id="plan", max_creates=None, retries=3, retry_delay=timedelta(seconds=1), **arguments
        )
        apply = KilledApplyOperator(
            task_id="apply",
            plan_hash=plan.output["plan_hash"],  # type: ignore[index]
            lookup_wait=2.5,
            retries=100,
            retry_delay=timedelta(seconds=0.1),
            **arguments,
            **scenario.operator,
        )
        plan >> apply
    globals()[scenario.name] = dag
