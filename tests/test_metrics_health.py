"""What is measured of the service's health, received by a StatsD server over a real socket."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from airflow_runs import execute
from connections import connection_json
from statsd_server import StatsdServer

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.client.health.criteria import HealthCriteria
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.health import _fetch as fetch_health

pytestmark = pytest.mark.usefixtures("connection")


def test_the_whole_listing_counts_whatever_a_task_is_about(sandbox: Sandbox, statsd: StatsdServer) -> None:
    with CustodyClient(sandbox.url, sandbox.token) as client:
        checks = client.list_health_checks()
    first = checks[0]
    sandbox.control.update_health(check=first.health_check, component=first.component_name, status="failure")
    other = next(each.listed_under for each in checks if each.listed_under != first.listed_under)
    execute(lambda: CustodyHealthCheckOperator(task_id="health", groups=[other]))
    found = statsd.values("custody.health.checks")
    assert found["custody.health.checks.custody_default.all.unhealthy"] >= 1
    assert sum(found.values()) == len(checks)


def test_the_oldest_result_and_the_tenant(sandbox: Sandbox, tagged: StatsdServer) -> None:
    sandbox.control.update_health(lastUpdateDate="{now-600s}")
    execute(lambda: CustodyHealthCheckOperator(task_id="health", tenant_id="1", fail_when_unhealthy=False))
    (age,) = [each for each in tagged.received() if each.name == "custody.health.oldest_result_age_seconds"]
    assert age.tags == {"conn_id": "custody_default", "tenant_id": "1"}
    assert 599 < age.value < 700


@pytest.mark.parametrize(
    ("break_it", "counted"),
    [
        (lambda control: None, 1),
        (lambda control: control.set_health([]), 0),
        (lambda control: control.set_health_response({"groups": {"hsm": None}}), 0),
        (lambda control: control.update_health(check="vault", status="failed"), 0),
        (lambda control: control.add_fault("status", status=503), 0),
        (lambda control: control.add_fault("status", status=404, body={"error": "NotFound", "code": 404}), 0),
        (lambda control: control.add_fault("status", status=403), 0),
        (lambda control: control.add_fault("html"), 0),
        (lambda control: control.add_fault("drop"), 0),
    ],
)
@pytest.mark.parametrize("reads", ["task", "trigger"])
def test_whether_it_is_healthy_is_sent_whatever_happens(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer, reads: str, break_it: Any, counted: int
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=60, max_retries=0))
    break_it(sandbox.control)
    criteria = HealthCriteria.of()
    with CustodyHook() as hook, contextlib.suppress(CustodyError):
        if reads == "task":
            hook.check_health(criteria)
        else:
            fetch_health("custody_default", hook.get_conn(), [criteria])
    found = [each for each in tagged.received() if each.name == "custody.health.healthy"]
    assert [(each.value, each.type, each.tags) for each in found] == [
        (counted, "g", {"conn_id": "custody_default", "tenant_id": "all"})
    ]


def test_without_a_connection_it_is_not_healthy(tagged: StatsdServer) -> None:
    with CustodyHook("not_there") as hook, pytest.raises(CustodyError):
        hook.check_health(HealthCriteria.of(tenant_id="7"))
    assert [(each.name, each.value, each.tags["tenant_id"]) for each in tagged.received()] == [
        ("custody.health.healthy", 0, "7")
    ]


@pytest.mark.parametrize("text", [None, "2001-01-01 00:00:00Z"])
def test_an_age_that_is_not_known_is_not_sent(sandbox: Sandbox, tagged: StatsdServer, text: str | None) -> None:
    sandbox.control.update_health(check="vault", lastUpdateDate=text)
    execute(lambda: CustodyHealthCheckOperator(task_id="health"))
    assert "custody.health.oldest_result_age_seconds" not in {each.name for each in tagged.received()}
