"""Airflow's form for approving a plan."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from support.browser.airflow_server import AirflowServer
from support.browser.page_visitor import Visitor

_DAG = """
from airflow.sdk import DAG

from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator

with DAG("whitelist_plan", schedule=None):
    plan = CustodyPlanWhitelistOperator(task_id="plan", path="rows.json").output
    CustodyApproveWhitelistPlanOperator(task_id="approve", plan=plan)
"""
_LONG = "addr1qx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzer3n0d3vllmyqwsx5wktcd8cc3sq835lu7drv2xwl2wywfgse35a3x"
_ROWS: list[dict[str, Any]] = [
    {"label": "Treasury of the foundation, cold", "blockchain": "ADA", "network": "mainnet", "address": _LONG},
    {
        "label": "An-unusually-long-label-without-any-blank",
        "blockchain": "XRP",
        "address": "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh",
        "memo": "7919",
        "linked_internal_address_ids": ["11", "12", "13", "14", "15", "16"],
        "visibility_group_id": "5b6d1bd0-3a9c-4e9e-8d7f-0d7b2a6c9f11",
    },
    *(
        {"label": f"Supplier {n}, settlement", "blockchain": "ETH", "network": "mainnet", "address": f"0x{n:040x}"}
        for n in range(1000, 1038)
    ),
]


@pytest.fixture(scope="module")
def form(airflow: AirflowServer) -> Iterator[dict[str, Any]]:
    """Run a DAG until it waits for approval, and return the details of the form."""
    (airflow.dags / "rows.json").write_text(json.dumps({"version": 1, "addresses": _ROWS}))
    (airflow.dags / "whitelist_plan.py").write_text(_DAG)
    airflow.run("dags", "reserialize")
    command = [str(Path(sys.executable).parent / "airflow"), "dags", "test", "whitelist_plan"]
    with subprocess.Popen(command, env=airflow.environment, stdout=subprocess.DEVNULL) as run:
        try:
            deadline = time.monotonic() + 300
            forms: list[dict[str, Any]] = []
            while not forms and time.monotonic() < deadline:
                time.sleep(1)
                forms = airflow.get("/dags/whitelist_plan/dagRuns/~/hitlDetails")["hitl_details"]
            yield forms[0]
        finally:
            run.kill()


def test_its_tables_fit_in_a_window_of_1280_pixels(visit: Callable[..., Visitor], form: dict[str, Any]) -> None:
    visitor = visit()
    run = form["task_instance"]["dag_run_id"]
    # The link of a notification, in the form that the operator's form_url has.
    form_url = f"{visitor.url}/dags/whitelist_plan/runs/{quote(run)}/tasks/approve/required_actions?try_number=1"
    visitor.page.goto(form_url)
    tables = visitor.page.locator("table")
    # The tables: the operations; the requests that are not in the file, if there are any; and the rows in each state.
    expect(tables.nth(1)).to_be_visible(timeout=120_000)
    assert tables.first.locator("tbody tr").count() >= 40
    for table in tables.all():
        assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
