from __future__ import annotations

import json
from typing import Any

import pytest
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox

TYPE = "requestStatus.updated"
FUTURE = "2999-01-01T00:00:00Z"


def listed(api: Api, **query: str) -> list[dict[str, Any]]:
    response = api.get("/webhooks/calls", params={"sortOrder": "ASC", "cursor.pageSize": "100", **query})
    found: list[dict[str, Any]] = response.json().get("calls", [])
    return found


def test_an_event_is_a_call_to_each_webhook_of_its_type(sandbox: Sandbox, api: Api) -> None:
    hooks = [sandbox.control.add_webhook(type=TYPE)["id"] for _ in range(2)]
    sandbox.control.add_webhook(type="currencyStatus.updated")
    sandbox.control.add_webhook(type=TYPE, tenant_id="2")
    sent = sandbox.control.send_event(TYPE, {"requestId": "7"}, event_id="e")
    assert [each["webhookId"] for each in sent] == hooks
    assert listed(api) == sent
    call = sent[0]
    assert set(call) == {"id", "eventId", "webhookId", "payload", "status", "attempts", "createdAt", "updatedAt"}
    assert (call["eventId"], json.loads(call["payload"])) == ("e", {"requestId": "7"})
    assert listed(api, webhookID=hooks[1]) == sent[1:]
    assert listed(api, eventID="other") == []
    other = sandbox.control.send_event(TYPE, "text", status="failed")
    assert other[0]["eventId"] != "e"
    assert listed(api, status="failed") == other


@pytest.mark.parametrize(
    ("state", "writes"),
    [({}, True), ({"status": "disabled"}, False), ({"timeout_until": FUTURE}, True), ({"status": "cooldown"}, True)],
    ids=str,
)
def test_whether_a_webhook_gets_calls(sandbox: Sandbox, state: dict[str, Any], writes: bool) -> None:
    sandbox.control.add_webhook(type=TYPE, **state)
    assert bool(sandbox.control.send_event(TYPE, {})) is writes


def test_calls_are_listed_by_creation(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.add_webhook(type=TYPE)
    sandbox.control.add_webhook_call(id="a", createdAt="2026-01-02T00:00:00Z")
    sandbox.control.add_webhook_call(id="b", createdAt="2026-01-02T00:00:00.5Z")
    (now,) = sandbox.control.send_event(TYPE, {})
    (late,) = sandbox.control.send_event(TYPE, {}, age=100)
    assert [each["id"] for each in listed(api)] == ["a", "b", late["id"], now["id"]]
    assert [each["id"] for each in listed(api, sortOrder="DESC")] == [now["id"], late["id"], "b", "a"]
    sandbox.control.configure(calls={"order": "written"})
    assert [each["id"] for each in listed(api)] == ["a", "b", now["id"], late["id"]]


@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_pages(sandbox: Sandbox, api: Api, refused: Refused, order: str) -> None:
    sandbox.control.configure(calls={"resolution": 0.01})
    ids = sandbox.control.add_webhook_calls(5, spacing=0.004)
    ids = ids if order == "ASC" else ids[::-1]

    def page(request: str, current: str = "") -> tuple[list[str], dict[str, Any]]:
        query = {"sortOrder": order, "cursor.pageSize": "2", "cursor.pageRequest": request}
        query |= {"cursor.currentPage": current} if current else {}
        body = api.get("/webhooks/calls", params=query).json()
        return [each["id"] for each in body.get("calls", ())], body["cursor"]

    first, cursor = page("FIRST")
    assert first == ids[:2]
    assert "hasPrevious" not in cursor
    second, cursor = page("NEXT", cursor["currentPage"])
    assert (second, cursor["hasNext"], cursor["hasPrevious"]) == (ids[2:4], True, True)
    back, at_first = page("PREVIOUS", cursor["currentPage"])
    assert (back, at_first["hasNext"]) == (ids[:2], True)
    assert "hasPrevious" not in at_first
    third, cursor = page("NEXT", cursor["currentPage"])
    assert third == ids[4:]
    assert "hasNext" not in cursor
    last, cursor = page("LAST")
    assert last == ids[4:]
    assert "hasNext" not in cursor
    for current in ("x", "", "W10="):
        query = {"cursor.pageRequest": "NEXT", "cursor.currentPage": current}
        refused(api.get("/webhooks/calls", params=query), 400)
