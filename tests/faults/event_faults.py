"""The faults that are injected while the service writes calls: three sequences of them, at the same time."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from event_airflow import Components, is_alive, pick_kill, until
from event_journal import Journal, Kills, Seen, read_events
from event_names import CONSUMERS, FIRST, PID_FILE, SECOND, TOO_EARLY_FILE

BEFORE = "none: written before Airflow starts"
TRIGGERER_KILLED = "triggerer killed and restarted, 3 times"
TRIGGERER_STOPPED = "triggerer stopped (SIGTERM) and restarted"
TASK_KILLED = "process of the reading task killed, 4 times"
SUPERVISOR_KILLED = "supervisor of the reading task killed, twice"
API_KILLED = "API server killed, down for a while"
SCHEDULER_KILLED = "scheduler killed with all tasks, down for a while"
SERVICE_KILLED = "service killed and restarted, twice"
SLOW = "service slow: some responses after the time-out"
UNAVAILABLE = "service responds 503"
HALF = "half responses, and none"
LATE = "calls created up to 60 s before known ones"
EQUAL = "calls with one time stamp"
CUT_OFF = "journal cut off while it could not be read"
#: The number of calls that are written during each fault; before the last, 500.
ROWS = {
    BEFORE: 20,
    TRIGGERER_KILLED: 90,
    TRIGGERER_STOPPED: 30,
    TASK_KILLED: 50,
    SUPERVISOR_KILLED: 30,
    API_KILLED: 30,
    SCHEDULER_KILLED: 50,
    SERVICE_KILLED: 40,
    SLOW: 30,
    UNAVAILABLE: 30,
    HALF: 30,
    LATE: 30,
    EQUAL: 40,
    CUT_OFF: 20,
}
#: How many calls of the journal that is cut off are kept.
CUT_OFF_KEPT = 5
JOURNAL_PATH = "/webhooks/calls"


def triggerer_faults(airflow: Components, journal: Journal, folder: Path, seed: int, kills: Kills) -> None:
    """Kill the triggerer several times, then stop it."""
    moments = random.Random(f"{seed} triggerer")
    too_early = folder / TOO_EARLY_FILE
    with journal.writing(TRIGGERER_KILLED, ROWS[TRIGGERER_KILLED], 30):
        for number in range(3):
            _until_event(airflow, (FIRST, SECOND))
            if number == 1:
                # The worst moment of the watcher that does it wrong, so that it is sure to be caught.
                too_early.unlink(missing_ok=True)
                until(too_early.exists, "a watcher to save its cursor too early")
            else:
                time.sleep(moments.uniform(0, 2))
            airflow.kill("triggerer", only=pick_kill(moments) if number != 1 else None, later=moments.uniform(0, 1))
            kills.add("triggerer")
            time.sleep(moments.uniform(0, 1))
            airflow.restart("triggerer")
    with journal.writing(TRIGGERER_STOPPED, ROWS[TRIGGERER_STOPPED], 10):
        _until_event(airflow, (FIRST, SECOND))
        time.sleep(moments.uniform(0, 2))
        airflow.terminate("triggerer")
        airflow.restart("triggerer")


def task_faults(airflow: Components, journal: Journal, folder: Path, seed: int, kills: Kills) -> None:
    """Kill the reading task, its supervisor, the API server and the scheduler, each while it reads."""
    moments = random.Random(f"{seed} task")
    with journal.writing(TASK_KILLED, ROWS[TASK_KILLED], 20):
        for _ in range(4):
            task, _supervisor = _catch_reading(folder, moments)
            _kill(task)
            kills.add("task")
    with journal.writing(SUPERVISOR_KILLED, ROWS[SUPERVISOR_KILLED], 15):
        for _ in range(2):
            # A worker that is between two tasks must not be killed: it may hold the lock of LocalExecutor's queue, and
            # no other worker would ever get a task.
            _task, supervisor = _catch_reading(folder, moments)
            _kill(supervisor)
            kills.add("supervisor")
    with journal.writing(API_KILLED, ROWS[API_KILLED], 12):
        _catch_reading(folder, moments)
        airflow.kill("api-server")
        kills.add("API server")
        time.sleep(moments.uniform(1, 4))
        airflow.restart("api-server")
        _next_reading(folder)
    with journal.writing(SCHEDULER_KILLED, ROWS[SCHEDULER_KILLED], 12):
        _catch_reading(folder, moments)
        airflow.kill("scheduler")
        kills.add("scheduler")
        time.sleep(moments.uniform(3, 6))
        airflow.restart("scheduler")
        _next_reading(folder)


def service_faults(airflow: Components, journal: Journal, folder: Path, seed: int, kills: Kills) -> None:
    """Break the service, and the order of its journal."""
    moments = random.Random(f"{seed} service")
    control = journal.service.control
    with journal.writing(SERVICE_KILLED, ROWS[SERVICE_KILLED], 10):
        for _ in range(2):
            time.sleep(moments.uniform(1, 3))
            journal.kill_service(moments.uniform(0.5, 2))
            kills.add("service")
    faults: dict[str, list[dict[str, Any]]] = {
        SLOW: [
            {"times": 3, "delay_after": 1.5},
            {"times": 2, "delay_after": 4.0},
            {"times": 1, "delay": 4.0},
        ],
        UNAVAILABLE: [{"times": 4, "kind": "status", "status": 503}],
        HALF: [
            {"times": 2, "kind": "truncate_body"},
            {"times": 1, "kind": "truncate_headers"},
            {"times": 1, "kind": "drop", "work": True},
        ],
    }
    for row, injected in faults.items():
        with journal.writing(row, ROWS[row], 8):
            for fault in injected:
                control.add_fault(path=JOURNAL_PATH, **fault)
            until(lambda: not control.faults(), "the faults to happen")
            # Polls become rarer while they fail.
            _until_event(airflow, (FIRST, SECOND))
    journal.write(LATE, ROWS[LATE], seconds=8, stamps="late")
    journal.write(EQUAL, ROWS[EQUAL], seconds=8, stamps="equal")


LANES = (triggerer_faults, task_faults, service_faults)


def cut_off(airflow: Components, journal: Journal) -> None:
    """Write calls while nobody can read them, remove most of them, and wait until all have reported that."""
    control = journal.service.control
    control.add_fault(kind="status", status=503, path=JOURNAL_PATH, times=None)
    journal.write(CUT_OFF, ROWS[CUT_OFF])
    control.configure(calls={"max_number": CUT_OFF_KEPT})
    control.clear_faults()

    def is_reported() -> bool:
        seen = read_events(airflow.database, journal.calls)
        return all(seen[consumer].gaps and not kept_unseen(journal, seen, consumer) for consumer in CONSUMERS)

    with suppress(RuntimeError):
        # Who did not is named later.
        until(is_reported, "the reports", within=60, every=0.5)


def kept_unseen(journal: Journal, seen: dict[str, Seen], consumer: str) -> list[str]:
    """Return the ids of the calls that a consumer has not seen although the journal that was cut off has kept them."""
    kept = [call_id for call_id, call in journal.calls.items() if call.row == CUT_OFF][-CUT_OFF_KEPT:]
    return [each for each in kept if journal.is_for(each, consumer) and each not in seen[consumer].times]


def _until_event(airflow: Components, consumers: tuple[str, ...]) -> None:
    """Wait until one of these consumers has seen more."""

    def count() -> int:
        seen = read_events(airflow.database, {})
        return sum(sum(seen[consumer].times.values()) for consumer in consumers)

    before = count()
    until(lambda: count() > before, "an event of a watcher", every=0.3)


def _next_reading(folder: Path) -> tuple[int, int]:
    """Wait until another process reads, and return its id and its supervisor's."""
    file = folder / PID_FILE
    before = file.read_text() if file.exists() else ""
    until(lambda: file.exists() and file.read_text() != before, "the next reading")
    task, supervisor = map(int, file.read_text().split())
    return task, supervisor


def _catch_reading(folder: Path, moments: random.Random) -> tuple[int, int]:
    """Wait for a random moment at which a task reads, and return its id and its supervisor's."""
    while True:
        task, supervisor = _next_reading(folder)
        time.sleep(moments.uniform(0, 0.8))
        if is_alive(task):
            return task, supervisor


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
