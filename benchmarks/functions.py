"""Counts this package's functions and files that a job runs."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from side_by_side import HOME, report, service

import airflow_custody
from airflow_custody.sandbox import SandboxControl, health_entry

_PACKAGE = f"{Path(airflow_custody.__file__).parent}{os.sep}"
_SANDBOX = f"{_PACKAGE}sandbox{os.sep}"
_DAGS = Path(__file__).parent / "single_tasks"
_ROWS = """version: 1
addresses:
  - {label: Reserve, address: "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359", blockchain: ETH}
"""


class Counter:
    """
    The functions of this package that run within the context.

    This includes all threads. Modules, class bodies, lambdas and comprehensions do not count.
    """

    def __init__(self) -> None:
        self.functions: set[tuple[str, str, int]] = set()

    def __enter__(self) -> Counter:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # Functions have the flag CO_OPTIMIZED (1); class bodies do not.
        is_function = code.co_flags & 0x1 and not code.co_name.startswith("<")
        if event == "call" and is_function and _is_own(code.co_filename):
            self.functions.add((code.co_filename, code.co_name, code.co_firstlineno))

    @property
    def files(self) -> set[str]:
        return {file for file, _, _ in self.functions}


def _is_own(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_SANDBOX)


def _run_dag(name: str) -> None:
    """Run one of the DAGs in ``single_tasks``."""
    sys.path.insert(0, os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    run = importlib.import_module(name).dag.test()
    if str(run.state) != "success":
        raise SystemExit(f"the run of {run.dag_id} ended as {run.state}")


def _plan() -> None:
    from airflow_custody.cli.main import main

    file = HOME / "whitelist.yaml"
    file.write_text(_ROWS)
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["whitelist", "plan", str(file), "--conn-id", "custody_default"])
    if code != 2:
        raise SystemExit(f"custody whitelist plan exited with {code}")


JOBS: dict[str, tuple[str, Callable[[], None], int, int]] = {
    "create": ("creating one request", lambda: _run_dag("single_create"), 110, 22),
    "wait": ("waiting for health in a deferred sensor", lambda: _run_dag("single_wait"), 110, 22),
    "plan": ("custody whitelist plan", _plan, 150, 25),
}


def _heal(control: SandboxControl) -> None:
    """Make the service healthy once the sensor has polled it."""
    while not control.request_log(path="/health"):
        time.sleep(0.5)
    control.set_health([health_entry(group="g", check="c")])


def functions() -> None:
    """Run each job in its own process, and print its counts."""
    print("\nfunctions of this package that a job runs, and their files", flush=True)
    with service() as (control, url, token):
        control.set_health([health_entry(group="g", check="c", results={"ETH": "failure"}, status="failure")])
        connection = {"conn_type": "custody", "host": url, "password": token}
        for name in JOBS:
            if name == "wait":
                threading.Thread(target=_heal, args=(control,), daemon=True).start()
            environment = {
                **os.environ,
                "AIRFLOW_CONN_CUSTODY_DEFAULT": json.dumps(connection),
                # A separate folder for each job, because parsing another DAG would count, too.
                "AIRFLOW__CORE__DAGS_FOLDER": str(_DAGS / name),
            }
            subprocess.run([sys.executable, __file__, name], env=environment, check=True)


def main() -> None:
    """Run one job and print its counts; with ``--list``, also each function."""
    what, job, most_functions, most_files = JOBS[sys.argv[1]]
    if sys.argv[1] != "plan":
        from airflow.utils.db import initdb

        logging.disable(logging.CRITICAL)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            initdb()
    counter = Counter()
    with counter, contextlib.redirect_stderr(io.StringIO()):
        job()
    if "--list" in sys.argv:
        for file, function, line in sorted(counter.functions):
            print(f"{file.removeprefix(_PACKAGE)}:{line} {function}")
    report(f"{what}: functions", len(counter.functions), most_functions)
    report(f"{what}: files", len(counter.files), most_files)


if __name__ == "__main__":
    main()
