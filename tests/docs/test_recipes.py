"""The recipes of the guides, in real Airflow."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import load, new_dag, run_dag
from apply_tries import write_rows
from people import connect_approvers
from webhook_reads import register_assets

from airflow_custody.cli.main import main
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

RECIPES = Path(__file__).parent.parent.parent / "docs" / "snippets" / "recipes.py"
CREATE = {"method": "POST", "path": "/whitelists/addresses"}

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]


def test_a_change_of_the_whitelist_is_told(
    sandbox: Sandbox, recipes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with new_dag() as dag:
        path = write_rows(tmp_path / "whitelist.yaml", [1, 2])
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=path)
        CustodyApplyWhitelistPlanOperator(task_id="apply", path=path, plan_hash=plan.output["plan_hash"])  # type: ignore[index]
    register_assets(dag)
    plan_hash = run_dag(dag).xcom("plan")["plan_hash"]
    assert run_dag(recipes.whitelist_changed).state == "success"
    assert f"applied {plan_hash} 2" in "".join(capsys.readouterr())


@pytest.fixture
def recipes(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Any:
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)[:1]}])
    return load(RECIPES)


def statuses(sandbox: Sandbox) -> list[str]:
    return [each["status"] for each in sandbox.control.whitelist_requests()]


def test_what_a_mapped_task_created_is_signed_at_once(sandbox: Sandbox, recipes: Any) -> None:
    run = run_dag(recipes.sign_mapped)
    assert run.state == "success", run.states
    assert run.xcom("sign_first") == 2
    assert statuses(sandbox) == ["APPROVED"] * 2
    assert len(sandbox.control.request_log(method="POST", path="/whitelists/addresses/approve")) == 1


def test_nothing_is_signed_unless_all_were_created(sandbox: Sandbox, recipes: Any) -> None:
    sandbox.control.add_fault("status", **CREATE, status=400, skip=1)
    run = run_dag(recipes.sign_mapped)
    assert run.state == "failed"
    assert run.state_of("sign_first") == "upstream_failed"
    assert statuses(sandbox) == ["pending"]


NO_KEY = json.dumps({"conn_type": "generic"})


def test_what_nobody_can_sign_is_rejected_and_the_run_fails(
    sandbox: Sandbox, recipes: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_FIRST_KEY", NO_KEY)
    run = run_dag(recipes.on_failure)
    states = {name: state for (name, _), state in run.states.items()}
    assert states == {"create_request": "success", "sign_first": "failed", "reject": "success", "watcher": "failed"}
    assert run.state == "failed"
    assert statuses(sandbox) == ["rejected"]
    assert "sign_first failed: the signing key 'custody_first_key' cannot be used" in capsys.readouterr().out


def test_without_the_watcher_the_run_is_green(recipes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_FIRST_KEY", NO_KEY)
    run = run_dag(recipes.on_failure.partial_subset(["create_request", "sign_first", "reject"]))
    assert (run.state_of("sign_first"), run.state_of("reject"), run.state) == ("failed", "success", "success")


def test_where_nothing_fails_nothing_is_rejected(sandbox: Sandbox, recipes: Any) -> None:
    run = run_dag(recipes.on_failure)
    assert (run.state, run.state_of("reject"), run.state_of("watcher")) == ("success", "skipped", "skipped")
    assert statuses(sandbox) == ["APPROVED"]


@pytest.mark.parametrize(
    ("check", "results", "state"),
    [
        ("nodes", {"ETH": "success", "XRP": "failure"}, "success"),
        ("nodes", {"ETH": "failure", "XRP": "success"}, "failed"),
        ("nodes", {"XRP": "success"}, "failed"),
        ("synchronisation", {"ETH": "failure"}, "success"),
    ],
)
def test_one_chain_is_waited_for(
    sandbox: Sandbox, recipes: Any, check: str, results: dict[str, str], state: str
) -> None:
    report = {"name": check, "status": "success", "results": results}
    sandbox.control.update_health(component="hsm-1", status="failure")
    sandbox.control.update_health(group="blockchain", check=check, report=report)
    sensor = recipes.wait_for_ethereum.get_task("wait_for_ethereum")
    sensor.deferrable, sensor.timeout, sensor.poke_interval = False, 1, 0.5
    assert run_dag(recipes.wait_for_ethereum).state == state


def test_the_names_that_a_gate_can_have_are_listed_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (RECIPES.parent.parent / "how-to" / "health-gate.md").read_text()
    (shown,) = re.findall(r"^```text\n(.*?)\n```$", guide, re.DOTALL | re.MULTILINE)
    capsys.readouterr()
    assert main(["health"]) == 0
    assert shown in capsys.readouterr().out


def test_a_corrected_row_is_planned_as_one_that_replaces(sandbox: Sandbox, tmp_path: Path) -> None:
    row = {"label": "Supplier Bremen", "address": "0xde709f2102306220921060314715629080e2fb77", "blockchain": "ETH"}
    (number,) = sandbox.control.add_whitelist_requests([{**row, "label": "Suplier Bremen"}])
    sandbox.control.sign_whitelist_requests([number])
    file = tmp_path / "custody_whitelist.json"
    file.write_text(json.dumps({"version": 1, "addresses": [row]}))
    dag = load(RECIPES.parent / "replace_row.py").dag.partial_subset(["plan"])
    dag.get_task("plan").path = str(file)
    run = run_dag(dag)
    assert run.xcom("plan")["counts"]["replace"] == 1
    assert f"request `{number}`" in run.xcom("plan")["report"]
