"""The run of a new user's first DAG, as Airflow and the Custody page show it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from support.browser.airflow_server import AirflowServer
from support.browser.page_visitor import SMALL, Visitor, settled

Visit = Callable[..., Visitor]
_DAG = "custody_first_dag"
_PARAMS = {"label": "Settlement", "address": "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb", "blockchain": "ETH"}
_GROUP = "whitelist_address"
_SIGN = ("sign_custody_first_signer", "sign_custody_second_signer")
_TASKS = ("wait_until_healthy", "create", *_SIGN, "wait_until_effective")


@pytest.fixture(scope="module")
def run(newcomer: AirflowServer) -> str:
    """Run the DAG, and return the path of the run."""
    newcomer.run("dags", "test", _DAG, "--conf", json.dumps(_PARAMS))
    (run,) = newcomer.get(f"/dags/{_DAG}/dagRuns")["dag_runs"]
    assert run["state"] == "success"
    return f"/dags/{_DAG}/dagRuns/{run['dag_run_id']}"


@pytest.mark.picture
def test_the_graph_shows_each_task(newcomer: AirflowServer, run: str, visit: Visit) -> None:
    visitor = visit(server=newcomer, viewport=SMALL)
    graph = visitor.open_graph(_DAG, run.replace("dagRuns", "runs"))
    visitor.page.get_by_label("Expand all task groups").first.click(timeout=120_000)
    for task in _TASKS:
        expect(graph.get_by_text(task, exact=True).first).to_be_visible(timeout=120_000)
    visitor.page.get_by_label("Collapse Details Panel").click()
    visitor.page.get_by_label("Fit View").click()
    visitor.page.mouse.move(0, 0)
    # The graph moves without an animation that the browser reports.
    visitor.page.wait_for_timeout(1_000)
    visitor.take_picture("start-run")


@pytest.mark.picture
def test_both_users_have_signed_the_request(newcomer: AirflowServer, run: str, visit: Visit) -> None:
    request_id = newcomer.get(f"{run}/taskInstances/{_GROUP}.create/xcomEntries/return_value")["value"]
    visitor = visit(server=newcomer, viewport=SMALL)
    page = settled(visitor, f"/connections/custody_default/requests/{request_id}")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("In effect")
    expect(verdict).to_contain_text("Verified: signed by alice@example.test, bob@example.test")
    visitor.take_picture("start-request", last=page.get_by_role("region", name="Signed content", exact=True))


def test_the_page_shows_the_address(newcomer: AirflowServer, run: str, visit: Visit) -> None:
    visitor = visit(server=newcomer, viewport=SMALL)
    settled(visitor, "/")
    visitor.page.goto(f"{visitor.url}/plugin/custody")
    frame = visitor.page.frame_locator("iframe")
    expect(frame.get_by_role("link", name="custody_default", exact=True)).to_be_visible(timeout=120_000)
    expect(frame.get_by_text("Settlement").first).to_be_visible()


def test_the_form_requires_parameters_without_a_default(newcomer: AirflowServer, visit: Visit) -> None:
    """A forgotten address is an error, and no sample address is whitelisted in its place."""
    page = visit(server=newcomer).page
    page.goto(f"{newcomer.url}/dags/{_DAG}")
    page.get_by_role("button", name="Trigger").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("This field is required")).to_have_count(len(_PARAMS), timeout=120_000)
    trigger = dialog.get_by_role("button", name="Trigger", exact=True)
    expect(trigger).to_be_disabled()
    for name, value in _PARAMS.items():
        dialog.locator(f"[name='element_{name}']").fill(value)
    expect(trigger).to_be_enabled()
