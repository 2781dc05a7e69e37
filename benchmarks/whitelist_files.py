"""
Plans and applies whitelist files, compared with minimal code.

Run as a program, this file plans or applies one file, in a process that a benchmark measures or kills.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from side_by_side import HOME, certificates, report, service

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.idempotency.create import Outcome

CREATES = "/whitelists/addresses"
log = logging.getLogger("bench")
# Hide the warnings of applying, which are expected here.
log.setLevel(logging.ERROR)
_MEBIBYTE = 2**20


class Store:
    """A task state store in a folder, which survives a killed process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def get(self, key: str, default: Any = None) -> Any:
        path = self._folder / key
        return json.loads(path.read_text()) if path.exists() else default

    def set(self, key: str, value: Any, **_: Any) -> None:
        new = self._folder / "new"
        new.write_text(json.dumps(value))
        new.replace(self._folder / key)


class Task:
    """The attributes of a task instance that applying a plan needs."""

    dag_id, run_id, task_id, map_index, try_number, max_tries = "bench", "run", "apply", -1, 1, 3


def write_file(rows: int, path: Path, *, first: int = 0) -> Path:
    """Write a whitelist file with this number of rows."""
    lines = [
        f"  - {{label: 'Label {number}', address: '0x{number:040x}', blockchain: ETH}}\n"
        for number in range(first, first + rows)
    ]
    path.write_text("version: 1\naddresses:\n" + "".join(lines))
    return path


def plan_hash(client: CustodyClient, path: Path) -> str:
    """Plan a file, and return the plan's hash."""
    from airflow_custody.client.whitelist.files.reading import read_whitelist_file
    from airflow_custody.client.whitelist.plans.planner import make_plan
    from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name

    rows = read_whitelist_file(path).rows
    return make_plan(rows, read_snapshot(client), service=service_name(client)).plan_hash


def apply(client: CustodyClient, path: Path, hash_: str, store: Path, max_parallel: int) -> Outcome:
    """Read the file, plan again, and carry the plan out, as the operator does."""
    from airflow_custody.client.whitelist.files.reading import read_whitelist_file
    from airflow_custody.client.whitelist.plans.planner import PlanSettings
    from airflow_custody.idempotency.apply_plan import ApplyPlan

    return ApplyPlan(
        {"ti": Task(), "task_state_store": Store(store)},  # type: ignore[typeddict-item]
        client,
        log,
        PlanSettings(),
        read_whitelist_file(path),
        hash_,
        parts={},
        comment="benchmark",
        max_parallel=max_parallel,
        lookup_wait=2.0,
        report=lambda *_: None,
        is_stopped=lambda: False,
    ).run()[0]


def over_tls(rounds: int, rows: int) -> None:
    """Compare applying with posting the rows one after the other."""
    import requests

    from airflow_custody.client import CustodyClient

    bundle, certificate = certificates()
    print(f"\napply {rows:,} rows over TLS, beside a bare session that posts them one after the other")
    ratios: dict[int, list[float]] = {1: [], 4: []}
    calls = 0
    number = 0
    with service(certfile=certificate, keyfile=certificate) as (control, url, token):
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(rounds):
            bodies = [
                {"label": f"Label {each}", "address": f"0x{each:040x}", "blockchain": "ETH"} for each in range(rows)
            ]
            control.reset()
            started = time.perf_counter()
            with requests.Session() as session:
                session.trust_env = False
                for body in bodies:
                    response = session.post(
                        f"{url}/api/rest/v1{CREATES}", json=body, headers=headers, verify=bundle, timeout=30
                    )
                    assert response.json()["result"]["id"]
            bare = time.perf_counter() - started
            for max_parallel, found in ratios.items():
                control.reset()
                number += 1
                path = write_file(rows, HOME / "rows.yaml")
                with CustodyClient(url, token, verify=bundle) as client:
                    hash_ = plan_hash(client, path)
                    control.clear_request_log()
                    started = time.perf_counter()
                    applied = apply(client, path, hash_, HOME / f"store-{number}", max_parallel)
                    found.append((time.perf_counter() - started) / bare)
                assert len(applied.created) == rows
                calls = len(control.request_log()) - rows
    for max_parallel, aim in ((1, 1.5), (4, 1.0)):
        report(
            f"times as long as the session, max_parallel={max_parallel}", statistics.median(ratios[max_parallel]), aim
        )
    report("additional calls per creation", calls / rows, 0.1)


def in_threads(rounds: int, rows: int) -> None:
    """Compare applying with a bare loop in as many threads."""
    from concurrent.futures import ThreadPoolExecutor

    import requests

    from airflow_custody.client import CustodyClient

    print(f"\napply {rows:,} rows in 4 threads, beside a bare loop that posts them in 4 threads")
    bodies = [{"label": f"Label {each}", "address": f"0x{each:040x}", "blockchain": "ETH"} for each in range(rows)]
    path = write_file(rows, HOME / "threads.yaml")
    for latency in (0.0, 0.05):
        ratios = []
        with service() as (control, url, token):
            for number in range(rounds):
                control.reset()
                if latency:
                    control.add_fault("normal", method="POST", path=CREATES, delay=latency, times=None)
                with requests.Session() as session, ThreadPoolExecutor(4) as pool:
                    session.trust_env = False
                    session.headers["Authorization"] = f"Bearer {token}"
                    started = time.perf_counter()
                    for made in pool.map(
                        lambda body: session.post(f"{url}/api/rest/v1{CREATES}", json=body, timeout=30),
                        bodies,
                    ):
                        assert made.json()["result"]["id"]
                    bare = time.perf_counter() - started
                control.reset()
                if latency:
                    control.add_fault("normal", method="POST", path=CREATES, delay=latency, times=None)
                with CustodyClient(url, token) as client:
                    hash_ = plan_hash(client, path)
                    started = time.perf_counter()
                    applied = apply(client, path, hash_, HOME / f"threads-{latency}-{number}", 4)
                    ratios.append((time.perf_counter() - started) / bare)
                assert len(applied.created) == rows
        report(f"times as long as the loop, {latency * 1000:g} ms for each create", statistics.median(ratios), 1.3)


def planning(rows: int) -> None:
    """
    Compare planning a file with a bare loop of the same calls.

    The service has as many requests as the file has rows. Each candidate runs in its own process.
    """
    print(f"\nplan {rows:,} rows against {rows:,} requests at the service")
    path = write_file(rows, HOME / "many.yaml")
    with service() as (control, url, token):
        control.add_whitelist_requests(
            [
                {"label": f"Label {each}", "address": f"0x{each:040x}", "blockchain": "ETH"}
                for each in range(rows // 2, rows // 2 + rows)
            ]
        )
        control.clear_request_log()
        found = _program("plan", url, token, str(path))
        calls = [{"path": each["path"], "query": each["query"]} for each in control.request_log()]
        pages = len(calls)
        file = HOME / "calls.json"
        file.write_text(json.dumps(calls))
        bare = _program("bare", url, token, str(file))
    print(f"  {found['seconds']:.2f} s of processor time, of which reading the file {found['file']:.2f} s, and")
    print(f"  {found['memory']:.0f} MiB; the loop {bare['seconds']:.2f} s and {bare['memory']:.0f} MiB")
    report("times the processor time of the loop", found["seconds"] / bare["seconds"], 3.0)
    report("times the memory growth of the loop", found["memory"] / bare["memory"], 2.0)
    report("calls per hundred requests, including the calls for pending requests", pages / (rows / 100), 2.1)


def recovery(rows: int) -> None:
    """Measure how a task recovers after a try was killed."""
    print(f"\nrecover an apply of {rows:,} rows that was killed in the middle")
    path = write_file(rows, HOME / "killed.yaml")
    store = HOME / "killed"
    from airflow_custody.client import CustodyClient
    from airflow_custody.idempotency.send import MAX_BATCH

    with service() as (control, url, token), CustodyClient(url, token) as client:
        hash_ = plan_hash(client, path)
        arguments = ("apply", url, token, str(path), hash_, str(store))
        control.clear_request_log()
        with _started(*arguments) as process:
            while len(control.request_log("POST", CREATES)) < rows // 2 + 25:
                time.sleep(0.01)
            process.kill()
        sent = len(control.request_log("POST", CREATES))
        control.clear_request_log()
        found = _program(*arguments)
        calls = control.request_log()
        again = sum(each["method"] == "POST" for each in calls)
        windows = -(-again // MAX_BATCH)
        listings = [each["query"] for each in calls if each["method"] == "GET" and each["path"].endswith(CREATES)]
        # Subtract one search for each window (batch) that is sent, and one for the plan. The rest are the recovery's.
        searches = sum("ids" not in query and query.get("offset", ["0"]) == ["0"] for query in listings)
        searches -= windows + 1
        exist = len(control.whitelist_requests())
    print(f"  {sent} sent before the kill, {again} after it, {found['seconds']:.1f} s; {exist} of {rows} exist")
    report("missing or surplus requests", abs(exist - rows), 0)
    report("searches for the window that was open", searches, 1)


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)


def _program(*arguments: str) -> dict[str, float]:
    with _started(*arguments) as process:
        output, _ = process.communicate(timeout=300)
    if process.returncode:
        raise RuntimeError(f"{arguments[0]} failed with exit code {process.returncode}")
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def _resident() -> float:
    """Return the memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MEBIBYTE


def _loop(url: str, token: str, calls: Path) -> None:
    """Fetch and parse the same pages as planning, and do nothing else."""
    import resource

    import requests

    gc.collect()
    memory, own = _resident(), time.process_time()
    kept = []
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {token}"
        for each in json.loads(calls.read_text()):
            response = session.get(url + each["path"], params=each["query"], timeout=30)
            response.raise_for_status()
            kept.append(response.json())
    assert kept
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.process_time() - own, "memory": peak - memory}))


def main(what: str, url: str, token: str, path: str, hash_: str = "", store: str = "") -> None:
    """Plan, apply or run the bare loop; print the measurements as JSON."""
    import resource

    if what == "bare":
        _loop(url, token, Path(path))
        return

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.files.reading import read_whitelist_file
    from airflow_custody.client.whitelist.plans.planner import make_plan
    from airflow_custody.client.whitelist.plans.report import plan_to_markdown, plan_to_text
    from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name

    gc.collect()
    memory, started, own = _resident(), time.perf_counter(), time.process_time()
    with CustodyClient(url, token) as client:
        if what == "apply":
            apply(client, Path(path), hash_, Path(store), 4)
            print(json.dumps({"seconds": time.perf_counter() - started}))
            return
        whitelist = read_whitelist_file(path)
        file = time.process_time() - own
        plan = make_plan(whitelist.rows, read_snapshot(client), service=service_name(client))
        texts = plan.plan_hash, plan_to_markdown(plan), plan_to_text(plan)
        assert all(texts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.process_time() - own, "file": file, "memory": peak - memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
