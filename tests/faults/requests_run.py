"""
Inject faults while real Airflow creates whitelisting requests, and count the requests at the service afterwards.

Airflow, each task and each sandbox are separate processes. Prints a table; the exit code is 1 if a guarantee broke.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from processes import Service
from scenario_run import Outcome, ScenarioRun
from scenarios import SCENARIOS, WORKER_SCENARIOS, Scenario
from servers import Airflow, CeleryCluster
from suite import parser_of, print_table, run_in_folder

MAX_PARALLEL = 8


def main() -> int:
    """Run the scenarios, print the table, and return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="scenarios to run (default: all)")
    parser.add_argument(
        "--celery", action="store_true", help="use Celery, Redis and PostgreSQL (default: LocalExecutor)"
    )
    options = parser.parse_args()
    together, alone = SCENARIOS, WORKER_SCENARIOS if options.celery else []
    if unknown := {*options.names} - {each.name for each in (*together, *alone)}:
        parser.error(f"no such scenarios: {', '.join(sorted(unknown))}")
    chosen = [
        [each for each in group if each.name in options.names or not options.names] for group in (together, alone)
    ]
    return run_in_folder(options, lambda folder: _run(options, folder, *chosen))


def _run(options: argparse.Namespace, folder: Path, together: list[Scenario], alone: list[Scenario]) -> list[str]:
    services = {each.name: Service(folder, each.name) for each in (*together, *alone)}
    connections = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(each.connection) for name, each in services.items()}
    dags = Path(__file__).resolve().parent / "dags"
    outcomes: dict[str, Outcome] = {}
    failures: list[str] = []
    with (CeleryCluster if options.celery else Airflow)(folder, dags, connections) as airflow:

        def run(scenario: Scenario) -> None:
            try:
                run = ScenarioRun(scenario, airflow, services[scenario.name], folder, options.seed)
                outcome = outcomes[scenario.name] = run.run()
                if not outcome.guarantee_held:
                    failures.append(f"{scenario.name}: the guarantee did not hold")
            except Exception as error:
                failures.append(f"{scenario.name}: {traceback.format_exc(limit=3)}")
                outcomes[scenario.name] = Outcome("?", -1, f"NOT RUN: {error}"[:100], guarantee_held=False)
            finally:
                services[scenario.name].kill()

        for max_parallel, group in ((MAX_PARALLEL, together), (1, alone)):
            with ThreadPoolExecutor(max_parallel) as pool:
                list(pool.map(run, group))
    rows = [(each.fault, outcomes[each.name]) for each in (*together, *alone)]
    print_table(
        ("Fault", "Tries", "Requests", "Result"),
        [(fault, outcome.tries, str(outcome.requests), outcome.result) for fault, outcome in rows],
    )
    return failures


if __name__ == "__main__":
    sys.exit(main())
