"""One scenario: what happens to Airflow, the task and the sandbox, and what it resulted in."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lie_run
import network
from scenarios import ADDRESS, OTHER, Scenario
from servers import CeleryCluster, Standalone

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import SandboxControl, SandboxError

TOKEN = "fault-suite"
# The sandbox responds immediately: this is for the responses that never arrive.
TIMEOUT = 3.0
SCENARIO_TIMEOUT = 240.0
# For all scenarios together: if Airflow itself has died, each of them would wait for its own time-out.
TOTAL_TIMEOUT = 600.0
# Seconds until a try is killed. After the maximum it has found out what became of what an earlier one sent.
MEAN_SECONDS_TO_KILL = 2.5
MAX_SECONDS_TO_KILL = 9.0
# Seconds. The kernel sends what was not acknowledged again after 0.2, 0.6, 1.4, ... 25.4 and 51 seconds.
NETWORK_GONE = 27.0
STARTED = time.monotonic()
# A task that cannot know whether its request exists fails, and tells a person to do this.
INSTRUCTION = "airflow variables set "
EXPLANATION = ("it cannot be known whether", "so it is not sent again")


class Service:
    """A sandbox process that can be killed, and restarted with the same state."""

    def __init__(self, folder: Path, name: str, port: int, *, behind_network: bool = False) -> None:
        host = network.SERVICE_ADDRESS if behind_network else "127.0.0.1"
        self.url = f"http://{host}:{port}"
        self.control = SandboxControl(self.url)
        self._command = [
            *(network.AT_SERVICE if behind_network else ()),
            *(sys.executable, "-m", "airflow_custody.sandbox", "--token", TOKEN, "--host", host),
            *("--port", str(port), "--state", str(folder / f"{name}.db")),
        ]
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.control.about()
            except SandboxError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@dataclass
class Outcome:
    """The outcome of one scenario: a row of the table, and whether the guarantee held."""

    tries: str
    requests: int
    result: str
    guarantee_held: bool


class ScenarioRun:
    """One run of a scenario, from its preparation to its outcome."""

    def __init__(self, scenario: Scenario, airflow: Standalone, service: Service, folder: Path, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.airflow = airflow
        self.service = service
        self.pid_file = folder / f"{scenario.name}.pid"
        self.runs: list[str] = []
        self.existing: set[str] = set()
        self.lied = lie_run.Lied("", "")

    def run(self) -> Outcome:
        self._prepare()
        procedures: dict[str, Callable[[], None]] = {
            "trigger": self._trigger_and_wait,
            "start the service late": self._start_service_late,
            "restart the service": self._restart_service,
            "clear the task": self._clear,
            "hold the store": self._hold_store,
            "delete the run": self._delete_run,
            "trigger two runs": self._trigger_two_runs,
            "a person gives the id": self._person_gives_id,
            "a person says that none was created": self._person_says_none,
            "kill at random": self._kill_at_random,
            "the service lies": self._lie,
        }
        procedures[self.scenario.procedure]()
        if self.scenario.attack is not None:
            return self._evaluate_lie()
        return self._evaluate_rows() if self.scenario.rows else self._evaluate()

    def _prepare(self) -> None:
        if self.scenario.rows:
            lines = [f"Row {number},{_address(number)},ETH" for number in range(1, self.scenario.rows + 1)]
            self.pid_file.with_suffix(".csv").write_text("\n".join(["label,address,blockchain", *lines]))
        if self.scenario.procedure == "start the service late":
            return
        self.service.start()
        with CustodyClient(self.service.url, TOKEN, allow_http=True) as client:
            if not self.scenario.first:
                client.create_whitelist_request(WhitelistRequest(label="Earlier", address=OTHER, blockchain="ETH"))
            for _ in range(self.scenario.existing):
                request_id = client.create_whitelist_request(
                    WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH")
                )
                self.service.control.set_whitelist_status(request_id, "APPROVED")
                self.service.control.set_whitelist_age(request_id, 30 * 86400)
        self.service.control.clear_request_log()
        self.service.control.configure(whitelist_lag=self.scenario.lag)
        self.service.control.configure(**self.scenario.behaviour)
        for fault in self.scenario.sandbox_faults:
            self.service.control.add_fault(**fault)
        self.existing = set(self._requests())

    # --- procedures ----------------------------------------------------------------------------------------

    def _trigger_and_wait(self) -> None:
        self._trigger("run")
        if self.scenario.disruption == "cut the network":
            self._until(self.pid_file.exists, "the network to be cut")
            cut_at = time.monotonic()
            time.sleep(NETWORK_GONE)
            network.connect()
            self._until_done()
            # What the kernel still had to send has arrived by then.
            time.sleep(max(0.0, cut_at + 2 * NETWORK_GONE + 5 - time.monotonic()))
            return
        if self.scenario.disruption in ("orphan the task", "pause both"):
            self._until(lambda: len(self._requests()) > 0, "the request of the next try")
            task, supervisor = self.pid_file.read_text().split()
            # Resume the task first: its supervisor would kill it.
            os.kill(int(task), signal.SIGCONT)
            if self.scenario.disruption == "pause both":
                time.sleep(0.5)
                os.kill(int(supervisor), signal.SIGCONT)
        self._until_done()
        if self.scenario.disruption and self.scenario.disruption != "kill the task":
            # The task that outlived its supervisor may continue now, and must do no harm.
            self.pid_file.with_suffix(".done").touch()
            process = Path("/proc") / self.pid_file.read_text().split()[0]
            self._until(lambda: not process.exists(), "the end of the old process")

    def _start_service_late(self) -> None:
        self._trigger("run")
        self._until(lambda: self._tries() >= 2, "the second try")
        self.service.start()
        self._until_done()

    def _restart_service(self) -> None:
        self.service.control.add_fault(method="POST", kind="normal", delay_after=50)
        self._trigger("run")
        self._until(lambda: len(self._requests()) > 0, "the request")
        self.service.kill()
        time.sleep(2)
        self.service.start()
        self._until_done()

    def _clear(self) -> None:
        self._trigger("run")
        self._until_done()
        self._clear_task()

    def _person_gives_id(self) -> None:
        self._trigger("run")
        self._until_done()
        self._follow_instructions(self._requests()[0])

    def _person_says_none(self) -> None:
        self._trigger("run")
        self._until_done()
        self._follow_instructions("none")

    def _follow_instructions(self, value: str) -> None:
        """Do what the task's error message tells a person to do."""
        (task,) = self._tasks("run")
        if task["state"] != "failed" or not self._explains(task):
            raise RuntimeError("the task did not fail with instructions for a person")
        name = self._log(task).split(INSTRUCTION)[1].split()[0]
        self.airflow.call("POST", "/variables", {"key": name, "value": value})
        self._clear_task()

    def _request_clear(self) -> None:
        task_id = "apply" if self.scenario.rows else "create"
        body = {"dry_run": False, "dag_run_id": "run", "task_ids": [task_id], "only_failed": False}
        self.airflow.call("POST", f"/dags/{self.scenario.name}/clearTaskInstances", body)

    def _clear_task(self) -> None:
        self._request_clear()
        self._until(lambda: self._tries() >= 2, "the second try")
        self._until_done()

    def _hold_store(self) -> None:
        assert isinstance(self.airflow, CeleryCluster)
        self._trigger("run")
        self._until(self.pid_file.exists, "the task's write")
        with self.airflow.held_store():
            self.pid_file.with_suffix(".held").touch()
            # Long enough for the write to have been checked, and short enough for the task to believe in it.
            time.sleep(1)
            path = f"/dags/{self.scenario.name}/dagRuns/run/taskInstances/create"
            self.airflow.call("PATCH", path, {"new_state": "failed"})
            self._request_clear()
            time.sleep(2.5)
        self._until(lambda: self._tries() >= 2, "the second try")
        self._until_done()

    def _delete_run(self) -> None:
        self._trigger("run")
        self._until_done()
        self.airflow.call("DELETE", f"/dags/{self.scenario.name}/dagRuns/run")
        self._trigger("run")
        self._until_done()

    def _trigger_two_runs(self) -> None:
        self._trigger("one")
        self._trigger("two")
        self._until_done()

    def _kill_at_random(self) -> None:
        # Seeded with a text: each scenario has moments of its own.
        moments = random.Random(f"{self.seed} {self.scenario.name}")
        supervisors = moments.sample(range(self.scenario.kills), self.scenario.supervisor_kills)
        self._trigger("run")
        last = ""
        for number in range(self.scenario.kills):
            self._until(lambda: self._is_new_try(last), "the next try")  # noqa: B023 - called at once
            time.sleep(min(moments.expovariate(1 / MEAN_SECONDS_TO_KILL), MAX_SECONDS_TO_KILL))
            last = self.pid_file.read_text()
            task, supervisor = map(int, last.split())
            with suppress(ProcessLookupError):
                os.kill(supervisor if number in supervisors else task, signal.SIGKILL)
        self._until_done()

    def _is_new_try(self, last: str) -> bool:
        """Tell whether another process carries out the task; a person clears it if it is done already."""
        if self.pid_file.exists() and self.pid_file.read_text() != last:
            return True
        if last and self._is_done():
            self._request_clear()
        return False

    def _lie(self) -> None:
        attack = self.scenario.attack or ""
        folder, name = self.pid_file.parent, self.scenario.name
        self.lied, connections = lie_run.prepare(self.service.url, TOKEN, attack, folder, name)
        for conn_id, connection in connections.items():
            self.airflow.call("POST", "/connections", {"connection_id": conn_id, **connection})
        self._trigger("run", {"pending": self.lied.pending, "effective": self.lied.effective})
        self._until_done()

    # --- results -------------------------------------------------------------------------------------------

    def _evaluate(self) -> Outcome:
        requests = set(self._requests())
        tasks = [task for run in self.runs for task in self._tasks(run)]
        correct = explained = 0
        ids = []
        for task in tasks:
            if task["state"] == "success":
                request_id = self._xcom(task)
                ids.append(request_id)
                correct += request_id in requests
            elif self._explains(task):
                explained += 1
        # Every task that succeeded must have a request of its own.
        guarantee_held = (
            len(requests) <= self.scenario.requests
            and correct + explained == len(tasks)
            and len(set(ids)) == len(ids)
            and explained <= self.scenario.explained
            and (explained > 0 or len(requests) == self.scenario.requests)
        )
        tries = sorted({int(task["try_number"]) for task in tasks})
        results = [f"{correct} XCom correct" if len(tasks) > 1 else "XCom correct"] if correct else []
        results += [f"{explained} failed, explained" if len(tasks) > 1 else "failed, explained"] if explained else []
        if wrong := len(tasks) - correct - explained:
            results.append(f"{wrong} WRONG: {', '.join(sorted(str(task['state']) for task in tasks))}")
        return Outcome(
            tries=str(tries[0]) if len(tries) == 1 else f"{tries[0]} to {tries[-1]}",
            requests=len(requests),
            result=", ".join(results),
            guarantee_held=guarantee_held,
        )

    def _evaluate_rows(self) -> Outcome:
        asked = {_address(number): f"Row {number}" for number in range(1, self.scenario.rows + 1)}
        made = {each["id"]: each for each in self.service.control.whitelist_requests()}
        own = {each["address"] for name, each in made.items() if name not in self.existing}
        (task,) = [each for each in self._tasks("run") if each["task_id"] == "apply"]
        pushed = self._xcom_value(task, "requests") if task["state"] == "success" else []
        # Each id is that of what its row asks for.
        correct = [
            each["id"]
            for each in pushed
            if each["id"] in made
            and (each["address"], each["label"]) == (made[each["id"]]["address"], made[each["id"]]["label"])
            and asked.get(each["address"]) == each["label"]
        ]
        requests = self._requests()
        guarantee_held = len(requests) == len(asked) == len(set(correct)) and own == set(asked)
        result = f"all {len(correct)} ids in their place" if guarantee_held else f"WRONG: {task['state']}"
        return Outcome(str(task["try_number"]), len(requests), result, guarantee_held)

    def _evaluate_lie(self) -> Outcome:
        tasks = {task["task_id"]: task for task in self._tasks("run")}
        states = {name: str(task["state"]) for name, task in tasks.items()}
        logs = {name: self._log(task) for name, task in tasks.items()}
        held, result = lie_run.judge(self.scenario.attack or "", self.lied, states, logs)
        requests = self._requests()
        return Outcome("1", len(requests), result, held and len(requests) == self.scenario.requests)

    def _requests(self) -> list[str]:
        """Return the ids of the requests that did not exist in advance."""
        found = [request["id"] for request in self.service.control.whitelist_requests()]
        return [each for each in found if each not in self.existing]

    def _trigger(self, run: str, conf: dict[str, str] | None = None) -> None:
        body: dict[str, Any] = {"dag_run_id": run, "logical_date": None, "conf": conf or {}}
        self.airflow.call("POST", f"/dags/{self.scenario.name}/dagRuns", body)
        if run not in self.runs:
            self.runs.append(run)

    def _tasks(self, run: str) -> list[dict[str, Any]]:
        path = f"/dags/{self.scenario.name}/dagRuns/{run}/taskInstances"
        tasks: list[dict[str, Any]] = self.airflow.call("GET", path)["task_instances"]
        return tasks

    def _tries(self) -> int:
        return max((task["try_number"] for run in self.runs for task in self._tasks(run)), default=0)

    def _xcom(self, task: dict[str, Any]) -> str:
        return str(self._xcom_value(task, "return_value"))

    def _xcom_value(self, task: dict[str, Any], key: str) -> Any:
        path = f"/dags/{self.scenario.name}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}"
        query = f"map_index={task['map_index']}&deserialize=true"
        return self.airflow.call("GET", f"{path}/xcomEntries/{key}?{query}")["value"]

    def _explains(self, task: dict[str, Any]) -> bool:
        return all(part in self._log(task) for part in (*EXPLANATION, INSTRUCTION))

    def _log(self, task: dict[str, Any]) -> str:
        folder = self.airflow.logs / f"dag_id={self.scenario.name}" / f"run_id={task['dag_run_id']}"
        folder /= f"task_id={task['task_id']}"
        if task["map_index"] >= 0:
            folder /= f"map_index={task['map_index']}"
        return (folder / f"attempt={task['try_number']}.log").read_text()

    def _is_done(self) -> bool:
        states = [self.airflow.call("GET", f"/dags/{self.scenario.name}/dagRuns/{run}")["state"] for run in self.runs]
        return all(state in ("success", "failed") for state in states)

    def _until_done(self) -> None:
        self._until(self._is_done, "the end of the run")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = min(time.monotonic() + SCENARIO_TIMEOUT, STARTED + TOTAL_TIMEOUT)
        while time.monotonic() < deadline:
            with suppress(SandboxError):
                if condition():
                    return
            time.sleep(0.5)
        raise TimeoutError(f"timed out waiting for {what}")


def _address(number: int) -> str:
    return f"0x{number:040x}"
