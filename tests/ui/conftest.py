"""Airflow's API server with the page, services in various states behind it, and a browser without a window."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from page_services import SERVICES, away
from page_visitor import CreatedRequests, Visitor
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from airflow_custody.sandbox import Sandbox

USERS = {"admin": "admin", "viewer": "viewer"}
_PROGRAM = str(Path(sys.executable).parent / "airflow")
_DAG = """
from airflow.sdk import DAG

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator

with DAG("whitelist_suppliers", schedule=None):
    CustodyCreateWhitelistRequestOperator.partial(task_id="create", blockchain="ETH", network="mainnet").expand_kwargs(
        [
            {"label": "Supplier Lagos", "address": "0x00000000000000000000000000000000000000c1"},
            {"label": "Supplier Quito", "address": "0x00000000000000000000000000000000000000c2"},
        ]
    )
"""
# The browser looks for nothing outside of this machine.
_CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class AirflowServer:
    """A running API server: its URL, the token of each user, and what its programs need."""

    url: str
    tokens: dict[str, str]
    environment: dict[str, str]

    def run(self, *arguments: str) -> None:
        """Run a command of Airflow's."""
        subprocess.run([_PROGRAM, *arguments], env=self.environment, check=True, capture_output=True, timeout=120)

    def get(self, path: str) -> Any:
        """Get a resource of the REST API."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        response = requests.get(f"{self.url}/api/v2{path}", headers=headers, timeout=30)
        response.raise_for_status()
        return response.json()


@pytest.fixture(scope="session")
def services() -> Iterator[dict[str, Sandbox]]:
    """Start a sandbox for each state of a service, and return them by connection id."""
    with ExitStack() as stack:
        running = {conn_id: stack.enter_context(Sandbox()) for conn_id in SERVICES}
        for conn_id, prepare in SERVICES.items():
            prepare(running[conn_id].control)
        yield running


@pytest.fixture(scope="session")
def airflow(services: dict[str, Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    home = tmp_path_factory.mktemp("airflow")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    connections = {conn_id: sandbox.connection(pins=True) for conn_id, sandbox in services.items()}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")},
        **{f"AIRFLOW_CONN_{conn_id.upper()}": each for conn_id, each in {**connections, **away()}.items()},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "127.0.0.1",
    }
    (home / "simple_auth_manager_passwords.json.generated").write_text(json.dumps({name: name for name in USERS}))
    (home / "dags").mkdir()
    (home / "dags" / "whitelist_suppliers.py").write_text(_DAG)
    subprocess.run([_PROGRAM, "db", "migrate"], env=environment, check=True, capture_output=True, timeout=120)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([_PROGRAM, "api-server"], env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield AirflowServer(url, {name: _sign_in(url, name) for name in USERS}, environment)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _sign_in(url: str, user: str) -> str:
    deadline = time.monotonic() + 120
    while True:
        try:
            response = requests.post(f"{url}/auth/token", json={"username": user, "password": user}, timeout=10)
            response.raise_for_status()
            return str(response.json()["access_token"])
        except requests.RequestException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@pytest.fixture(scope="session")
def created(airflow: AirflowServer, services: dict[str, Sandbox]) -> CreatedRequests:
    """Run a DAG whose tasks create two requests: one takes effect, the service changes the other."""
    airflow.run("dags", "reserialize")
    airflow.run("dags", "test", "whitelist_suppliers")
    dag = "/dags/whitelist_suppliers"
    (run,) = airflow.get(f"{dag}/dagRuns")["dag_runs"]
    assert run["state"] == "success"
    tasks = f"{dag}/dagRuns/{run['dag_run_id']}/taskInstances"
    signed, changed = (
        airflow.get(f"{tasks}/create/xcomEntries/return_value?map_index={index}")["value"] for index in (0, 1)
    )
    control = services["custody_default"].control
    control.sign_whitelist_requests([signed])
    control.change_whitelist_request(changed, address="0x00000000000000000000000000000000000000ff")
    return CreatedRequests(f"{dag}/runs/{run['dag_run_id']}", signed, changed)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_CHROMIUM_OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def visit(airflow: AirflowServer, browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Return what opens a browser window for a user (None: nobody is signed in)."""
    contexts: list[BrowserContext] = []

    def open_window(user: str | None = "admin", **options: Any) -> Visitor:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        if user is not None:
            context.add_cookies([{"name": "_token", "value": airflow.tokens[user], "url": airflow.url}])
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda each: complaints.append(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda each: complaints.append(str(each)))
        # One that nobody handles is dismissed.
        page.on("dialog", lambda each: complaints.append(f"dialog: {each.message}"))
        return Visitor(context, page, complaints, airflow.url)

    yield open_window
    for context in contexts:
        context.close()
