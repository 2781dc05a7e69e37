"""Each example runs unchanged against the sandbox, in real Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow_runs import AIRFLOW, load, run_dag
from markdown_it import MarkdownIt
from people import connect_approvers
from webhook_reads import register_assets, write_calls

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.whitelist.store import EFFECTIVE

EXAMPLES = Path(__file__).parent.parent.parent / "example_dags"
#: What a run of an example that takes an address is started with.
PARAMS = {"label": "Settlement", "address": "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb", "blockchain": "ETH"}
FILES = sorted(EXAMPLES.glob("*.py"))

# Imports an example by its name.
Example = Callable[[str], ModuleType]

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def example() -> Example:
    """Return a function that imports an example by its name."""
    return lambda name: load(EXAMPLES / f"{name}.py")


def test_is_parsed_without_fetching_a_connection(tmp_path: Path) -> None:
    # No connection is defined here: fetching one while the file is parsed would fail.
    done = subprocess.run(
        [sys.executable, "-c", "import runpy, sys; [*map(runpy.run_path, sys.argv[1:])]", *map(str, FILES)],
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


@pytest.mark.parametrize("name", ["approval", "as_code", "complete"])
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
        if any("Create" in each.task_type or "Apply" in each.task_type for each in dag.tasks):
            assert timetable == "NullTimetable"
        if "Cron" in timetable:
            assert "you switch" in dag.doc_md
            assert "most recent scheduled run" in " ".join(dag.doc_md.split())


QUESTIONS = pytest.mark.parametrize(("name", "task_id"), [("approval", "approve"), ("complete", "decide")])
asked_in_the_ui = pytest.mark.skipif(AIRFLOW < (3, 1), reason="nobody is asked there")


def rendered(question: Any, field: str, **params: str) -> str:
    template = question.get_template_env().from_string(getattr(question, field))
    pull = {"create_request": "3711"}
    return str(template.render(params=params, ti=SimpleNamespace(xcom_pull=lambda task_ids: pull[task_ids])))


@asked_in_the_ui
@QUESTIONS
def test_the_question_names_the_request(name: str, task_id: str, example: Example) -> None:
    question = example(f"custody_whitelist_{name}").dag.get_task(task_id)
    subject = rendered(question, "subject", label="Cold wallet", blockchain="ETH")
    assert 'equest 3711: whitelist "Cold wallet" on "ETH"?' in subject


@asked_in_the_ui
@QUESTIONS
@pytest.mark.parametrize(
    "text",
    [
        "Payroll | ETH |",
        "Payroll ![logo](https://example.com/x.png) [0xde70](https://example.com) **approved by legal**",
        "Payroll\n```\n\n# Approved\n\n```text",
        "Payroll\r\n~~~\u2028```\u2029```\x0b```\x85```",
        "```\t`",
        '"</code></pre><script>alert(1)</script>',
        "{{ var.value.secret }}",
        "\u202e123\u200b\x1b[31m",
    ],
)
def test_nothing_that_a_run_was_started_with_is_markup(name: str, task_id: str, text: str, example: Example) -> None:
    question = example(f"custody_whitelist_{name}").dag.get_task(task_id)
    params = {"label": text, "blockchain": text, "address": text}
    subject, body = (rendered(question, field, **params) for field in ("subject", "body"))
    assert subject.isascii()
    assert subject.isprintable()
    (block,) = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(body)
    # Airflow's page keeps the lines of a block only if its language is named.
    assert (block.type, block.info) == ("fence", "text")
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


def test_mapping_each_night(sandbox: Sandbox, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])
    dag = example("custody_whitelist_mapping").dag
    for created in (True, False, False):
        run = run_dag(dag)
        assert run.state == "success", run.states
        assert [run.xcom("create_requests", index, "created") for index in range(3)] == [created] * 3
    requests = sandbox.control.whitelist_requests()
    assert [each["status"] for each in requests] == [EFFECTIVE] * 3
    assert len(sandbox.control.request_log(method="POST", path="/whitelists/addresses/approve")) == 2


def test_from_rows_each_night(sandbox: Sandbox, example: Example) -> None:
    control = sandbox.control

    def sign() -> None:
        while len(found := control.whitelist_requests()) < 2:
            time.sleep(0.1)
        control.sign_whitelist_requests([each["id"] for each in found])

    dag = example("custody_whitelist_from_rows").dag
    people = threading.Thread(target=sign)
    people.start()
    run = run_dag(dag)
    people.join()
    assert run.state == "success", run.states
    assert run.xcom("apply")["counts"]["created"] == 2
    assert run_dag(dag).states["plan", -1] == "skipped"
    assert [each["status"] for each in control.whitelist_requests()] == [EFFECTIVE] * 2


def test_first_dag(sandbox: Sandbox, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])
    run = run_dag(example("custody_first_dag").dag, run_conf=PARAMS)
    assert run.state == "success", run.states
    (request,) = sandbox.control.whitelist_requests()
    assert (request["label"], request["status"]) == ("Settlement", EFFECTIVE)
    assert run.xcom("wait_until_effective")["signatures"] == 2


@pytest.mark.parametrize("mistyped", PARAMS)
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_mistyped_param_starts_no_run(path: Path, mistyped: str, sandbox: Sandbox, example: Example) -> None:
    """Airflow ignores params that a DAG does not have: with a default, the sample would be whitelisted."""
    for dag in dags_of(path, example):
        if mistyped not in dag.params:
            # What this DAG creates does not depend on params.
            assert "params.address" not in path.read_text()
            continue
        params = {name: value for name, value in PARAMS.items() if name != mistyped}
        # Airflow 3.2 raises a ValueError.
        with pytest.raises((ParamValidationError, ValueError), match="Invalid input for param"):
            run_dag(dag, run_conf={**params, f"{mistyped}s": PARAMS[mistyped]})
        assert sandbox.control.request_log(method="POST") == []


class TestCompleteWhitelisting:
    """The example with the decision given in advance; in the demo, somebody is asked for it."""

    @pytest.fixture(autouse=True)
    def decision_in_advance(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
        sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])

    def test_an_approved_request_takes_effect(self, sandbox: Sandbox, example: Example) -> None:
        run = run_dag(example("custody_whitelist_complete").dag, run_conf={**PARAMS, "decision": "Approve"})
        assert run.state == "success", run.states
        (request,) = sandbox.control.whitelist_requests()
        assert request["status"] == EFFECTIVE
        assert run.state_of("reject") == "skipped"
        assert "has taken effect" in run.xcom("tell")

    def test_a_rejected_request_is_not_signed(self, sandbox: Sandbox, example: Example) -> None:
        run = run_dag(example("custody_whitelist_complete").dag, run_conf=PARAMS)
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


class TestOnRequestStatus:
    def test_each_request_that_a_call_names_is_looked_up_once(self, sandbox: Sandbox, example: Example) -> None:
        webhook_id = sandbox.control.add_webhook()["id"]
        module = example("custody_on_request_status")
        for dag in (module.read_dag, module.dag):
            register_assets(dag)
        first, second = sandbox.control.add_whitelist_requests(
            [{"label": "L", "address": "0x" + digit * 40, "blockchain": "ETH"} for digit in "12"], status="pending"
        )

        def both() -> list[str]:
            return [run_dag(module.read_dag).state_of("read"), run_dag(module.dag).state_of("check")]

        write_calls(sandbox, webhook_id, -1)
        # The first run stores the place.
        assert both() == ["success", "success"]
        assert both() == ["skipped", "skipped"]
        names = [first, second, first, "no id", "9" * 30, "987654", "__classname__", "__type"]
        # Several events while the second DAG was paused; what they say of the status is not believed.
        for number, request_id in enumerate(names):
            payload = json.dumps({"requestId": request_id, "status": "effective"})
            write_calls(sandbox, webhook_id, number, payload=payload)
            assert run_dag(module.read_dag).state == "success"
        write_calls(sandbox, webhook_id, 9, payload="text")
        # Together above 64 KiB, so that the event has ids only.
        write_calls(sandbox, webhook_id, 10, payload=json.dumps({"requestId": first, "text": "x" * 70_000}))
        assert run_dag(module.read_dag).state == "success"
        run = run_dag(module.dag)
        assert sorted(run.xcom("check")) == sorted(
            [
                f"'{first}': pending",
                f"'{second}': pending",
                "'no id': it cannot be the id of a request",
                f"'{'9' * 30}': it cannot be the id of a request",
                "'987654': not found",
                "'call 9': it names no request, check at the service",
                # Words that Airflow refuses as keys of an XCom.
                "'__classname__': it cannot be the id of a request",
                "'__type': it cannot be the id of a request",
            ]
        )
        assert run_dag(module.dag).state_of("check") == "skipped"

    def test_only_the_service_says_that_a_request_is_not_found(self, sandbox: Sandbox, example: Example) -> None:
        module = example("custody_on_request_status")
        with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
            assert module.state_of("987654", client) == "not found"
            for status in (400, 404, 422, 503):
                sandbox.control.add_fault("html", path="/whitelists/addresses/987654", status=status)
                with pytest.raises(CustodyError):
                    module.state_of("987654", client)

    def test_what_names_no_request(self, example: Example) -> None:
        module = example("custody_on_request_status")
        payloads: list[Any] = [None, "text", [], {}, {"requestId": None}]
        for payload in payloads:
            assert module.request_id_of({"payload": payload}) is None
        # Of a call or an event, not of a request.
        assert module.request_id_of({"id": "1", "payload": {"id": "1"}}) is None
        assert module.request_id_of({"payload": {"requestId": 0}}) == "0"


@pytest.mark.skipif(AIRFLOW >= (3, 1), reason="people approve in the UI there")
class TestApprovalWithoutTheUi:
    def test_not_approved_creates_nothing(self, sandbox: Sandbox, example: Example) -> None:
        run = run_dag(example("custody_whitelist_approval").dag, run_conf=PARAMS)
        assert run.state == "failed"
        assert sandbox.control.whitelist_requests() == []

    def test_approved_beforehand(self, sandbox: Sandbox, example: Example) -> None:
        webhook_id = sandbox.control.add_webhook(status="disabled")["id"]
        run = run_dag(
            example("custody_whitelist_approval").dag,
            run_conf={**PARAMS, "approved_by": "carol", "webhook_id": webhook_id},
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


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="watchers of webhook calls need Airflow 3.3")
def test_watcher_of_webhook_calls(sandbox: Sandbox, example: Example) -> None:
    module = example("custody_watch_webhook_calls")
    (watcher,) = module.transactions_received.watchers
    path, arguments = watcher.trigger.serialize()
    assert path.endswith("CustodyWebhookCallTrigger")
    assert sandbox.token not in json.dumps(arguments)
    events = [{"calls": [{"id": "1"}], "gap": ""}, {"call_ids": ["2", "3"], "gap": "some"}]
    triggering = {module.transactions_received: [SimpleNamespace(extra={"payload": each}) for each in events]}
    triggering[module.transactions_received].append(SimpleNamespace(extra={}))
    assert module.dag.get_task("tell").python_callable(triggering) == ["1", "2", "3"]


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="Airflow 2 has no asset watchers")
@pytest.mark.parametrize("name", ["custody_unhealthy_watcher", "custody_watch_webhook_calls"])
def test_watcher_defines_no_dag_on_airflow_2(name: str, example: Example) -> None:
    assert not hasattr(example(name), "dag")
