"""Runs operators, sensors and DAGs in real Airflow, version 2 or 3."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG
from airflow.version import version

from airflow_custody.retry_policy import CustodyFailException

AIRFLOW = tuple(int(part) for part in version.split(".")[:2])
dag_under_test: DAG | None = None
_numbers = itertools.count()


class Run:
    """The outcome of a DAG run: its state, and state and XCom of each task."""

    def __init__(self, dag_run: Any) -> None:
        self.state = str(dag_run.state)
        instances = dag_run.get_task_instances()
        self.states = {(ti.task_id, ti.map_index): str(ti.state) for ti in instances}
        self.tries = {(ti.task_id, ti.map_index): ti.try_number for ti in instances}
        self._instances = {(ti.task_id, ti.map_index): ti for ti in instances}

    def state_of(self, task_id: str, map_index: int = -1) -> str:
        return self.states[task_id, map_index]

    def pushed(self, task_id: str, key: str) -> Any:
        return self._instances[task_id, -1].xcom_pull(task_ids=task_id, key=key)

    def xcom(self, task_id: str, map_index: int = -1, key: str = "return_value") -> Any:
        instance = self._instances[task_id, map_index]
        return instance.xcom_pull(task_ids=task_id, map_indexes=None if map_index < 0 else map_index, key=key)

    def rendered(self, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return the rendered values of a task's templated fields, as Airflow stored them for its UI."""
        from airflow.models.renderedtifields import RenderedTaskInstanceFields

        return RenderedTaskInstanceFields.get_templated_fields(self._instances[task_id, map_index]) or {}


def redacted(text: str) -> str:
    """Return text as Airflow would log it."""
    if AIRFLOW >= (3, 1):
        place = "airflow.sdk._shared.secrets_masker"
    else:
        place = "airflow.sdk.execution_time.secrets_masker" if AIRFLOW >= (3, 0) else "airflow.utils.log.secrets_masker"
    return str(importlib.import_module(place).redact(text))


def load(path: Path) -> ModuleType:
    """Import a DAG file by its path, even if it was imported before."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def new_dag() -> DAG:
    """Return an empty DAG with a unique id."""
    return DAG(f"test_{next(_numbers)}", schedule=None)


def run_dag(dag: DAG, **kwargs: Any) -> Run:
    """Run a DAG that is defined anywhere; Airflow finds it through tests/dags/under_test.py."""
    global dag_under_test
    dag_under_test = dag
    return Run(dag.test(**kwargs))


@contextlib.contextmanager
def failing_at_once(reason: str = "") -> Iterator[pytest.ExceptionInfo[CustodyFailException]]:
    """
    Expect a task to fail without retries.

    :param reason: regular expression that must match in the message, as one line.
    """
    with pytest.raises(CustodyFailException) as caught:
        yield caught
    error = caught.value.error
    assert re.search(reason, error.shorten()), error
    # In the task's log, the last line is the error code.
    assert str(caught.value).split("\n")[-1] == f"[custody/{error.code}]"


class FakeTaskInstance:
    """A task instance with only what operators and sensors use outside a run."""

    task_id = "task"
    dag_id = "dag"
    run_id = "run"
    map_index = -1

    def __init__(self, try_number: int = 1, max_tries: int = 0) -> None:
        self.try_number = try_number
        self.max_tries = max_tries
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class FakeOutletEvents:
    """The events that a task emits; they are ignored without a run."""

    def __getitem__(self, outlet: object) -> FakeOutletEvents:
        return self

    def add(self, asset: object, extra: object) -> None:
        pass


def execute(make: Callable[[], Any], **context: Any) -> Any:
    """Call an operator's ``execute`` without a run, and return what it returns."""
    task = make()
    given = {"ti": FakeTaskInstance(), "task": task, "logical_date": datetime.now(timezone.utc)}
    return task.execute({**given, "outlet_events": FakeOutletEvents(), **context})
