"""
The reading of webhook calls in real runs: the events and positions that Airflow stores.

Killed tasks and triggerers are the subject of tests/faults/events_run.py.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, Asset, task
from support.airflow.airflow_runs import AIRFLOW, new_dag, run_dag
from support.airflow.task_log import TaskLog
from support.airflow.webhook_reads import forget_reads, new_asset, register_assets, stored_events, write_calls

from airflow_custody.client.webhooks.calls import CallCursor
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.sandbox import Sandbox

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]


def ids_of(extra: Any) -> list[str]:
    return [each["id"] for each in extra["calls"]]


def reading(asset: Asset, **arguments: Any) -> DAG:
    with new_dag() as dag:
        CustodyReadWebhookCallsOperator(task_id="read", asset=asset, **arguments)
    register_assets(dag)
    return dag


def stranger(asset: Asset, extra: dict[str, Any]) -> DAG:
    """Return a DAG of another team, whose task emits an event of the asset."""
    with new_dag() as dag:

        @task(task_id="read", outlets=[asset])
        def emit(outlet_events: Any = None) -> None:
            outlet_events[asset].extra = extra

        emit()
    register_assets(dag)
    return dag


def test_a_position_that_another_dag_wrote_skips_no_call(sandbox: Sandbox, webhook: str) -> None:
    asset, now = new_asset(), datetime.now(timezone.utc)
    dag = reading(asset, start="beginning")
    attack = stranger(asset, {"cursor": CallCursor(now).to_json(), "filters": {}, "task": [dag.dag_id, "read"]})
    for number in (1, 2):
        write_calls(sandbox, webhook, number)
        assert run_dag(dag).state_of("read") == "success"
        assert run_dag(attack).state == "success"
    assert [ids_of(each) for each in stored_events(asset) if "calls" in each] == [["1"], ["2"]]


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="the asset state store of Airflow 3.3")
def test_an_event_that_airflows_clean_up_deleted_is_a_gap(sandbox: Sandbox, webhook: str, task_log: TaskLog) -> None:
    dag = reading(new_asset(), start="beginning")
    write_calls(sandbox, webhook, 1)
    assert [run_dag(dag).state_of("read") for _ in range(2)] == ["success", "skipped"]
    forget_reads(dag, with_state=False)
    assert run_dag(dag).state_of("read") == "failed"
    assert "is no longer in Airflow's database" in task_log.text
    assert "state store" not in task_log.text


def test_a_mapped_task_is_refused(sandbox: Sandbox, task_log: TaskLog) -> None:
    with new_dag() as dag:
        CustodyReadWebhookCallsOperator.partial(task_id="read", asset=new_asset()).expand(event_ids=[["event-1"]])
    assert run_dag(dag).state_of("read", 0) == "failed"
    assert "all its instances would share one cursor" in task_log.text
    assert sandbox.control.request_log() == []
