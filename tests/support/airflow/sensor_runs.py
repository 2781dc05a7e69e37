"""Run sensors in every mode, in real Airflow or alone."""

from __future__ import annotations

from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, Run, execute, new_dag, run_dag

MODES = ["poke", "reschedule", "deferrable"]


def how(mode: str) -> dict[str, Any]:
    """Return the arguments of a sensor in this mode."""
    if mode == "reschedule" and AIRFLOW == (3, 0):
        pytest.skip("in a test run, Airflow 3.0 passes the time of a sensor's first try as text, and then fails")
    return {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}


def run_sensor(kind: type, mode: str, **arguments: Any) -> Run:
    """Run a DAG with one sensor, ``wait``."""
    with new_dag() as dag:
        kind(**{"task_id": "wait", "poke_interval": 0.2, "timeout": 600, **how(mode), **arguments})
    return run_dag(dag)


def wait(kind: type, **arguments: Any) -> Any:
    """
    Execute a sensor without a run, and return its result.

    By default, the sensor is not deferrable.
    """
    given = {"task_id": "wait", "poke_interval": 0.2, "timeout": 600, "deferrable": False, **arguments}
    return execute(lambda: kind(**given))
