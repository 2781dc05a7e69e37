"""Planning, reconciling and applying with pinned keys, where the service lists unsigned requests as in effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.airflow.airflow_runs import FakeTaskInstance, failing_at_once
from support.airflow.apply_tries import address, effective, plan, write_rows
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import somebody_creates

from airflow_custody.client.whitelist.plans.plan import ROW_STATES
from airflow_custody.sandbox import Sandbox


@pytest.fixture(autouse=True)
def pinned(sandbox: Sandbox, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.loads(sandbox.connection(pins=True))
    connection["extra"] |= {"timeout": 60, "max_retries": 0}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_rows(tmp_path / "whitelist.yaml", [1, 2])


def create_signed(sandbox: Sandbox, number: int) -> None:
    made = somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    sandbox.control.sign_whitelist_requests([made])


def test_a_reconciliation_names_what_nobody_signed_and_fails(sandbox: Sandbox, path: str, task_log: TaskLog) -> None:
    create_signed(sandbox, 1)
    forged, elsewhere = effective(sandbox, 2), effective(sandbox, 77)
    ti = FakeTaskInstance()
    with failing_at_once("2 unverified: ") as caught:
        plan(path, ti=ti, fail_on_changes=True)
    assert f"line 4 (request {forged}) unverified; request {elsewhere} unverified" in str(caught.value)
    assert "before you know who requested them; `custody whitelist verify" in str(caught.value.error)
    assert ti.pushed["return_value"]["counts"] == {**dict.fromkeys(ROW_STATES, 0), "unchanged": 1, "unverified": 2}
    assert f"request {forged} (APPROVED)" in task_log.text
    assert "note: not verified: no signature covers its text" in task_log.text
    assert "2 rows are not verified" in ti.pushed["return_value"]["report"]
    for each in (forged, elsewhere):
        sandbox.control.sign_whitelist_requests([each])
    assert plan(path)["counts"] == {**dict.fromkeys(ROW_STATES, 0), "unchanged": 2, "undeclared": 1}
