"""
Inject faults while the service writes webhook calls, and count what Airflow has seen of them.

Airflow's components, each task and the sandbox are separate processes. The calls are counted in the asset events of
Airflow's database. Prints a table; the exit code is 1 if a call was lost, or came too early.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from event_faults import EventFaults
from event_journal import CONNECTION, FIRST, SECOND, WEBHOOKS, Journal, Seen, read_events, started_dags
from processes import Service, until
from servers import Airflow
from suite import parser_of, print_table, run_in_folder

# Notice dead processes sooner than by default, because the suite waits for this.
SETTINGS = {
    "AIRFLOW__CORE__PARALLELISM": "2",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    # This is longer than the API server is down, because LocalExecutor can lose a running task that is queued again.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
}


def main() -> int:
    """Run the faults, print the table, and return the exit code."""
    options = parser_of(__doc__).parse_args()
    return run_in_folder(options, lambda folder: _run(options, folder))


def _run(options: argparse.Namespace, folder: Path) -> list[str]:
    service = Service(folder, CONNECTION)
    environment = {**SETTINGS, f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(service.connection)}
    dags = Path(__file__).resolve().parent / "event_dags"
    try:
        service.start()
        journal = Journal(service, options.seed)
        for _ in range(20):
            journal.write("none: written before Airflow starts")
        with Airflow(folder, dags, environment) as airflow:

            def seen() -> dict[str, Seen]:
                return read_events(airflow.database, journal.calls)

            faults = EventFaults(airflow, journal, folder, options.seed)
            failures = faults.run()
            # Calls that are missing after this time, or were not reported, are named below.
            with suppress(TimeoutError):
                until(lambda: not any(lost(journal, seen(), each) for each in WEBHOOKS), "all calls", every=0.5)
            failures += [f"{name} reports a gap where there is none" for name in WEBHOOKS if seen()[name].gaps]
            faults.cut_off()
            with suppress(TimeoutError):
                until(lambda: not evaluate(journal, seen()), "the reports of the gap", every=0.5)
            result = seen()
            idle = {FIRST, SECOND} - started_dags(airflow.database)
            failures += [f"no event has started the DAG {name}" for name in sorted(idle)]
    finally:
        service.kill()
    written = Counter(call.fault for call in journal.calls.values())
    again = {name: sum(number > 1 for number in each.times.values()) for name, each in result.items()}
    print_table(("Fault", "Calls"), [(fault, str(number)) for fault, number in written.items()])
    print("seen more than once:", ", ".join(f"{number} by {name}" for name, number in again.items()))
    failures += evaluate(journal, result)
    return failures


def lost(journal: Journal, seen: dict[str, Seen], consumer: str) -> list[str]:
    """Return the ids of the calls that a consumer has missed."""
    mine = [call_id for call_id, call in journal.calls.items() if call.is_for(consumer)]
    return [call_id for call_id in mine if call_id not in seen[consumer].times]


def evaluate(journal: Journal, seen: dict[str, Seen]) -> list[str]:
    """Return descriptions of the calls that consumers have missed."""
    failures: list[str] = []
    for consumer in WEBHOOKS:
        names = {call_id: f"call {call_id} ({call.fault})" for call_id, call in journal.calls.items()}
        failures += [f"{consumer} never saw {names[each]}" for each in lost(journal, seen, consumer)]
        failures += [f"{consumer} saw {names[each]} after {newer}" for each, newer in seen[consumer].disorder.items()]
        failures += [] if seen[consumer].gaps else [f"{consumer} did not report that the journal was cut off"]
    return failures


if __name__ == "__main__":
    sys.exit(main())
