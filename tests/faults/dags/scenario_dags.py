"""
One DAG for each scenario: a request is created, or a task group plans and applies a file.

What is disrupted is disrupted at the moment that the scenario names, or says which process the runner has to kill.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG
from processes import kill, kill_worker_of, until, write_pids
from scenarios import ADDRESS, SCENARIOS, WORKER_SCENARIOS, Scenario

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import SandboxControl
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup

FOLDER = Path(os.environ["FAULTS_FOLDER"])
ALL_SCENARIOS = [*SCENARIOS, *WORKER_SCENARIOS]
RETRY_SOON: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=1)}


class DisruptingStore:
    """A wrapper of Airflow's task state store that disrupts the task at the write of one state."""

    def __init__(self, store: Any, scenario: Scenario) -> None:
        self._store = store
        self._scenario = scenario
        self._pid_file = FOLDER / f"{scenario.name}.pid"

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
        connection = json.loads(os.environ[f"AIRFLOW_CONN_{self._scenario.name.upper()}"])
        service = SandboxControl(connection["host"])
        until(lambda: any(each["address"] == ADDRESS for each in service.whitelist_requests()), "the request")
        self._disrupt()

    def _disrupt(self) -> None:
        if self._pid_file.exists():
            return
        write_pids(self._pid_file)
        task, supervisor = os.getpid(), os.getppid()
        match self._scenario.disruption:
            case "kill the task":
                kill(task)
            case "kill the worker":
                kill_worker_of(task)
            case "pause both":
                os.kill(supervisor, signal.SIGSTOP)
                os.kill(task, signal.SIGSTOP)
            case "orphan the task":
                kill(supervisor)
                # Stop only after it is gone: the kernel resumes a stopped process when its parent dies.
                until(lambda: os.getppid() != supervisor, "the end of the supervisor")
                # The runner resumes it.
                os.kill(task, signal.SIGSTOP)
            case "kill the supervisor":
                kill(supervisor)
                until(self._pid_file.with_suffix(".done").exists, "the next try to be done")


class DisruptedCreateOperator(CustodyCreateWhitelistRequestOperator):
    """The create operator, disrupted in its first try."""

    def execute(self, context: Any) -> Any:
        scenario = next(each for each in ALL_SCENARIOS if each.name == self.dag_id)
        if scenario.disruption and context["ti"].try_number == 1:
            context = {**context, "task_state_store": DisruptingStore(context["task_state_store"], scenario)}
        return super().execute(context)


def tell_process(context: Any) -> None:
    """Tell the runner the process of a task that is about to be executed."""
    write_pids(FOLDER / f"{context['ti'].dag_id}.pid")


def add_create(scenario: Scenario) -> None:
    """Add a task that creates a request, or several mapped ones."""
    arguments: dict[str, Any] = {
        "task_id": "create",
        "custody_conn_id": scenario.name,
        "address": ADDRESS,
        "blockchain": "ETH",
        # Count the creates that a task sends, because a request that it finds would hide a second request.
        "if_exists": "create",
        "lookup_wait": 4.0,
        **RETRY_SOON,
        **scenario.operator,
    }
    if scenario.mapped:
        labels = [f"Label {number}" for number in range(scenario.mapped)]
        DisruptedCreateOperator.partial(**arguments).expand(label=labels)
    else:
        DisruptedCreateOperator(label="Treasury", **arguments)


def add_apply(scenario: Scenario) -> None:
    """Add a task group that plans and applies a file: a task of it is killed, the completing one if it renames."""
    retry_often: dict[str, Any] = {"retries": 100, "retry_delay": timedelta(seconds=0.1)}
    killed = {**retry_often, "pre_execute": tell_process}
    # Only the renamed rows are signed.
    wait = {"timeout": 600} if scenario.renames else {"timeout": 1, "soft_fail": True}
    CustodyWhitelistFileTaskGroup(
        prefix_group_id=False,
        path=str(FOLDER / f"{scenario.name}.csv"),
        signers={},
        approve=False,
        replace=scenario.renames,
        check_health=False,
        custody_conn_id=scenario.name,
        task_arguments={
            # The rows are more than a plan may create by default.
            "plan": {"max_creates": None, **RETRY_SOON},
            # The wait is so short that the scenario ends soon.
            "apply": {"lookup_wait": 2.5, **(retry_often if scenario.renames else killed), **scenario.operator},
            "wait_until_effective": {"deferrable": False, "poke_interval": 1, **wait},
            "complete": killed,
        },
    )


for scenario in ALL_SCENARIOS:
    with DAG(scenario.name, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), schedule=None):
        (add_apply if scenario.rows else add_create)(scenario)
