"""An AssetWatcher of webhook calls in real Airflow, its scheduler and triggerer as processes of their own."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json

from airflow_custody.sandbox import Sandbox

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from support.airflow.watcher_runs import add_call, ids_of

ROOT = Path(__file__).parent.parent.parent
POLL = 1.0
DAG = f"""
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger

calls = Asset(
    "calls",
    watchers=[AssetWatcher(name="calls", trigger=CustodyWebhookCallTrigger(start="beginning", poke_interval={POLL}))],
)

with DAG("on_calls", schedule=[calls]):
    EmptyOperator(task_id="start_work")
"""


def wait_for(find: Callable[[], Any], within: float = 900.0) -> Any:
    deadline = time.monotonic() + within
    while not (found := find()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)
    return found


@pytest.fixture
def airflow(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "faults"))
    from servers import Airflow

    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "on_calls.py").write_text(DAG)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "demo"), str(ROOT), *sys.path]),
        "AIRFLOW_CONN_CUSTODY_DEFAULT": connection_json(sandbox),
        # One that is killed is replaced soon.
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "3",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    }
    # No task needs the API server.
    with Airflow(tmp_path, dags, environment, ("scheduler", "dag-processor", "triggerer")) as components:
        yield components


def test_a_call_starts_a_dag_and_a_killed_triggerer_loses_none(sandbox: Sandbox, airflow: Any) -> None:
    def rows(query: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{airflow.database}?mode=ro", uri=True, timeout=30)) as database:
            return [row[0] for row in database.execute(query)]

    def seen() -> list[str]:
        events = [json.loads(extra) for extra in rows("SELECT extra FROM asset_event ORDER BY id")]
        return [each for event in events for each in ids_of(event["payload"])]

    def runs() -> list[str]:
        return rows("SELECT state FROM dag_run")

    add_call(sandbox, "first")
    # The watcher is there as soon as the DAG is.
    wait_for(runs)
    assert seen() == ["first"]
    add_call(sandbox, "second")
    wait_for(lambda: len(runs()) == 2)
    expected = ["first", "second"]
    for number in range(10):
        add_call(sandbox, f"third-{number}")
        expected.append(f"third-{number}")
        if number == 5:
            airflow.kill("triggerer")
        time.sleep(0.1)
    airflow.restart("triggerer")
    wait_for(lambda: {*seen()} == {*expected})
    # Some may have come twice, but each came in order.
    assert list(dict.fromkeys(seen())) == expected
    wait_for(lambda: {*runs()} == {"success"})
