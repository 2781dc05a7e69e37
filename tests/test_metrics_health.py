"""What is measured of the service's health, received by a StatsD server over a real socket."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from airflow_runs import execute
from connections import connection_json
from statsd_server import StatsdServer

from airflow_custody.client import CustodyError
from airflow_custody.client.health.verdict import HealthCriteria, HealthWait
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.health import _fetch as fetch_health

pytestmark = pytest.mark.usefixtures("connection")


def test_the_whole_listing_counts_whatever_a_task_is_about(sandbox: Sandbox, statsd: StatsdServer) -> None:
    sandbox.control.update_health(group="hsm", status="failure")
    execute(lambda: CustodyHealthCheckOperator(task_id="health", groups=["database"], tenant_id="1"))
    assert statsd.values("custody.health") == {"custody.health.healthy.custody_default.1": 0}


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
            fetch_health("custody_default", hook.get_conn(), [HealthWait(criteria)])
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
