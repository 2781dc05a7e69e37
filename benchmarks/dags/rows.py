"""The same job in two ways: one task that applies a file, and a mapped task for each row."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
MAPPED = int(os.environ["BENCH_MAPPED"])

for path, plan_hash in json.loads(os.environ["BENCH_FILES"]).items():
    source = {"path": path, "only": {}, "ignore": [], "omit_if_none": [], "check_address": True}
    plan = {"plan_hash": plan_hash, "source": {**source, "prune": False, "replace": False}}
    with DAG(Path(path).stem, start_date=START, schedule=None) as dag:
        CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan, plan_hash=plan_hash, lookup_wait=2)
    globals()[dag.dag_id] = dag

with DAG("mapped_tasks", start_date=START, schedule=None) as mapped_tasks:
    CustodyCreateWhitelistRequestOperator.partial(task_id="create", blockchain="ETH", lookup_wait=2).expand_kwargs(
        [{"label": f"Mapped {each}", "address": f"0x{10**9 + each:040x}"} for each in range(MAPPED)]
    )
