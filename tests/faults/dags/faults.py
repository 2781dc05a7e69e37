"""One DAG for each fault: a create that is struck where the scenario says."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG
from scenarios import ADDRESS, SCENARIOS, WORKER_SCENARIOS, Scenario

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import SandboxControl

ALL = [*SCENARIOS, *WORKER_SCENARIOS]


class StruckStore:
    """Pass everything on to Airflow's store, and strike at one of the writes."""

    def __init__(self, store: Any, scenario: Scenario) -> None:
        self._store = store
        self._scenario = scenario
        self._mark = Path(os.environ["FAULTS_FOLDER"]) / f"{scenario.name}.pid"
        self._service = SandboxControl(os.environ[f"FAULTS_URL_{scenario.name.upper()}"])
        self._writes = 0

    def get(self, key: str, default: Any = None) -> Any:
        return self._store.get(key, default)

    def set(self, key: str, value: Any, **kwargs: Any) -> None:
        self._writes += 1
        moment = self._scenario.moment
        if (self._writes, moment) in [(1, "before the intent"), (2, "before the record")]:
            self._strike()
        self._store.set(key, value, **kwargs)
        if (self._writes, moment) in [(1, "before the send"), (2, "after the record")]:
            self._strike()
        if (self._writes, moment) == (1, "before the answer"):
            threading.Thread(target=self._strike_when_it_is_done, daemon=True).start()

    def _strike_when_it_is_done(self) -> None:
        while not self._service.whitelist_requests():
            time.sleep(0.05)
        self._strike()

    def _strike(self) -> None:
        if self._mark.exists():
            return
        self._mark.write_text(f"{os.getpid()} {os.getppid()}")
        if self._scenario.strike == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._scenario.strike == "kill the worker":
            _kill_worker()
        if self._scenario.strike == "pause":
            os.kill(os.getppid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        supervisor = os.getppid()
        os.kill(supervisor, signal.SIGKILL)
        if self._scenario.strike == "stop":
            # Only then: the kernel wakes a stopped process whose parent dies.
            while os.getppid() == supervisor:
                time.sleep(0.05)
            # The runner wakes it.
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        done = self._mark.with_suffix(".done")
        while not done.exists():
            time.sleep(0.1)


def _kill_worker() -> None:
    """Kill the Celery worker this task runs on, with everything below it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    worker = os.getpid()
    while b"celery" in (Path("/proc") / str(parents[worker]) / "cmdline").read_bytes():
        worker = parents[worker]
    doomed = [worker]
    for process in doomed:
        doomed += [child for child, parent in parents.items() if parent == process]
    # This process is one of them, and must be the last.
    for process in sorted(doomed, key=lambda number: number == os.getpid()):
        os.kill(process, signal.SIGKILL)


class StruckCreate(CustodyCreateWhitelistRequestOperator):
    """Create, and be struck in the first try."""

    def __init__(self, *, scenario: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scenario = scenario

    def execute(self, context: Any) -> str:
        scenario = next(each for each in ALL if each.name == self.scenario)
        if scenario.strike and context["ti"].try_number == 1:
            context = {**context, "task_state_store": StruckStore(context["task_state_store"], scenario)}
        return super().execute(context)


for scenario in ALL:
    with DAG(scenario.name, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), schedule=None) as dag:
        arguments: dict[str, Any] = {
            "task_id": "create",
            "scenario": scenario.name,
            "custody_conn_id": scenario.name,
            "address": ADDRESS,
            "blockchain": "ETH",
            "lookup_wait": 4.0,
            "retries": 3,
            "retry_delay": timedelta(seconds=1),
            **scenario.operator,
        }
        if scenario.mapped:
            StruckCreate.partial(**arguments).expand(label=[f"Label {number}" for number in range(scenario.mapped)])
        else:
            StruckCreate(label="Treasury", **arguments)
    globals()[scenario.name] = dag
