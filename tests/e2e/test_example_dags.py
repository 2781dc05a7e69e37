"""Each example runs unchanged against the sandbox, in real Airflow."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowOptionalProviderFeatureException,
    ParamValidationError,
)
from markdown_it import MarkdownIt
from support.airflow.airflow_runs import AIRFLOW, load, run_dag
from support.service.people import connect_approvers

from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.whitelist.store import EFFECTIVE

EXAMPLES = Path(__file__).parent.parent.parent / "example_dags"
#: Parameters of the run for examples that take an address.
PARAMS = {"label": "Settlement", "address": "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb", "blockchain": "ETH"}
FILES = sorted(EXAMPLES.glob("*.py"))
#: The example that needs an approval.
WITH_APPROVAL = "custody_whitelist_as_code"

# Imports an example by its name.
Example = Callable[[str], ModuleType]

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]
each_example = pytest.mark.parametrize("name", [path.stem for path in FILES])


@pytest.fixture
def example() -> Example:
    """Return a function that imports an example by its name."""
    return lambda name: load(EXAMPLES / f"{name}.py")


@pytest.fixture
def approvers(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the examples' approvers, who sign one after the other."""
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])


def test_is_parsed_without_fetching_a_connection(tmp_path: Path) -> None:
    # Define no connection here: a DAG file that fetches a connection while it is parsed would then fail.
    files = [str(path) for path in FILES if AIRFLOW >= (3, 1) or path.stem != WITH_APPROVAL]
    done = subprocess.run(
        [sys.executable, "-c", "import runpy, sys; [*map(runpy.run_path, sys.argv[1:])]", *files],
        capture_output=True,
        text=True,
        env={"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(AIRFLOW >= (3, 1), reason="people approve in the UI there")
def test_an_example_with_an_approval_has_an_import_error_where_there_are_none(example: Example) -> None:
    with pytest.raises(AirflowOptionalProviderFeatureException, match="custody_whitelist_as_tasks"):
        example(WITH_APPROVAL)


#: Examples that need features of Airflow 3 or 3.3: watchers and deadlines.
LATER = ("custody_unhealthy_watcher", "custody_watch_webhook_calls", "custody_pending_approvals")


def dag_of(example: Example, name: str) -> Any:
    """Return the DAG of an example, which one for a later Airflow does not define."""
    if AIRFLOW < (3, 1) and name == WITH_APPROVAL:
        pytest.skip("it has no approvals")
    module = example(name)
    if AIRFLOW < (3, 3) and name in LATER and not hasattr(module, "dag"):
        pytest.skip("needs a newer Airflow")
    return module.dag


@each_example
def test_an_example_that_creates_has_no_schedule(name: str, example: Example) -> None:
    dag = dag_of(example, name)
    if any("Create" in each.task_type or "Apply" in each.task_type for each in dag.tasks):
        assert type(dag.timetable).__name__ == "NullTimetable"


@each_example
def test_a_misspelled_param_starts_no_run(name: str, sandbox: Sandbox, example: Example) -> None:
    dag = dag_of(example, name)
    # Airflow ignores params that a DAG does not have: with a default, the sample would be whitelisted.
    assert "address" in dag.params or "params.address" not in (EXAMPLES / f"{name}.py").read_text()
    for mistyped in {*PARAMS} & {*dag.params}:
        params = {each: value for each, value in PARAMS.items() if each != mistyped}
        # Airflow 3.2 raises a ValueError.
        with pytest.raises((ParamValidationError, ValueError), match="Invalid input for param"):
            run_dag(dag, run_conf={**params, f"{mistyped}s": PARAMS[mistyped]})
    assert sandbox.control.request_log(method="POST") == []


@pytest.mark.skipif(AIRFLOW < (3, 1), reason="it has no approvals")
@pytest.mark.parametrize(("name", "task_id"), [("approval", "approve"), ("complete", "decide")])
@pytest.mark.parametrize(
    "text",
    [
        "Cold wallet",
        "Payroll ![logo](https://example.com/x.png) [0xde70](https://example.com) **approved by legal**",
        "Payroll\n```\n\n# Approved\n\n```text",
        "Payroll\r\n~~~\u2028```\u2029```\x0b```\x85```",
        '"</code></pre><script>alert(1)</script>',
        "{{ var.value.secret }}",
        "\u202e123\u200b\x1b[31m",
    ],
    ids=["plain", "Markdown", "a fence", "line ends", "HTML", "a template", "unprintable"],
)
def test_the_question_names_the_request_and_nothing_in_it_is_markup(
    name: str, task_id: str, text: str, example: Example
) -> None:
    question = example(f"custody_whitelist_{name}").dag.get_task(task_id)

    def rendered(field: str) -> str:
        template = question.get_template_env().from_string(getattr(question, field))
        pull = {"create_request": "3711"}
        params = {"label": text, "blockchain": text, "address": text}
        return str(template.render(params=params, ti=SimpleNamespace(xcom_pull=lambda task_ids: pull[task_ids])))

    subject = rendered("subject")
    assert "equest 3711: whitelist " in subject
    assert json.JSONDecoder().raw_decode(subject.partition(": whitelist ")[2])[0] == text
    assert subject.isascii()
    assert subject.isprintable()
    (block,) = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(rendered("body"))
    # Airflow's page keeps the lines of a block only if its language is named.
    assert block.type == "fence"
    assert block.info == "text"
    assert block.content.replace("\n", "").isascii()
    assert block.content.replace("\n", "").isprintable()
    lines = dict(line.split(maxsplit=1) for line in block.content.splitlines())
    shown = {key: json.loads(value) for key, value in lines.items()}
    assert shown == {"Request": "3711", "Chain": text, "Address": text, "Label": text}


def test_health_gate(sandbox: Sandbox, example: Example) -> None:
    run = run_dag(example("custody_health_gate").dag)
    assert run.state == "success"
    assert run.xcom("check")["groups"].keys() == {"hsm", "blockchain"}
    assert "6 healthy checks" in run.xcom("work")


@pytest.mark.usefixtures("approvers")
def test_mapping_each_night(sandbox: Sandbox, example: Example) -> None:
    dag = example("custody_whitelist_mapping").dag
    for created in (True, False):
        run = run_dag(dag)
        assert run.state == "success", run.states
        assert [run.xcom("create_requests", index, "created") for index in range(3)] == [created] * 3
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == [EFFECTIVE] * 3
    assert len(sandbox.control.request_log(method="POST", path="/whitelists/addresses/approve")) == 2


def test_from_rows_each_night(sandbox: Sandbox, example: Example) -> None:
    control = sandbox.control

    def sign() -> None:
        while len(found := control.whitelist_requests()) < 2:
            time.sleep(0.1)
        control.sign_whitelist_requests([each["id"] for each in found])

    dag = example("custody_whitelist_from_rows").dag
    people = threading.Thread(target=sign, daemon=True)
    people.start()
    run = run_dag(dag)
    assert run.state == "success", run.states
    people.join()
    assert run.xcom("whitelist.apply")["counts"]["created"] == 2
    assert run_dag(dag).state_of("whitelist.plan") == "skipped"
    assert [each["status"] for each in control.whitelist_requests()] == [EFFECTIVE] * 2


@pytest.mark.usefixtures("approvers")
def test_first_dag(sandbox: Sandbox, example: Example) -> None:
    run = run_dag(example("custody_first_dag").dag, run_conf=PARAMS)
    assert run.state == "success", run.states
    (request,) = sandbox.control.whitelist_requests()
    assert request["label"] == "Settlement"
    assert request["status"] == EFFECTIVE
    assert run.xcom("whitelist_address.wait_until_effective")["signatures"] == 2


@pytest.mark.usefixtures("approvers")
@pytest.mark.parametrize(
    ("decision", "status", "skipped", "told"),
    [
        ({"decision": "Approve"}, EFFECTIVE, ["reject"], "is in effect"),
        ({}, "rejected", ["sign_first", "wait_until_effective"], "was rejected"),
    ],
    ids=["approved", "rejected"],
)
def test_complete_whitelisting(
    sandbox: Sandbox,
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
    decision: dict[str, str],
    status: str,
    skipped: list[str],
    told: str,
) -> None:
    """The decision is given in advance. In the demo, a user is asked."""
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
    run = run_dag(example("custody_whitelist_complete").dag, run_conf={**PARAMS, **decision})
    assert run.state == "success", run.states
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == [status]
    assert {run.state_of(task_id) for task_id in skipped} == {"skipped"}
    assert told in run.xcom("notify")
    assert bool(sandbox.control.request_log(path="/whitelists/addresses/approve")) is (status == EFFECTIVE)


@pytest.mark.skipif(AIRFLOW >= (3, 1), reason="people approve in the UI there")
def test_approval_without_the_ui(sandbox: Sandbox, example: Example) -> None:
    dag = example("custody_whitelist_approval").dag
    assert run_dag(dag, run_conf=PARAMS).state == "failed"
    assert sandbox.control.whitelist_requests() == []
    webhook_id = sandbox.control.add_webhook(status="disabled")["id"]
    run = run_dag(dag, run_conf={**PARAMS, "approved_by": "carol", "webhook_id": webhook_id})
    assert run.state == "success"
    (request,) = sandbox.control.whitelist_requests()
    assert run.xcom("sign")["request_id"] == request["id"]
    assert sandbox.control.webhooks()[0]["status"] == "enabled"


def test_evidence_each_night(
    sandbox: Sandbox,
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True))
    monkeypatch.setenv("AIRFLOW_VAR_CUSTODY_EVIDENCE", str(tmp_path))
    row = {"label": "Settlement", "address": PARAMS["address"], "blockchain": "ETH"}
    sandbox.control.add_whitelist_requests([row], signed=True)
    dag = example("custody_whitelist_evidence").dag
    runs = [run_dag(dag)]
    (forged,) = sandbox.control.add_whitelist_requests([{**row, "label": "Forged"}])
    runs.append(run_dag(dag))
    assert [run.state for run in runs] == ["success", "failed"]
    files = [run.pushed("verify", "path") for run in runs]
    assert sorted(files) == sorted(map(str, tmp_path.iterdir()))
    assert all(re.fullmatch(r".*/manual__[^/]*-1\.json", each) for each in files)
    log = capsys.readouterr().out
    assert (
        f"Verification failed: 1 of 2 requests could not be verified by signatures: request {forged}: UNVERIFIED" in log
    )
    assert f"Evidence: {files[1]}\n" in log
    assert f"Evidence: {files[0]}\n" not in log


@pytest.mark.parametrize("work", ["success", "failed"])
def test_the_webhook_is_enabled_and_the_run_ends_as_the_work_did(
    sandbox: Sandbox, example: Example, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    def fail(webhook: object) -> None:
        raise AirflowFailException("the work failed")

    monkeypatch.setenv("AIRFLOW_VAR_CUSTODY_WEBHOOK_ID", sandbox.control.add_webhook()["id"])
    dag = example("custody_webhook_maintenance").dag
    if work == "failed":
        dag.get_task("maintain").python_callable = fail
    assert run_dag(dag).state == work
    assert [each["body"]["status"] for each in sandbox.control.request_log("PATCH")] == ["disabled", "enabled"]


def test_no_watcher_of_webhook_calls_is_defined_before_airflow_3_3(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Airflow 3.0 to 3.2 have asset watchers, but no shared streams.
    monkeypatch.setitem(sys.modules, "airflow.triggers.shared_stream", None)
    assert not hasattr(example("custody_watch_webhook_calls"), "dag")


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="watchers of webhook calls need Airflow 3.3")
def test_a_run_handles_the_calls_of_all_its_events(example: Example) -> None:
    module = example("custody_watch_webhook_calls")
    events = [{"calls": [{"id": "1"}], "gap": ""}, {"call_ids": ["2", "3"], "gap": "some"}]
    triggering = [*(SimpleNamespace(extra={"payload": each}) for each in events), SimpleNamespace(extra={})]
    handle = module.dag.get_task("handle").python_callable
    assert handle({module.transactions_received: triggering}) == ["1", "2", "3"]
