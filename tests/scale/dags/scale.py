"""The DAGs of the scale suite: for each file, a plan and an apply task; and sensors for one request each."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG
from airflow.triggers.base import StartTriggerArgs
from processes import write_pids

from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

FOLDER = Path(os.environ["FAULTS_FOLDER"])
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SENSORS_OF_A_DAG = 20


class KilledApplyOperator(CustodyApplyWhitelistPlanOperator):
    """The apply operator, which writes down the process that runs it."""

    def execute(self, context: Any) -> Any:
        write_pids(FOLDER / f"{self.dag_id}.pid")
        return super().execute(context)


class DeferredSensor(CustodyWhitelistRequestSensor):
    """
    The sensor, deferred by the scheduler, because a worker would need a second for each sensor.

    A worker would take a second for each, and this is about the triggerer.
    """

    start_from_trigger = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(deferrable=True, **kwargs)
        # Parameters that are not given have no value before.
        self._check_given()
        path, arguments = self._trigger(None).serialize()
        self.start_trigger_args = StartTriggerArgs(path, "execute_complete", arguments, None, timedelta(hours=1))


for path in sorted(FOLDER.glob("file*.csv")):
    with DAG(f"apply_{path.stem}", start_date=START, schedule=None):
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=str(path), max_creates=None)
        apply = KilledApplyOperator(
            task_id="apply",
            plan=plan.output,
            plan_hash="{{ ti.xcom_pull(task_ids='plan')['plan_hash'] }}",
            lookup_wait=4.0,
            pool="custody_apply",
            retries=3,
            retry_delay=timedelta(seconds=1),
        )
        plan >> apply

ids = json.loads((FOLDER / "ids.json").read_text())
for number, first in enumerate(range(0, len(ids), SENSORS_OF_A_DAG)):
    with DAG(f"wait_{number:03}", start_date=START, schedule=None):
        for request_id in ids[first : first + SENSORS_OF_A_DAG]:
            DeferredSensor(task_id=f"wait_{request_id}", request_id=request_id, poke_interval=10)
