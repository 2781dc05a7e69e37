"""
Apply 5,000 rows and wait for 1,000 requests on Airflow with Celery, and count what reached the service.

Four applies of different files run at once on two workers, one of which is killed on the way. Prints the calls at the
service, times, memory, and what was lost. The exit code is 1 if anything was, or if it did not end in time; the last
line says why.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "faults"))

from servers import CeleryCluster, free_ports  # noqa: E402

from airflow_custody.sandbox import SandboxControl, SandboxError  # noqa: E402

TOKEN = "scale-suite"
FILES = 4
ROWS = 1250
SENSORS = 1000
#: Seconds for everything.
TIMEOUT = 345.0
STARTED = time.monotonic()
REQUESTS = "/whitelists/addresses"
ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")


class LateError(Exception):
    """Raised when something did not happen in time."""


def main() -> int:
    """Run the suite and return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="custody-scale-"))
    failures: list[str] = []
    try:
        failures = _run(folder)
    except KeyboardInterrupt:
        failures = ["interrupted"]
    except Exception as error:
        failures = [f"{type(error).__name__}: {error}"]
    if failures:
        print(f"logs: {folder}")
        print(f"scale: failed: {'; '.join(failures)}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"scale: ok ({time.monotonic() - STARTED:.0f} s)")
    return 0


def _run(folder: Path) -> list[str]:
    _write_files(folder)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    (folder / "ids.json").write_text("[]")
    (folder / "airflow").mkdir()
    environment = {
        "SCALE_FOLDER": str(folder),
        "NO_PROXY": "127.0.0.1,localhost",
        "AIRFLOW_CONN_CUSTODY_DEFAULT": json.dumps({"conn_type": "custody", "host": url, "password": TOKEN}),
        "AIRFLOW__CORE__PARALLELISM": "32",
        "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "32",
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_TO_CREATE_PER_LOOP": "100",
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "100",
        "AIRFLOW__TRIGGERER__CAPACITY": str(2 * SENSORS),
    }
    cluster = CeleryCluster(folder / "airflow", HERE / "dags", environment)
    cluster.launch(
        *(sys.executable, "-m", "airflow_custody.sandbox", "--token", TOKEN, "--port", str(port)),
        *("--state", str(folder / "service.db")),
    )
    try:
        control = SandboxControl(url)
        _until(lambda: _is_up(control), "the sandbox")
        ids = control.add_whitelist_requests(
            [{"label": f"Sensor {each}", "address": _address(each), "blockchain": "ETH"} for each in range(SENSORS)],
            status="pending",
        )
        (folder / "ids.json").write_text(json.dumps(ids))
        with cluster:
            _say("Airflow is ready")
            return _Suite(folder, cluster, control, ids).run()
    finally:
        cluster.stop()


class _Suite:
    def __init__(self, folder: Path, cluster: CeleryCluster, control: SandboxControl, ids: list[str]) -> None:
        self._folder = folder
        self._airflow = cluster
        self._control = control
        self._ids = ids
        self._applies = [f"apply_file{number}" for number in range(FILES)]
        self._waits = [f"wait_{number:03}" for number in range(-(-SENSORS // 20))]

    def run(self) -> list[str]:
        _until(lambda: self._count_dags() == len(self._applies) + len(self._waits), "the DAGs to be parsed")
        self._idle_memory = self._airflow.memory("triggerer")
        for dag in self._waits:
            self._trigger(dag)
        _until(lambda: self._count("deferred", self._waits) == SENSORS, f"{SENSORS:,} sensors to be deferred")
        _say(f"{SENSORS:,} sensors are deferred")
        self._deferred_memory = self._airflow.memory("triggerer")
        self._control.clear_request_log()
        # One plan at a time, as the guide has it.
        pool = {"name": "custody_apply", "slots": 1, "description": "", "include_deferred": False}
        self._airflow.call("POST", "/pools", pool)
        began = time.monotonic()
        for dag in self._applies:
            self._trigger(dag)
        killed_at = self._kill_worker()
        _until(lambda: self._ended(self._applies), "the applies to end")
        seconds = time.monotonic() - began
        after_kill = time.monotonic() - killed_at
        _say(f"the applies have ended, {seconds:.0f} s after they began, {after_kill:.0f} s after the kill")
        log = self._control.request_log()
        calls = Counter(_kind(each) for each in log)
        times = [each["time"] for each in log if _kind(each) == "create"]
        self._longest_pause = max(later - earlier for earlier, later in pairwise(times))
        approved = time.monotonic()
        self._approve()
        _until(lambda: self._count("deferred", self._waits) == 0, "the sensors to see the effect")
        _say(f"all {SENSORS:,} triggers have fired, {time.monotonic() - approved:.0f} s after the approvals")
        # Workers resume them, a second each: as many as the time allows.
        with suppress(LateError):
            _until(lambda: self._ended(self._waits), "the sensors to end", most=30)
        return self._report(seconds, calls)

    # --- steps -------------------------------------------------------------------------------------------------

    def _kill_worker(self) -> float:
        """Kill the worker whose task sends, with all its processes, once a third of the rows are there."""
        _until(lambda: self._created() >= FILES * ROWS // 3, "a third of the rows")
        _until(lambda: bool(self._applying()), "an apply to run")
        dag = self._applying()[0]
        task = int((self._folder / f"{dag}.1.pid").read_text())
        parents = _parents()
        worker = task
        while b"celery" in (Path("/proc") / str(parents[worker]) / "cmdline").read_bytes():
            worker = parents[worker]
        processes = [worker]
        for process in processes:
            processes += [child for child, parent in parents.items() if parent == process]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _say(f"killed the worker that runs {dag}, at {self._created():,} rows")
        return time.monotonic()

    def _approve(self) -> None:
        for each in self._ids:
            self._control.set_whitelist_status(each, "APPROVED")

    def _trigger(self, dag: str) -> None:
        self._airflow.call("POST", f"/dags/{dag}/dagRuns", {"dag_run_id": "run", "logical_date": None, "conf": {}})

    # --- what there is -----------------------------------------------------------------------------------------

    def _count_dags(self) -> int:
        return int(self._airflow.call("GET", "/dags?limit=1")["total_entries"])

    def _created(self) -> int:
        return len(self._control.request_log("POST", REQUESTS))

    def _count(self, state: str, dags: Iterable[str]) -> int:
        prefix = next(iter(dags)).partition("_")[0]
        path = f"/dags/~/dagRuns/~/taskInstances?state={state}&dag_id_pattern={prefix}_&limit=1"
        return int(self._airflow.call("GET", path)["total_entries"])

    def _applying(self) -> list[str]:
        path = "/dags/~/dagRuns/~/taskInstances?state=running&dag_id_pattern=apply_"
        running = self._airflow.call("GET", path)["task_instances"]
        return [each["dag_id"] for each in running if each["task_id"] == "apply"]

    def _ended(self, dags: list[str]) -> bool:
        return sum(self._count(state, dags) for state in ENDED) == self._count_all(dags)

    def _count_all(self, dags: list[str]) -> int:
        return SENSORS if dags is self._waits else 2 * len(dags)

    def _report(self, seconds: float, calls: Counter[str]) -> list[str]:
        failures: list[str] = []
        requests = self._control.whitelist_requests()
        labels = {each["id"]: each["label"] for each in requests}
        tries = []
        misplaced = 0
        for number, dag in enumerate(self._applies):
            path = f"/dags/{dag}/dagRuns/run/taskInstances/apply"
            task = self._airflow.call("GET", path)
            tries.append(int(task["try_number"]))
            if task["state"] != "success":
                failures.append(f"{dag} is {task['state']}")
                continue
            created = self._airflow.call("GET", f"{path}/xcomEntries/requests")["value"]
            created = json.loads(created) if isinstance(created, str) else created
            asked = {f"File {number} row {row}" for row in range(ROWS)}
            misplaced += sum(labels.get(each["id"]) != each["label"] for each in created)
            misplaced += len(asked.symmetric_difference(each["label"] for each in created))
        rows = Counter(each["label"] for each in requests if each["label"].startswith("File"))
        twice = sum(number - 1 for number in rows.values())
        missing = FILES * ROWS - len(rows)
        fired = SENSORS - self._count("deferred", self._waits)
        resumed, failed = self._count("success", self._waits), self._count("failed", self._waits)
        memory = [int(each.read_text()) / 1024 for each in self._folder.glob("*.memory")]
        creates, sensors = calls["create"], calls["sensors"]
        beside = (sum(calls.values()) - creates - sensors) / max(creates, 1)
        _print(
            "rows", f"{len(rows):,} of {FILES * ROWS:,}; {missing} missing, {twice} twice, {misplaced} ids misplaced"
        )
        _print("tries", ", ".join(map(str, tries)))
        _print("wall time", f"{seconds:.0f} s, {len(rows) / seconds:.0f} rows/s")
        _print("", f"{self._longest_pause:.0f} s without a create: Airflow finds that the worker is dead after 20 s")
        _print("calls", ", ".join(f"{number:,} {kind}" for kind, number in sorted(calls.items())))
        _print("", f"{beside:.3f} beside each creation; {sensors / seconds:.1f}/s by the sensors")
        triggerer = f"{self._deferred_memory:.0f} MiB the triggerer, {self._idle_memory:.0f} before the sensors"
        _print("memory", f"{max(memory, default=0):.0f} MiB an apply, {triggerer}")
        _print("sensors", f"{fired:,} of {SENSORS:,} fired; {resumed:,} resumed so far, {failed} failed")
        if missing or twice or misplaced:
            failures.append(f"{missing} rows are missing, {twice} exist twice, {misplaced} ids are misplaced")
        if fired != SENSORS or failed:
            failures.append(f"{SENSORS - fired} sensors did not fire, {failed} failed")
        if max(tries) < 2:
            failures.append("no apply was tried again, so none was killed")
        return failures


def _print(name: str, text: str) -> None:
    print(f"{name:<12} {text}", flush=True)


def _kind(call: dict[str, Any]) -> str:
    if call["method"] == "POST":
        return "create"
    query = call["query"]
    if "addresses" in query:
        return "look-up"
    if call["path"].endswith("/for-approval"):
        return "sensors" if "ids" in query else "listing"
    if call["path"].endswith(REQUESTS):
        return "sensors" if "ids" in query else "listing"
    return "other"


def _write_files(folder: Path) -> None:
    for number in range(FILES):
        lines = [f"File {number} row {row},{_address(10_000 * (number + 1) + row)},ETH\n" for row in range(ROWS)]
        (folder / f"file{number}.csv").write_text("label,address,blockchain\n" + "".join(lines))


def _address(number: int) -> str:
    return f"0x{number:040x}"


def _is_up(control: SandboxControl) -> bool:
    try:
        control.about()
    except SandboxError:
        return False
    return True


def _parents() -> dict[int, int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return parents


def _until(condition: Callable[[], bool], what: str, most: float = TIMEOUT) -> None:
    deadline = min(time.monotonic() + most, STARTED + TIMEOUT)
    while not condition():
        if time.monotonic() > deadline:
            raise LateError(f"waited too long for {what}")
        time.sleep(0.5)


def _say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
