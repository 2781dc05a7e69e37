"""The recipes of the guides, in real Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, load, new_dag, run_dag
from support.airflow.apply_tries import address, write_rows
from support.airflow.webhook_reads import forget_reads, register_assets, write_calls
from support.service.people import connect_approvers

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.usefixtures("airflow_db"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def recipes(sandbox: Sandbox, connection: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)[:1]}])
    return load(ROOT / "docs" / "snippets" / "recipes.py")


def statuses(sandbox: Sandbox) -> list[str]:
    return [each["status"] for each in sandbox.control.whitelist_requests()]


def test_mapped_requests_are_signed_at_once(sandbox: Sandbox, recipes: Any) -> None:
    run = run_dag(recipes.sign_mapped)
    assert run.state == "success", run.states
    assert run.xcom("sign_first") == 2
    assert statuses(sandbox) == ["APPROVED"] * 2
    assert len(sandbox.control.request_log(method="POST", path="/whitelists/addresses/approve")) == 1


@pytest.mark.parametrize("exists", [False, True])
def test_a_teardown_deletes_only_what_its_setup_created(sandbox: Sandbox, recipes: Any, exists: bool) -> None:
    if exists:
        address = "0xde709f2102306220921060314715629080e2fb77"
        with CustodyClient(sandbox.url, sandbox.token) as client:
            client.create_whitelist_request(
                WhitelistRequest(label="Supplier Bremen", address=address, blockchain="ETH")
            )
    run = run_dag(recipes.temporary_address)
    assert run.state == "success", run.states
    assert run.xcom("create_temporary", key="created") is not exists
    assert run.xcom("delete_temporary")["deleted"] is not exists
    assert len(sandbox.control.whitelist_requests()) == exists
    paths = [call["path"] for call in sandbox.control.request_log("POST")]
    assert sum(each.endswith("/whitelists/addresses") for each in paths) == 1


def test_a_request_that_cannot_be_signed_is_rejected_and_the_run_fails(
    sandbox: Sandbox, recipes: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_FIRST_KEY", json.dumps({"conn_type": "generic"}))
    run = run_dag(recipes.on_failure)
    states = {name: state for (name, _), state in run.states.items()}
    assert states == {"create_request": "success", "sign_first": "failed", "reject": "success", "watcher": "failed"}
    assert run.state == "failed"
    assert statuses(sandbox) == ["rejected"]
    assert "sign_first failed: the signing key 'custody_first_key' cannot be used" in capsys.readouterr().out


def test_a_signed_request_is_not_rejected(sandbox: Sandbox, recipes: Any) -> None:
    run = run_dag(recipes.on_failure)
    assert run.state == "success"
    assert run.state_of("reject") == "skipped"
    assert run.state_of("watcher") == "skipped"
    assert statuses(sandbox) == ["APPROVED"]


def test_a_change_of_the_whitelist_is_told(recipes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"label": "Treasury", "address": "0x" + "1" * 40, "blockchain": "ETH"}
    path = tmp_path / "whitelist.json"
    path.write_text(json.dumps({"version": 1, "addresses": [row]}))
    with new_dag() as dag:
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=str(path))
        made: Any = plan.output
        CustodyApplyWhitelistPlanOperator(task_id="apply", plan=made, plan_hash=made["plan_hash"])
    register_assets(dag)
    plan_hash = run_dag(dag).xcom("plan")["plan_hash"]
    assert run_dag(recipes.whitelist_changed).state == "success"
    assert f"applied {plan_hash} 1" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(AIRFLOW < (3, 1), reason="it has no approvals")
def test_a_first_load_starts_itself_until_no_row_is_left(
    sandbox: Sandbox, connection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])
    recipe = load(ROOT / "docs" / "snippets" / "first_load.py")
    recipe.whitelist.plan.path = write_rows(tmp_path / "whitelist.yaml", range(1, 6))
    recipe.whitelist.plan.at_most = 2
    questions: list[str] = []

    def approve(self: Any, context: Any) -> None:
        questions.append(self.plan["question"])
        context["ti"].xcom_push(key="plan_hash", value=self.plan["plan_hash"])

    # Without this, dag.test() would wait for a user's response.
    monkeypatch.setattr(type(recipe.whitelist.approve), "execute", approve)
    for number, (rows, is_last) in enumerate([(2, False), (4, False), (5, True), (5, True)]):
        run = run_dag(recipe.dag)
        assert run.state == "success", run.states
        assert run.state_of("start_next_run") == ("skipped" if is_last else "success")
        assert statuses(sandbox) == ["APPROVED"] * rows
        assert len(questions) == min(number + 1, 3)
    assert questions[0].endswith("create 2, delete 0? 3 operations are left for the next run.")
    assert sorted(each["address"] for each in sandbox.control.whitelist_requests()) == [*map(address, range(1, 6))]


def test_the_first_dag_waits_and_creates(sandbox: Sandbox, connection: str) -> None:
    dag = load(ROOT / "docs" / "snippets" / "first_steps.py").dag
    run = run_dag(dag, run_conf={"label": "Supplier", "address": "0x" + "1" * 40, "blockchain": "ETH"})
    assert run.state == "success", run.states
    assert [each["id"] for each in sandbox.control.whitelist_requests()] == [str(run.xcom("create_request"))]
    assert statuses(sandbox) == ["pending"]


def test_each_call_is_handled_once(sandbox: Sandbox, connection: str, capsys: pytest.CaptureFixture[str]) -> None:
    handling = load(ROOT / "docs" / "snippets" / "handle_calls.py").dag
    with new_dag() as reading:
        CustodyReadWebhookCallsOperator(task_id="read", start="beginning")
    for dag in (reading, handling):
        register_assets(dag)
    forget_reads(reading)
    webhook_id = sandbox.control.add_webhook()["id"]
    for number in (0, 1):
        write_calls(sandbox, webhook_id, number, payload=json.dumps({"type": "a", "data": {"number": number}}))
        assert run_dag(reading).state == "success"
    # Both events are handled in one run. After that, no event is new.
    assert [run_dag(handling).state, run_dag(handling).state] == ["success", "success"]
    output = capsys.readouterr().out
    assert [output.count(f"{{'number': {number}}}") for number in (0, 1)] == [1, 1], output


@pytest.mark.slow
def test_own_dags_are_tested_with_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    shutil.copy(ROOT / "example_dags" / "custody_first_dag.py", tmp_path / "dags")
    shutil.copy(ROOT / "docs" / "snippets" / "dags_conftest.py", tmp_path / "conftest.py")
    shutil.copy(ROOT / "docs" / "snippets" / "dags_test.py", tmp_path / "test_dags.py")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTEST"))}
    # In a process of pytest-xdist, which has to have an Airflow of its own.
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
