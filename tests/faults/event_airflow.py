"""Airflow whose components are killed and restarted one by one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from servers import Standalone

Component = Literal["api-server", "scheduler", "dag-processor", "triggerer"]
_COMMANDS: dict[Component, tuple[str, ...]] = {
    "api-server": ("airflow", "api-server"),
    # Without log servers: after a kill, their ports may still be taken.
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
    "dag-processor": ("airflow", "dag-processor"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
}


class Components(Standalone):
    """
    Airflow's components, each with processes of its own; LocalExecutor and SQLite.

    What is dead is noticed sooner than by default: this is waited for.
    """

    def __init__(self, home: Path, dags: Path, environment: Mapping[str, str]) -> None:
        settings = {
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "2",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
        }
        super().__init__(home, dags, {**settings, **environment})
        self.database = home / "airflow.db"
        self._running: dict[Component, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Create the database and start all components."""
        subprocess.run(["airflow", "db", "migrate"], env=self.environment, check=True, capture_output=True, timeout=180)
        for component in _COMMANDS:
            self.restart(component)

    def restart(self, component: Component) -> None:
        """Start a component that is not running."""
        self._running[component] = self.launch(*_COMMANDS[component])

    def kill(self, component: Component, *, only: Literal["parent", "child"] | None = None, later: float = 0.0) -> None:
        """
        Kill a component with all its processes.

        :param only: kill this one first, and the others after some seconds. Default: all at once.
        :param later: after how many seconds.
        """
        process = self._running[component]
        if only is not None:
            victims = [process.pid] if only == "parent" else _children(process.pid)[:1]
            _kill(victims)
            time.sleep(later)
        self._end(process)

    def terminate(self, component: Component) -> None:
        """Ask a component to end, and wait until it has."""
        process = self._running[component]
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        while victims := _session(process.pid):
            _kill(victims)
            time.sleep(0.05)
        process.wait()


def pick_kill(moments: random.Random) -> Literal["parent", "child"] | None:
    """Return which process of a component to kill first; None: all at once."""
    return moments.choice(("parent", "child", None))


def until(condition: Callable[[], object], what: str, *, within: float = 90.0, every: float = 0.05) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {within:.0f} s in vain for {what}")
        time.sleep(every)


def is_alive(pid: int) -> bool:
    """Tell whether a process has not ended yet."""
    return _stat(str(pid))[:1] not in ([], ["Z"])


def _stat(pid: str) -> list[str]:
    """Return what the system says of a process, from its state on; nothing if it has ended."""
    with suppress(OSError):
        return (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()
    return []


def _processes() -> list[tuple[int, list[str]]]:
    found = [(folder.name, _stat(folder.name)) for folder in Path("/proc").glob("[0-9]*")]
    return [(int(pid), stat) for pid, stat in found if stat and stat[0] != "Z"]


def _session(pid: int) -> list[int]:
    return [each for each, stat in _processes() if stat[3] == str(pid)]


def _children(pid: int) -> list[int]:
    return [each for each, stat in _processes() if stat[1] == str(pid)]


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
