"""The task groups in real Airflow, from the first task to the last: with killed tasks, with a rejection, and mapped."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, task, task_group
from support.airflow.airflow_runs import AIRFLOW, Run, new_dag, run_dag
from support.airflow.apply_tries import write_rows
from support.airflow.approvals import Office, open_office
from support.airflow.task_log import TaskLog
from support.service.people import connect_approvers

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.whitelist.store import EFFECTIVE
from airflow_custody.signers import ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup, CustodyWhitelistRequestTaskGroup

pytestmark = [pytest.mark.usefixtures("airflow_db"), pytest.mark.filterwarnings("ignore")]
HAS_APPROVALS = AIRFLOW >= (3, 3)
with_approvals = pytest.mark.skipif(not HAS_APPROVALS, reason="it has no approvals")
SIGNERS = {f"custody_{name}_signer": ConnectionSigner(f"custody_{name}_key") for name in ("first", "second")}
ADDRESS = "0xde709f2102306220921060314715629080e2fb77"
REQUEST: dict[str, Any] = {"label": "Supplier", "address": ADDRESS, "blockchain": "ETH"}
ROWS = range(1, 6)


@pytest.fixture(autouse=True)
def approvers(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define two signers, who sign one after the other, and pin the sandbox's keys."""
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True))


@pytest.fixture(scope="module")
def office(airflow_db: None) -> Office | None:
    return open_office() if HAS_APPROVALS else None


def file_dag(path: str, **arguments: Any) -> DAG:
    """Return a DAG of a whitelist file, with retries."""
    with DAG(new_dag().dag_id, schedule=None, default_args={"retries": 3, "retry_delay": timedelta(0)}) as dag:
        CustodyWhitelistFileTaskGroup(path=path, **{"signers": SIGNERS, "approve": HAS_APPROVALS, **arguments})
    return dag


def request_dag(**arguments: Any) -> DAG:
    """Return a DAG of a request, with retries."""
    params = {"label": "Supplier"}
    default_args = {"retries": 3, "retry_delay": timedelta(0)}
    with DAG(new_dag().dag_id, schedule=None, default_args=default_args, params=params) as dag:
        CustodyWhitelistRequestTaskGroup(**{**REQUEST, "signers": SIGNERS, "approve": HAS_APPROVALS, **arguments})
    return dag


def run_approved(office: Office | None, dag: DAG) -> Run:
    """Run a DAG. If this Airflow has approvals, approve its question."""
    return office.run(dag, office.approve) if office else run_dag(dag)


def states(run: Run) -> dict[str, str]:
    """Return the states of the group's tasks, by their names in it."""
    return {task_id.partition(".")[2]: state for (task_id, _), state in run.states.items()}


def in_effect(sandbox: Sandbox) -> dict[str, str]:
    """Return the labels of the requests in effect, by the end of their addresses, and check that no other exists."""
    found = sandbox.control.whitelist_requests()
    assert {each["status"] for each in found} <= {EFFECTIVE}
    addresses = [each["address"] for each in found]
    assert len({*addresses}) == len(addresses)
    return {each["address"][-2:]: each["label"] for each in found}


def signatures(sandbox: Sandbox) -> int:
    return len(sandbox.control.request_log("POST", "/whitelists/addresses/approve"))


class DyingStore:
    """A wrapper of a task state store that ends the task at a write."""

    def __init__(self, store: Any, write: int) -> None:
        self._store = store
        self._left = write

    def get(self, key: str, default: Any = None) -> Any:
        return self._store.get(key, default)

    def set(self, key: str, value: Any, **named: Any) -> None:
        self._left -= 1
        if self._left <= 0:
            raise RuntimeError("killed")
        self._store.set(key, value, **named)


class TestFile:
    @pytest.mark.slow
    def test_a_night(self, sandbox: Sandbox, office: Office | None, tmp_path: Path) -> None:
        """Two runs: rows are created, and one is replaced; then there is nothing to do."""
        old = {"label": "Old", "address": f"0x{1:040x}", "blockchain": "ETH"}
        sandbox.control.add_whitelist_requests([old], signed=True)
        folder = tmp_path / "evidence"
        folder.mkdir()
        path = write_rows(tmp_path / "whitelist.yaml", ROWS)
        dag = file_dag(path, replace=True, prove=True, evidence=f"{folder}/")
        run = run_approved(office, dag)
        assert run.state == "success", run.states
        assert in_effect(sandbox) == {f"0{each}": f"Label {each}" for each in ROWS}
        assert run.xcom("whitelist.complete")["counts"]["deleted"] == 1
        assert signatures(sandbox) == len(SIGNERS)
        assert run.xcom("whitelist.prove")["counts"]["unchanged"] == len(ROWS)
        proof = run.xcom("whitelist.verify")
        assert proof["counts"]["verified"] == len(ROWS)
        assert [*map(str, folder.iterdir())] == [proof["path"]]
        assert hashlib.sha256(Path(proof["path"]).read_bytes()).hexdigest() == proof["sha256"]
        assert re.fullmatch(rf"{dag.dag_id}-whitelist\.verify-manual__[^/]*-1\.json", Path(proof["path"]).name)
        # There is nothing to do, so only the two checks run, and a new evidence file is written.
        sandbox.control.clear_request_log()
        run = run_dag(dag)
        assert run.state == "success", run.states
        done = {name for name, state in states(run).items() if state != "skipped"}
        assert done == {"wait_until_healthy", "verify", "prove"}
        assert sandbox.control.request_log("POST") == []
        assert len([*folder.iterdir()]) == 2

    @pytest.mark.skipif(AIRFLOW < (3, 3), reason="the task state store of Airflow 3.3")
    @pytest.mark.slow
    @pytest.mark.parametrize("write", [2, 3, 5])
    def test_killed_in_the_middle(self, sandbox: Sandbox, office: Office, tmp_path: Path, write: int) -> None:
        """The apply task is killed at one of its writes, and the response to another row is lost."""

        def disrupt(context: Any) -> None:
            if context["ti"].try_number == 1:
                context["task_state_store"] = DyingStore(context["task_state_store"], write)

        sandbox.control.add_fault(method="POST", path="/whitelists/addresses", kind="drop", work=True, skip=2)
        arguments = {"apply": {"lookup_wait": 0.3, "pre_execute": disrupt}}
        dag = file_dag(write_rows(tmp_path / "whitelist.yaml", ROWS), task_arguments=arguments)
        run = run_approved(office, dag)
        assert run.state == "success", run.states
        assert run.tries["whitelist.apply", -1] > 1
        assert in_effect(sandbox) == {f"0{each}": f"Label {each}" for each in ROWS}
        assert len({*run.pushed("whitelist.apply", "request_ids")}) == len(ROWS)

    @with_approvals
    def test_a_rejection_ends_the_run(self, sandbox: Sandbox, office: Office, tmp_path: Path) -> None:
        path = write_rows(tmp_path / "whitelist.yaml", ROWS)
        run = office.run(file_dag(path, prove=True, evidence=str(tmp_path)), office.reject)
        assert run.state == "success"
        done = {name for name, state in states(run).items() if state != "skipped"}
        assert done == {"wait_until_healthy", "plan", "approve"}
        assert sandbox.control.request_log("POST") == []
        assert [each.name for each in tmp_path.iterdir()] == ["whitelist.yaml"]

    def test_deletions_only(self, sandbox: Sandbox, office: Office | None, tmp_path: Path) -> None:
        path = write_rows(tmp_path / "whitelist.yaml", ROWS)
        rows = [{"label": f"Label {each}", "address": f"0x{each:040x}", "blockchain": "ETH"} for each in (*ROWS, 9)]
        sandbox.control.add_whitelist_requests(rows, signed=True)
        run = run_approved(office, file_dag(path, prune=True, prove=True))
        assert run.state == "success", run.states
        assert run.xcom("whitelist.apply")["counts"]["deleted"] == 1
        assert states(run)["sign_custody_first_signer"] == "skipped"
        assert run.xcom("whitelist.prove")["counts"]["unchanged"] == len(ROWS)
        assert in_effect(sandbox).keys() == {f"0{each}" for each in ROWS}


class TestRequest:
    def test_from_the_request_until_it_is_in_effect(self, sandbox: Sandbox, office: Office | None) -> None:
        sandbox.control.add_fault(method="POST", path="/whitelists/addresses", kind="drop", work=True)
        dag = request_dag(task_arguments={"create": {"lookup_wait": 0.3}})
        run = run_approved(office, dag)
        assert run.state == "success", run.states
        assert in_effect(sandbox) == {"77": "Supplier"}
        assert run.xcom("whitelist_address.wait_until_effective")["verified"] is True
        assert signatures(sandbox) == len(SIGNERS)
        # A second run reuses the request, and signs nothing.
        run = run_approved(office, dag)
        assert run.state == "success", run.states
        assert run.xcom("whitelist_address.create", key="created") is False
        assert len(in_effect(sandbox)) == 1
        assert signatures(sandbox) == len(SIGNERS)

    @with_approvals
    def test_the_question_shows_the_created_request_and_a_rejection_signs_nothing(
        self, sandbox: Sandbox, office: Office
    ) -> None:
        text = "{{ conn.custody_first_key.extra }} ```\n# <b>&'"
        dag = request_dag(label="{{ params.label | tojson }}", memo="7")
        run = office.run(dag, office.reject, run_conf={"label": text})
        assert run.state == "success", run.states
        done = {name for name, state in states(run).items() if state != "skipped"}
        assert done == {"wait_until_healthy", "create", "approve"}
        (request,) = sandbox.control.whitelist_requests()
        assert request["status"] == "pending"
        assert signatures(sandbox) == 0
        subject, body = office.question["subject"], office.question["body"]
        assert subject == f"Sign whitelisting request {request['id']}?"
        first, *rows, last, end = body.split("\n")
        assert (first, last, end) == ("```text", "```", "")
        shown = {name: json.loads(value) for name, value in (each.split(maxsplit=1) for each in rows)}
        assert shown == {"id": request["id"], "memo": "7", **REQUEST, "label": request["label"]}
        assert "conn.custody_first_key" in shown["label"]
        assert not {*"<>&'"} & {*body}

    @with_approvals
    def test_what_was_approved_is_signed(self, sandbox: Sandbox, office: Office) -> None:
        from airflow.models.xcom import XComModel

        with CustodyClient(sandbox.url, sandbox.token) as client:
            other = client.create_whitelist_request(WhitelistRequest(**{**REQUEST, "address": "0x" + "1" * 40}))
        dag = request_dag()

        def respond() -> None:
            # Do as if a user had cleared only the task that creates, after an upstream value had changed.
            try:
                run_id = office.question["task_instance"]["dag_run_id"]
                content = {**REQUEST, "id": other, "address": "0x" + "1" * 40}
                for key, value in (("return_value", other), ("request", content)):
                    XComModel.set(
                        key=key, value=value, dag_id=dag.dag_id, task_id="whitelist_address.create", run_id=run_id
                    )
            finally:
                office.approve()

        run = office.run(dag, respond)
        assert run.state == "success", run.states
        effective = {each["address"]: each["status"] == EFFECTIVE for each in sandbox.control.whitelist_requests()}
        assert effective == {ADDRESS: True, "0x" + "1" * 40: False}


def mapped(rows: Any, **arguments: Any) -> DAG:
    """Return a DAG that maps the group over rows of an upstream task."""
    with new_dag() as dag:

        @task
        def upstream() -> Any:
            return rows

        @task_group
        def one(label: str, address: str, memo: str) -> None:
            CustodyWhitelistRequestTaskGroup(
                label=label,
                address=address,
                memo=memo,
                blockchain="ETH",
                signers=SIGNERS,
                approve=False,
                check_health=False,
                **arguments,
            )

        one.expand_kwargs(upstream())
    return dag


class TestMapped:
    def test_each_row_has_a_request_and_its_text_is_data(self, sandbox: Sandbox) -> None:
        labels = ["{{ conn.custody_first_key.extra }}", "Plain"]
        rows = [
            {"label": label, "address": f"0x{number:040x}", "memo": f"{{{{ {number} }}}}"}
            for number, label in enumerate(labels, 1)
        ]
        run = run_dag(mapped(rows))
        assert run.state == "success", run.states
        assert in_effect(sandbox) == {"01": labels[0], "02": labels[1]}
        assert [run.xcom("one.whitelist_address.wait_until_effective", index)["verified"] for index in (0, 1)] == [
            True,
            True,
        ]

    def test_each_file_has_its_plan_and_its_evidence(self, sandbox: Sandbox, tmp_path: Path) -> None:
        paths = [write_rows(tmp_path / f"{number}.yaml", [number]) for number in (1, 2)]
        (tmp_path / "evidence").mkdir()
        with new_dag() as dag:

            @task_group
            def one(path: str) -> None:
                CustodyWhitelistFileTaskGroup(
                    path=path, signers=SIGNERS, approve=False, check_health=False, evidence=f"{tmp_path}/evidence"
                )

            one.expand(path=paths)
        run = run_dag(dag)
        assert run.state == "success", run.states
        assert in_effect(sandbox) == {"01": "Label 1", "02": "Label 2"}
        assert len([*(tmp_path / "evidence").iterdir()]) == 2

    def test_a_missing_value_fails_its_row_only(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        rows = [{"label": "A", "address": ADDRESS, "memo": None}, {"label": "B", "address": ADDRESS, "memo": "2"}]
        run = run_dag(mapped(rows))
        assert run.state == "failed"
        assert [run.state_of("one.whitelist_address.create", index) for index in (0, 1)] == ["failed", "success"]
        assert "memo" in task_log.text
        assert in_effect(sandbox) == {"77": "B"}
        run = run_dag(mapped(rows, task_arguments={"create": {"omit_if_none": ("memo",)}}))
        assert run.state == "success", run.states
