"""The checks of a connection, as a program uses them."""

from __future__ import annotations

from airflow_custody.client import CustodyClient
from airflow_custody.client.checks import CHECKS, Check, check_connection
from airflow_custody.client.errors import CustodyPermissionError
from airflow_custody.sandbox import Sandbox


def test_each_check_has_a_result_in_order(client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.configure(not_offered=["GET /currencies", "GET /config/tenant"], computes_enforced=False)
    report = check_connection(client)
    assert tuple(report.checks) == CHECKS
    assert report.failures == []
    assert (report.user and report.user["id"]) == "1"
    assert report.checks["health listing"].detail.startswith(f"{len(report.listing or ())} checks; ")
    paths = ["/health", "/users/me", "/config/tenant", "/users/me", "/currencies"]
    assert [each["path"] for each in sandbox.control.request_log()] == [f"/api/rest/v1{path}" for path in paths]


def test_a_missing_role_is_the_failure_of_one_check(client: CustodyClient) -> None:
    report = check_connection(client, ["Admin", "Auditor"])
    (failure,) = report.failures
    assert isinstance(failure, CustodyPermissionError)
    assert {name for name, each in report.checks.items() if each.state == "failed"} == {"roles"}
    found = report.checks["roles"]
    assert found.code == "role-missing"
    assert found.error == failure
    assert found.advice == failure.advice


def test_findings_are_printable_and_bounded() -> None:
    hostile = "\x1b[2J\u202e" + "x" * 9000
    found = Check("ok", hostile, hostile)
    assert not {"\x1b", "\u202e"} & {*found.detail, *found.advice}
    assert len(found.detail) <= 3000
    assert len(found.advice) <= 600
