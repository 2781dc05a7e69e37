"""The reading of webhook calls in real runs: what Airflow stores, and what a killed task leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.configuration import AIRFLOW_HOME
from airflow.providers.common.compat.sdk import DAG, Asset, task
from support.airflow.airflow_runs import AIRFLOW, Run, new_dag, run_dag
from support.airflow.task_log import TaskLog
from support.airflow.webhook_reads import new_asset, register_assets, stored_events, write_calls

from airflow_custody.client.webhooks.calls import CallCursor
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.sandbox import Sandbox

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]

KILLED = Path(__file__).parent.parent / "support" / "airflow" / "killed_read.py"


def ids_of(extra: Any) -> list[str]:
    return [each["id"] for each in extra["calls"]]


def reading(asset: Asset, **arguments: Any) -> DAG:
    with new_dag() as dag:
        CustodyReadWebhookCallsOperator(task_id="read", asset=asset, **arguments)
    register_assets(dag)
    return dag


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="the asset state store of Airflow 3.3")
def test_a_quiet_reading_is_kept_in_the_real_store(sandbox: Sandbox, webhook: str, task_log: TaskLog) -> None:
    asset = new_asset()
    dag = reading(asset, start="beginning", event_ids=["event-1", "event-3"])
    write_calls(sandbox, webhook, 1)
    run_dag(dag)
    write_calls(sandbox, webhook, 2)
    assert run_dag(dag).state_of("read") == "skipped"
    with new_dag() as looking:

        @task(inlets=[asset])
        def look(asset_state_store: Any = None) -> Any:
            return asset_state_store[asset].get("custody_read_webhook_calls")

        look()
    kept = run_dag(looking).xcom("look")
    assert {each for each, _ in CallCursor.from_json(kept["cursor"]).seen} == {"1", "2"}
    write_calls(sandbox, webhook, 3)
    assert run_dag(dag).state_of("read") == "success"
    assert [ids_of(each) for each in stored_events(asset)] == [["1"], ["3"]]
    assert "state store" not in task_log.text


def test_what_a_killed_task_has_read_is_read_again(sandbox: Sandbox, webhook: str) -> None:
    asset = new_asset()
    write_calls(sandbox, webhook, 1)
    assert run_dag(reading(asset, start="beginning")).state == "success"
    write_calls(sandbox, webhook, 2, 3)
    before = len(sandbox.control.request_log(path="/webhooks/calls"))
    # It kills itself with SIGKILL when it has set the event.
    done = subprocess.run(
        [sys.executable, str(KILLED), asset.uri],
        env={**os.environ, "AIRFLOW_HOME": AIRFLOW_HOME, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert len(sandbox.control.request_log(path="/webhooks/calls")) > before
    assert [ids_of(each) for each in stored_events(asset)] == [["1"]]
    assert run_dag(reading(asset)).state == "success"
    assert [ids_of(each) for each in stored_events(asset)] == [["1"], ["2", "3"]]


def test_a_mapped_task_is_refused(sandbox: Sandbox, task_log: TaskLog) -> None:
    asset = new_asset()
    with new_dag() as dag:
        CustodyReadWebhookCallsOperator.partial(task_id="read", asset=asset, retries=2).expand(
            event_ids=[["event-1"], ["event-2"]]
        )
    run: Run = run_dag(dag)
    assert {run.state_of("read", index) for index in (0, 1)} == {"failed"}
    assert {run.tries["read", index] for index in (0, 1)} == {1}
    assert "all its instances would share one cursor" in task_log.text
    assert sandbox.control.request_log() == []
