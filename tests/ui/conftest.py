"""Airflow's API server with the page, services in various states, and a headless browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from support.browser.airflow_server import AirflowServer, run_airflow
from support.browser.page_services import SERVICES, away, colleagues
from support.browser.page_visitor import CreatedRequests, Visitor

from airflow_custody.sandbox import Sandbox, connection_variables

EXAMPLES = Path(__file__).parents[2] / "example_dags"
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
# Options that keep the browser from using the network, among others.
_CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


_CUT_OFF = """
    [...document.querySelectorAll('main *:not(thead, thead *)')].filter(element => {
        const frame = element.closest('.scroll') ?? document.documentElement
        const edge = frame.getBoundingClientRect().right + 1
        return element.checkVisibility() && element.getBoundingClientRect().right > edge
    }).map(element => element.outerHTML.slice(0, 200))
"""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "picture: takes a picture for the docs; `make pictures` runs only these tests.")


@pytest.fixture(scope="session")
def find_cut_off() -> Callable[[Page], list[str]]:
    """Return a function that finds the elements which reach beyond the edge of their table or of the window."""

    def find(page: Page) -> list[str]:
        found: list[str] = page.evaluate(_CUT_OFF)
        return found

    return find


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
    connections = {
        f"AIRFLOW_CONN_{conn_id.upper()}": sandbox.connection(pins=True) for conn_id, sandbox in services.items()
    }
    connections |= colleagues(services["custody_treasury"])
    home = tmp_path_factory.mktemp("airflow")
    with run_airflow(home, {**connections, **away()}) as server:
        (server.dags / "whitelist_suppliers.py").write_text(_DAG)
        yield server


@pytest.fixture(scope="session")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """Start Airflow like a new user: with the example DAGs, and a sandbox with two approvers."""
    with Sandbox() as sandbox:
        approvers = sandbox.control.add_signers(["alice", "bob"])
        connections = connection_variables(sandbox.connection(pins=True), approvers)
        with run_airflow(tmp_path_factory.mktemp("newcomer"), connections) as server:
            shutil.copytree(EXAMPLES, server.dags, dirs_exist_ok=True)
            server.run("dags", "reserialize")
            yield server


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
    """Return a function that opens a browser window for a user (None: without signing in)."""
    contexts: list[BrowserContext] = []

    def open_window(user: str | None = "admin", server: AirflowServer = airflow, **options: Any) -> Visitor:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        if user is not None:
            context.add_cookies([{"name": "_token", "value": server.tokens[user], "url": server.url}])
        page = context.new_page()
        complaints: list[str] = []

        def note_complaint(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                complaints.append(message.text)

        page.on("console", note_complaint)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        return Visitor(context, page, complaints, server.url)

    yield open_window
    for context in contexts:
        context.close()
