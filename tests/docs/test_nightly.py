"""The nightly DAG of the guide: one task group, with an approval, two signers, evidence and alerts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, load, run_dag
from support.airflow.approvals import Office, open_office
from support.service.people import connect_approvers

from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.whitelist.store import EFFECTIVE

if AIRFLOW < (3, 3):
    pytest.skip("it has no approvals that dag.test() waits for", allow_module_level=True)

from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier

ROOT = Path(__file__).parents[2]
SNIPPET = ROOT / "docs" / "snippets" / "nightly.py"
ROWS = 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("airflow_db"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def office(airflow_db: None) -> Office:
    return open_office()


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the messages to Slack."""
    sent: list[str] = []
    monkeypatch.setattr(SlackWebhookNotifier, "notify", lambda self, context: sent.append(self.text))
    return sent


@pytest.fixture
def dag(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the DAG, without retries, in a bundle with the sample file."""
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True))
    bundle = tmp_path / "dags"
    bundle.mkdir()
    (tmp_path / "evidence").mkdir()
    monkeypatch.setenv("AIRFLOW_VAR_CUSTODY_EVIDENCE", str(tmp_path / "evidence"))
    shutil.copy(SNIPPET, bundle)
    shutil.copy(ROOT / "example_dags" / "custody_whitelist.yaml", bundle)
    place = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": "treasury", "classpath": place, "kwargs": {"path": str(bundle)}}]
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(bundles))
    made = load(bundle / SNIPPET.name).dag
    for task in made.tasks:
        task.retries = 0
    return made


def test_it_has_at_most_25_lines() -> None:
    lines = [each for each in SNIPPET.read_text().splitlines() if each and not each.startswith('"""')]
    assert len(lines) <= 25


def test_a_night(sandbox: Sandbox, dag: Any, office: Office, messages: list[str], tmp_path: Path) -> None:
    run = office.run(dag, office.approve)
    assert run.state == "success", run.states
    assert [each["name"] for each in office.question["assigned_users"]] == ["carol"]
    (message,) = messages
    assert message.startswith(f"Apply the whitelist plan: create {ROWS}, delete 0? <http")
    assert "/tasks/whitelist.approve/required_actions?" in message
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == [EFFECTIVE] * ROWS
    (evidence,) = (tmp_path / "evidence").iterdir()
    assert str(evidence) == run.xcom("whitelist.verify")["path"]


def test_a_failure_is_announced(sandbox: Sandbox, dag: Any, messages: list[str]) -> None:
    sandbox.control.add_fault(method="GET", path="/whitelists/addresses", kind="status", status=403, times=None)
    assert run_dag(dag).state == "failed"
    assert messages
    assert messages[0].startswith("Failed: whitelist.plan <http")
