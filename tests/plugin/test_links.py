"""The link "Custody request" of tasks, in real DAG runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, Run, new_dag, run_dag
from support.airflow.apply_tries import address, write_rows
from support.airflow.connections import connection_json
from support.browser.airflow_pages import serve
from support.service.people import Person

from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
)
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.plugin.links import REQUEST_LINKS, CustodyRequestLink
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

KEY = "_link_CustodyRequestLink"
# Since Airflow 3.3, links lead to the page in Airflow's frame.
FRAME = "/plugin/custody" if AIRFLOW >= (3, 3) else ""


def page_below(prefix: str) -> str:
    """Return the path of the page in an Airflow whose own path is ``prefix``."""
    return f"{prefix}{FRAME}{prefix}/custody" if FRAME else f"{prefix}/custody"


PAGE = f"https://airflow.example.com{page_below('/prod')}/connections/custody_default/requests"
OPERATORS = [
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodySignWhitelistRequestsOperator,
    CustodyRejectWhitelistRequestsOperator,
    CustodyApplyWhitelistPlanOperator,
    CustodyWhitelistRequestSensor,
]
with_pages = pytest.mark.skipif(AIRFLOW < (3, 1), reason="this Airflow has no page")


@pytest.fixture
def ann(sandbox: Sandbox, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Define the default connection, with a user who may sign, and the URL of Airflow."""
    person = Person(sandbox, "ann", "approvers")
    connection = json.loads(connection_json(sandbox)) | {"password": person.token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/prod/")
    return person


def create(task_id: str = "create", **changes: Any) -> CustodyCreateWhitelistRequestOperator:
    return CustodyCreateWhitelistRequestOperator(
        **{"task_id": task_id, "label": "L", "address": address(1), "blockchain": "ETH", **changes}
    )


def link_of(run: Run, task_id: str) -> Any:
    return run.pushed(task_id, KEY)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_have_the_link_where_there_is_a_page(operator: Any) -> None:
    assert operator.operator_extra_links is REQUEST_LINKS
    expected = ["Custody request"] if AIRFLOW >= (3, 1) else []
    assert [link.name for link in REQUEST_LINKS] == expected


@with_pages
def test_from_each_task_to_its_request(ann: Person) -> None:
    with new_dag() as dag:
        made: Any = create(custody_conn_id="{{ 'custody' }}_default").output
        approve = CustodySignWhitelistRequestsOperator(
            task_id="approve",
            request_ids=made,
            expected=made["request"],
            signer=ConnectionSigner("signing_key"),
            lookup_wait=0.2,
        )
        wait = CustodyWhitelistRequestSensor(
            task_id="wait", request_id=made, poke_interval=0.1, timeout=600, deferrable=True
        )
        delete = CustodyDeleteWhitelistRequestOperator(task_id="delete", request_id=made, comment="c")
        approve >> wait >> delete
    run = run_dag(dag)
    assert run.state == "success", run.states
    for task_id in ("create", "approve", "wait", "delete"):
        assert link_of(run, task_id) == f"{PAGE}/3711"
    # Airflow's API returns the link.
    for pages in serve():
        (shown,) = pages.get(f"/api/v2/dags/{dag.dag_id}/dagRuns").json()["dag_runs"]
        url = f"/api/v2/dags/{dag.dag_id}/dagRuns/{shown['dag_run_id']}/taskInstances/create/links"
        assert pages.get(url).json()["extra_links"] == {"Custody request": f"{PAGE}/3711"}


@with_pages
def test_a_failed_task_links_to_the_requests_that_it_knows(ann: Person) -> None:
    with new_dag() as dag:
        made: Any = create().output
        CustodyWhitelistRequestSensor(task_id="late", request_id=made, poke_interval=0.1, timeout=0.3, deferrable=False)
        create("refused", address="no address")
    run = run_dag(dag)
    assert run.state_of("late") == "failed"
    assert link_of(run, "late") == f"{PAGE}/3711"
    assert run.state_of("refused") == "failed"
    assert link_of(run, "refused") == ""


@with_pages
def test_applying_a_plan_links_to_the_created_requests(sandbox: Sandbox, ann: Person, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", range(1, 4))
    with new_dag() as dag:
        plan: Any = CustodyPlanWhitelistOperator(task_id="plan", path=path).output
        CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan, plan_hash=plan["plan_hash"], lookup_wait=1)
    run = run_dag(dag)
    assert run.state == "success", run.states
    linked = link_of(run, "apply").split("?ids=")[1].split(",")
    created = [str(request["id"]) for request in sandbox.control.whitelist_requests()]
    assert sorted(linked) == sorted(created)


@pytest.mark.parametrize(
    ("base_url", "conn_id", "expected"),
    [
        pytest.param(
            "https://a.example/airflow/",
            "a/b",
            f"https://a.example{page_below('/airflow')}/connections/a%2Fb",
            id="below-a-path",
        ),
        pytest.param("", "a/b", f"{page_below('')}/connections/a%2Fb", id="unknown"),
        # The frame ends a path at a number sign.
        pytest.param(
            "https://a.example/airflow/",
            "a#b",
            "https://a.example/airflow/custody/connections/a%23b",
            id="number-sign-in-the-id",
        ),
    ],
)
def test_links_follow_the_url_of_airflow(
    base_url: str, conn_id: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    ended: Any = SimpleNamespace(custody_conn_id=conn_id, linked_request_ids=lambda: ["1"])
    assert CustodyRequestLink().get_link(ended, ti_key=FakeTaskInstance()) == f"{expected}/requests/1"  # type: ignore[arg-type]
