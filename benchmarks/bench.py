"""Compare the speed and memory of this package with alternatives, side by side in one run."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

# These imports come first, because side_by_side sets Airflow's home.
from functions import functions
from journal import journal
from mapped_tasks import mapped_tasks
from octodns_plans import octodns_plans
from side_by_side import certificates, compare, service, timed
from verification import verification
from whitelist_files import in_threads, over_tls, planning, recovery

ADDRESS = "0x" + "ab" * 20
PACKAGE_MODULES = (
    "airflow_custody.operators.health, airflow_custody.operators.whitelist, airflow_custody.operators.whitelist_plan, "
    "airflow_custody.operators.webhook, "
    "airflow_custody.sensors.health, airflow_custody.hooks.custody"
)
HTTP_PROVIDER_MODULES = (
    "airflow.providers.http.operators.http, airflow.providers.http.sensors.http, airflow.providers.http.hooks.http"
)
# Every DAG file imports these anyway.
AIRFLOW_MODULES = "airflow.sdk, airflow.sdk.bases.sensor, airflow.sdk.bases.hook"


def seconds_to_import(modules: str, *, after: str = AIRFLOW_MODULES) -> float:
    """
    Measure how long a new process takes to import modules.

    :param modules: the modules.
    :param after: modules that are imported first, and do not count. Default: Airflow's own.
    """
    code = f"import {after}\nfrom time import perf_counter as now\ns = now()\nimport {modules}\nprint(now() - s)"
    # Let Python cache bytecode, as after an installation.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def imports(rounds: int) -> None:
    """Compare importing all modules of operators, sensors and hooks."""
    compare(
        "import all operator, sensor and hook modules, on top of airflow.sdk",
        rounds,
        {
            "this package": lambda: seconds_to_import(PACKAGE_MODULES),
            "HTTP provider": lambda: seconds_to_import(HTTP_PROVIDER_MODULES),
        },
    )


def plugin(rounds: int) -> None:
    """
    Measure what the plugin costs every process that loads plugins.

    For comparison, measure what it would cost if it imported the page's app at once.
    """
    airflow = "airflow.plugins_manager"
    compare(
        "import the plugin, on top of airflow.plugins_manager",
        rounds,
        {
            "this package": lambda: seconds_to_import("airflow_custody.plugin.plugin", after=airflow),
            "with its app": lambda: seconds_to_import("airflow_custody.plugin.app", after=airflow),
        },
    )


def bare_loop(session: requests.Session, url: str, token: str) -> bool:
    """Fetch and judge the health with requests, json and a loop: the least code that does the job."""
    response = session.get(f"{url}/api/rest/v1/health", headers={"Authorization": f"Bearer {token}"}, timeout=30)
    checks = [check for group in json.loads(response.content)["groups"].values() for check in group["healthChecks"]]
    return bool(checks) and all(check["status"] == "success" for check in checks)


def health(rounds: int) -> None:
    """Compare fetching and judging the health checks."""
    import requests

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health.verdict import HealthCriteria, judge
    from airflow_custody.sandbox import health_entry

    with service() as (control, url, token), requests.Session() as session, CustodyClient(url, token) as client:
        session.trust_env = False
        for count in (1_000, 10_000):
            control.set_health(
                [
                    # The time stamps differ, because equal ones would be cheaper to judge than real ones.
                    health_entry(
                        group=f"g{i % 20}", component=f"c{i % 50}", check=f"check{i}", results={"ETH": "success"}
                    )
                    | {
                        "lastUpdateDate": f"2026-01-02T03:{7 * i % 60:02}:{i % 60:02}.{i:09}Z",
                        "validUntilDate": f"2999-01-02T03:{7 * i % 60:02}:{i % 60:02}.{i:09}Z",
                    }
                    for i in range(count)
                ]
            )

            def package() -> None:
                assert judge(client.list_health_checks(), HealthCriteria()).healthy

            def bare_requests() -> None:
                assert bare_loop(session, url, token)

            compare(
                f"fetch and judge {count:,} checks",
                rounds,
                {"this package": timed(package), "requests + json + loop": timed(bare_requests)},
            )
        for name, work in (("this package", package), ("requests + json + loop", bare_requests)):
            tracemalloc.start()
            work()
            print(f"  peak memory for 10,000 checks, {name:<24} {tracemalloc.get_traced_memory()[1] / 2**20:6.1f} MiB")
            tracemalloc.stop()


def calls(rounds: int, count: int) -> None:
    """Compare creating and reading whitelisting requests over TLS."""
    import requests
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_custody.client import CustodyClient, WhitelistRequest

    bundle, certificate = certificates()
    body: dict[str, Any] = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}
    with service(certfile=certificate, keyfile=certificate) as (_, url, token):
        addresses = f"{url}/api/rest/v1/whitelists/addresses"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def package() -> None:
            with CustodyClient(url, token, verify=bundle) as client:
                for _ in range(count):
                    client.create_whitelist_request(WhitelistRequest(**body))

        with CustodyClient(url, token, verify=bundle) as client:
            number = client.create_whitelist_request(WhitelistRequest(**body))

        def package_reads() -> None:
            with CustodyClient(url, token, verify=bundle) as client:
                for _ in range(count):
                    assert client.get_whitelist_request(number).id == number

        def bare_requests() -> None:
            with requests.Session() as session:
                session.trust_env = False
                for _ in range(count):
                    response = session.post(addresses, json=body, headers=headers, verify=bundle, timeout=30)
                    assert response.json()["result"]["id"]

        def bare_reads() -> None:
            with requests.Session() as session:
                session.trust_env = False
                for _ in range(count):
                    response = session.get(f"{addresses}/{number}", headers=headers, verify=bundle, timeout=30)
                    assert response.json()["result"]["id"] == number

        os.environ["AIRFLOW_CONN_BENCH"] = json.dumps({"conn_type": "http", "host": url, "extra": {"verify": bundle}})

        def http_hook() -> None:
            for _ in range(count):
                response = HttpHook("POST", "bench").run(
                    "/api/rest/v1/whitelists/addresses", data=json.dumps(body), headers=headers
                )
                assert response.json()["result"]["id"]

        candidates = {
            "this package": timed(package),
            "bare requests session": timed(bare_requests),
            "HTTP provider's hook": timed(http_hook),
        }
        compare(f"{count} creates over TLS (aim: 1.1)", rounds, candidates)
        candidates = {"this package": timed(package_reads), "bare requests session": timed(bare_reads)}
        compare(f"{count} reads over TLS (aim: 1.1)", rounds, candidates)


async def worst_pause(work: Coroutine[Any, Any, object]) -> float:
    """Return the event loop's longest pause while it does work, in seconds."""
    task = asyncio.ensure_future(work)
    worst, last = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.001)
        worst, last = max(worst, time.perf_counter() - last), time.perf_counter()
    await task
    return worst


async def name_lookup(hanging: list[Coroutine[Any, Any, object]]) -> float:
    """Return how long a name look-up takes while calls hang, in seconds."""
    tasks = [asyncio.ensure_future(each) for each in hanging]
    await asyncio.sleep(0.5)
    started = time.perf_counter()
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    seconds = time.perf_counter() - started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seconds


def triggers(rounds: int) -> None:
    """Compare what deferred sensors do to the triggerer's event loop."""
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health.verdict import HealthCriteria, judge
    from airflow_custody.sandbox import health_entry
    from airflow_custody.triggers.health import CustodyHealthTrigger

    many = 300
    with service() as (control, url, token), CustodyClient(url, token, timeout=1, max_retries=0) as client:
        extra = {"timeout": 1, "max_retries": 0}
        os.environ["AIRFLOW_CONN_BENCH"] = json.dumps(
            {"conn_type": "custody", "host": url, "password": token, "extra": extra}
        )

        async def first_event(**criteria: Any) -> object:
            events = CustodyHealthTrigger(custody_conn_id="bench", **criteria).run()
            try:
                return await anext(events)
            finally:
                await events.aclose()  # type: ignore[attr-defined]

        control.set_health([health_entry(group=f"g{i % 20}", check=f"check{i}") for i in range(10_000)])

        async def in_threads() -> None:
            await asyncio.gather(*(first_event(healthy_statuses=["success", f"{number}"]) for number in range(many)))

        async def on_the_loop() -> None:
            checks = await asyncio.to_thread(client.list_health_checks)

            async def one(number: int) -> None:
                assert judge(checks, HealthCriteria(healthy_statuses=("success", f"{number}"))).healthy

            await asyncio.gather(*(one(number) for number in range(many)))

        compare(
            f"the event loop's longest pause: {many} sensors with different criteria, 10,000 checks",
            rounds,
            {
                "this package": lambda: asyncio.run(worst_pause(in_threads())),
                "judging on the event loop": lambda: asyncio.run(worst_pause(on_the_loop())),
            },
        )

        control.add_fault(delay=3600, times=None)
        for tenants in (8, 40):

            def polls(tenants: int = tenants) -> float:
                return asyncio.run(name_lookup([first_event(tenant_id=str(each)) for each in range(tenants)]))

            def default_pool(tenants: int = tenants) -> float:
                def hang(tenant_id: str) -> None:
                    with contextlib.suppress(Exception):
                        client.list_health_checks(tenant_id)

                return asyncio.run(name_lookup([asyncio.to_thread(hang, str(each)) for each in range(tenants)]))

            compare(
                f"looking up a name beside {tenants} tenants whose polls hang for a second",
                rounds,
                {"this package": polls, "the event loop's own threads": default_pool},
            )


def main() -> None:
    """Run and print all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often to measure each candidate (default 7)")
    parser.add_argument("names", nargs="*", help="comparisons to run (default: all)")
    options = parser.parse_args()
    rounds, few = options.rounds, max(3, options.rounds // 2)
    comparisons: dict[str, Callable[[], None]] = {
        "functions": functions,
        "imports": lambda: imports(rounds),
        "plugin": lambda: plugin(few),
        "health": lambda: health(rounds),
        "triggers": lambda: triggers(few),
        "calls": lambda: calls(few, 200),
        "apply": lambda: over_tls(few, 1_000),
        "apply in threads": lambda: in_threads(few, 500),
        "mapped": lambda: mapped_tasks((1_000, 5_000), 40),
        "plan": lambda: planning(10_000),
        "octodns": lambda: octodns_plans(few, 10_000),
        "recovery": lambda: recovery(1_000),
        "verification": lambda: verification(few),
        "journal": lambda: journal(rounds),
        "batches": lambda: verification(few, rows_of_signature=100),
    }
    if unknown := set(options.names) - comparisons.keys():
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(comparisons)}")
    for name, run in comparisons.items():
        if not options.names or name in options.names:
            run()


if __name__ == "__main__":
    main()
