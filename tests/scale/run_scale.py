"""
Apply 5,000 rows and wait for 1,000 requests on Airflow with Celery, and count what reached the service.

Ten applies of different files run on two workers, one of which is killed on the way. Prints how long it took, the calls
at the service, and what was lost. The exit code is 1 if anything was, or if it did not end in time.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "faults"))

from processes import Service, kill_worker_of, read_pids, until  # noqa: E402
from servers import CeleryCluster  # noqa: E402
from suite import parser_of, run_in_folder  # noqa: E402

FILES = 10
# As many rows as one approval can show, because a plan cannot be larger.
ROWS = 500
SENSORS = 1000
#: Maximum duration of the suite, in seconds.
TIMEOUT = 345.0
STARTED = time.monotonic()
REQUESTS = "/whitelists/addresses"
APPLIES = [f"apply_file{number}" for number in range(FILES)]
ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")


def main() -> int:
    """Run the suite and return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run_in_folder(parser_of(__doc__).parse_args(), _run)


def _run(folder: Path) -> list[str]:
    for number in range(FILES):
        lines = [f"File {number} row {row},{_address(10_000 * (number + 1) + row)},ETH\n" for row in range(ROWS)]
        (folder / f"file{number}.csv").write_text("label,address,blockchain\n" + "".join(lines))
    service = Service(folder, "service")
    environment = {
        # Use the time-outs that a user has.
        "AIRFLOW_CONN_CUSTODY_DEFAULT": json.dumps({**service.connection, "extra": {}}),
        "AIRFLOW__CORE__PARALLELISM": "32",
        "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "32",
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_TO_CREATE_PER_LOOP": "100",
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "100",
        "AIRFLOW__TRIGGERER__CAPACITY": str(2 * SENSORS),
    }
    try:
        service.start()
        ids = service.control.add_whitelist_requests(
            [{"label": f"Sensor {each}", "address": _address(each), "blockchain": "ETH"} for each in range(SENSORS)],
            status="pending",
        )
        (folder / "ids.json").write_text(json.dumps(ids))
        with CeleryCluster(folder, HERE / "dags", environment) as cluster:
            _say("Airflow is ready")
            return _Suite(folder, cluster, service, ids).run()
    finally:
        service.kill()


class _Suite:
    def __init__(self, folder: Path, cluster: CeleryCluster, service: Service, ids: list[str]) -> None:
        self._folder = folder
        self._airflow = cluster
        self._control = service.control
        self._ids = ids

    def run(self) -> list[str]:
        waits = [f"wait_{number:03}" for number in range(-(-SENSORS // 20))]
        dags = len(APPLIES) + len(waits)
        _until(lambda: self._airflow.call("GET", "/dags?limit=1")["total_entries"] == dags, "the DAGs to be parsed")
        self._trigger(waits)
        _until(lambda: self._count("wait", "deferred") == SENSORS, f"{SENSORS:,} sensors to be deferred")
        _say(f"{SENSORS:,} sensors are deferred")
        self._control.clear_request_log()
        # Apply one plan at a time, as the guide recommends.
        pool = {"name": "custody_apply", "slots": 1, "description": "", "include_deferred": False}
        self._airflow.call("POST", "/pools", pool)
        began = time.monotonic()
        self._trigger(APPLIES)
        self._kill_worker()
        _until(lambda: self._count("apply", *ENDED) == 2 * FILES, "the applies to end")
        seconds = time.monotonic() - began
        _say(f"the applies have ended, {seconds:.0f} s after they began")
        calls = Counter(each["method"] for each in self._control.request_log())
        approved = time.monotonic()
        for each in self._ids:
            self._control.set_whitelist_status(each, "APPROVED")
        _until(lambda: self._count("wait", "deferred") == 0, "the sensors to see the effect")
        _say(f"all {SENSORS:,} triggers have fired, {time.monotonic() - approved:.0f} s after the approvals")
        # Workers resume them, a second each: as many as the time allows.
        with suppress(TimeoutError):
            _until(lambda: self._count("wait", *ENDED) == SENSORS, "the sensors to end", most=30)
        _say(f"{FILES * ROWS / seconds:.0f} rows/s; calls: {dict(calls)}")
        return self._evaluate()

    def _kill_worker(self) -> None:
        """Kill the worker whose task sends, once a third of the rows are there."""

        def applying() -> list[str]:
            path = "/dags/~/dagRuns/~/taskInstances?state=running&dag_id_pattern=apply_"
            running = self._airflow.call("GET", path)["task_instances"]
            return [each["dag_id"] for each in running if each["task_id"] == "apply"]

        def created() -> int:
            return len(self._control.request_log("POST", REQUESTS))

        _until(lambda: created() >= FILES * ROWS // 3, "a third of the rows")
        _until(applying, "an apply to run")
        dag = applying()[0]
        kill_worker_of(read_pids(self._folder / f"{dag}.pid")[0])
        _say(f"killed the worker that runs {dag}, at {created():,} rows")

    def _trigger(self, dags: list[str]) -> None:
        for dag in dags:
            body: dict[str, Any] = {"dag_run_id": "run", "logical_date": None, "conf": {}}
            self._airflow.call("POST", f"/dags/{dag}/dagRuns", body)

    def _count(self, prefix: str, *states: str) -> int:
        """Return how many tasks of some DAGs are in one of these states."""
        path = f"/dags/~/dagRuns/~/taskInstances?dag_id_pattern={prefix}_&limit=1&state="
        return sum(int(self._airflow.call("GET", path + state)["total_entries"]) for state in states)

    def _evaluate(self) -> list[str]:
        """Return descriptions of the rows and sensors that did not end as they should."""
        requests = self._control.whitelist_requests()
        labels = {each["id"]: each["label"] for each in requests}
        failures: list[str] = []
        tries = 0
        for number, dag in enumerate(APPLIES):
            path = f"/dags/{dag}/dagRuns/run/taskInstances/apply"
            task = self._airflow.call("GET", path)
            tries = max(tries, int(task["try_number"]))
            if task["state"] != "success":
                failures.append(f"{dag} is {task['state']}")
                continue
            created = self._airflow.call("GET", f"{path}/xcomEntries/requests?deserialize=true")["value"]
            asked = {f"File {number} row {row}" for row in range(ROWS)}
            if {each["label"] for each in created} != asked or any(
                labels[each["id"]] != each["label"] for each in created
            ):
                failures.append(f"{dag} has pushed ids that are not those of its rows")
        rows = Counter(each["label"] for each in requests if each["label"].startswith("File"))
        if rows.total() != FILES * ROWS or len(rows) != FILES * ROWS:
            failures.append(f"{FILES * ROWS - len(rows)} rows are missing, {rows.total() - len(rows)} exist twice")
        waiting, failed = (self._count("wait", state) for state in ("deferred", "failed"))
        if waiting or failed:
            failures.append(f"{waiting} sensors did not fire, {failed} failed")
        if tries < 2:
            failures.append("no apply was tried again, so none was killed")
        return failures


def _address(number: int) -> str:
    return f"0x{number:040x}"


def _until(condition: Callable[[], object], what: str, most: float = TIMEOUT) -> None:
    until(condition, what, within=min(most, STARTED + TIMEOUT - time.monotonic()), every=0.5)


def _say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
