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


def test_an_event_is_a_call_to_each_enabled_webhook_of_its_type(sandbox: Sandbox) -> None:
    add = sandbox.control.add_webhook
    hooks = [add(type=TYPE)["id"], add(type=TYPE, timeout_until="2999-01-01T00:00:00Z")["id"]]
    add(type="currencyStatus.updated")
    add(type=TYPE, status="disabled")
    sent = sandbox.control.send_event(TYPE, {"requestId": 7})
    assert [each["webhookId"] for each in sent] == hooks
    assert {*sent[0]} == {"id", "eventId", "webhookId", "payload", "status", "attempts", "createdAt", "updatedAt"}
    payload = {"type": TYPE, "createdAt": sent[0]["createdAt"], "data": {"requestId": 7}}
    assert sent[0]["payload"] == json.dumps(payload, separators=(",", ":"))
