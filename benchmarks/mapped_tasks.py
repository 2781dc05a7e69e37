"""
Compares applying a whitelist file in one task with mapped tasks.

Both run in a real Airflow. There is a mapped task for each row.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from side_by_side import HOME, report, service
from whitelist_files import plan_hash, write_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "faults"))

from servers import Airflow  # noqa: E402

_TIMEOUT = 240.0


def mapped_tasks(sizes: Sequence[int], mapped: int) -> None:
    """
    Compare the time for each row on Airflow with LocalExecutor.

    :param sizes: the number of rows of each file. A task takes seconds to start: the more rows, the less this counts.
    :param mapped: the number of mapped tasks.
    """
    from airflow_custody.client import CustodyClient

    print(f"\napply a file in one task, beside {mapped} mapped tasks, on Airflow with LocalExecutor")
    files = {
        rows: write_file(rows, HOME / f"rows_{rows}.yaml", first=10**6 * number) for number, rows in enumerate(sizes)
    }
    first = write_file(10, HOME / "first.yaml", first=10**8)
    with service() as (_, url, token), CustodyClient(url, token) as client:
        environment = {
            "BENCH_FILES": json.dumps({str(path): plan_hash(client, path) for path in (first, *files.values())}),
            "BENCH_MAPPED": str(mapped),
            "AIRFLOW_CONN_CUSTODY_DEFAULT": json.dumps({"conn_type": "custody", "host": url, "password": token}),
        }
        with Airflow(HOME, HERE / "dags", environment) as airflow:
            # Do not measure the first task, because it loads files from disk that later tasks find in memory.
            _seconds(airflow, first.stem)
            one = {rows: _seconds(airflow, path.stem) for rows, path in files.items()}
            many = _seconds(airflow, "mapped_tasks")
    print(f"  mapped tasks: {many:.1f} s for {mapped} rows, {many / mapped * 1000:.1f} ms for each")
    for rows, seconds in one.items():
        print(f"  one task: {seconds:.1f} s for {rows:,} rows, {seconds / rows * 1000:.1f} ms for each")
        report(
            f"times as long for each row as one task for {rows:,}", (many / mapped) / (seconds / rows), 100, least=True
        )


def _seconds(airflow: Airflow, dag: str) -> float:
    """Run a DAG, and return how long its run took."""
    airflow.call("POST", f"/dags/{dag}/dagRuns", {"dag_run_id": "run", "logical_date": None, "conf": {}})
    deadline = time.monotonic() + _TIMEOUT
    while (run := airflow.call("GET", f"/dags/{dag}/dagRuns/run"))["state"] not in ("success", "failed"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the DAG {dag} takes longer than {_TIMEOUT:g} s")
        time.sleep(0.5)
    if run["state"] != "success":
        raise RuntimeError(f"the DAG {dag} failed; its logs are in {airflow.logs}")
    return (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run["start_date"])).total_seconds()
