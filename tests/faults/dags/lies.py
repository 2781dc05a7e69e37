"""One DAG for each scenario in which the service lies: what signs, waits and reconciles meets the same address."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG
from scenarios import LIE_SCENARIOS

from airflow_custody.client.signers import PemSigner
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

FOLDER = Path(os.environ["FAULTS_FOLDER"])

for scenario in LIE_SCENARIOS:
    with DAG(
        scenario.name,
        start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
        schedule=None,
        params={"pending": "", "effective": ""},
    ) as dag:
        CustodySignWhitelistRequestsOperator(
            task_id="sign",
            custody_conn_id=f"{scenario.name}_signer",
            signer=PemSigner.from_file(FOLDER / f"{scenario.name}-carol.key"),
            request_ids="{{ params.pending }}",
            expected=None,
        )
        CustodyWhitelistRequestSensor(
            task_id="wait",
            custody_conn_id=f"{scenario.name}_pinned",
            request_id="{{ params.effective }}",
            deferrable=True,
            poke_interval=1,
            timeout=60,
        )
        CustodyPlanWhitelistOperator(
            task_id="reconcile",
            custody_conn_id=f"{scenario.name}_pinned",
            path=str(FOLDER / f"{scenario.name}.csv"),
            fail_on_changes=True,
        )
    globals()[scenario.name] = dag
