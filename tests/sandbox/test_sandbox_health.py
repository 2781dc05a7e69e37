from __future__ import annotations

import uuid
from typing import Any

import pytest
import requests
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox, SandboxError, health_entry


def entries(response: requests.Response) -> list[dict[str, Any]]:
    return [entry for group in response.json().get("groups", {}).values() for entry in group["healthChecks"]]


def test_default_listing(api: Api) -> None:
    response = api.get("/health")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    groups = response.json()["groups"]
    assert set(groups) == {"hsm", "blockchain", "database"}
    for name, group in groups.items():
        for entry in group["healthChecks"]:
            assert entry["group"] == name
            assert entry["tenantId"] in ("1", "2")
            assert entry["status"] == entry["report"]["status"] == "success"
            assert str(uuid.UUID(entry["componentId"])) == entry["componentId"]
            assert entry["report"]["name"]
    durations = [entry["report"]["duration"] for entry in entries(response)]
    for unit in ("\u00b5s", "\u03bcs", "us", "ns", "ms", "1.5s", "1m2.5s"):
        assert any(duration.endswith(unit) for duration in durations)
    assert any("vaultdClients" in entry["report"] for entry in entries(response))
    assert all("results" in entry["report"] for entry in groups["blockchain"]["healthChecks"])


def test_tenant(api: Api) -> None:
    assert {entry["tenantId"] for entry in entries(api.get("/health"))} == {"1", "2"}
    assert {entry["tenantId"] for entry in entries(api.get("/health?tenantId=2"))} == {"2"}
    assert api.get("/health?tenantId=9").json() == {}


@pytest.mark.parametrize(("version", "status"), [("3.13", 404), ("3.9.12", 404), ("2", 404), ("3.14", 200), ("4", 200)])
def test_version(api: Api, sandbox: Sandbox, refused: Refused, version: str, status: int) -> None:
    sandbox.control.configure(version=version)
    assert api.get("/health").status_code == status
    assert api.get("/users/me").status_code == 200
    if status == 404:
        refused(api.get("/health"), 404)


def test_whole_response(api: Api, sandbox: Sandbox) -> None:
    responses: list[Any] = [{}, {"groups": None}, {"groups": {"x": {"healthChecks": [1]}}}, [], "text", 3, False]
    for response in responses:
        sandbox.control.set_health_response(response)
        assert api.get("/health").json() == response
    sandbox.control.set_health_response(None)
    assert len(entries(api.get("/health"))) == 9
    sandbox.control.set_health_response({"groups": {}})
    sandbox.control.set_health([health_entry()])
    assert len(entries(api.get("/health"))) == 1


def test_update(api: Api, sandbox: Sandbox) -> None:
    control = sandbox.control
    assert control.update_health(status="failure") == 9
    assert control.update_health(group="hsm", component="hsm-1", check="vault", status="x", report=None, new=[1]) == 1
    by_id = entries(api.get("/health"))[0]["componentId"]
    assert control.update_health(component=by_id, tenantId="3") == 2
    entry = next(entry for entry in entries(api.get("/health")) if entry["healthCheck"] == "vault")
    assert entry["status"] == "x"
    assert entry["new"] == [1]
    assert "report" not in entry
    assert entry["tenantId"] == "3"
    assert {entry["status"] for entry in entries(api.get("/health?tenantId=2"))} == {"failure"}
    with pytest.raises(SandboxError, match="not found"):
        control.update_health(check="nothing", status="x")
