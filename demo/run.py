"""
Run the main job of the example DAGs once, end to end, on an Airflow inside this process.

The sandbox stands in for the custody service, as a process of its own. It is not healthy at first, so that one sees
the gate wait. The approval is given over Airflow's REST API, by the call that the button in its UI makes.
Prints what happened, and ends with "demo: ok" and exit code 0, or with the reason and exit code 1.
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
    approver_connections,
    free_ports,
    fresh_home,
    require_airflow,
    shown,
)

DAG_ID = "custody_whitelist_complete"
PERSON = "alice"
DEADLINE = 180.0
WIDTH = 116


class Failure(Exception):
    """Say why the demo did not work."""


class Story:
    """Tell on the terminal what happens, while Airflow's own output goes to a file."""

    def __init__(self, log: Path) -> None:
        self._started = time.monotonic()
        self._terminal = os.fdopen(os.dup(1), "w")
        self._lock = threading.Lock()
        self.log = shown(log)
        self.trouble = ""
        with log.open("wb") as file:
            # At the level of file descriptors, because Airflow keeps the streams that it finds.
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)

    def say(self, line: str = "") -> None:
        """Print a line."""
        with self._lock:
            print(line, file=self._terminal, flush=True)

    def tell(self, who: str, what: str) -> None:
        """Print what somebody did, and when."""
        self.say(f"{self.seconds:5.1f} s  {who:<8}  {what}")

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return time.monotonic() - self._started


def main() -> int:
    """Run the demo and return the exit code."""
    airflow = require_airflow()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = fresh_home("run")
    story = Story(home / "airflow.log")
    story.say(f"Airflow {airflow} runs the DAG {DAG_ID} (its own output: {story.log}).\n")
    try:
        with SandboxProcess(home) as sandbox:
            _watch_over(story, sandbox)
            _prepare(story, sandbox)
            settings = {
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{PERSON}:user",
                **approver_connections(sandbox),
            }
            environment = airflow_environment(home, sandbox, **settings)
            os.environ.clear()
            os.environ.update(environment)
            values = _run(story, sandbox)
            _show(story, sandbox, values)
            _check(sandbox, values)
    except KeyboardInterrupt:
        story.say("demo: failed: interrupted")
        return 1
    except Failure as failure:
        story.say(f"demo: failed: {failure} (see {story.log})")
        return 1
    except Exception as error:
        story.say(f"demo: failed: {type(error).__name__}: {error} (see {story.log})")
        return 1
    story.say(f"demo: ok ({story.seconds:.0f} s)")
    return 0


# --- the run -----------------------------------------------------------------------------------------------


def _prepare(story: Story, sandbox: SandboxProcess) -> None:
    """Make the service unhealthy."""
    sandbox.control.update_health(component="hsm-1", check="vault", status="failure")
    story.tell("service", f"the sandbox, a stand-in, at {sandbox.url}")
    story.tell("service", "is not healthy: hsm-1 fails; a whitelisting needs the signatures of bob, then carol")


def _run(story: Story, sandbox: SandboxProcess) -> dict[str, Any]:
    """Run the DAG and return what each task left in XCom."""
    # Not before now: Airflow reads its environment when it is imported.
    from airflow.api_fastapi.app import create_app
    from airflow.sdk.listener import get_listener_manager
    from airflow.utils.db import initdb

    initdb()
    sys.path.insert(0, str(EXAMPLES))
    dag = import_module(DAG_ID).dag
    get_listener_manager().add_listener(_listener(story))
    airflow = _serve(create_app(apps="core"))
    story.tell("airflow", "is set up and starts the run")
    _start(story, sandbox, lambda: _mend(story, sandbox))
    _start(story, sandbox, lambda: _approve(story, airflow))
    run = dag.test()
    tasks = sorted(run.get_task_instances(), key=lambda task: str(task.start_date))
    # The way back is not taken.
    tasks = [task for task in tasks if (task.task_id, task.state) != ("reject", "skipped")]
    if any(task.state != "success" for task in tasks):
        raise Failure(story.trouble or ", ".join(f"{task.task_id} {task.state}" for task in tasks))
    path = f"/dags/{DAG_ID}/dagRuns/{run.run_id}/taskInstances"
    return {
        task.task_id: airflow.call("GET", f"{path}/{task.task_id}/xcomEntries/return_value")["value"]
        for task in tasks
        if task.task_id != "what_was_decided"  # a branch leaves no value
    }


class Api:
    """Call Airflow's REST API as the person.

    :param url: where it is.
    :param token: the person's token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """Make one call and return what the answer holds."""
        answer = self._session.request(method, f"{self._url}/api/v2{path}", timeout=30, **arguments)
        answer.raise_for_status()
        return answer.json()


def _serve(app: Any) -> Api:
    """Serve Airflow's REST API from a thread, and log the person in."""
    import uvicorn
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    (port,) = free_ports(1)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None))
    threading.Thread(target=server.run, daemon=True).start()
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=PERSON, role="user"))
    _wait_for(lambda: server.started)
    return Api(f"http://127.0.0.1:{port}", token)


def _listener(story: Story) -> object:
    """Make what Airflow calls when a task has ended; it tells what came of it."""
    from airflow.listeners import hookimpl

    tales: dict[str, tuple[str, Callable[[Any], str]]] = {
        "wait_until_healthy": ("gate", lambda verdict: f"open: all {verdict['total']} checks are healthy"),
        "create_request": ("request", lambda request_id: f"created: id {request_id}"),
        "sign_first": ("signing", lambda count: f"bob's key has signed {count} request, after comparing it"),
        "sign_second": ("signing", lambda count: f"carol's key has signed {count} request, after comparing it"),
        "wait_until_effective": ("effect", lambda seen: f"the whitelisting has taken effect: {seen['status']}"),
        "tell": ("notice", lambda message: message),
    }

    class Listener:
        @hookimpl
        def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
            if task_instance.task_id in tales:
                who, tale = tales[task_instance.task_id]
                story.tell(who, tale(task_instance.xcom_pull(task_ids=task_instance.task_id)))

        @hookimpl
        def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
            story.trouble = f"{task_instance.task_id} failed: {error}"
            story.tell("airflow", story.trouble)

    return Listener()


def _mend(story: Story, sandbox: SandboxProcess) -> None:
    """Make the service healthy when the gate has looked twice."""
    _wait_for(lambda: sandbox.control.received(path="/health"))
    story.tell("gate", "shut: the service is not healthy yet, the DAG waits and looks again every 5 s")
    _wait_for(lambda: len(sandbox.control.received(path="/health")) >= 2)
    time.sleep(1)
    sandbox.control.update_health(component="hsm-1", check="vault", status="success")
    story.tell("service", "hsm-1 works again")


def _approve(story: Story, airflow: Api) -> None:
    """Be the person: wait until asked, look at the question, and answer it."""

    def questions() -> list[dict[str, Any]]:
        found = airflow.call("GET", "/dags/~/dagRuns/~/hitlDetails", params={"response_received": "false"})
        return [each for each in found["hitl_details"] if each["task_instance"]["state"] == "awaiting_input"]

    question = _wait_for(questions)[0]
    story.tell("approval", f"Airflow asks: {question['subject']}")
    # As a person does; and dag.test() needs a moment to notice itself that the task waits.
    time.sleep(2)
    task = question["task_instance"]
    path = f"/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/-1/hitlDetails"
    airflow.call("PATCH", path, json={"chosen_options": ["Approve"], "params_input": {}})
    story.tell("approval", f"{PERSON} answers: Approve")


# --- the end -----------------------------------------------------------------------------------------------


def _show(story: Story, sandbox: SandboxProcess, values: dict[str, Any]) -> None:
    """Print what is in XCom, and what reached the service."""
    story.say("\nXCom:")
    for task_id, value in values.items():
        story.say(f"  {task_id:<20}  {_shortened(json.dumps(value), WIDTH - 24)}")
    story.say("\nWhat the service received:")
    calls = [f"{call['method']:<5}  {call['path']}  {call['status']}" for call in sandbox.control.received()]
    for call, repeats in groupby(calls):
        times = len(list(repeats))
        story.say(f"  {call}{f'  ({times} times)' if times > 1 else ''}")
    story.say()


def _shortened(text: str, room: int) -> str:
    half = room // 2
    return text if len(text) <= room else f"{text[:half]}…{text[half + 1 - room :]}"


def _check(sandbox: SandboxProcess, values: dict[str, Any]) -> None:
    """Compare what Airflow says with what is at the service."""
    requests = sandbox.control.whitelist_requests()
    approvals = sandbox.control.received(method="POST", path="/whitelists/addresses/approve")
    creates = len(sandbox.control.received(method="POST")) - len(approvals)
    expected = {
        "the gate looked again": len(sandbox.control.received(path="/health")) >= 3,
        "exactly one request is at the service": creates == len(requests) == 1,
        "its id is in XCom": [values["create_request"]] == [request["id"] for request in requests],
        "that id was signed twice": [each["body"]["ids"] for each in approvals] == [[values["create_request"]]] * 2,
        f"{PERSON} decided": values["decide"]["responded_by_user"]["name"] == PERSON,
        "the request has taken effect": [request["status"] for request in requests] == ["active"],
    }
    wrong = [what for what, is_so in expected.items() if not is_so]
    if wrong:
        raise Failure(f"not so: {'; '.join(wrong)}")


# --- beside the run ----------------------------------------------------------------------------------------


def _wait_for(look: Callable[[], Any]) -> Any:
    """Look again and again until there is something; the deadline of the whole demo ends the wait."""
    while not (found := look()):
        time.sleep(0.5)
    return found


def _start(story: Story, sandbox: SandboxProcess, work: Callable[[], None]) -> None:
    """Work on a thread of its own; should it fail, the run would wait for ever."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            _abandon(story, sandbox, f"{type(error).__name__}: {error}")

    threading.Thread(target=run, daemon=True).start()


def _watch_over(story: Story, sandbox: SandboxProcess) -> None:
    """End the demo on Ctrl-C, SIGTERM or when it takes too long, wherever Airflow is at that moment."""
    # Airflow sets handlers of its own and takes an exception for a failure of the task it runs: so the signals
    # go to a thread that waits for them.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def wait() -> None:
        signal.sigwait(signals)
        _abandon(story, sandbox, "interrupted")

    threading.Thread(target=wait, daemon=True).start()
    timer = threading.Timer(
        DEADLINE, lambda: _abandon(story, sandbox, f"not done within {DEADLINE:.0f} s. {story.trouble}")
    )
    timer.daemon = True
    timer.start()


def _abandon(story: Story, sandbox: SandboxProcess, why: str) -> NoReturn:
    """End the process from any thread, leaving nothing behind."""
    sandbox.stop()
    story.say(f"demo: failed: {why.strip()} (see {story.log})")
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
