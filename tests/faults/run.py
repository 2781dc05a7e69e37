"""
Inject faults while real Airflow creates whitelisting requests, and count the requests at the service afterwards.

Airflow, each task and each sandbox are separate processes. Prints a table; the exit code is 1 if a guarantee broke.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import network
from scenario_run import TIMEOUT, TOKEN, Outcome, ScenarioRun, Service
from scenarios import NETWORK_SCENARIOS, SCENARIOS, WORKER_SCENARIOS, Scenario
from servers import CeleryCluster, Standalone, free_ports

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MAX_PARALLEL = 8


def main() -> int:
    """Run the scenarios, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios to run (default: all)")
    parser.add_argument("--celery", action="store_true", help="use Celery, Redis and PostgreSQL (default: standalone)")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the random moments")
    options = parser.parse_args()
    print(f"random seed: {options.seed}", flush=True)
    no_network = network.create()
    available = [
        *SCENARIOS,
        *([] if no_network else NETWORK_SCENARIOS),
        *(WORKER_SCENARIOS if options.celery else []),
    ]
    if unknown := {*options.names} - {each.name for each in available}:
        parser.error(f"no such scenarios: {', '.join(sorted(unknown))}")
    chosen = [each for each in available if not options.names or each.name in options.names]
    folder = Path(tempfile.mkdtemp(prefix="custody-faults-"))
    ports = dict(zip([each.name for each in chosen], free_ports(len(chosen)), strict=True))
    behind_network = {each.name for each in NETWORK_SCENARIOS}
    services = {
        name: Service(folder, name, port, behind_network=name in behind_network) for name, port in ports.items()
    }
    environment = {
        # The demo has the settings of the database.
        "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "demo"), str(ROOT)]),
        "FAULTS_FOLDER": str(folder),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    for name, service in services.items():
        environment[f"FAULTS_URL_{name.upper()}"] = service.url
        environment[f"AIRFLOW_CONN_{name.upper()}"] = (
            f'{{"conn_type": "custody", "host": "{service.url}", "password": "{TOKEN}", '
            f'"extra": {{"timeout": {TIMEOUT}, "max_retries": 0, "allow_http": true}}}}'
        )
    home = folder / "airflow"
    home.mkdir()
    failures: list[str] = []
    rows: list[tuple[str, str, str, str]] = []
    try:
        with (CeleryCluster if options.celery else Standalone)(home, HERE / "dags", environment) as airflow:

            def run(scenario: Scenario) -> Outcome:
                try:
                    return ScenarioRun(scenario, airflow, services[scenario.name], folder, options.seed).run()
                except Exception as error:
                    failures.append(f"{scenario.name}: {traceback.format_exc(limit=3)}")
                    return Outcome("?", -1, f"NOT RUN: {type(error).__name__}: {error}"[:100], guarantee_held=False)
                finally:
                    services[scenario.name].kill()

            # The slowest first.
            together = [*NETWORK_SCENARIOS, *SCENARIOS]
            for max_parallel, group in ((MAX_PARALLEL, together), (1, WORKER_SCENARIOS)):
                with ThreadPoolExecutor(max_parallel) as pool:
                    scenarios = [each for each in group if each in chosen]
                    for scenario, outcome in zip(scenarios, pool.map(run, scenarios), strict=True):
                        if not outcome.guarantee_held:
                            failures.append(f"{scenario.name}: the guarantee did not hold")
                        rows.append((scenario.fault, outcome.tries, str(outcome.requests), outcome.result))
        print_table(rows)
        if no_network:
            print(f"skipped, because there are no network namespaces ({no_network}): {NETWORK_SCENARIOS[0].fault}")
    finally:
        network.remove()
        if options.keep or failures:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


def print_table(rows: list[tuple[str, str, str, str]]) -> None:
    """Print the table as Markdown, with aligned columns."""
    head = ("Fault", "Tries", "Requests", "Result")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(4)]
    for row in [head, tuple("-" * width for width in widths), *rows]:
        cells = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(re.sub(r"\s+$", "", f"| {cells} |"))


if __name__ == "__main__":
    sys.exit(main())
