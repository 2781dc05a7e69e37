"""
The main example, as a task group and as single tasks: the approver, the time of the approval, and the approved plan.

On Airflow 3.3, a user responds through Airflow's API. Before, only the single tasks can be used, and the user who
starts the run approves. The whole way after an approval on 3.3 is shown by the demo, which has a test of its own.
"""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, load, run_dag
from support.airflow.approvals import Office, open_office
from support.airflow.task_log import TaskLog
from support.airflow.webhook_reads import forget_reads, register_assets, write_calls
from support.service.people import connect_approvers

from airflow_custody.client import CustodyClient
from airflow_custody.client.whitelist.files.reading import read_whitelist_file
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.whitelist.store import EFFECTIVE

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "example_dags"
AS_CODE, AS_TASKS = "custody_whitelist_as_code", "custody_whitelist_as_tasks"
FILE = "custody_whitelist.yaml"
ROWS = 4
NEW_ROW = f'  - {{label: One more, address: "0x{"a" * 40}"}}\n'
HAS_APPROVALS = AIRFLOW >= (3, 3)

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]
with_approvals = pytest.mark.skipif(not HAS_APPROVALS, reason="it has no approvals")
without_approvals = pytest.mark.skipif(AIRFLOW >= (3, 1), reason="people approve in the UI there")


@pytest.fixture(autouse=True)
def approvers(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the example's approvers, who sign one after the other."""
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a DAG bundle, before Airflow 3 the DAGs folder, with the examples and the file in it."""
    for name in (
        f"{AS_CODE}.py",
        f"{AS_TASKS}.py",
        "custody_whitelist_reconciliation.py",
        "custody_on_currency_status.py",
        FILE,
    ):
        shutil.copy(EXAMPLES / name, tmp_path)
    bundle = {
        "name": "treasury",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(tmp_path)},
    }
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    if AIRFLOW < (3,):
        monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path))
    return tmp_path


def dag_of(folder: Path, name: str) -> Any:
    """Import an example from a folder; its tasks are not tried again."""
    dag = load(folder / f"{name}.py").dag
    for each in dag.tasks:
        each.retries = 0
    return dag


def signatures(sandbox: Sandbox) -> int:
    return len(sandbox.control.request_log("POST", "/whitelists/addresses/approve"))


def statuses(sandbox: Sandbox) -> list[str]:
    return [request["status"] for request in sandbox.control.whitelist_requests()]


@pytest.fixture(scope="module")
def office(airflow_db: None) -> Office:
    return open_office()


@with_approvals
class TestApproval:
    @pytest.mark.parametrize(
        ("name", "group", "first"), [(AS_CODE, "whitelist.", "custody_first_signer"), (AS_TASKS, "", "first")]
    )
    def test_a_rejected_plan_is_not_applied(
        self, sandbox: Sandbox, folder: Path, office: Office, name: str, group: str, first: str
    ) -> None:
        responses: list[int] = []

        def respond() -> None:
            responses.append(office.mallory.respond(office.question, "Approve"))
            responses.append(office.carol.respond(office.question, "Reject"))

        run = office.run(dag_of(folder, name), respond)
        assert responses == [403, 200]
        assert run.state == "success", run.states
        assert run.pushed(f"{group}approve", "plan_hash") is None
        rest = ("apply", f"sign_{first}", "wait_until_effective", "complete", "prove")
        assert {run.state_of(f"{group}{each}") for each in rest} == {"skipped"}
        assert sandbox.control.request_log("POST") == []
        assert [each["name"] for each in office.question["assigned_users"]] == ["carol", "dave"]
        assert "Settlement, Bitcoin" in office.question["body"]
        plan = run.xcom(f"{group}plan")
        assert plan["plan_hash"] in office.question["body"]
        assert office.question["subject"] == f"Apply the whitelist plan: create {plan['counts']['create']}, delete 0?"

    @pytest.mark.parametrize(("name", "group"), [(AS_CODE, "whitelist."), (AS_TASKS, "")])
    def test_the_approved_plan_is_the_one_that_was_shown(
        self, sandbox: Sandbox, folder: Path, office: Office, name: str, group: str
    ) -> None:
        from airflow.models.xcom import XComModel

        def respond() -> None:
            # Do as if a user had cleared only the task that plans.
            try:
                run_id = office.question["task_instance"]["dag_run_id"]
                XComModel.set(key="plan_hash", value="0" * 64, dag_id=name, task_id=f"{group}plan", run_id=run_id)
            finally:
                office.approve()

        run = office.run(dag_of(folder, name), respond)
        assert run.pushed(f"{group}plan", "plan_hash") == "0" * 64
        approved = run.pushed(f"{group}approve", "plan_hash")
        assert approved in office.question["body"]
        assert run.xcom(f"{group}apply")["plan_hash"] == approved
        assert run.state == "success", run.states


@without_approvals
class TestApprovalInAdvance:
    def test_a_plan_is_read_in_one_run_and_applied_by_another(
        self, sandbox: Sandbox, folder: Path, task_log: TaskLog
    ) -> None:
        dag = dag_of(folder, AS_TASKS)
        run = run_dag(dag)
        assert run.state == "success", run.states
        assert {run.state_of(each) for each in ("apply", "sign_first", "wait_until_effective", "prove")} == {"skipped"}
        assert sandbox.control.request_log("POST") == []
        approved = run.xcom("plan")["plan_hash"]
        assert approved in task_log.text
        text = (folder / FILE).read_text()
        (folder / FILE).write_text(text + NEW_ROW)
        run = run_dag(dag, run_conf={"approved_plan": approved})
        assert run.state_of("approve") == "failed"
        assert f"The plan is now {run.xcom('plan')['plan_hash']}" in task_log.text
        assert statuses(sandbox) == []
        (folder / FILE).write_text(text)
        run = run_dag(dag, run_conf={"approved_plan": approved})
        assert run.state == "success", run.states
        # The plan that is applied is the one whose hash the run was started with, even if another is planned later.
        assert run.xcom("approve") == approved
        assert run.xcom("prove")["counts"]["unchanged"] == ROWS
        assert statuses(sandbox) == [EFFECTIVE] * ROWS
        assert signatures(sandbox) == 2


@pytest.fixture
def in_effect(sandbox: Sandbox, folder: Path) -> None:
    """Have the service show in effect what the file says."""
    with CustodyClient(sandbox.url, sandbox.token) as client:
        for row in read_whitelist_file(folder / FILE).rows:
            sandbox.control.set_whitelist_status(client.create_whitelist_request(row.request), EFFECTIVE)
    sandbox.control.clear_request_log()


@pytest.mark.usefixtures("in_effect")
@pytest.mark.parametrize(("name", "group"), [pytest.param(AS_CODE, "whitelist.", marks=with_approvals), (AS_TASKS, "")])
def test_without_anything_to_do_only_the_proof_runs(sandbox: Sandbox, folder: Path, name: str, group: str) -> None:
    run = run_dag(dag_of(folder, name))
    assert run.state == "success", run.states
    ran = {task_id for (task_id, _), state in run.states.items() if state != "skipped"}
    assert ran == {f"{group}wait_until_healthy", f"{group}prove"}
    assert run.xcom(f"{group}prove")["counts"]["unchanged"] == ROWS
    assert sandbox.control.request_log("POST") == []


@pytest.mark.usefixtures("in_effect")
def test_the_reconciliation_finds_what_the_file_does_not_have(sandbox: Sandbox, folder: Path) -> None:
    dag = dag_of(folder, "custody_whitelist_reconciliation")
    assert run_dag(dag).state == "success"
    (folder / FILE).write_text((folder / FILE).read_text().partition("  - label: Exchange")[0])
    run = run_dag(dag)
    assert run.state == "failed"
    assert run.xcom("reconcile")["counts"]["undeclared"] == 1
    assert sandbox.control.request_log("POST") == []


def test_the_whitelist_is_planned_again_when_a_currency_is_switched_off(sandbox: Sandbox, folder: Path) -> None:
    kind = "currencyStatus.updated"
    webhook_id = sandbox.control.add_webhook(type=kind)["id"]
    module = load(folder / "custody_on_currency_status.py")
    for dag in (module.read_dag, module.dag):
        register_assets(dag)
        for each in dag.tasks:
            each.retries = 0
    forget_reads(module.read_dag)

    def read() -> str:
        return run_dag(module.read_dag).state_of("read")

    def send(**data: Any) -> None:
        sandbox.control.send_event(kind, {"currencyId": 7, **data})
        assert read() == "success"

    # The first run only stores the position.
    assert read() == "success"
    assert read() == "skipped"
    assert run_dag(module.dag).state_of("plan") == "skipped"
    assert run_dag(module.dag).state_of("find_reasons") == "skipped"
    # Another currency is switched on, and an event of another kind arrives.
    send(currency="BTC", status="enabled")
    sandbox.control.add_webhook(type="requestStatus.updated")
    sandbox.control.send_event("requestStatus.updated")
    assert read() == "skipped"
    run = run_dag(module.dag)
    assert run.state == "success"
    assert run.state_of("plan") == "skipped"
    # Several events arrive while the second DAG is paused, and the service has no address of the file.
    send(currency="BTC", status="disabled")
    send(currency="XRP", status="enabled")
    # A missing status does not count as enabled.
    send(currency="SOL")
    send(currency="ETH\x1b[31m", status="Disabled")
    write_calls(sandbox, webhook_id, 9, payload="text", createdAt=datetime.now(timezone.utc).isoformat())
    assert read() == "success"
    # The event is larger than 64 KiB, so it only has ids.
    send(currency="ADA", status="disabled", text="x" * 70_000)
    run = run_dag(module.dag)
    assert run.xcom("find_reasons") == [
        "'BTC' is 'disabled'",
        "'SOL' is 'None'",
        "'ETH\\x1b[31m' is 'Disabled'",
        "call 9 cannot be read",
        "'ADA' is 'disabled'",
    ]
    assert run.state_of("plan") == "failed"
    assert run.pushed("plan", "counts")["create"] == 4
    assert sandbox.control.request_log("POST") == []
    assert run_dag(module.dag).state_of("find_reasons") == "skipped"
