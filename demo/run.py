"""
Run the main example DAG, end to end, on an Airflow inside this process: a whitelist of 50 addresses, kept as a file.

The DAG runs three times: with a mistyped address in the file, with that address corrected and another one renamed, and
once more without changes. Then another DAG reads an address that is not signed. The sandbox, in a separate process,
stands in for the custody service. The plan is approved through Airflow's REST API, with the same call as the button in
Airflow's UI.

Prints each step. At the end, prints "demo: ok" and what to do next, with exit code 0; or the error, with exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from _airflow_api import AirflowApi, serve_api, wait_for
from _environment import (
    DEMO,
    EXAMPLES,
    SandboxProcess,
    airflow_environment,
    create_home,
    create_signers,
    relative_path,
    require_airflow,
)
from _output import DemoError, Output

from airflow_custody.client import CustodyClient
from airflow_custody.client.whitelist.files.reading import read_whitelist_file
from airflow_custody.sandbox.whitelist.store import EFFECTIVE

DAG_ID = "custody_whitelist_as_code"
# Id of the DAG's task group, and the beginning of its tasks' ids.
GROUP = "whitelist."
FORGED_DAG_ID = "custody_forged_address"
TIMEOUT = 600.0
APPROVER, STRANGER = "carol", "mallory"
NEXT = {
    "make demo-ui": "the same in Airflow's UI, with the page Custody, and more to try",
    f"{relative_path(Path(sys.executable).with_name('custody'))} examples --to my-dags": "copy the example DAGs, to "
    "adapt them",
    "make docs": "build the documentation: getting started, guides, and the reference",
}
# Rows of the plan that are printed for each state.
PLAN_ROWS = 3
COLUMNS = ("State", "Destination", "Label", "Details")

# The address in the file, and its mistyped form. The label in the file, and its old form at the service.
ADDRESS, MISTYPED = "bc1qjqy7acnyvuem5vy8uv7cm4jsl5x433rqr2tvs4", "bc1qjqy7acnyvuem5vy8uv7cm4js15x433rqr2tvs4"
LABEL, LABEL_AT_SERVICE = "Supplier Bremen", "Supplier Bremen Port"
# The address that the service forges in the last run.
FORGED = {"label": "Supplier Cadiz", "address": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "blockchain": "ETH"}
# Number of addresses in the file that the service already has when the demo begins. All but the last are in effect.
AT_SERVICE = 13


def main() -> int:
    """Run the demo and return the exit code."""
    airflow_version = require_airflow()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = create_home("run")
    output = Output(home / "airflow.log")
    output.print_text(
        f"Three runs of the DAG {DAG_ID} on Airflow {airflow_version}, then one of another DAG. Airflow's log: "
        f"{output.log}"
    )
    output.print_lines()
    try:
        with SandboxProcess(home) as sandbox:
            demo = Demo(home, sandbox, output)
            demo.abort_on_signal_or_timeout()
            demo.prepare()
            demo.run()
            demo.print_calls()
            demo.check_results()
    except KeyboardInterrupt:
        output.print_failure("interrupted")
        return 1
    except DemoError as error:
        output.print_failure(str(error))
        return 1
    except Exception as error:
        output.print_failure(f"{type(error).__name__}: {error}")
        return 1
    output.print_lines([output.style.paint(f"demo: ok ({output.seconds:.0f} s)", "green"), ""])
    output.print_lines([output.style.paint("Three things to do next", "bold")])
    for command, meaning in NEXT.items():
        output.print_lines([f"  {command}", *output.style.wrap(meaning, first="      ", indent="      ")])
    return 0


class Demo:
    """
    The demo.

    :param home: folder for all of its files.
    :param sandbox: the service.
    :param output: where it prints to.
    """

    def __init__(self, home: Path, sandbox: SandboxProcess, output: Output) -> None:
        self._dags = home / "dags"
        self._file = self._dags / "custody_whitelist.yaml"
        self._sandbox = sandbox
        self._output = output
        # Ids of the requests that the service has when the demo begins.
        self._prepared: list[str] = []
        self._values: dict[str, Any] = {}
        self._failing: Mapping[str, str] = {}

    # --- the run ------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Put the DAG and its file into a folder, and some requests into the service."""
        self._dags.mkdir()
        shutil.copy(EXAMPLES / f"{DAG_ID}.py", self._dags)
        shutil.copy(DEMO / f"{FORGED_DAG_ID}.py", self._dags)
        self._write_file(lambda text: text.replace(ADDRESS, MISTYPED))
        connections = create_signers(self._sandbox)
        rows = read_whitelist_file(DEMO / "whitelist.yaml").rows
        connection = json.loads(self._sandbox.connection)
        with CustodyClient(connection["host"], connection["password"]) as client:
            for row in rows[:AT_SERVICE]:
                label = LABEL_AT_SERVICE if row.request.label == LABEL else row.request.label
                self._prepared.append(client.create_whitelist_request(row.request.model_copy(update={"label": label})))
        self._sandbox.control.sign_whitelist_requests(self._prepared[:-1])
        self._sandbox.control.clear_request_log()
        self._sandbox.control.update_health(component="hsm-1", check="vault", status="failure")
        self._output.print_step(
            "service",
            f"the sandbox at {self._sandbox.url}, in place of a real service",
            f"has {AT_SERVICE} of the {len(rows)} addresses in the file: {AT_SERVICE - 1} in effect, one of them with "
            "an old label, and 1 pending. Each request needs two signatures: first alice's, then bob's.",
        )
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{APPROVER}:user,{STRANGER}:user",
            **connections,
        }
        environment = airflow_environment(self._dags.parent, self._sandbox, **settings)
        os.environ.clear()
        os.environ.update(environment)

    def run(self) -> None:
        """Run the DAG with each version of the file."""
        # Import Airflow only now, because it reads its environment when it is imported.
        from airflow.sdk.listener import get_listener_manager
        from airflow.utils.db import initdb

        initdb()
        sys.path.insert(0, str(self._dags))
        dag = import_module(DAG_ID).dag
        get_listener_manager().add_listener(self._listener())  # type: ignore[no-untyped-call]
        approver, stranger = serve_api(APPROVER, STRANGER)

        self._announce("1", "the file has a mistyped address")
        self._in_background(self._repair_service)
        self._run_once(dag, failing={"plan": f"{MISTYPED!r} is not a valid BTC address"}, prove="upstream_failed")

        self._announce("2", f"the address is corrected, and {LABEL_AT_SERVICE!r} is renamed to {LABEL!r}")
        self._write_file(lambda text: text)
        self._sandbox.control.sign_whitelist_requests(self._prepared[-1:])
        self._output.print_step("service", "the pending request is signed")
        self._in_background(lambda: self._approve(approver, stranger))
        self._run_once(dag, complete="success", prove="success", wait_until_effective="success")

        self._announce("3", "the file has not changed")
        self._run_once(dag, plan="skipped", approve="skipped", apply="skipped", prove="success")

        self._announce("4", f"the service lies: the DAG {FORGED_DAG_ID} reads a forged address, without signatures")
        self._run_forged(import_module(FORGED_DAG_ID).dag)

    def _run_forged(self, dag: Any) -> None:
        """Make the service list an address without signatures as in effect, and run the DAG that reads it."""
        (forged,) = self._sandbox.control.add_whitelist_requests([FORGED])
        self._prepared.append(forged)
        self._output.print_step("service", f"lists request {forged} as in effect: {FORGED['address']}")
        failing = {
            "sign": f"request {forged} is not verified",
            "wait_until_effective": f"request {forged} is not verified",
            "reconcile": f"request {forged} unverified",
        }
        self._run_once(dag, conf={"request_id": forged}, failing=failing)

    def _write_file(self, edit: Callable[[str], str]) -> None:
        text = (DEMO / "whitelist.yaml").read_text(encoding="utf-8")
        self._file.write_text(edit(text), encoding="utf-8")

    def _announce(self, number: str, text: str) -> None:
        self._output.print_lines()
        self._output.print_step(f"RUN {number}", text)

    def _run_once(
        self, dag: Any, failing: Mapping[str, str] | None = None, conf: Mapping[str, Any] | None = None, **states: str
    ) -> None:
        """
        Run the DAG, and compare the states of some tasks.

        :param conf: the run's parameters.
        :param failing: the tasks that must fail, with a part of each error.
        :param states: the expected states of other tasks.
        """
        self._failing = failing or {}
        run = dag.test(run_conf=conf and dict(conf))
        found = {task.task_id.removeprefix(GROUP): str(task.state) for task in run.get_task_instances()}
        if (states | dict.fromkeys(self._failing, "failed")).items() - found.items():
            raise DemoError(f"the run ended as {run.state}: {found}")

    def _repair_service(self) -> None:
        """Make the service healthy once the sensor has polled it."""
        log = self._sandbox.control.request_log
        wait_for(lambda: log(path="/health"))
        self._output.print_step("wait_until_healthy", "waits: the component hsm-1 is failing; polls every 5 s")
        time.sleep(2)
        self._sandbox.control.update_health(component="hsm-1", check="vault", status="success")
        self._output.print_step("service", "hsm-1 is working again")

    def _approve(self, approver: AirflowApi, stranger: AirflowApi) -> None:
        """Respond as two users: one who may approve plans, and one who may not."""
        question = approver.pending_approval()
        names = " or ".join(user["name"] for user in question["assigned_users"])
        self._output.print_step("approve", f"Airflow asks {names}: {question['subject']}")
        # Wait until dag.test() has noticed that the task is waiting.
        time.sleep(2)
        refused = stranger.respond(question, "Approve")
        self._output.print_step("approve", f"{STRANGER} tries to approve it: refused, HTTP status {refused}")
        accepted = approver.respond(question, "Approve")
        self._output.print_step("approve", f"{APPROVER} approves it")
        if (refused, accepted) != (403, 200):
            raise DemoError(f"the responses to {STRANGER} and {APPROVER} were {refused} and {accepted}")

    # --- what the tasks did --------------------------------------------------------------------------------

    def _listener(self) -> object:
        """Return a listener that prints the result of each task."""
        from airflow.listeners import hookimpl

        demo = self

        class Listener:
            @hookimpl
            def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
                name = task_instance.task_id.removeprefix(GROUP)
                value = task_instance.xcom_pull(task_ids=task_instance.task_id)
                demo._values[name] = value
                seconds = time.time() - task_instance.start_date.timestamp()
                demo._print_success(name, value, seconds)

            @hookimpl
            def on_task_instance_skipped(self, previous_state: Any, task_instance: Any) -> None:
                if task_instance.task_id == f"{GROUP}plan":
                    demo._output.print_step("plan", "nothing to do: no approval needed, nothing sent")

            @hookimpl
            def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
                demo._print_failure(task_instance.task_id.removeprefix(GROUP), str(error))

        return Listener()

    def _print_success(self, task_id: str, value: Any, seconds: float) -> None:
        step = self._output.print_step
        match task_id:
            case "wait_until_healthy":
                step(task_id, f"all {value['total']} checks are healthy")
            case "plan":
                rows = _plan_rows(value["report"])
                step(task_id, _counts(value["counts"]), table=["", *self._output.style.table(COLUMNS, rows), ""])
            case "apply":
                step(task_id, f"{_counts(value['counts'])}, each once, in {seconds:.1f} s")
            case "sign_custody_first_signer" | "sign_custody_second_signer":
                name = {"sign_custody_first_signer": "alice", "sign_custody_second_signer": "bob"}[task_id]
                step(task_id, f"all requests match the plan; {name}'s key signed {value} with one signature")
            case "wait_until_effective":
                step(task_id, f"all {value['count']} are in effect, {value['verified']} verified by signatures")
            case "complete":
                step(task_id, f"replaced requests: {_counts(value['counts'])}")
            case "prove":
                step(task_id, f"the service matches the file: {_counts(value['counts'])}")

    def _print_failure(self, task_id: str, error: str) -> None:
        first, *more = error.replace(str(self._file), "the file").partition(" (not retried)")[0].splitlines()
        self._output.print_step(task_id, f"fails: {first}", *more)
        if self._failing.get(task_id, error + "!") not in error:
            # Stop the demo now, because Airflow would otherwise retry the task after a minute.
            self._abort(f"{task_id} failed")

    def print_calls(self) -> None:
        """Print which calls the service received."""
        calls: dict[str, int] = {}
        for call in self._sandbox.control.request_log():
            name = f"{call['method']:<5} {call['path']}"
            calls[name] = calls.get(name, 0) + 1
        self._output.print_lines()
        self._output.print_text("Calls to the service, in all four runs:")
        for name, number in sorted(calls.items(), key=lambda item: -item[1]):
            self._output.print_lines([f"{number:7}  {name}"])
        self._output.print_lines()

    def check_results(self) -> None:
        """Compare the results in Airflow with the state of the service."""
        control = self._sandbox.control
        statuses = {request["id"]: request["status"] for request in control.whitelist_requests()}
        deletions = control.request_log(method="POST", path="/whitelists/addresses/delete")
        created = statuses.keys() - set(self._prepared)
        posts = control.request_log(method="POST", path="/whitelists/addresses")
        creations = [each for each in posts if each["path"].endswith("/addresses")]
        signings = [each for each in posts if each["path"].endswith("/approve")]
        applied = self._values["apply"]
        expectations = {
            "the health was polled again": len(control.request_log(path="/health")) >= 2,
            "each row was created once": len(creations) == len(created),
            "the requests' ids are in XCom": set(applied["request_ids"]) == created,
            "the requests were signed twice": [set(each["body"]["ids"]) for each in signings] == [created, created],
            "the requests have taken effect": {statuses[each] for each in created} == {EFFECTIVE},
            "one request was replaced": len(deletions) == len(self._values["complete"]["request_ids"]) == 1,
            f"{APPROVER} approved": self._values["approve"]["responded_by_user"]["name"] == APPROVER,
        }
        if unmet := [expectation for expectation, met in expectations.items() if not met]:
            raise DemoError(f"expected, but not true: {'; '.join(unmet)}")

    # --- background work -----------------------------------------------------------------------------------

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run a function in a thread; abort the demo if it fails, because the DAG run would wait for ever."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self._abort(str(error) if isinstance(error, DemoError) else f"{type(error).__name__}: {error}")

        threading.Thread(target=run, daemon=True).start()

    def abort_on_signal_or_timeout(self) -> None:
        """Abort the demo on Ctrl-C, on SIGTERM, or after the time limit, even if Airflow is busy."""
        # Wait for the signals in a thread. A signal handler would not work: Airflow installs its own, and treats an
        # exception as a failure of the running task.
        signals = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)

        def wait() -> None:
            signal.sigwait(signals)
            self._abort("interrupted")

        threading.Thread(target=wait, daemon=True).start()
        timer = threading.Timer(TIMEOUT, lambda: self._abort(f"not finished after {TIMEOUT:.0f} s"))
        timer.daemon = True
        timer.start()

    def _abort(self, reason: str) -> NoReturn:
        """Stop the sandbox and exit, from any thread."""
        self._sandbox.stop()
        self._output.print_failure(reason)
        os._exit(1)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


def _plan_rows(report: str) -> list[tuple[str, ...]]:
    """Return some rows of a plan's report, which is Markdown, as plain text."""
    tables = [line.strip("| ").split(" | ") for line in report.splitlines() if line.startswith("| ")]
    header = next(row for row in tables if "Destination" in row)
    rows = [dict(zip(header, row, strict=False)) for row in tables if len(row) == len(header) and row != header]
    shown: list[tuple[str, ...]] = []
    for state in dict.fromkeys(row["State"] for row in rows):
        same = [
            tuple(_shorten(re.sub(r"[`*]", "", row[name]).strip(), name) for name in COLUMNS)
            for row in rows
            if row["State"] == state
        ]
        shown += same[:PLAN_ROWS]
        if len(same) > PLAN_ROWS:
            shown.append(("", f"({len(same) - PLAN_ROWS} more)", "", ""))
    return shown


def _shorten(text: str, column: str) -> str:
    """Shorten a cell: the middle of a long address, or the end of any other text."""
    if column != "Destination":
        return textwrap.shorten(text, 60, placeholder=" …")
    chain, _, rest = text.partition(" ")
    address, memo, number = rest.partition(" memo: ")
    address = address.replace(" ", "")
    return f"{chain} {address if len(address) <= 42 else f'{address[:20]}…{address[-21:]}'}{memo}{number}"


if __name__ == "__main__":
    sys.exit(main())
