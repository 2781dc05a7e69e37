"""
Run the main example DAG once, end to end, on an Airflow inside this process.

The sandbox stands in for the custody service, in a separate process. It is unhealthy at first, so that the health gate
has to wait. The approval is given through Airflow's REST API, with the same call as the button in Airflow's UI.
Prints each step, and ends with "demo: ok" and exit code 0, or with the reason and exit code 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import requests
from _environment import (
    EXAMPLES,
    SandboxProcess,
    airflow_environment,
    create_approvers,
    create_home,
    free_ports,
    relative_path,
    require_airflow,
)

from airflow_custody.sandbox.whitelist.store import EFFECTIVE

DAG_ID = "custody_whitelist_complete"
USER = "alice"
TIMEOUT = 180.0
WIDTH = 116


class DemoError(Exception):
    """Raised when the demo did not go as expected."""


class Output:
    """
    The demo's output on the terminal, while Airflow's own output goes to a file.

    :param log: that file.
    """

    def __init__(self, log: Path) -> None:
        self._started = time.monotonic()
        self._terminal = os.fdopen(os.dup(1), "w")
        self._lock = threading.Lock()
        self.log = relative_path(log)
        self.task_failure = ""
        with log.open("wb") as file:
            # At the level of file descriptors, because Airflow keeps the streams that it finds.
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)

    def print_line(self, line: str = "") -> None:
        """Print a line."""
        with self._lock:
            print(line, file=self._terminal, flush=True)

    def print_step(self, subject: str, text: str) -> None:
        """Print one step of the demo, with the time."""
        self.print_line(f"{self.seconds:5.1f} s  {subject:<8}  {text}")

    def print_failure(self, reason: str) -> None:
        """Print why the demo failed, and where to read more."""
        self.print_line(f"demo: failed: {reason} (see {self.log})")

    @property
    def seconds(self) -> float:
        """Seconds since the demo started."""
        return time.monotonic() - self._started


def main() -> int:
    """Run the demo and return the exit code."""
    airflow_version = require_airflow()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = create_home("run")
    output = Output(home / "airflow.log")
    output.print_line(f"Running the DAG {DAG_ID} on Airflow {airflow_version}. Airflow's own log is {output.log}\n")
    try:
        with SandboxProcess(home) as sandbox:
            _abort_on_signal_or_timeout(output, sandbox)
            settings = {
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:user",
                **_prepare_service(output, sandbox),
            }
            environment = airflow_environment(home, sandbox, **settings)
            os.environ.clear()
            os.environ.update(environment)
            xcoms = _run(output, sandbox)
            _print_results(output, sandbox, xcoms)
            _check_results(sandbox, xcoms)
    except KeyboardInterrupt:
        output.print_line("demo: failed: interrupted")
        return 1
    except DemoError as error:
        output.print_failure(str(error))
        return 1
    except Exception as error:
        output.print_failure(f"{type(error).__name__}: {error}")
        return 1
    output.print_line(f"demo: ok ({output.seconds:.0f} s)")
    return 0


# --- the run -----------------------------------------------------------------------------------------------


def _prepare_service(output: Output, sandbox: SandboxProcess) -> dict[str, str]:
    """Make the service unhealthy and create the approvers; return their connections as environment variables."""
    sandbox.control.update_health(component="hsm-1", check="vault", status="failure")
    connections = create_approvers(sandbox)
    output.print_step("service", f"the sandbox is running at {sandbox.url}, in place of a real service")
    output.print_step("service", "it is not healthy: the component hsm-1 is failing")
    output.print_step("service", "it requires two signatures for each whitelisting request: first bob's, then carol's")
    return connections


def _run(output: Output, sandbox: SandboxProcess) -> dict[str, Any]:
    """Run the DAG and return the XCom value of each task."""
    # Imported this late because Airflow reads its environment when it is imported.
    from airflow.api_fastapi.app import create_app
    from airflow.sdk.listener import get_listener_manager
    from airflow.utils.db import initdb

    initdb()
    sys.path.insert(0, str(EXAMPLES))
    dag = import_module(DAG_ID).dag
    get_listener_manager().add_listener(_create_listener(output))  # type: ignore[no-untyped-call]
    airflow = _serve_api(create_app(apps="core"))
    output.print_step("airflow", "is ready and starts the DAG run")
    _run_in_background(output, sandbox, lambda: _repair_service(output, sandbox))
    _run_in_background(output, sandbox, lambda: _approve(output, airflow))
    run = dag.test()
    tasks = sorted(run.get_task_instances(), key=lambda task: str(task.start_date))
    # This branch is not taken.
    tasks = [task for task in tasks if (task.task_id, task.state) != ("reject", "skipped")]
    if any(task.state != "success" for task in tasks):
        raise DemoError(output.task_failure or ", ".join(f"{task.task_id} {task.state}" for task in tasks))
    path = f"/dags/{DAG_ID}/dagRuns/{run.run_id}/taskInstances"
    return {
        task.task_id: airflow.call("GET", f"{path}/{task.task_id}/xcomEntries/return_value")["value"]
        for task in tasks
        if task.task_id != "what_was_decided"  # a branching task has no value of its own
    }


class AirflowApi:
    """
    Airflow's REST API, called as one user.

    :param url: base URL of Airflow.
    :param token: the user's token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """Make one call and return the decoded response."""
        response = self._session.request(method, f"{self._url}/api/v2{path}", timeout=30, **arguments)
        response.raise_for_status()
        return response.json()


def _serve_api(app: Any) -> AirflowApi:
    """Serve Airflow's REST API from a thread, and sign the user in."""
    import uvicorn
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    (port,) = free_ports(1)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None))
    threading.Thread(target=server.run, daemon=True).start()
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=USER, role="user"))
    _wait_for(lambda: server.started)
    return AirflowApi(f"http://127.0.0.1:{port}", token)


def _create_listener(output: Output) -> object:
    """Return a listener that prints the result of each task."""
    from airflow.listeners import hookimpl

    matches = "the request is what was asked for"
    messages: dict[str, tuple[str, Callable[[Any], str]]] = {
        "wait_until_healthy": ("gate", lambda verdict: f"open: all {verdict['total']} checks are healthy"),
        "create_request": ("request", lambda request_id: f"created: id {request_id}"),
        "sign_first": ("signing", lambda _: f"{matches}; bob's key has signed it"),
        "sign_second": ("signing", lambda _: f"{matches}; carol's key has signed it"),
        "wait_until_effective": ("effect", lambda request: f"the whitelisting has taken effect: {request['status']}"),
        "tell": ("notice", lambda message: message),
    }

    class Listener:
        @hookimpl
        def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
            if task_instance.task_id in messages:
                subject, message = messages[task_instance.task_id]
                output.print_step(subject, message(task_instance.xcom_pull(task_ids=task_instance.task_id)))

        @hookimpl
        def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
            output.task_failure = f"{task_instance.task_id} failed: {error}"
            output.print_step("airflow", output.task_failure)

    return Listener()


def _repair_service(output: Output, sandbox: SandboxProcess) -> None:
    """Make the service healthy once the gate has polled it twice."""
    _wait_for(lambda: sandbox.control.request_log(path="/health"))
    output.print_step("gate", "closed: the service is not healthy; the DAG waits and checks again every 5 s")
    _wait_for(lambda: len(sandbox.control.request_log(path="/health")) >= 2)
    time.sleep(1)
    sandbox.control.update_health(component="hsm-1", check="vault", status="success")
    output.print_step("service", "hsm-1 is working again")


def _approve(output: Output, airflow: AirflowApi) -> None:
    """Act as the user: wait for the question, and approve."""

    def questions() -> list[dict[str, Any]]:
        listing = airflow.call("GET", "/dags/~/dagRuns/~/hitlDetails", params={"response_received": "false"})
        return [each for each in listing["hitl_details"] if each["task_instance"]["state"] == "awaiting_input"]

    question = _wait_for(questions)[0]
    output.print_step("approval", f"Airflow asks: {question['subject']}")
    # A person would need a moment too, and so does dag.test() to notice that the task is waiting.
    time.sleep(2)
    task = question["task_instance"]
    path = f"/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/-1/hitlDetails"
    airflow.call("PATCH", path, json={"chosen_options": ["Approve"], "params_input": {}})
    output.print_step("approval", f"{USER} answers: Approve")


# --- results -----------------------------------------------------------------------------------------------


def _print_results(output: Output, sandbox: SandboxProcess, xcoms: dict[str, Any]) -> None:
    """Print what is in XCom, and which HTTP requests the service received."""
    output.print_line("\nWhat the tasks pushed to XCom:")
    for task_id, value in xcoms.items():
        output.print_line(f"  {task_id:<20}  {_shorten(json.dumps(value), WIDTH - 24)}")
    output.print_line("\nHTTP requests that the service received:")
    calls = [f"{call['method']:<5}  {call['path']}  {call['status']}" for call in sandbox.control.request_log()]
    for call, repeats in groupby(calls):
        count = len(list(repeats))
        output.print_line(f"  {call}{f'  ({count} times)' if count > 1 else ''}")
    output.print_line()


def _shorten(text: str, length: int) -> str:
    half = length // 2
    return text if len(text) <= length else f"{text[:half]}…{text[half + 1 - length :]}"


def _check_results(sandbox: SandboxProcess, xcoms: dict[str, Any]) -> None:
    """Compare the results in Airflow with the state of the service."""
    requests = sandbox.control.whitelist_requests()
    approvals = sandbox.control.request_log(method="POST", path="/whitelists/addresses/approve")
    creates = len(sandbox.control.request_log(method="POST")) - len(approvals)
    expectations = {
        "the gate checked again": len(sandbox.control.request_log(path="/health")) >= 3,
        "exactly one request is at the service": creates == len(requests) == 1,
        "its id is in XCom": [xcoms["create_request"]] == [request["id"] for request in requests],
        "that request was signed twice": [each["body"]["ids"] for each in approvals] == [[xcoms["create_request"]]] * 2,
        f"{USER} decided": xcoms["decide"]["responded_by_user"]["name"] == USER,
        "the request has taken effect": [request["status"] for request in requests] == [EFFECTIVE],
    }
    unmet = [expectation for expectation, met in expectations.items() if not met]
    if unmet:
        raise DemoError(f"this was expected, but did not happen: {'; '.join(unmet)}")


# --- background work ---------------------------------------------------------------------------------------


def _wait_for(condition: Callable[[], Any]) -> Any:
    """Poll a condition and return its first true value; only the time-out of the whole demo ends the wait."""
    while not (value := condition()):
        time.sleep(0.5)
    return value


def _run_in_background(output: Output, sandbox: SandboxProcess, work: Callable[[], None]) -> None:
    """Run a function in a thread; abort the demo if it fails, because the DAG run would wait for ever."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            _abort(output, sandbox, f"{type(error).__name__}: {error}")

    threading.Thread(target=run, daemon=True).start()


def _abort_on_signal_or_timeout(output: Output, sandbox: SandboxProcess) -> None:
    """Abort the demo on Ctrl-C, on SIGTERM, or when it takes too long, whatever Airflow is doing."""
    # A signal handler would not do: Airflow installs its own, and takes an exception for a failure of the running
    # task. So a thread waits for the signals.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def wait() -> None:
        signal.sigwait(signals)
        _abort(output, sandbox, "interrupted")

    threading.Thread(target=wait, daemon=True).start()
    timer = threading.Timer(
        TIMEOUT, lambda: _abort(output, sandbox, f"not finished after {TIMEOUT:.0f} s. {output.task_failure}")
    )
    timer.daemon = True
    timer.start()


def _abort(output: Output, sandbox: SandboxProcess, reason: str) -> NoReturn:
    """Stop the sandbox and exit, from any thread."""
    sandbox.stop()
    output.print_failure(reason.strip())
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
