"""The guide to moving from the HTTP provider or a script: its files run, and nothing is created twice on the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_runs import AIRFLOW, Run, load, new_dag, run_dag
from cli_runs import Ran
from connections import connection_json

from airflow_custody.cli.main import main
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

SNIPPETS = Path(__file__).parent.parent.parent / "docs" / "snippets"
ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

pytestmark = [pytest.mark.usefixtures("airflow_db", "connections"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def connections(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    http = {"conn_type": "http", "host": sandbox.url, "password": sandbox.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_HTTP", json.dumps(http))
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
    monkeypatch.setenv("CUSTODY_URL", sandbox.url)
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.token)


@pytest.fixture
def approvers(sandbox: Sandbox) -> Iterator[None]:
    """Sign whatever is created while a test runs."""
    stop = threading.Event()

    def sign() -> None:
        while not stop.wait(0.2):
            pending = [each["id"] for each in sandbox.control.whitelist_requests() if each["status"] != "APPROVED"]
            if pending:
                sandbox.control.sign_whitelist_requests(pending)

    thread = threading.Thread(target=sign)
    thread.start()
    yield
    stop.set()
    thread.join()


def run(side: str, *task_ids: str) -> Run:
    """Run the DAG of a side, or some of its tasks."""
    if side == "before":
        pytest.importorskip("airflow.providers.http.operators.http", reason="the HTTP provider is not installed")
        if AIRFLOW < (3, 0):
            pytest.skip("the DAG before is written for Airflow 3")
    dag = load(SNIPPETS / f"migrate_{side}.py").dag
    dag.get_task("wait").poke_interval = 0.2
    return run_dag(dag.partial_subset(list(task_ids)) if task_ids else dag)


def custody(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run the command line as the guide does."""
    capsys.readouterr()
    code = main([*arguments])
    return Ran(code, *capsys.readouterr())


@pytest.mark.usefixtures("approvers")
@pytest.mark.parametrize("side", ["before", "after"])
def test_both_dags_wait_until_the_request_is_in_effect(sandbox: Sandbox, side: str) -> None:
    assert run(side).state == "success"
    (request,) = sandbox.control.whitelist_requests()
    assert (request["address"], request["status"]) == (ADDRESS, "APPROVED")


@pytest.mark.usefixtures("approvers")
def test_the_new_sensor_waits_for_what_the_old_dag_created(sandbox: Sandbox) -> None:
    number = run("before", "create").xcom("create")
    with new_dag() as dag:
        CustodyWhitelistRequestSensor(task_id="wait", request_id=number, poke_interval=0.2, timeout=600)
    assert run_dag(dag).state == "success"


def test_a_plan_of_what_the_old_dag_created_creates_nothing(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("before", "create")
    dumped = custody(capsys, "whitelist", "dump")
    assert dumped.code == 0
    (tmp_path / "whitelist.yaml").write_text(dumped.out)
    planned = custody(capsys, "whitelist", "plan", str(tmp_path / "whitelist.yaml"), "-o", "json")
    counts = {state: number for state, number in json.loads(planned.out)["counts"].items() if number}
    assert counts == {"pending": 1}


def test_a_second_request_that_the_old_dag_left_is_named(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox.control.add_fault(kind="drop", work=True, method="POST", path="/whitelists/addresses")
    run("before", "create")
    first, second = (each["id"] for each in sandbox.control.whitelist_requests())
    dumped = custody(capsys, "whitelist", "dump")
    assert f"whitelisting request {first}" in dumped.out
    assert f"1 more request: {second}" in dumped.err


def test_the_new_dag_uses_what_the_old_one_has_asked_for(sandbox: Sandbox) -> None:
    run("before", "create")
    run("after", "create")
    assert len(sandbox.control.whitelist_requests()) == 1


def test_the_script_creates_a_request_and_says_when_it_cannot_know(sandbox: Sandbox) -> None:
    script = load(SNIPPETS / "migrate_script.py")
    number = script.ask_for("Treasury", ADDRESS)
    assert [each["id"] for each in sandbox.control.whitelist_requests()] == [number]
    sandbox.control.add_fault(kind="drop", work=True, method="POST", path="/whitelists/addresses")
    with pytest.raises(SystemExit, match="unknown whether it was created") as caught:
        script.ask_for("Treasury", ADDRESS)
    assert number in str(caught.value)
