"""
Break things while real Airflow creates whitelisting requests, and count what the service has afterwards.

Airflow, every task and every sandbox are processes of their own. Prints one table; ends with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios import ADDRESS, SCENARIOS, WORKER_SCENARIOS, Scenario
from servers import CeleryCluster, Standalone, free_ports

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import SandboxControl, SandboxError

HERE = Path(__file__).resolve().parent
TOKEN = "fault-suite"
# The sandbox's requests answer at once; this is for the answers that do not come.
TIMEOUT = 3.0
PATIENCE = 240.0
# For all together: an Airflow that has died would make each of them wait.
GIVE_UP_AFTER = 600.0
AT_ONCE = 6
STARTED = time.monotonic()
EXPLANATION = ("can not be known, so it is not sent again", "airflow variables set")


class Service:
    """One sandbox process, which can be killed and started again with the state it had."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.control = SandboxControl(self.url)
        self._command = [
            *(sys.executable, "-m", "airflow_custody.sandbox", "--token", TOKEN),
            *("--port", str(port), "--state", str(folder / f"{name}.db")),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, start_new_session=True)
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
    """What came of one scenario: a row of the table."""

    tries: str
    requests: int
    result: str
    kept: bool


class Play:
    """One scenario, from its preparation to its outcome."""

    def __init__(self, scenario: Scenario, airflow: Standalone, service: Service, folder: Path) -> None:
        self.scenario = scenario
        self.airflow = airflow
        self.service = service
        self.mark = folder / f"{scenario.name}.pid"
        self.runs: list[str] = []

    def run(self) -> Outcome:
        before = self._prepare()
        acts: dict[str, Callable[[], None]] = {
            "plain": self._plain,
            "start the service late": self._start_late,
            "restart the service": self._restart,
            "clear": self._clear,
            "delete the run": self._delete,
            "two runs": self._two_runs,
            "a person gives the id": self._person_gives_the_id,
            "a person says there is none": self._person_says_none,
        }
        acts[self.scenario.play]()
        return self._judge(before)

    def _prepare(self) -> set[str]:
        if self.scenario.play == "start the service late":
            return set()
        self.service.start()
        with CustodyClient(self.service.url, TOKEN) as client:
            for _ in range(self.scenario.before):
                number = client.create_whitelist_request(
                    WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH")
                )
                self.service.control.set_whitelist_status(number, "active")
                self.service.control.set_whitelist_age(number, 30 * 86400)
        self.service.control.clear_received()
        self.service.control.set_whitelist_lag(self.scenario.lag)
        for order in self.scenario.orders:
            self.service.control.order_fault(**order)
        return {request["id"] for request in self.service.control.whitelist_requests()}

    # --- what is played ------------------------------------------------------------------------------------

    def _plain(self) -> None:
        self._trigger("run")
        if self.scenario.strike in ("stop", "pause"):
            self._until(lambda: len(self._requests()) > 0, "the next try's request")
            task, supervisor = self.mark.read_text().split()
            # The task first: its supervisor would end it.
            os.kill(int(task), signal.SIGCONT)
            if self.scenario.strike == "pause":
                time.sleep(0.5)
                os.kill(int(supervisor), signal.SIGCONT)
        self._until_done()
        if self.scenario.strike and self.scenario.strike != "kill":
            # The task that outlived its supervisor may go on now, and must do no harm.
            self.mark.with_suffix(".done").touch()
            process = Path("/proc") / self.mark.read_text().split()[0]
            self._until(lambda: not process.exists(), "the end of the old process")

    def _start_late(self) -> None:
        self._trigger("run")
        self._until(lambda: self._tries() >= 2, "the second try")
        self.service.start()
        self._until_done()

    def _restart(self) -> None:
        self.service.control.order_fault(method="POST", answer="normal", delay_after=50)
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

    def _person_gives_the_id(self) -> None:
        self._trigger("run")
        self._until_done()
        self._say(self._requests()[0])

    def _person_says_none(self) -> None:
        self._trigger("run")
        self._until_done()
        self._say("none")

    def _say(self, word: str) -> None:
        """Do what the task's message tells a person to do."""
        (task,) = self._tasks("run")
        if task["state"] != "failed" or not self._explains(task):
            raise RuntimeError("the task did not ask a person")
        name = self._log(task).split("airflow variables set ")[1].split()[0]
        self.airflow.call("POST", "/variables", {"key": name, "value": word})
        self._clear_task()

    def _clear_task(self) -> None:
        order = {"dry_run": False, "dag_run_id": "run", "task_ids": ["create"], "only_failed": False}
        self.airflow.call("POST", f"/dags/{self.scenario.name}/clearTaskInstances", order)
        self._until(lambda: self._tries() >= 2, "the second try")
        self._until_done()

    def _delete(self) -> None:
        self._trigger("run")
        self._until_done()
        self.airflow.call("DELETE", f"/dags/{self.scenario.name}/dagRuns/run")
        self._trigger("run")
        self._until_done()

    def _two_runs(self) -> None:
        self._trigger("one")
        self._trigger("two")
        self._until_done()

    # --- what came of it -----------------------------------------------------------------------------------

    def _judge(self, before: set[str]) -> Outcome:
        requests = set(self._requests()) - before
        tasks = [task for run in self.runs for task in self._tasks(run)]
        good = explained = 0
        ids = []
        for task in tasks:
            if task["state"] == "success":
                number = self._xcom(task)
                ids.append(number)
                good += number in requests
            elif self._explains(task):
                explained += 1
        # In the end two tasks must never share a request, and a task that succeeded must have its own.
        kept = (
            len(requests) <= self.scenario.requests
            and good + explained == len(tasks)
            and len(set(ids)) == len(ids)
            and explained <= self.scenario.explained
            and (explained > 0 or len(requests) == self.scenario.requests)
        )
        tries = sorted({int(task["try_number"]) for task in tasks})
        words = [f"{good} XCom right" if len(tasks) > 1 else "XCom right"] if good else []
        words += [f"{explained} failed, explained" if len(tasks) > 1 else "failed, explained"] if explained else []
        if bad := len(tasks) - good - explained:
            words.append(f"{bad} WRONG: {', '.join(sorted(str(task['state']) for task in tasks))}")
        return Outcome(
            tries=str(tries[0]) if len(tries) == 1 else f"{tries[0]} to {tries[-1]}",
            requests=len(requests),
            result=", ".join(words),
            kept=kept,
        )

    def _requests(self) -> list[str]:
        return [request["id"] for request in self.service.control.whitelist_requests()]

    def _trigger(self, run: str) -> None:
        body = {"dag_run_id": run, "logical_date": None, "conf": {}}
        self.airflow.call("POST", f"/dags/{self.scenario.name}/dagRuns", body)
        if run not in self.runs:
            self.runs.append(run)

    def _tasks(self, run: str) -> list[dict[str, Any]]:
        path = f"/dags/{self.scenario.name}/dagRuns/{run}/taskInstances"
        found: list[dict[str, Any]] = self.airflow.call("GET", path)["task_instances"]
        return found

    def _tries(self) -> int:
        return max((task["try_number"] for run in self.runs for task in self._tasks(run)), default=0)

    def _xcom(self, task: dict[str, Any]) -> str:
        path = f"/dags/{self.scenario.name}/dagRuns/{task['dag_run_id']}/taskInstances/create/xcomEntries/return_value"
        return str(self.airflow.call("GET", f"{path}?map_index={task['map_index']}")["value"])

    def _explains(self, task: dict[str, Any]) -> bool:
        log = self._log(task)
        return all(words in log for words in EXPLANATION)

    def _log(self, task: dict[str, Any]) -> str:
        place = self.airflow.logs / f"dag_id={self.scenario.name}" / f"run_id={task['dag_run_id']}" / "task_id=create"
        if task["map_index"] >= 0:
            place /= f"map_index={task['map_index']}"
        return (place / f"attempt={task['try_number']}.log").read_text()

    def _until_done(self) -> None:
        def done() -> bool:
            states = [
                self.airflow.call("GET", f"/dags/{self.scenario.name}/dagRuns/{run}")["state"] for run in self.runs
            ]
            return all(state in ("success", "failed") for state in states)

        self._until(done, "the end of the run")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = min(time.monotonic() + PATIENCE, STARTED + GIVE_UP_AFTER)
        while time.monotonic() < deadline:
            with suppress(SandboxError):
                if condition():
                    return
            time.sleep(0.5)
        raise TimeoutError(f"waited in vain for {what}")


def main() -> int:
    """Play the scenarios, print the table, and say whether all promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="play only these (default: all)")
    parser.add_argument("--celery", action="store_true", help="on Celery, Redis and PostgreSQL (default: standalone)")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    there_are = [*SCENARIOS, *WORKER_SCENARIOS] if options.celery else SCENARIOS
    chosen = [each for each in there_are if not options.names or each.name in options.names]
    folder = Path(tempfile.mkdtemp(prefix="custody-faults-"))
    ports = dict(zip([each.name for each in chosen], free_ports(len(chosen)), strict=True))
    services = {name: Service(folder, name, port) for name, port in ports.items()}
    environment = {
        "PYTHONPATH": str(HERE),
        "FAULTS_FOLDER": str(folder),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    for name, service in services.items():
        environment[f"FAULTS_URL_{name.upper()}"] = service.url
        environment[f"AIRFLOW_CONN_{name.upper()}"] = (
            f'{{"conn_type": "custody", "host": "{service.url}", "password": "{TOKEN}", '
            f'"extra": {{"timeout": {TIMEOUT}, "max_retries": 0}}}}'
        )
    home = folder / "airflow"
    home.mkdir()
    failures: list[str] = []
    rows: list[tuple[str, str, str, str]] = []
    try:
        with (CeleryCluster if options.celery else Standalone)(home, HERE / "dags", environment) as airflow:

            def play(scenario: Scenario) -> Outcome:
                try:
                    return Play(scenario, airflow, services[scenario.name], folder).run()
                except Exception as error:
                    failures.append(f"{scenario.name}: {traceback.format_exc(limit=3)}")
                    return Outcome("?", -1, f"NOT PLAYED: {type(error).__name__}: {error}"[:100], kept=False)
                finally:
                    services[scenario.name].kill()

            for at_once, group in ((AT_ONCE, SCENARIOS), (1, WORKER_SCENARIOS)):
                with ThreadPoolExecutor(at_once) as pool:
                    played = [each for each in chosen if each in group]
                    for scenario, outcome in zip(played, pool.map(play, played), strict=True):
                        if not outcome.kept:
                            failures.append(f"{scenario.name}: the promise was not kept")
                        rows.append((scenario.fault, outcome.tries, str(outcome.requests), outcome.result))
        print_table(rows)
    finally:
        if options.keep or failures:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


def print_table(rows: list[tuple[str, str, str, str]]) -> None:
    """Print the table as Markdown, aligned so that a person can read it too."""
    head = ("Fault", "Tries", "Requests", "Result")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(4)]
    for row in [head, tuple("-" * width for width in widths), *rows]:
        cells = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(re.sub(r"\s+$", "", f"| {cells} |"))


if __name__ == "__main__":
    sys.exit(main())
