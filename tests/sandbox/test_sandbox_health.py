from __future__ import annotations

import re
import time
import uuid
from datetime import datetime, timezone

import pytest
import requests

from airflow_custody.sandbox import SandboxError, health_entry


def entries(answer):
    return [entry for group in answer.json().get("groups", {}).values() for entry in group["healthChecks"]]


def moment(text):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", text)
    return datetime.fromisoformat(text[:26]).replace(tzinfo=timezone.utc).timestamp()


def test_default_listing(api):
    answer = api.get("/health")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    groups = answer.json()["groups"]
    assert set(groups) == {"hsm", "blockchain", "database"}
    for name, group in groups.items():
        for entry in group["healthChecks"]:
            assert entry["group"] == name
            assert entry["tenantId"] in ("1", "2")
            assert entry["status"] == entry["report"]["status"] == "success"
            assert str(uuid.UUID(entry["componentId"])) == entry["componentId"]
            assert entry["report"]["name"]
    durations = [entry["report"]["duration"] for entry in entries(answer)]
    for unit in ("\u00b5s", "\u03bcs", "us", "ns", "ms", "1.5s", "1m2.5s"):
        assert any(duration.endswith(unit) for duration in durations)
    assert any("vaultdClients" in entry["report"] for entry in entries(answer))
    assert all("results" in entry["report"] for entry in groups["blockchain"]["healthChecks"])


def test_dates_keep_moving(api):
    first, second = entries(api.get("/health"))[0], entries(api.get("/health"))[0]
    assert moment(first["lastUpdateDate"]) < moment(second["lastUpdateDate"]) < time.time()
    assert time.time() < moment(first["validUntilDate"]) < moment(second["validUntilDate"])


def test_dates_can_be_pinned(api, sandbox):
    sandbox.control.update_health(group="hsm", validUntilDate="2020-01-01T00:00:00Z", lastUpdateDate="{now}")
    for entry in entries(api.get("/health")):
        if entry["group"] == "hsm":
            assert entry["validUntilDate"] == "2020-01-01T00:00:00Z"
            assert moment(entry["lastUpdateDate"]) == pytest.approx(time.time(), abs=1)
        else:
            assert moment(entry["validUntilDate"]) > time.time()


def test_tenant(api):
    assert {entry["tenantId"] for entry in entries(api.get("/health"))} == {"1", "2"}
    assert {entry["tenantId"] for entry in entries(api.get("/health?tenantId=2"))} == {"2"}
    assert api.get("/health?tenantId=9").json() == {}
    assert api.get("/health/all?tenantId=9").json() == {}
    assert api.get("/health/hsm?tenantId=9").json() == {}


def test_by_component(api):
    components = api.get("/health/all").json()["components"]
    assert set(components) == {"hsm-1", "hsm-2", "chain-gateway", "database"}
    checks = components["hsm-1"]["groups"]["hsm"]["healthChecks"]
    assert [entry["healthCheck"] for entry in checks] == ["connectivity", "vault"]


def test_group_and_check(api, refused):
    healths = api.get("/health/database").json()["healths"]
    assert [entry["healthCheck"] for entry in healths] == ["ping", "replication", "ping"]
    assert api.get("/health/database/ping").json()["health"]["tenantId"] == "1"
    assert api.get("/health/database/ping?tenantId=2").json()["health"]["tenantId"] == "2"
    refused(api.get("/health/nothing"), 404)
    refused(api.get("/health/database/nothing"), 404)
    refused(api.get("/health/hsm/vault?tenantId=2"), 404)


@pytest.mark.parametrize("path", ["", "/all", "/hsm", "/hsm/vault"])
def test_fail_if_unhealthy(api, sandbox, refused, path):
    assert api.get(f"/health{path}?failIfUnhealthy=true").status_code == 200
    sandbox.control.update_health(check="vault", status="failure")
    assert "hsm/vault of hsm-1" in refused(api.get(f"/health{path}?failIfUnhealthy=true"), 503)
    assert api.get(f"/health{path}?failIfUnhealthy=false").status_code == 200
    assert api.get("/health?tenantId=2&failIfUnhealthy=true").status_code == 200
    assert api.get("/health/database?failIfUnhealthy=true").status_code == 200
    sandbox.control.update_health(check="vault", status="HEALTHY")
    assert api.get(f"/health{path}?failIfUnhealthy=true").status_code == 200


def test_bad_query(api, refused):
    assert "failIfUnhealthy" in refused(api.get("/health?failIfUnhealthy=perhaps"), 400)


@pytest.mark.parametrize(("version", "status"), [("3.13", 404), ("3.9.12", 404), ("2", 404), ("3.14", 200), ("4", 200)])
def test_version(api, sandbox, refused, version, status):
    sandbox.control.set_version(version)
    for path in ("", "/all", "/hsm", "/hsm/vault"):
        assert api.get(f"/health{path}").status_code == status
    assert api.get("/users/me").status_code == 200
    if status == 404:
        refused(api.get("/health"), 404)


def test_entries_are_shown_as_they_are(api, sandbox):
    strange = [
        {"group": "a"},
        {"group": "a", "status": None, "tenantId": 1, "report": None, "more": [1, {"x": 2.5}]},
        {"group": "b \u00b5", "report": {"duration": 12, "results": {}}, "validUntilDate": 0, "lastUpdateDate": ""},
    ]
    sandbox.control.set_health(strange)
    shown = api.get("/health").json()["groups"]
    assert shown == {"a": {"healthChecks": strange[:2]}, "b \u00b5": {"healthChecks": strange[2:]}}
    assert entries(api.get("/health?tenantId=1")) == [strange[1]]
    sandbox.control.set_health([])
    assert api.get("/health").json() == {}


def test_whole_answer(api, sandbox):
    for answer in ({}, {"groups": None}, {"groups": {"x": {"healthChecks": [1]}}}, [], "text", 3, False):
        sandbox.control.set_health_answer(answer)
        assert api.get("/health").json() == answer
    sandbox.control.set_health_answer(None)
    assert len(entries(api.get("/health"))) == 9
    sandbox.control.set_health_answer({"groups": {}})
    sandbox.control.set_health([health_entry()])
    assert len(entries(api.get("/health"))) == 1


def test_update(api, sandbox):
    control = sandbox.control
    assert control.update_health(status="failure") == 9
    assert control.update_health(group="hsm", component="hsm-1", check="vault", status="x", report=None, new=[1]) == 1
    by_id = entries(api.get("/health"))[0]["componentId"]
    assert control.update_health(component=by_id, tenantId="3") == 2
    entry = api.get("/health/hsm/vault").json()["health"]
    assert entry["status"] == "x"
    assert entry["new"] == [1]
    assert "report" not in entry
    assert entry["tenantId"] == "3"
    assert api.get("/health/hsm?tenantId=2").json()["healths"][0]["status"] == "failure"
    with pytest.raises(SandboxError, match="not found"):
        control.update_health(check="nothing", status="x")


def test_entries_need_a_group(sandbox):
    for entry in ({}, {"group": None}, {"group": 3}):
        with pytest.raises(SandboxError, match="group"):
            sandbox.control.set_health([entry])
    answer = requests.patch(f"{sandbox.url}/sandbox/health", json={"fields": {"group": None}}, timeout=10)
    assert answer.status_code == 400


def test_health_entry():
    entry = health_entry(
        "g", "c", "k", results={"ETH": "down"}, report={"duration": None}, status="failure", tenantId=None
    )
    assert entry["report"] == {"name": "k", "status": "success", "results": {"ETH": "down"}}
    assert entry["status"] == "failure"
    assert "tenantId" not in entry


def test_a_long_listing_is_quick(api, sandbox):
    sandbox.control.set_health([health_entry(f"g{i % 10}", f"c{i % 100}", f"k{i}") for i in range(10_000)])
    api.get("/health")
    begin = time.perf_counter()
    answer = api.get("/health")
    took = time.perf_counter() - begin
    assert len(entries(answer)) == 10_000
    assert took < 1


def test_many_different_questions(api):
    for tenant in range(70):
        assert api.get(f"/health?tenantId={tenant + 10}").json() == {}
    assert len(entries(api.get("/health"))) == 9
