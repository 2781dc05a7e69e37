"""The faults that are injected while the service writes calls: three sequences of them, at the same time."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from event_journal import FIRST, PID_FILE, SECOND, Journal, read_events
from processes import kill, read_pids, running, until
from servers import Airflow

JOURNAL_PATH = "/webhooks/calls"
#: The faults in the service's responses.
RESPONSES: dict[str, list[dict[str, Any]]] = {
    "service slow: some responses after the time-out": [
        {"times": 3, "delay_after": 1.5},
        {"times": 2, "delay_after": 4.0},
        {"times": 1, "delay": 4.0},
    ],
    "service responds 503": [{"times": 4, "kind": "status", "status": 503}],
    "half responses, and none": [
        {"times": 2, "kind": "truncate_body"},
        {"times": 1, "kind": "truncate_headers"},
        {"times": 1, "kind": "drop", "work": True},
    ],
}


class EventFaults:
    """The faults of one run."""

    def __init__(self, airflow: Airflow, journal: Journal, folder: Path, seed: int) -> None:
        self._airflow = airflow
        self._journal = journal
        self._folder = folder
        self._seed = seed

    def run(self) -> list[str]:
        """Inject all faults except the last, and return descriptions of those that could not be injected."""
        failures: list[str] = []

        def run(lane: Callable[[random.Random], None]) -> None:
            try:
                lane(random.Random(f"{self._seed} {lane.__name__}"))
            except Exception:
                failures.append(traceback.format_exc(limit=3))

        lanes = (self._break_triggerer, self._break_tasks, self._break_service)
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(run, lanes))
        return failures

    def cut_off(self) -> None:
        """Write calls while the journal cannot be read, and then remove most of these calls from the journal."""
        control = self._journal.service.control
        control.add_fault(kind="status", status=503, path=JOURNAL_PATH, times=None)
        self._journal.cut_off("journal cut off while it could not be read", 20, kept=5)
        control.clear_faults()

    def _break_triggerer(self, moments: random.Random) -> None:
        """Kill the triggerer several times, then stop it."""
        with self._journal.written("triggerer killed and restarted, 3 times"):
            for _ in range(3):
                self._until_event()
                time.sleep(moments.uniform(0, 2))
                self._airflow.kill("triggerer")
                time.sleep(moments.uniform(0, 1))
                self._airflow.restart("triggerer")
        with self._journal.written("triggerer stopped (SIGTERM) and restarted"):
            self._until_event()
            time.sleep(moments.uniform(0, 2))
            self._airflow.terminate("triggerer")
            self._airflow.restart("triggerer")

    def _break_tasks(self, moments: random.Random) -> None:
        """Kill the reading task, its supervisor, the API server and the scheduler, each while it reads."""
        with self._journal.written("process of the reading task killed, 4 times"):
            for _ in range(4):
                task, _supervisor = self._catch_reading(moments)
                kill(task)
        with self._journal.written("supervisor of the reading task killed, twice"):
            for _ in range(2):
                # A worker that is between two tasks must not be killed: it may hold the lock of LocalExecutor's queue,
                # and no other worker would ever get a task.
                _task, supervisor = self._catch_reading(moments)
                kill(supervisor)
        with self._journal.written("API server killed, down for a while"):
            self._catch_reading(moments)
            self._airflow.kill("api-server")
            time.sleep(moments.uniform(1, 4))
            self._airflow.restart("api-server")
            self._next_reading()
        with self._journal.written("scheduler killed with all tasks, down for a while"):
            self._catch_reading(moments)
            self._airflow.kill("scheduler")
            time.sleep(moments.uniform(3, 6))
            self._airflow.restart("scheduler")
            self._next_reading()

    def _break_service(self, moments: random.Random) -> None:
        """Break the service."""
        control = self._journal.service.control
        with self._journal.written("service killed and restarted, twice"):
            for _ in range(2):
                time.sleep(moments.uniform(1, 3))
                self._journal.kill_service(moments.uniform(0.5, 2))
        for name, faults in RESPONSES.items():
            with self._journal.written(name):
                for fault in faults:
                    control.add_fault(path=JOURNAL_PATH, **fault)
                until(lambda: not control.faults(), "the faults to happen")
                # Polls become less frequent while they fail.
                self._until_event()

    def _until_event(self) -> None:
        """Wait until one of the watchers has seen a new call."""

        def count() -> int:
            seen = read_events(self._airflow.database, {})
            return sum(seen[consumer].times.total() for consumer in (FIRST, SECOND))

        before = count()
        until(lambda: count() > before, "an event of a watcher", every=0.3)

    def _next_reading(self) -> tuple[int, ...]:
        """Wait until another process reads, and return its id and its supervisor's."""
        file = self._folder / PID_FILE
        before = read_pids(file)
        until(lambda: read_pids(file) != before, "the next reading")
        return read_pids(file)

    def _catch_reading(self, moments: random.Random) -> tuple[int, ...]:
        """Wait for a random moment at which a task reads, and return its id and its supervisor's."""
        while True:
            pids = self._next_reading()
            time.sleep(moments.uniform(0, 0.8))
            if pids[0] in running():
                return pids
