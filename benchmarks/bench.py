"""Compare speed and memory side by side, in one run, as ratios."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

_HOME = tempfile.TemporaryDirectory(prefix="airflow-custody-bench-")
os.environ.update(AIRFLOW_HOME=_HOME.name, AIRFLOW__CORE__LOAD_EXAMPLES="False", AIRFLOW__LOGGING__LOGGING_LEVEL="WARN")

from airflow_custody.sandbox import SandboxControl  # noqa: E402

ADDRESS = "0x" + "ab" * 20
OURS = (
    "airflow_custody.operators.health, airflow_custody.operators.whitelist, airflow_custody.operators.webhook, "
    "airflow_custody.sensors.health, airflow_custody.hooks.custody"
)
HTTP = "airflow.providers.http.operators.http, airflow.providers.http.sensors.http, airflow.providers.http.hooks.http"
# What every DAG file imports anyway.
BASE = "airflow.sdk, airflow.sdk.bases.sensor, airflow.sdk.bases.hook"


def seconds_to_import(modules: str) -> float:
    """Time what importing some modules adds to importing Airflow's own, in a new process."""
    code = f"import {BASE}\nfrom time import perf_counter as now\ns = now()\nimport {modules}\nprint(now() - s)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def compare(title: str, rounds: int, ways: dict[str, Callable[[], float]]) -> None:
    """Run the ways in turn, so that a drifting machine drifts for all, and print ratios to the first."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(way())
    first = next(iter(times))
    print(f"\n{title}")
    for name, values in times.items():
        median = statistics.median(values)
        line = f"  {name:<42} {median * 1000:9.1f} ms"
        if name != first:
            ratios = [a / b for a, b in zip(times[first], values, strict=True)]
            line += f"   {first} / this = {statistics.median(ratios):.2f}"
        print(line)


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a function that does the work and says how long it took."""

    def run() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return run


def bare_loop(session: object, url: str, token: str) -> bool:
    """Fetch and judge with requests, json and a loop: the least that anybody would write."""
    answer = session.get(f"{url}/api/rest/v1/health", headers={"Authorization": f"Bearer {token}"}, timeout=30)
    checks = [check for group in json.loads(answer.content)["groups"].values() for check in group["healthChecks"]]
    return bool(checks) and all(check["status"] == "success" for check in checks)


@contextlib.contextmanager
def service(**options: str) -> Iterator[tuple[SandboxControl, str, str]]:
    """Run the sandbox in a process of its own: in this one, both sides would wait for the same interpreter lock."""
    script = (
        "import json, sys; from airflow_custody.sandbox import Sandbox; s = Sandbox(**json.loads(sys.argv[1])).start();"
        "print(s.url, s.token, s.control.url, flush=True); sys.stdin.read(); s.stop()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        url, token, control = process.stdout.readline().split()
        yield SandboxControl(control), url, token
        process.stdin.close()


def health(rounds: int) -> None:
    """Compare fetching and judging a listing."""
    import requests

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health import HealthCriteria, judge
    from airflow_custody.sandbox import health_entry

    with service() as (control, url, token), requests.Session() as session, CustodyClient(url, token) as client:
        session.trust_env = False
        for count in (1_000, 10_000):
            control.set_health(
                [
                    health_entry(
                        group=f"g{i % 20}", component=f"c{i % 50}", check=f"check{i}", results={"ETH": "success"}
                    )
                    for i in range(count)
                ]
            )

            def ours() -> None:
                assert judge(client.list_health_checks(), HealthCriteria()).healthy

            def bare() -> None:
                assert bare_loop(session, url, token)

            compare(
                f"fetch and judge {count:,} checks",
                rounds,
                {"this package": timed(ours), "requests + json + loop": timed(bare)},
            )
        for name, work in (("this package", ours), ("requests + json + loop", bare)):
            tracemalloc.start()
            work()
            print(f"  peak memory for 10,000 checks, {name:<24} {tracemalloc.get_traced_memory()[1] / 2**20:6.1f} MiB")
            tracemalloc.stop()


def creates(rounds: int, count: int) -> None:
    """Compare creating whitelisting requests over TLS."""
    import requests
    import trustme
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_custody.client import CustodyClient, WhitelistRequest

    authority = trustme.CA()
    folder = Path(_HOME.name)
    bundle, certificate = str(folder / "ca.pem"), str(folder / "server.pem")
    authority.cert_pem.write_to_path(bundle)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    body = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}
    with service(certfile=certificate, keyfile=certificate) as (_, url, token):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def ours() -> None:
            with CustodyClient(url, token, verify=bundle) as client:
                for _ in range(count):
                    client.create_whitelist_request(WhitelistRequest(**body))

        def bare() -> None:
            with requests.Session() as session:
                session.trust_env = False
                for _ in range(count):
                    answer = session.post(
                        f"{url}/api/rest/v1/whitelists/addresses",
                        json=body,
                        headers=headers,
                        verify=bundle,
                        timeout=30,
                    )
                    assert answer.json()["result"]["id"]

        os.environ["AIRFLOW_CONN_BENCH"] = json.dumps({"conn_type": "http", "host": url, "extra": {"verify": bundle}})

        def hook() -> None:
            for _ in range(count):
                answer = HttpHook("POST", "bench").run(
                    "/api/rest/v1/whitelists/addresses", data=json.dumps(body), headers=headers
                )
                assert answer.json()["result"]["id"]

        ways = {"this package": timed(ours), "bare requests session": timed(bare), "HTTP provider's hook": timed(hook)}
        compare(f"{count} creates over TLS", rounds, ways)


def main() -> None:
    """Print all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each way is measured (default 7)")
    rounds = parser.parse_args().rounds
    compare(
        "what importing all operator, sensor and hook modules adds to importing airflow.sdk",
        rounds,
        {"this package": lambda: seconds_to_import(OURS), "HTTP provider": lambda: seconds_to_import(HTTP)},
    )
    health(rounds)
    creates(max(3, rounds // 2), 200)


if __name__ == "__main__":
    main()
