"""Each example runs unchanged against the sandbox, in real Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.utils.session import create_session
from airflow_runs import AIRFLOW, Run, load, run_dag
from people import Person
from sqlalchemy import select

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox

EXAMPLES = Path(__file__).parent.parent.parent / "example_dags"
FILES = sorted(EXAMPLES.glob("*.py"))

# Imports an example by its name.
Example = Callable[[str], ModuleType]

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def example() -> Example:
    """Return a function that imports an example by its name."""
    return lambda name: load(EXAMPLES / f"{name}.py")


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_is_parsed_without_fetching_a_connection(path: str, tmp_path: Path) -> None:
    # No connection is defined here: fetching one while the file is parsed would fail.
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env={"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_health_gate(sandbox: Sandbox, example: Example) -> None:
    run = run_dag(example("custody_health_gate").dag)
    assert run.state == "success"
    assert run.xcom("check")["groups"].keys() == {"hsm", "blockchain"}
    assert "6 healthy checks" in run.xcom("work")


def test_mapping(sandbox: Sandbox, example: Example) -> None:
    run = run_dag(example("custody_whitelist_mapping").dag)
    assert run.state == "success"
    report = run.xcom("report")
    requests = {request["id"]: request for request in sandbox.control.whitelist_requests()}
    assert {label: requests[request_id]["label"] for label, request_id in report.items()} == {
        label: label for label in report
    }
    assert len(requests) == 3


@pytest.fixture
def people(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Define the two approvers of the examples, and return their groups."""
    groups = []
    for name in ("first", "second"):
        person = Person(sandbox, name, name)
        service = json.loads(sandbox.connection()) | {"password": person.token}
        key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{name.upper()}_APPROVER", json.dumps(service))
        monkeypatch.setenv(f"AIRFLOW_CONN_CUSTODY_{name.upper()}_KEY", json.dumps(key))
        groups.append({"externalGroupID": name, "minimumSignatures": 1})
    return groups


class TestBatch:
    def run(self, example: Example, **conf: Any) -> Run:
        return run_dag(
            example("custody_whitelist_batch").dag, run_conf={"file": str(EXAMPLES / "addresses.csv"), **conf}
        )

    def test_one_signature_for_all(self, sandbox: Sandbox, example: Example, people: list[dict[str, Any]]) -> None:
        sandbox.control.set_approvers([{"sequential": people[:1]}])
        run = self.run(example)
        assert run.state == "success", run.states
        requests = {request["id"]: request for request in sandbox.control.whitelist_requests()}
        assert {request["status"] for request in requests.values()} == {"active"}
        assert {label: requests[number]["label"] for label, number in run.xcom("report").items()} == {
            request["label"]: request["label"] for request in requests.values()
        }
        (call,) = sandbox.control.request_log(path="/whitelists/addresses/approve")
        assert len(call["body"]["ids"]) == 3
        if AIRFLOW >= (3,):  # Airflow 2 records no asset events in a test run
            from airflow.models.asset import AssetEvent

            with create_session() as session:
                event = session.scalars(select(AssetEvent).order_by(AssetEvent.id.desc())).first()
                assert event is not None
                assert event.source_task_id == "report"
                assert sorted(event.extra["ids"]) == sorted(requests)

    def test_a_row_that_is_refused_signs_nothing(
        self, sandbox: Sandbox, example: Example, people: list[dict[str, Any]], tmp_path: Path
    ) -> None:
        sandbox.control.set_approvers([{"sequential": people[:1]}])
        (tmp_path / "some.csv").write_text(
            f"label,blockchain,address,memo,linked_wallet_ids\ngood,ETH,0x{'a' * 40},,\nbad,ETH,0x12,,\n"
        )
        assert self.run(example, file=str(tmp_path / "some.csv")).state == "failed"
        assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []


class TestReconciliation:
    def run(self, example: Example) -> Run:
        dag = example("custody_whitelist_reconciliation").dag
        for each in dag.tasks:
            # A minute's delay before each retry would show nothing.
            each.retries = 0
        return run_dag(dag, run_conf={"file": str(EXAMPLES / "addresses.csv")})

    def test_agrees_after_the_batch_and_fails_on_any_difference(
        self, sandbox: Sandbox, example: Example, people: list[dict[str, Any]]
    ) -> None:
        sandbox.control.set_approvers([{"sequential": people[:1]}])
        assert TestBatch().run(example).state == "success"
        run = self.run(example)
        assert run.state == "success", run.states
        assert run.xcom("compare") == 3
        first, second, _ = (request["id"] for request in sandbox.control.whitelist_requests())
        sandbox.control.change_whitelist_request(first, label="Renamed", linkedWalletIds=["99"])
        sandbox.control.set_whitelist_status(second, "removed")
        with CustodyClient(sandbox.url, sandbox.token) as client:
            more = client.create_whitelist_request(
                WhitelistRequest(label="Nobody knows", address="0x" + "c" * 40, blockchain="ETH")
            )
        sandbox.control.set_whitelist_status(more, "active")
        run = self.run(example)
        assert run.state == "failed"
        differences = run.pushed("compare", "differences")
        assert sorted(each["what"] for each in differences) == [
            "differs in label, linked_wallet_ids",
            "missing at the service",
            "not on the list",
        ]

    def test_a_request_that_cannot_be_verified_fails_the_comparison(
        self, sandbox: Sandbox, example: Example, people: list[dict[str, Any]]
    ) -> None:
        sandbox.control.set_approvers([{"sequential": people[:1]}])
        assert TestBatch().run(example).state == "success"
        sandbox.control.set_whitelist_metadata("3711", hash="0" * 64)
        assert self.run(example).state == "failed"


class TestCompleteWhitelisting:
    """The example with the decision given in advance; in the demo, somebody is asked for it."""

    @pytest.fixture(autouse=True)
    def decision_in_advance(
        self, sandbox: Sandbox, people: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
        sandbox.control.set_approvers([{"sequential": people}])

    def test_an_approved_request_takes_effect(self, sandbox: Sandbox, example: Example) -> None:
        run = run_dag(example("custody_whitelist_complete").dag, run_conf={"decision": "Approve"})
        assert run.state == "success", run.states
        (request,) = sandbox.control.whitelist_requests()
        assert request["status"] == "active"
        assert run.state_of("reject") == "skipped"
        assert "has taken effect" in run.xcom("tell")

    def test_a_rejected_request_is_not_signed(self, sandbox: Sandbox, example: Example) -> None:
        run = run_dag(example("custody_whitelist_complete").dag)
        assert run.state == "success", run.states
        (request,) = sandbox.control.whitelist_requests()
        assert request["status"] == "rejected"
        assert run.state_of("sign_first") == run.state_of("wait_until_effective") == "skipped"
        assert "was rejected" in run.xcom("tell")
        assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []


def test_webhook_maintenance(sandbox: Sandbox, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook_id = sandbox.control.add_webhook()["id"]
    monkeypatch.setenv("AIRFLOW_VAR_CUSTODY_WEBHOOK_ID", webhook_id)
    run = run_dag(example("custody_webhook_maintenance").dag)
    assert run.state == "success"
    assert [each["body"]["status"] for each in sandbox.control.request_log("PATCH")] == ["disabled", "enabled"]
    assert sandbox.control.webhooks()[0]["status"] == "enabled"


@pytest.mark.skipif(AIRFLOW >= (3, 1), reason="people approve in the UI there")
class TestApprovalWithoutTheUi:
    def test_not_approved_creates_nothing(self, sandbox: Sandbox, example: Example) -> None:
        run = run_dag(example("custody_whitelist_approval").dag)
        assert run.state == "failed"
        assert sandbox.control.whitelist_requests() == []

    def test_approved_beforehand(self, sandbox: Sandbox, example: Example) -> None:
        webhook_id = sandbox.control.add_webhook(status="disabled")["id"]
        run = run_dag(
            example("custody_whitelist_approval").dag, run_conf={"approved_by": "alice", "webhook_id": webhook_id}
        )
        assert run.state == "success"
        (request,) = sandbox.control.whitelist_requests()
        assert run.xcom("sign")["request_id"] == request["id"]
        assert sandbox.control.webhooks()[0]["status"] == "enabled"


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="asset watchers came with Airflow 3")
def test_watcher_watches_and_holds_no_secret(sandbox: Sandbox, example: Example) -> None:
    module = example("custody_unhealthy_watcher")
    (watcher,) = module.custody_unhealthy.watchers
    path, arguments = watcher.trigger.serialize()
    assert path.endswith("CustodyHealthTrigger")
    assert arguments["fire_on"] == "unhealthy"
    assert sandbox.token not in json.dumps(arguments)


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="Airflow 2 has no asset watchers")
def test_watcher_defines_no_dag_on_airflow_2(example: Example) -> None:
    assert not hasattr(example("custody_unhealthy_watcher"), "dag")
