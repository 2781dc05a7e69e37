"""One DAG for each scenario: a create that is disrupted at the moment that the scenario names."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import network
from airflow.providers.common.compat.sdk import DAG
from scenarios import ADDRESS, NETWORK_SCENARIOS, SCENARIOS, WORKER_SCENARIOS, Scenario

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import SandboxControl

ALL_SCENARIOS = [*SCENARIOS, *NETWORK_SCENARIOS, *WORKER_SCENARIOS]


class DisruptingStore:
    """A wrapper of Airflow's task state store that disrupts the task at the write of one state."""

    def __init__(self, store: Any, scenario: Scenario) -> None:
        self._store = store
        self._scenario = scenario
        self._pid_file = Path(os.environ["FAULTS_FOLDER"]) / f"{scenario.name}.pid"
        self._service = SandboxControl(os.environ[f"FAULTS_URL_{scenario.name.upper()}"])

    def get(self, key: str, default: Any = None) -> Any:
        return self._store.get(key, default)

    def set(self, key: str, value: Any, **kwargs: Any) -> None:
        state, moment = value["state"], self._scenario.moment
        if (state, moment) in [("sending", "before the intent is stored"), ("closed", "before the id is stored")]:
            self._disrupt()
        self._store.set(key, value, **kwargs)
        if (state, moment) in [("sending", "before the request is sent"), ("closed", "after the id is stored")]:
            self._disrupt()
        if (state, moment) == ("sending", "before the response"):
            threading.Thread(target=self._disrupt_once_created, daemon=True).start()

    def _disrupt_once_created(self) -> None:
        while all(request["address"] != ADDRESS for request in self._service.whitelist_requests()):
            time.sleep(0.05)
        self._disrupt()

    def _disrupt(self) -> None:
        if self._pid_file.exists():
            return
        self._pid_file.write_text(f"{os.getpid()} {os.getppid()}")
        if self._scenario.disruption == "hold the store":
            held = self._pid_file.with_suffix(".held")
            while not held.exists():
                time.sleep(0.05)
            return
        if self._scenario.disruption == "cut the network":
            network.cut()
            return
        if self._scenario.disruption == "kill the task":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._scenario.disruption == "kill the worker":
            _kill_worker()
        if self._scenario.disruption == "pause both":
            os.kill(os.getppid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        supervisor = os.getppid()
        os.kill(supervisor, signal.SIGKILL)
        if self._scenario.disruption == "orphan the task":
            # Stop only after the supervisor is gone: the kernel resumes a stopped process when its parent dies.
            while os.getppid() == supervisor:
                time.sleep(0.05)
            # The runner resumes it.
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        done = self._pid_file.with_suffix(".done")
        while not done.exists():
            time.sleep(0.1)


def _kill_worker() -> None:
    """Kill the Celery worker that runs this task, with all its child processes."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    worker = os.getpid()
    while b"celery" in (Path("/proc") / str(parents[worker]) / "cmdline").read_bytes():
        worker = parents[worker]
    processes = [worker]
    for process in processes:
        processes += [child for child, parent in parents.items() if parent == process]
    # This process is one of them, and must be the last.
    for process in sorted(processes, key=lambda number: number == os.getpid()):
        os.kill(process, signal.SIGKILL)


class DisruptedCreateOperator(CustodyCreateWhitelistRequestOperator):
    """The create operator, disrupted in its first try."""

    def __init__(self, *, scenario: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scenario = scenario

    def execute(self, context: Any) -> Any:
        scenario = next(each for each in ALL_SCENARIOS if each.name == self.scenario)
        if scenario.disruption and context["ti"].try_number == 1:
            context = {**context, "task_state_store": DisruptingStore(context["task_state_store"], scenario)}
        return super().execute(context)


for scenario in ALL_SCENARIOS:
    if scenario.rows or scenario.attack is not None:
        continue
    with DAG(scenario.name, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), schedule=None) as dag:
        arguments: dict[str, Any] = {
            "task_id": "create",
            "scenario": scenario.name,
            "custody_conn_id": scenario.name,
            "address": ADDRESS,
            "blockchain": "ETH",
            # What a task sends, and not what it finds: that would hide a second request.
            "if_exists": "create",
            "lookup_wait": 4.0,
            "retries": 3,
            "retry_delay": timedelta(seconds=1),
            **scenario.operator,
        }
        if scenario.mapped:
            DisruptedCreateOperator.partial(**arguments).expand(
                label=[f"Label {number}" for number in range(scenario.mapped)]
            )
        else:
            DisruptedCreateOperator(label="Treasury", **arguments)
    globals()[scenario.name] = dag
