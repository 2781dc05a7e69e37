"""Run operators, sensors and DAGs in real Airflow, on either line."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow.version import version

AIRFLOW = tuple(int(part) for part in version.split(".")[:2])
DAGS = Path(__file__).parent / "dags"
_numbers = itertools.count()


class Run:
    """What became of a DAG run: its state, and state and XCom of each task."""

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

    def xcom(self, task_id: str, map_index: int = -1) -> Any:
        instance = self._instances[task_id, map_index]
        return instance.xcom_pull(task_ids=task_id, map_indexes=None if map_index < 0 else map_index)


def redacted(text: str) -> str:
    """Return text as Airflow would log it."""
    try:
        from airflow.sdk._shared.secrets_masker import redact
    except ImportError:
        from airflow.utils.log.secrets_masker import redact
    return str(redact(text))


def load(path: Path) -> ModuleType:
    """Import a DAG file by its path, anew."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run_dag(dag: Any, **kwargs: Any) -> Run:
    """Run a DAG from a file in the DAGs folder."""
    return Run(dag.test(**kwargs))


@contextlib.contextmanager
def _dag_file(body: str) -> Iterator[ModuleType]:
    """Write a DAG file into the DAGs folder: Airflow 3 wants to find the DAG there."""
    DAGS.mkdir(exist_ok=True)
    name = f"generated_{next(_numbers)}"
    path = DAGS / f"{name}.py"
    path.write_text(
        "from datetime import datetime, timedelta, timezone\n"
        "from airflow.providers.common.compat.sdk import DAG, task\n"
        "from airflow_custody.operators.health import *\n"
        "from airflow_custody.operators.webhook import *\n"
        "from airflow_custody.operators.whitelist import *\n"
        "from airflow_custody.operators.whitelist_approval import *\n"
        "from airflow_custody.sensors.health import *\n"
        "from airflow_custody.sensors.whitelist import *\n"
        f"with DAG({name!r}, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), schedule=None) as dag:\n"
        + "".join(f"    {line}\n" for line in body.strip().splitlines())
    )
    try:
        yield load(path)
    finally:
        path.unlink()


def run_tasks(body: str, **kwargs: Any) -> Run:
    """Run the tasks that the lines define, in one DAG."""
    with _dag_file(body) as module:
        return run_dag(module.dag, **kwargs)


class FakeTaskInstance:
    """As much of a task instance as operators and sensors look at outside a run."""

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


def execute(make: Callable[[], Any], **context: Any) -> Any:
    """Call an operator's execute without a run, for what it returns or raises."""
    return make().execute({"ti": FakeTaskInstance(), "logical_date": datetime.now(timezone.utc), **context})
