"""One scenario: the events in Airflow, the task and the sandbox, and their result."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import Service, kill, read_pids, until
from scenarios import OTHER, Scenario
from servers import Airflow

# How often an apply is killed, and after how many seconds. After the maximum it has found out what became of what an
# earlier try sent.
KILLS = 10
MEAN_SECONDS_TO_KILL = 2.5
MAX_SECONDS_TO_KILL = 9.0
# A task that cannot know whether its request exists fails, and tells a person to do this.
INSTRUCTION = "airflow variables set "
EXPLANATION = ("it is unknown whether", "so it is not sent again", INSTRUCTION)


@dataclass
class Outcome:
    """The outcome of one scenario: a row of the table, and whether the guarantee held."""

    tries: str
    requests: int
    result: str
    guarantee_held: bool


class ScenarioRun:
    """One run of a scenario, from its preparation to its outcome."""

    def __init__(self, scenario: Scenario, airflow: Airflow, service: Service, folder: Path, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.airflow = airflow
        self.service = service
        self.pid_file = folder / f"{scenario.name}.pid"
        self.runs: list[str] = []
        self.existing: set[str] = set()

    def run(self) -> Outcome:
        """Prepare the service, cause the fault, and return its result."""
        if self.scenario.rows:
            lines = [f"Row {number},{_address(number)},ETH" for number in range(1, self.scenario.rows + 1)]
            self.pid_file.with_suffix(".csv").write_text("\n".join(["label,address,blockchain", *lines]))
        if self.scenario.procedure != "start the service late":
            self._prepare()
        getattr(self, f"_{self.scenario.procedure.replace(' ', '_')}")()
        if self.scenario.renames:
            return self._evaluate_renames()
        return self._evaluate_rows() if self.scenario.rows else self._evaluate()

    def _prepare(self) -> None:
        self.service.start()
        control = self.service.control
        # While the service lists another request of this user, the absence of one counts.
        control.add_whitelist_requests([{"label": "Earlier", "address": OTHER, "blockchain": "ETH"}], status="pending")
        if self.scenario.renames:
            rows = range(1, self.scenario.rows + 1)
            control.add_whitelist_requests(
                [{"label": f"Old {each}", "address": _address(each), "blockchain": "ETH"} for each in rows]
            )
        self.existing = set(self._requests())
        control.clear_request_log()
        control.configure(**self.scenario.settings)
        for fault in self.scenario.sandbox_faults:
            control.add_fault(**fault)

    # --- procedures ----------------------------------------------------------------------------------------

    def _trigger(self, *runs: str) -> None:
        """Trigger runs and wait for their end; the rest of a first try goes on once another has sent, or is done."""
        self._start(*runs or ("run",))
        disruption = self.scenario.disruption
        if disruption in ("orphan the task", "pause both"):
            self._until_requested()
            # Resume the task first, because its supervisor would kill it.
            for pid in read_pids(self.pid_file)[: 2 if disruption == "pause both" else 1]:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.5)
        self._until_done()
        if disruption in ("kill the supervisor", "orphan the task", "pause both"):
            # The task that has outlived its supervisor may continue now. It must do no harm.
            self.pid_file.with_suffix(".done").touch()
            task, _ = read_pids(self.pid_file)
            self._until(lambda: not Path(f"/proc/{task}").exists(), "the end of the old process")

    def _start_the_service_late(self) -> None:
        self._start("run")
        self._until(lambda: self._tries() >= 2, "the second try")
        self.service.start()
        self._until_done()

    def _clear_the_task(self) -> None:
        self._trigger()
        self._clear()
        self._until_second_try()

    def _a_person_gives_the_id(self) -> None:
        """Do what the task's error message tells a person to do."""
        self._trigger()
        (task,) = self._tasks()
        if task["state"] != "failed" or not self._explains(task):
            raise RuntimeError("the task did not fail with instructions for a person")
        name = self._log(task).split(INSTRUCTION)[1].split()[0]
        self.airflow.call("POST", "/variables", {"key": name, "value": self._requests()[0]})
        self._clear()
        self._until_second_try()

    def _delete_the_run(self) -> None:
        self._trigger()
        self._call("DELETE", "/dagRuns/run")
        self._trigger()

    def _trigger_two_runs(self) -> None:
        self._trigger("one", "two")

    def _kill_at_random(self) -> None:
        self._start("run")
        self._kill_ten_times()

    def _kill_while_completing(self) -> None:
        self._apply_and_sign()
        self._kill_ten_times()

    def _apply_and_sign(self) -> None:
        """Apply a plan that renames, and have people sign what it has created."""
        self._start("run")
        self._until(lambda: len(self._requests()) == self.scenario.rows, "the new requests")
        self.service.control.sign_whitelist_requests(self._requests())

    def _kill_ten_times(self) -> None:
        # Use a text as seed, so that each scenario has its own moments.
        moments = random.Random(f"{self.seed} {self.scenario.name}")
        supervisors = moments.sample(range(KILLS), self.scenario.supervisor_kills)
        last: tuple[int, ...] = ()

        def is_new_try() -> bool:
            """Tell whether another process carries out the task; a person clears it if it is done already."""
            if read_pids(self.pid_file) != last:
                return True
            if last and self._is_done():
                self._clear()
            return False

        for number in range(KILLS):
            self._until(is_new_try, "the next try")
            time.sleep(min(moments.expovariate(1 / MEAN_SECONDS_TO_KILL), MAX_SECONDS_TO_KILL))
            task, supervisor = last = read_pids(self.pid_file)
            kill(supervisor if number in supervisors else task)
        self._until_done()

    # --- results -------------------------------------------------------------------------------------------

    def _evaluate(self) -> Outcome:
        requests, tasks = self._requests(), self._tasks()
        states = sorted({str(task["state"]) for task in tasks})
        ids = [str(self._xcom(task)) for task in tasks if task["state"] == "success"]
        # Every task must have a request of its own.
        held = len({*ids}) == len(tasks) and {*ids} <= {*requests} and len(requests) == self.scenario.requests
        result = "XCom correct" if held else f"WRONG: {', '.join(states)}"
        tries = sorted({int(task["try_number"]) for task in tasks})
        return Outcome(" to ".join(map(str, sorted({tries[0], tries[-1]}))), len(requests), result, held)

    def _evaluate_rows(self) -> Outcome:
        asked = {(_address(number), f"Row {number}") for number in range(1, self.scenario.rows + 1)}
        made = {each["id"]: (each["address"], each["label"]) for each in self.service.control.whitelist_requests()}
        (task,) = [each for each in self._tasks() if each["task_id"] == "apply"]
        pushed = self._xcom(task, "requests") if task["state"] == "success" else []
        # Each id must be that of a request with the content of its row.
        correct = {each["id"] for each in pushed if made.get(each["id"]) == (each["address"], each["label"])}
        requests = self._requests()
        guarantee_held = len(requests) == len(asked) == len(correct) and {made[each] for each in requests} == asked
        result = f"all {len(correct)} ids in their place" if guarantee_held else f"WRONG: {task['state']}"
        return Outcome(str(task["try_number"]), len(requests), result, guarantee_held)

    def _evaluate_renames(self) -> Outcome:
        """Check that each row has a new request in effect, and no old one."""
        rows = set(range(1, self.scenario.rows + 1))
        old, new, requests = self._in_effect("Old"), self._in_effect("Row"), self._requests()
        (task,) = [each for each in self._tasks() if each["task_id"] == "complete"]
        held = len(requests) == len(rows) and new.keys() == rows and not old and task["state"] == "success"
        wrong = f"WRONG: {task['state']}, {len(old)} old and {len(new)} new in effect"
        result = "all old ones deleted, all new ones in effect" if held else wrong
        return Outcome(str(task["try_number"]), len(requests), result, held)

    def _in_effect(self, kind: str) -> dict[int, str]:
        """Return the ids of the requests in effect whose label is of this kind, by the numbers of their rows."""
        found = [each for each in self.service.control.whitelist_requests() if each["status"] == "APPROVED"]
        labels = [(each["label"].split(), each["id"]) for each in found]
        return {int(label[1]): each for label, each in labels if label[0] == kind}

    def _requests(self) -> list[str]:
        """Return the ids of the requests that did not exist in advance."""
        found = [request["id"] for request in self.service.control.whitelist_requests()]
        return [each for each in found if each not in self.existing]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        return self.airflow.call(method, f"/dags/{self.scenario.name}{path}", body)

    def _start(self, *runs: str) -> None:
        self.runs = list(runs)
        for run in runs:
            self._call("POST", "/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": {}})

    def _clear(self) -> None:
        task_id = "complete" if self.scenario.renames else "apply" if self.scenario.rows else "create"
        body = {"dry_run": False, "dag_run_id": "run", "task_ids": [task_id], "only_failed": False}
        self._call("POST", "/clearTaskInstances", body)

    def _tasks(self) -> list[dict[str, Any]]:
        found = [self._call("GET", f"/dagRuns/{run}/taskInstances")["task_instances"] for run in self.runs]
        return [task for tasks in found for task in tasks]

    def _tries(self) -> int:
        return max((task["try_number"] for task in self._tasks()), default=0)

    def _xcom(self, task: dict[str, Any], key: str = "return_value") -> Any:
        path = f"/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/xcomEntries/{key}"
        return self._call("GET", f"{path}?map_index={task['map_index']}&deserialize=true")["value"]

    def _explains(self, task: dict[str, Any]) -> bool:
        return all(part in self._log(task) for part in EXPLANATION)

    def _log(self, task: dict[str, Any]) -> str:
        folder = self.airflow.logs / f"dag_id={self.scenario.name}" / f"run_id={task['dag_run_id']}"
        folder /= f"task_id={task['task_id']}"
        if task["map_index"] >= 0:
            folder /= f"map_index={task['map_index']}"
        return (folder / f"attempt={task['try_number']}.log").read_text()

    def _is_done(self) -> bool:
        return all(self._call("GET", f"/dagRuns/{run}")["state"] in ("success", "failed") for run in self.runs)

    def _until_done(self) -> None:
        self._until(self._is_done, "the end of the run")

    def _until_second_try(self) -> None:
        self._until(lambda: self._tries() >= 2, "the second try")
        self._until_done()

    def _until_requested(self) -> None:
        self._until(self._requests, "the request")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        def is_met() -> object:
            # Without Airflow, each scenario would wait until its time-out.
            self.airflow.check()
            return condition()

        until(is_met, what, every=0.5)


def _address(number: int) -> str:
    return f"0x{number:040x}"
