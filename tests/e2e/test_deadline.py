"""The example with a deadline: the callback that Airflow calls when the deadline has passed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.airflow.airflow_runs import load

from airflow_custody.client import CustodyError
from airflow_custody.sandbox import Sandbox

EXAMPLE = Path(__file__).parent.parent.parent / "example_dags" / "custody_pending_approvals.py"
CONTEXT = {"dag_run": {"dag_id": "dag", "dag_run_id": "run"}, "deadline": {"deadline_time": "noon"}}

pytestmark = [pytest.mark.usefixtures("connection"), pytest.mark.filterwarnings("ignore")]


def test_the_pending_requests_are_named(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"label": "L", "address": f"0x{1:040x}", "blockchain": "ETH"}
    (number,) = sandbox.control.add_whitelist_requests([row], status="pending")
    first, second, third = lines = load(EXAMPLE).notify(CONTEXT)
    assert [line for line in capsys.readouterr().out.splitlines() if line in lines] == lines
    assert first == "dag, run run: not signed by noon"
    assert second.startswith(f"pending: request {number} since 20")
    assert third == "1 pending, 1 listed"


def test_the_alert_comes_before_the_service_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", "{}")
    with pytest.raises(CustodyError):
        load(EXAMPLE).notify(CONTEXT)
    assert "dag, run run: not signed by noon" in capsys.readouterr().out
