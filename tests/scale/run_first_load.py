"""
Load a large whitelist file in parts, with the recipe of the guide, on Airflow with LocalExecutor and SQLite.

The DAG starts itself until no row is left; this script only approves. Prints for each part how long each task took, and
at the end the totals and the calls at the service. The exit code is 1 if a row is missing, exists twice, or is not in
effect.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent / "faults"), str(HERE.parent)]

from processes import Service, until  # noqa: E402
from servers import Airflow  # noqa: E402
from suite import parser_of, print_table, run_in_folder  # noqa: E402
from support.service.people import Person  # noqa: E402

DAG_ID = "custody_first_load"
RUNS = f"/dags/{DAG_ID}/dagRuns"
GROUP = "whitelist."
TASKS = (
    "plan",
    "approve",
    "apply",
    "sign_custody_first_signer",
    "sign_custody_second_signer",
    "wait_until_effective",
    "complete",
)
#: Maximum duration of the suite, in seconds.
TIMEOUT = 3600.0


def main() -> int:
    """Run the suite and return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=3_000, help="rows of the file. Default: 3000")
    parser.add_argument("--at-most", type=int, default=0, help="operations of a part. Default: as many as fit")
    options = parser.parse_args()
    return run_in_folder(options, lambda folder: _run(folder, options.rows, options.at_most or None))


def _run(folder: Path, rows: int, at_most: int | None) -> list[str]:
    dags = folder / "dags"
    dags.mkdir()
    recipe = (ROOT / "docs" / "snippets" / "first_load.py").read_text()
    # This script approves with its own user, so name this user as the approver.
    recipe = recipe.replace('"carol"', '"Anonymous"').replace("at_most=500", f"at_most={at_most}")
    (dags / "first_load.py").write_text(recipe.replace("timedelta(minutes=1)", "timedelta(seconds=5)"))
    lines = [f"  - {{label: Supplier {row}, address: '{_address(row)}', blockchain: ETH}}\n" for row in range(rows)]
    (dags / "custody_whitelist.yaml").write_text(f"version: 1\naddresses:\n{''.join(lines)}")
    service = Service(folder, "service")
    try:
        service.start()
        with Airflow(folder, dags, _connections(service)) as airflow:
            return _Load(airflow, service, rows).run()
    finally:
        service.kill()


def _connections(service: Service) -> dict[str, str]:
    """Return the environment variables of the connections, with the time-outs that a user has."""
    connection = {**service.connection, "extra": {}}
    found = {"AIRFLOW_CONN_CUSTODY_DEFAULT": json.dumps(connection)}
    groups = []
    for name in ("first", "second"):
        person = Person(service, name, name)  # type: ignore[arg-type]
        found[f"AIRFLOW_CONN_CUSTODY_{name.upper()}_SIGNER"] = json.dumps({**connection, "password": person.token})
        key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
        found[f"AIRFLOW_CONN_CUSTODY_{name.upper()}_KEY"] = json.dumps(key)
        groups.append({"externalGroupID": name, "minimumSignatures": 1})
    service.control.set_approvers([{"sequential": groups}])
    return found


class _Load:
    def __init__(self, airflow: Airflow, service: Service, rows: int) -> None:
        self._airflow = airflow
        self._control = service.control
        self._rows = rows

    def run(self) -> list[str]:
        until(lambda: self._airflow.call("GET", "/dags?limit=1")["total_entries"] == 1, "the DAG to be parsed")
        began = time.monotonic()
        self._airflow.call("POST", RUNS, {"logical_date": None, "conf": {}})
        until(self._is_loaded, "the load", within=TIMEOUT, every=1)
        seconds = time.monotonic() - began
        parts = [self._part(each) for each in self._runs()]
        print_table(["Part", "Operations", *TASKS, "run"], [[str(i), *each] for i, each in enumerate(parts, 1)])
        calls = Counter(each["method"] for each in self._control.request_log())
        print(f"{self._rows:,} rows in {len(parts)} parts: {seconds:.0f} s; calls: {dict(calls)}")
        return self._evaluate(parts)

    def _is_loaded(self) -> bool:
        """Approve what waits, and tell whether all runs have ended."""
        path = "/dags/~/dagRuns/~/hitlDetails?response_received=false"
        for each in self._airflow.call("GET", path)["hitl_details"]:
            if each["task_instance"]["state"] == "awaiting_input":
                print(each["subject"], flush=True)
                run_id = each["task_instance"]["dag_run_id"]
                answer = {"chosen_options": ["Approve"], "params_input": {}}
                # A person would take longer. If the response came at once, Airflow with LocalExecutor might run the
                # task again.
                time.sleep(8)
                self._airflow.call("PATCH", f"{RUNS}/{run_id}/taskInstances/{GROUP}approve/-1/hitlDetails", answer)
        return all(each["state"] in ("success", "failed") for each in self._runs())

    def _runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._airflow.call("GET", f"{RUNS}?order_by=run_after&limit=100")["dag_runs"]
        return found

    def _part(self, run: dict[str, Any]) -> list[str]:
        """Return the number of operations, and the seconds of each task and of the run."""
        path = f"{RUNS}/{run['dag_run_id']}/taskInstances"
        tasks = {each["task_id"]: each for each in self._airflow.call("GET", path)["task_instances"]}
        counts = self._airflow.call("GET", f"{path}/{GROUP}plan/xcomEntries/counts?deserialize=true")["value"]
        states = {each["state"] for each in tasks.values()}
        note = "" if states <= {"success", "skipped"} else f" {sorted(states)}"
        seconds = [f"{tasks[GROUP + each]['duration'] or 0:.1f}" for each in TASKS]
        begin, end = (datetime.fromisoformat(run[each]) for each in ("start_date", "end_date"))
        return [f"{counts['create']}{note}", *seconds, f"{(end - begin).total_seconds():.0f}"]

    def _evaluate(self, parts: list[list[str]]) -> list[str]:
        requests = self._control.whitelist_requests()
        found = Counter(each["address"] for each in requests if each["status"] == "APPROVED")
        failures = [f"part {number}: {each[0]}" for number, each in enumerate(parts, 1) if not each[0].isdigit()]
        if len(requests) != self._rows or found != Counter(map(_address, range(self._rows))):
            failures.append(f"{self._rows} rows, but {len(requests)} requests, {len(found)} addresses in effect")
        return failures


def _address(number: int) -> str:
    return f"0x{number + 1:040x}"


if __name__ == "__main__":
    sys.exit(main())
