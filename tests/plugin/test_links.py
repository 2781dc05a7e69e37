"""The links of tasks to the Custody page, in real DAG runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, Run, new_dag, run_dag
from support.airflow.apply_tries import address, write_rows
from support.airflow.connections import connection_json
from support.airflow.sensor_runs import MODES, how
from support.airflow.task_table import documented_tasks
from support.airflow.task_tries import somebody_creates
from support.browser.airflow_pages import serve
from support.service.people import Person

from airflow_custody._base import CustodyTask
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import CustodyDeleteWebhookOperator
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodyVerifyWhitelistOperator,
)
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.plugin.links import CustodyPageLink, CustodyRequestLink
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

KEY = "_link_CustodyRequestLink"
PAGE_KEY = "_link_CustodyPageLink"
# Since Airflow 3.3, links lead to the page in Airflow's frame.
FRAME = "/plugin/custody" if AIRFLOW >= (3, 3) else ""


def page_below(prefix: str) -> str:
    """Return the path of the page in an Airflow whose own path is ``prefix``."""
    return f"{prefix}{FRAME}{prefix}/custody" if FRAME else f"{prefix}/custody"


#: The page of the connection, and the page of its requests.
CONNECTION = f"https://airflow.example.com{page_below('/prod')}/connections/custody_default"
PAGE = f"{CONNECTION}/requests"
#: The tasks for whitelisting requests, which have a link to these requests too.
OF_REQUESTS = {
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodySignWhitelistRequestsOperator,
    CustodyRejectWhitelistRequestsOperator,
    CustodyApplyWhitelistPlanOperator,
    CustodyWhitelistRequestSensor,
}
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


@pytest.mark.parametrize("owner", sorted(documented_tasks(), key=str))
def test_tasks_have_links_where_there_is_a_page(owner: Any) -> None:
    expected = ["Custody request", "Custody page"] if owner in OF_REQUESTS else ["Custody page"]
    if AIRFLOW < (3, 1) or not issubclass(owner, CustodyTask):
        # The approval of a plan has no connection.
        expected = []
    assert [link.name for link in owner.operator_extra_links] == expected


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
        assert run.pushed(task_id, PAGE_KEY) == CONNECTION
    # Airflow's API returns the link.
    for pages in serve():
        (shown,) = pages.get(f"/api/v2/dags/{dag.dag_id}/dagRuns").json()["dag_runs"]
        url = f"/api/v2/dags/{dag.dag_id}/dagRuns/{shown['dag_run_id']}/taskInstances/create/links"
        links = {"Custody page": CONNECTION, "Custody request": f"{PAGE}/3711"}
        assert pages.get(url).json()["extra_links"] == links


@with_pages
@pytest.mark.parametrize("mode", MODES)
def test_a_sensor_links_to_its_requests_while_it_waits_and_after_it_failed(
    sandbox: Sandbox, ann: Person, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    links: list[str] = []
    get_link = CustodyRequestLink.get_link

    def record(self: CustodyRequestLink, operator: Any, **ti_key: Any) -> str:
        links.append(get_link(self, operator, **ti_key))
        return links[-1]

    monkeypatch.setattr(CustodyRequestLink, "get_link", record)
    pending = somebody_creates(sandbox, label="pending", address=address(1))
    rejected = somebody_creates(sandbox, label="rejected", address=address(2))
    sandbox.control.set_whitelist_status(rejected, "REJECTED")
    with new_dag() as dag:
        for task_id, request_id in (("late", pending), ("rejected", rejected)):
            CustodyWhitelistRequestSensor(
                task_id=task_id, request_id=request_id, poke_interval=0.2, timeout=1, **how(mode)
            )
    run = run_dag(dag)
    for task_id, request_id in (("late", pending), ("rejected", rejected)):
        assert run.state_of(task_id) == "failed"
        assert link_of(run, task_id) == f"{PAGE}/{request_id}"
        assert run.pushed(task_id, PAGE_KEY) == CONNECTION
    # A rescheduled or deferred task has its link while it waits.
    assert (links.count(f"{PAGE}/{pending}") > 1) == (mode != "poke")
    assert set(links) == {f"{PAGE}/{pending}", f"{PAGE}/{rejected}"}


@with_pages
def test_each_other_task_links_to_the_page_of_its_connection(sandbox: Sandbox, ann: Person) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    done = somebody_creates(sandbox, label="Label 1", address=address(1), blockchain="ETH")
    sandbox.control.set_whitelist_status(done, "APPROVED")
    rows = [{"label": "Label 1", "address": address(1), "blockchain": "ETH"}]
    more = [*rows, {"label": "Label 2", "address": address(2), "blockchain": "ETH"}]
    with new_dag() as dag:
        create("refused", address="no address")
        CustodyPlanWhitelistOperator(task_id="over", rows=more, max_creates=0)
        CustodyPlanWhitelistOperator(task_id="skipped", rows=rows, skip_if_nothing_to_do=True)
        CustodyHealthCheckOperator(task_id="check")
        CustodyHealthSensor(task_id="gate", poke_interval=0.1, timeout=0.2, deferrable=False)
        CustodyDeleteWebhookOperator(task_id="webhook", webhook_id="no UUID")
        CustodyVerifyWhitelistOperator(task_id="verify")
        CustodyPlanWhitelistOperator(task_id="not_rendered", rows=rows, custody_conn_id="{{ 1 / 0 }}")
    run = run_dag(dag)
    states = {task_id: run.state_of(task_id) for task_id in dag.task_ids}
    assert states == {**dict.fromkeys(dag.task_ids, "failed"), "skipped": "skipped"}
    for task_id in {*dag.task_ids} - {"not_rendered"}:
        assert run.pushed(task_id, PAGE_KEY) == CONNECTION, task_id
    assert not run.pushed("not_rendered", PAGE_KEY)
    # Airflow's UI shows no button for an empty link.
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
    instance: Any = FakeTaskInstance()
    assert CustodyRequestLink().get_link(ended, ti_key=instance) == f"{expected}/requests/1"
    assert CustodyPageLink().get_link(ended, ti_key=instance) == expected
