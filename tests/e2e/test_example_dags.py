"""Each example runs unchanged against the sandbox, in real Airflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.utils.session import create_session
from airflow_runs import AIRFLOW, Run, load, run_dag
from conftest import TaskLog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from people import ROLES, Person
from sqlalchemy import select

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.whitelist.store import EFFECTIVE

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


def dags_of(path: Path, example: Example) -> list[Any]:
    module = example(path.stem)
    return [module.dag] if hasattr(module, "dag") else []


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_trigger_form_describes_each_param(path: Path, example: Example) -> None:
    for dag in dags_of(path, example):
        for name in dag.params:
            param = dag.params.get_param(name)
            assert param.schema.get("title"), name
            assert param.description, name


@pytest.mark.parametrize("name", ["approval", "batch", "complete"])
def test_the_trigger_form_describes_each_param_without_the_ui(
    name: str, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
    test_the_trigger_form_describes_each_param(EXAMPLES / f"custody_whitelist_{name}.py", example)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_what_creates_requests_has_no_schedule_and_others_say_what_switching_on_does(
    path: Path, example: Example
) -> None:
    for dag in dags_of(path, example):
        timetable = type(dag.timetable).__name__
        if any("Create" in each.task_type for each in dag.tasks):
            assert timetable == "NullTimetable"
        if "Cron" in timetable:
            assert "you switch" in dag.doc_md
            assert "most recent scheduled run" in " ".join(dag.doc_md.split())


@pytest.mark.skipif(AIRFLOW < (3, 1), reason="nobody is asked there")
@pytest.mark.parametrize(("name", "task_id"), [("approval", "approve"), ("complete", "decide")])
def test_the_question_names_the_request(name: str, task_id: str, example: Example) -> None:
    question = example(f"custody_whitelist_{name}").dag.get_task(task_id)
    template = question.get_template_env().from_string(question.subject)
    params = {"label": "Cold wallet", "blockchain": "ETH"}
    pull = {"create_request": "3711"}
    subject = template.render(params=params, ti=SimpleNamespace(xcom_pull=lambda task_ids: pull[task_ids]))
    assert "equest 3711: whitelist Cold wallet on ETH?" in subject


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
    HEADER = "label,blockchain,address,memo,linked_wallet_ids\n"
    GOOD = f"good,ETH,0x{'a' * 40},,\n"

    @pytest.fixture(autouse=True)
    def one_approver(self, sandbox: Sandbox, people: list[dict[str, Any]]) -> None:
        sandbox.control.set_approvers([{"sequential": people[:1]}])

    @pytest.fixture
    def file(self, tmp_path: Path) -> Callable[[str], str]:
        """Return a function that writes a file of rows and returns its path."""

        def write(rows: str, header: str = self.HEADER) -> str:
            path = tmp_path / "some.csv"
            path.write_text(header + rows)
            return str(path)

        return write

    def run(self, example: Example, **conf: Any) -> Run:
        # Minutes of retries and a day of waiting would show nothing.
        dag = example("custody_whitelist_batch").dag
        for each in dag.tasks:
            each = getattr(each, "partial_kwargs", None) or each.__dict__
            each["retries"] = 0
        return run_dag(dag, run_conf={"file": str(EXAMPLES / "addresses.csv"), **conf})

    def create(self, sandbox: Sandbox, **fields: Any) -> str:
        """Create a request as somebody else does, by default that of the row GOOD."""
        with CustodyClient(sandbox.url, sandbox.token) as client:
            return client.create_whitelist_request(
                WhitelistRequest(**{"label": "good", "blockchain": "ETH", "address": f"0x{'a' * 40}", **fields})
            )

    def test_one_signature_for_all(self, sandbox: Sandbox, example: Example) -> None:
        run = self.run(example)
        assert run.state == "success", run.states
        requests = {request["id"]: request for request in sandbox.control.whitelist_requests()}
        assert {request["status"] for request in requests.values()} == {EFFECTIVE}
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

    def test_a_second_run_changes_nothing(self, sandbox: Sandbox, example: Example) -> None:
        report = self.run(example).xcom("report")
        sandbox.control.clear_request_log()
        run = self.run(example)
        assert run.state == "success", run.states
        assert run.xcom("report") == report
        assert sandbox.control.request_log("POST") == []
        assert {run.state_of("create_requests"), run.state_of("sign_first")} == {"skipped"}

    def test_an_empty_file_ends_well(self, sandbox: Sandbox, example: Example, file: Callable[[str], str]) -> None:
        run = self.run(example, file=file(""))
        assert run.state == "success", run.states
        assert sandbox.control.request_log("POST") == []

    @pytest.mark.parametrize(
        "order", [[["first"], ["second"]], [["first", "second"]], [["second"]], [["first"]]], ids=str
    )
    def test_signs_as_often_as_the_service_wants_signatures(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str], order: list[list[str]]
    ) -> None:
        branches = [[{"externalGroupID": name, "minimumSignatures": 1} for name in branch] for branch in order]
        sandbox.control.set_approvers([{"sequential": branch} for branch in branches])
        run = self.run(example, file=file(self.GOOD))
        assert run.state == "success", run.states
        assert len(sandbox.control.request_log(path="/whitelists/addresses/approve")) == sum(map(len, order))
        assert [request["status"] for request in sandbox.control.whitelist_requests()] == [EFFECTIVE]

    def test_requests_of_one_file_that_want_different_numbers_of_signatures(
        self, sandbox: Sandbox, example: Example, file: Callable[..., str]
    ) -> None:
        # As the service does by itself: a request with both linked lists wants two.
        sandbox.control.set_approvers(None)
        for name in ("first", "second"):
            connection = json.loads(os.environ[f"AIRFLOW_CONN_CUSTODY_{name.upper()}_APPROVER"])
            with CustodyClient(sandbox.url, connection["password"]) as client:
                user = client.get_current_user()["id"]
            key = load_pem_private_key(
                json.loads(os.environ[f"AIRFLOW_CONN_CUSTODY_{name.upper()}_KEY"])["extra"]["private_key"].encode(),
                None,
            )
            public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
            sandbox.control.add_user(name, ROLES, user_id=user, groups=["approvers"], public_key=public)
        header = "label,blockchain,address,linked_internal_address_ids,linked_wallet_ids\n"
        path = file(f"one,ETH,0x{'a' * 40},,12\ntwo,ETH,0x{'b' * 40},7;8,12\n", header)
        run = self.run(example, file=path)
        assert run.state == "success", run.states
        requests = sandbox.control.whitelist_requests()
        assert [request["status"] for request in requests] == [EFFECTIVE] * 2
        # Airflow runs the tasks for the rows in any order.
        two = next(request["id"] for request in requests if request["label"] == "two")
        calls = sandbox.control.request_log(path="/whitelists/addresses/approve")
        assert [call["body"]["ids"] for call in calls] == [["3711", "3712"], [two]]
        assert self.run(example, file=path).state == "success"

    def test_a_request_that_is_pending_is_signed_and_not_created_again(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str]
    ) -> None:
        pending = self.create(sandbox)
        run = self.run(example, file=file(self.GOOD + f"new,ETH,0x{'b' * 40},,\n"))
        assert run.state == "success", run.states
        requests = sandbox.control.whitelist_requests()
        assert [request["status"] for request in requests] == [EFFECTIVE] * 2
        assert run.xcom("report") == {"good": pending, "new": requests[1]["id"]}

    @pytest.mark.parametrize("effective", [False, True], ids=["pending", "in effect"])
    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"label": "other"}, "differs from request 3711 in label"),
            ({"linked_wallet_ids": ["12"]}, "differs from request 3711 in linked_wallet_ids"),
            ({"linked_internal_address_ids": ["7"]}, "differs from request 3711 in linked_internal_address_ids"),
            ({"address_type": "exchange"}, "differs from request 3711 in address_type"),
            ({"address": f"0x{'A' * 40}", "customer_id": "5"}, "differs from request 3711 in address, customer_id"),
        ],
    )
    def test_a_request_that_differs_creates_nothing(
        self,
        sandbox: Sandbox,
        example: Example,
        file: Callable[[str], str],
        task_log: Any,
        fields: dict[str, Any],
        problem: str,
        effective: bool,
    ) -> None:
        request_id = self.create(sandbox, **fields)
        if effective:
            sandbox.control.set_whitelist_status(request_id, EFFECTIVE)
        run = self.run(example, file=file(f"new,ETH,0x{'b' * 40},,\n" + self.GOOD))
        assert run.state == "failed"
        assert run.state_of("find_new") == "failed"
        assert f"{problem}: good, ETH 0xaaa" in task_log.text
        assert len(sandbox.control.whitelist_requests()) == 1

    def test_the_same_address_with_another_memo_is_another_row(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str]
    ) -> None:
        address = "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh"
        run = self.run(example, file=file(f"a,XRP,{address},1,\nb,XRP,{address},2,\nc,XRP,{address},,\n"))
        assert run.state == "success", run.states
        assert len(sandbox.control.whitelist_requests()) == 3

    def test_an_individual_address_is_no_difference(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str]
    ) -> None:
        self.create(sandbox, address_type="individual", blockchain="eth")
        assert self.run(example, file=file(self.GOOD)).xcom("find_new") == []

    def test_two_requests_for_a_row_are_reported(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str], task_log: Any
    ) -> None:
        self.create(sandbox)
        self.create(sandbox)
        assert self.run(example, file=file(self.GOOD)).state == "failed"
        assert "2 times at the service: 3711, 3712: good" in task_log.text

    @pytest.mark.parametrize(
        ("rows", "header", "problem"),
        [
            (GOOD + f"again,eth,0x{'A' * 40},,\n", HEADER, "2 times in the file: again, eth 0xAAA"),
            (f"l,ETH,0x{'a' * 40},x\n", "label,blockchain,address,mmeo\n", "unknown column"),
            (f"l,ETH,0x{'a' * 40},x,1,more\n", HEADER, "unknown column"),
            ("l,ETH,,,\n", HEADER, "lacks a required cell"),
        ],
        ids=["twice", "misspelt column", "too many cells", "no address"],
    )
    def test_a_file_with_a_mistake_creates_nothing(
        self,
        sandbox: Sandbox,
        example: Example,
        file: Callable[..., str],
        task_log: Any,
        rows: str,
        header: str,
        problem: str,
    ) -> None:
        assert self.run(example, file=file(rows, header)).state == "failed"
        assert problem in task_log.text
        assert sandbox.control.request_log("POST") == []

    def test_a_row_that_is_refused_signs_nothing(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str]
    ) -> None:
        assert self.run(example, file=file(self.GOOD + "bad,ETH,0x12,,\n")).state == "failed"
        assert sandbox.control.request_log(path="/whitelists/addresses/approve") == []

    def test_a_rejected_request_fails_the_run(
        self, sandbox: Sandbox, example: Example, file: Callable[[str], str], task_log: TaskLog
    ) -> None:
        sandbox.control.set_whitelist_status(self.create(sandbox), "rejected")
        run = self.run(example, file=file(self.GOOD))
        assert run.state_of("find_new") == "failed"
        assert "was rejected: delete it to ask again" in task_log.text
        assert len(sandbox.control.whitelist_requests()) == 1

    def test_more_than_a_hundred_are_signed_in_batches(self, sandbox: Sandbox, example: Example) -> None:
        module = example("custody_whitelist_batch")
        rows = [
            {"id": self.create(sandbox, address=f"0x{number:040x}"), "address": f"0x{number:040x}"}
            for number in range(130)
        ]
        find_to_sign = module.dag.get_task("find_for_first").python_callable
        batches = find_to_sign(rows, "custody_first_approver")
        assert [len(batch["request_ids"]) for batch in batches] == [100, 30]
        assert [each["id"] for batch in batches for each in batch["expected"]] == [row["id"] for row in rows]
        assert find_to_sign(rows, "custody_second_approver") == []
        assert find_to_sign([], "custody_first_approver") == []
        # What an approver cannot find is not taken for signed.
        sandbox.control.set_whitelist_lag(3600)
        with pytest.raises(RuntimeError, match="custody_second_approver does not find the requests 3711"):
            find_to_sign(rows[:1], "custody_second_approver")


class TestReconciliation:
    def run(self, example: Example, path: Path = EXAMPLES / "addresses.csv") -> Run:
        dag = example("custody_whitelist_reconciliation").dag
        for each in dag.tasks:
            # A minute's delay before each retry would show nothing.
            each.retries = 0
        return run_dag(dag, run_conf={"file": str(path)})

    @pytest.fixture(autouse=True)
    def after_the_batch(
        self, sandbox: Sandbox, connection: str, airflow_db: None, example: Example, people: list[dict[str, Any]]
    ) -> None:
        sandbox.control.set_approvers([{"sequential": people}])
        assert TestBatch().run(example).state == "success"

    def test_agrees_after_the_batch_and_fails_on_any_difference(self, sandbox: Sandbox, example: Example) -> None:
        run = self.run(example)
        assert run.state == "success", run.states
        assert run.xcom("compare") == 3
        first, second, _ = (request["id"] for request in sandbox.control.whitelist_requests())
        sandbox.control.change_whitelist_request(first, label="Renamed", linkedWalletIds=["99"])
        sandbox.control.set_whitelist_status(second, "removed")
        more = TestBatch().create(sandbox)
        # One that is pending is not in effect.
        TestBatch().create(sandbox, address=f"0x{'b' * 40}")
        sandbox.control.set_whitelist_status(more, EFFECTIVE)
        run = self.run(example)
        assert run.state == "failed"
        differences = run.pushed("compare", "differences")
        assert sorted(each["what"] for each in differences) == [
            "differs in label, linked_wallet_ids",
            "missing at the service",
            "not on the list",
        ]

    @pytest.mark.parametrize(
        ("fields", "what"),
        [
            ({"linkedInternalAddressIds": ["7"]}, "differs in linked_internal_address_ids"),
            ({"addressType": "exchange"}, "differs in address_type"),
            ({"customerId": "5", "contractType": "x"}, "differs in contract_type, customer_id"),
        ],
    )
    def test_a_field_that_the_list_does_not_name_is_a_difference(
        self, sandbox: Sandbox, example: Example, fields: dict[str, Any], what: str
    ) -> None:
        sandbox.control.change_whitelist_request("3711", **fields)
        (difference,) = self.run(example).pushed("compare", "differences")
        assert difference["what"] == what

    @pytest.mark.parametrize("status", ["declined", "expired", ""])
    def test_a_status_that_nobody_knows_is_not_in_effect(self, sandbox: Sandbox, example: Example, status: str) -> None:
        sandbox.control.set_whitelist_status("3711", status)
        (difference,) = self.run(example).pushed("compare", "differences")
        assert difference["what"] == "differs in status"

    def test_an_individual_address_is_no_difference(self, sandbox: Sandbox, example: Example) -> None:
        sandbox.control.change_whitelist_request("3711", addressType="individual")
        assert self.run(example).state == "success"

    def test_the_table_fits_the_log_with_the_deciding_column_first(
        self, sandbox: Sandbox, example: Example, task_log: Any, tmp_path: Path
    ) -> None:
        path = tmp_path / "others.csv"
        path.write_text(f"label,blockchain,address\n{'Long label ' * 9},A-chain-with-a-long-name,{'address' * 14}\n")
        assert self.run(example, path).state == "failed"
        lines = task_log.text.splitlines()
        starts = ("missing at the service", "not on the list", "1 on the list")
        table = [line[line.index(start) :] for line in lines for start in starts if start in line and "{" not in line]
        assert len(table) == 5
        assert [line for line in table if len(line) > 100] == []
        assert any(
            re.match(r"not on the list +ETH +0x8617E340…\w{10} Settlement, Ethereum$", line) for line in table
        ), table
        assert any(re.match(r"missing at the service +A-CH…\S+ addressadd…\S{10} Long label", line) for line in table)

    def test_a_request_that_cannot_be_verified_fails_the_comparison(self, sandbox: Sandbox, example: Example) -> None:
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
        assert request["status"] == EFFECTIVE
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
