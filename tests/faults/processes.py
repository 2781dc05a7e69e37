"""Processes that are started, found and killed: by the runners of faults and scale, and by the tasks that they run."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_custody.sandbox import SandboxControl, SandboxError

TOKEN = "fault-suite"
#: Seconds of the connections' time-out. The sandbox responds immediately: this is for responses that never arrive.
TIMEOUT = 3.0
# From below the range that the system assigns to connections. Each is used for one server of a run: it may be long
# until that server listens.
_unused_ports = random.sample(range(20_000, 32_000), 12_000)


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use, and that no other call returns."""
    ports: list[int] = []
    while len(ports) < count:
        port = _unused_ports.pop()
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


def until(condition: Callable[[], object], what: str, *, within: float = 600.0, every: float = 0.1) -> None:
    """Wait until a condition is true. While the sandbox is down, a condition about it counts as false."""
    deadline = time.monotonic() + within
    while True:
        with suppress(SandboxError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:.0f} s in vain for {what}")
        time.sleep(every)


def running() -> dict[int, tuple[int, int]]:
    """Return parent and session of each process that has not ended, by its id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent, _group, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                found[int(folder.name)] = int(parent), int(session)
    return found


def in_session(pid: int) -> list[int]:
    """Return a process with a session of its own, and all processes that it has started, even if some have ended."""
    return [each for each, (_, session) in running().items() if session == pid]


def kill(*pids: int) -> None:
    """Kill processes, unless they have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_worker_of(task: int) -> None:
    """Kill the Celery worker that runs a task, with all its processes; this one last, if it is among them."""
    found = running()
    worker = task
    while b"celery" in Path(f"/proc/{found[worker][0]}/cmdline").read_bytes():
        worker = found[worker][0]
    victims = [worker]
    for victim in victims:
        victims += [each for each, (parent, _) in found.items() if parent == victim]
    kill(*sorted(victims, key=lambda pid: pid == os.getpid()))


def write_pids(file: Path) -> None:
    """Write the ids of the task's process and of its supervisor's, whole or not at all."""
    new = file.with_suffix(".new")
    new.write_text(f"{os.getpid()} {os.getppid()}")
    new.replace(file)


def read_pids(file: Path) -> tuple[int, ...]:
    """Return the written ids; empty if none were written."""
    return tuple(map(int, file.read_text().split())) if file.exists() else ()


class Service:
    """
    A sandbox process that can be killed, and restarted with the same state.

    :param folder: where state and log are.
    :param name: of its files.
    """

    def __init__(self, folder: Path, name: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.control = SandboxControl(self.url)
        #: The Airflow connection to it.
        self.connection: dict[str, Any] = {
            "conn_type": "custody",
            "host": self.url,
            "password": TOKEN,
            "extra": {"timeout": TIMEOUT, "max_retries": 0},
        }
        self._command = [
            *(sys.executable, "-m", "airflow_custody.sandbox", "--token", TOKEN, "--port", str(port)),
            *("--state", str(folder / f"{name}.db")),
        ]
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it responds."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        until(self._is_up, "the sandbox")

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the sandbox ended: {self._log}")
        return bool(self.control.about())

    def kill(self) -> None:
        """Kill the sandbox process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
