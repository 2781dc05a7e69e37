"""The published forms of requests and responses, and of pages."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from support.service.sandbox_api import ETH, PATH, Api, refused

from airflow_custody.sandbox import Sandbox

TYPE = "requestStatus.updated"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blockchain": " "}, "blockchain"),
        ({"currency": "BTC"}, "differ"),
        ({"blockchain": "DOGE", "address": "D"}, "not active"),
        ({"label": " "}, "label"),
        ({"address": "0x12"}, "not a valid address on ETH"),
        ({"linkedInternalAddressIds": ["12", ""]}, "linkedInternalAddressIds.1"),
        ({"linkedWalletIds": ["-1"]}, "linkedWalletIds.0"),
        ({"linkedWalletIds": ["12\n"]}, "linkedWalletIds.0"),
        ({"addressType": "unheard"}, "addressType"),
    ],
    ids=str,
)
def test_a_malformed_whitelisting_request_is_refused(
    api: Api, sandbox: Sandbox, changes: dict[str, Any], message: str
) -> None:
    body = {"blockchain": "ETH", "label": "Cold store", "address": ETH, **changes}
    assert message in refused(api.post(PATH, body), 400)
    assert sandbox.control.whitelist_requests() == []


def test_a_whitelisting_request(api: Api) -> None:
    links: dict[str, Any] = {"linkedInternalAddressIds": ["12"], "linkedWalletIds": ["7"]}
    number = api.create(network="sepolia", memo="\u00e9\u00b5", **links)
    assert number == "3711"
    envelope = api.get(f"{PATH}/{number}").json()["result"]
    assert envelope["id"] == number
    assert envelope["tenantId"] == "1"
    assert envelope["blockchain"] == "ETH"
    assert envelope["trails"][0]["userId"] == "1"
    text = envelope["metadata"]["payloadAsString"]
    assert envelope["metadata"]["hash"] == hashlib.sha256(text.encode()).hexdigest()
    payload = json.loads(text)
    assert payload == envelope["metadata"]["payload"]
    keys = ["currency", "network", "addressType", "address", "memo", "label", "customerId", "exchangeAccountId"]
    assert list(payload) == [*keys, "linkedInternalAddresses", "linkedWallets", "contractType"]
    assert payload["address"] == ETH
    assert payload["network"] == "sepolia"
    assert payload["memo"] == "\u00e9\u00b5"
    assert [each["id"] for each in payload["linkedInternalAddresses"]] == ["12"]
    assert payload["linkedWallets"][0] == {**payload["linkedWallets"][0], "id": 7}


def test_an_event_is_a_call_to_each_webhook_of_its_type(api: Api, sandbox: Sandbox) -> None:
    add = sandbox.control.add_webhook
    hooks = [add(type=TYPE)["id"], add(type=TYPE, timeout_until="2999-01-01T00:00:00Z")["id"]]
    for other in ({"type": "currencyStatus.updated"}, {"type": TYPE, "status": "disabled"}):
        add(**other)
    add(type=TYPE, tenant_id="2")
    sent = sandbox.control.send_event(TYPE, {"requestId": 7}, event_id="e")
    assert [each["webhookId"] for each in sent] == hooks
    keys = {"id", "eventId", "webhookId", "payload", "status", "attempts", "createdAt", "updatedAt"}
    assert {*sent[0]} == keys
    assert sent[0]["eventId"] == "e"
    payload = {"type": TYPE, "createdAt": sent[0]["createdAt"], "data": {"requestId": 7}}
    assert sent[0]["payload"] == json.dumps(payload, separators=(",", ":"))
    (late, _) = sandbox.control.send_event(TYPE, payload="text", status="failed", age=100)
    assert late["payload"] == "text"
    path = f"/webhooks/calls?sortOrder=ASC&webhookID={hooks[0]}"
    # Ordered by creation.
    assert api.listed(path, "calls") == [late["id"], sent[0]["id"]]
    assert api.listed(f"{path}&status=failed", "calls") == [late["id"]]
    assert api.listed(f"{path}&eventID=other", "calls") == []


@pytest.mark.parametrize(("path", "key"), [("/webhooks", "webhooks"), ("/webhooks/calls", "calls")])
def test_pages_with_a_cursor(api: Api, sandbox: Sandbox, path: str, key: str) -> None:
    if key == "calls":
        sandbox.control.configure(calls={"resolution": 0.01})
        ids = sandbox.control.add_webhook_calls(5, spacing=0.004)
    else:
        ids = [sandbox.control.add_webhook()["id"] for _ in range(5)]

    def page(request: str, current: str = "") -> tuple[list[str], dict[str, Any]]:
        query = {"sortOrder": "ASC", "cursor.pageSize": "2", "cursor.pageRequest": request}
        body = api.get(path, params=query | ({"cursor.currentPage": current} if current else {})).json()
        return [each["id"] for each in body.get(key, ())], body["cursor"]

    first, at_first = page("FIRST")
    assert first == ids[:2]
    assert at_first == {"currentPage": at_first["currentPage"], "hasNext": True}
    second, at_second = page("NEXT", at_first["currentPage"])
    assert second == ids[2:4]
    assert at_second["hasNext"] is True
    assert at_second["hasPrevious"] is True
    third, at_third = page("NEXT", at_second["currentPage"])
    assert third == ids[4:]
    assert at_third.get("hasNext") is None
    beyond, _ = page("NEXT", at_third["currentPage"])
    assert beyond == []
    for current in ("x", "W10="):
        refused(api.get(path, params={"cursor.pageRequest": "NEXT", "cursor.currentPage": current}), 400)
