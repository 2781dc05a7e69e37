"""
Inject faults while the service writes webhook calls, and count what Airflow has seen of them.

Airflow's components, each task and the sandbox are separate processes. The calls are counted in the asset events of
Airflow's database. Prints a table; the exit code is 1 if a call was lost, or came too early.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from event_airflow import Components, until
from event_faults import BEFORE, CUT_OFF, LANES, ROWS, cut_off
from event_journal import Journal, Kills, read_events
from event_names import CONNECTION, CONSUMERS
from event_report import evaluate, lost, print_table
from scenario_run import TIMEOUT, TOKEN, Service
from servers import free_ports

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Seconds until what was written last has been seen.
DRAIN = 120.0


def main() -> int:
    """Run the faults, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the random moments")
    options = parser.parse_args()
    print(f"random seed: {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="custody-events-"))
    home = folder / "airflow"
    home.mkdir()
    (port,) = free_ports(1)
    service = Service(folder, CONNECTION, port)
    environment = {
        # The demo has the settings of the database.
        "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "demo"), str(ROOT)]),
        "FAULTS_FOLDER": str(folder),
        "NO_PROXY": "127.0.0.1,localhost",
        f"AIRFLOW_CONN_{CONNECTION.upper()}": (
            f'{{"conn_type": "custody", "host": "{service.url}", "password": "{TOKEN}", '
            f'"extra": {{"timeout": {TIMEOUT}, "max_retries": 0}}}}'
        ),
    }
    failures: list[str] = []
    kills = Kills(folder / "kills.log")
    try:
        service.start()
        journal = Journal(service, options.seed)
        journal.write(BEFORE, ROWS[BEFORE])
        kills.note("start")
        airflow = Components(home, HERE / "event_dags", environment)
        with airflow:
            kills.note("started")

            def run(lane: Callable[..., None]) -> None:
                try:
                    lane(airflow, journal, folder, options.seed, kills)
                except Exception:
                    failures.append(f"{lane.__name__}: {traceback.format_exc(limit=3)}")
                kills.note(f"done: {lane.__name__}")

            with ThreadPoolExecutor(len(LANES)) as pool:
                list(pool.map(run, LANES))
            until_seen(airflow, journal)
            kills.note("all seen")
            for consumer, what in read_events(airflow.database, journal.calls).items():
                failures += [f"{consumer} reports a gap where there is none: {gap}" for gap in what.gaps[:1]]
            cut_off(airflow, journal)
            seen = read_events(airflow.database, journal.calls)
            kills.note("done")
        told = ", ".join(f"{what} {number}" for what, number in kills.numbers.items())
        number = sum(call.row != CUT_OFF for call in journal.calls.values())
        print(f"{number} calls written, {sum(kills.numbers.values())} processes killed: {told}")
        failures += evaluate(journal, seen)
        print_table(journal, seen)
    except RuntimeError as error:
        failures.append(str(error))
    finally:
        service.kill()
        if options.keep or failures:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


def until_seen(airflow: Components, journal: Journal) -> None:
    """Wait until all calls have been seen, or for so long that they will never be."""

    def is_done() -> bool:
        seen = read_events(airflow.database, journal.calls)
        return not any(lost(journal, seen, consumer) for consumer in CONSUMERS)

    try:
        until(is_done, "all calls", within=DRAIN, every=0.5)
    except RuntimeError:
        # The evaluation says which.
        return


if __name__ == "__main__":
    sys.exit(main())
