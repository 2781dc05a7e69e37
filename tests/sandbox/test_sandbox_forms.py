"""The published forms of requests and responses, and of pages."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

import pytest
from support.service.sandbox_api import ETH, PATH, Api, refused

from airflow_custody.sandbox import Sandbox

ADA = "addr1vx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzers66hrl8"
TYPE = "requestStatus.updated"


def test_health(api: Api) -> None:
    groups = api.get("/health").json()["groups"]
    assert set(groups) == {"hsm", "blockchain", "database"}
    for name, group in groups.items():
        for entry in group["healthChecks"]:
            assert entry["group"] == name
            assert entry["tenantId"] in ("1", "2")
            assert entry["status"] == entry["report"]["status"] == "success"
            assert str(uuid.UUID(entry["componentId"])) == entry["componentId"]
    assert api.get("/health?tenantId=9").json() == {}


@pytest.mark.parametrize(("version", "status"), [("3.13", 404), ("3.9.12", 404), ("3.14", 200), ("4", 200)])
def test_health_came_with_a_version(api: Api, sandbox: Sandbox, version: str, status: int) -> None:
    sandbox.control.configure(version=version)
    assert api.get("/health").status_code == status
    assert api.get("/users/me").status_code == 200


def test_the_current_user(api: Api, sandbox: Sandbox) -> None:
    nobody = sandbox.control.add_token(roles=[], tenant_id="7", user_id="9")
    me = {"id": "9", "tenantId": "7", "externalUserId": "user-9@example.test", "status": "active"}
    assert api.get("/users/me", token=nobody).json() == {"result": me}


def test_the_current_user_and_the_rules_in_force(api: Api, sandbox: Sandbox) -> None:
    def enforced(token: str) -> dict[str, Any]:
        user = api.get("/users/me?checkEnforcedInRules=true", token=token).json()["result"]
        return {name: value for name, value in user.items() if name.lower().endswith("enforcedinrules")}

    ann = sandbox.control.add_signers(["ann", "bob"])[0]
    nobody = sandbox.control.add_token(roles=["TPUser"], user_id="9")
    assert enforced(ann["token"]) == {"enforcedInRules": True, "publicKeyEnforcedInRules": True}
    assert enforced(nobody) == {"enforcedInRules": False, "publicKeyEnforcedInRules": False}
    assert "enforcedInRules" not in api.get("/users/me", token=ann["token"]).json()["result"]
    sandbox.control.configure(computes_enforced=False)
    assert enforced(ann["token"]) == {}


def test_currencies(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(currencies=["ETH", "BTC/mainnet"], disabled_currencies=["DOT", "ETH/polygon"])
    listed = api.get("/currencies?showDisabled=true").json()["result"]
    chains = [each for each in listed if not each.get("isToken") and not each.get("isFiat")]
    assert [(each["blockchain"], each.get("network"), each.get("enabled")) for each in chains] == [
        ("ETH", None, True),
        ("BTC", "mainnet", True),
        ("DOT", None, None),
        ("ETH", "polygon", None),
    ]
    assert len(listed) == 6
    assert all(each.get("enabled") for each in api.get("/currencies").json()["result"])
    body = {"blockchain": "ETH", "label": "Cold store", "address": ETH}
    assert "not active" in refused(api.post(PATH, {**body, "network": "polygon"}), 400)
    assert "not active" in refused(api.post(PATH, {**body, "blockchain": "DOT"}), 400)
    assert api.post(PATH, body).status_code == 200


def test_the_configuration_of_the_tenant(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(superadmins=3, superadmin_minimum=3)
    config = {"tenantId": "1", "superAdminMinimumSignatures": "3", "protectEngineVersion": "3.20"}
    assert api.get("/config/tenant").json() == {"config": config}
    sandbox.control.configure(not_offered=["GET /config/tenant"])
    refused(api.get("/config/tenant"), 404)
    assert api.get("/currencies").status_code == 200


def test_a_link_that_cannot_be_used(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(unusable_links=["12"])
    body = {"blockchain": "ETH", "label": "Cold store", "address": ETH, "linkedInternalAddressIds": ["7", "12"]}
    assert "linked address 12 is on another blockchain, or in an omnibus wallet" in refused(api.post(PATH, body), 400)


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


def test_a_whitelisting_request(api: Api, sandbox: Sandbox) -> None:
    links: dict[str, Any] = {"linkedInternalAddressIds": ["12"], "linkedWalletIds": ["7"]}
    number = api.create(network="sepolia", memo="\u00e9\u00b5", **links)
    assert number == "3711"
    envelope = api.get(f"{PATH}/{number}").json()["result"]
    assert envelope["id"] == number
    assert envelope["tenantId"] == "1"
    assert envelope["blockchain"] == "ETH"
    assert envelope["trails"][0]["userId"] == "1"
    assert envelope["approvers"]["parallel"][0]["sequential"][0]["minimumSignatures"] == 2
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
    # Without the network, the payload has another hash.
    sandbox.control.configure(network_is_hashed=False)
    unhashed = api.get(f"{PATH}/{number}").json()["result"]
    assert "network" not in unhashed["metadata"]["payload"]
    assert unhashed["network"] == "sepolia"
    assert unhashed["metadata"]["hash"] != envelope["metadata"]["hash"]
    for wrong in ("x", "-1", "3711x", "1" * 30):
        refused(api.get(f"{PATH}/{wrong}"), 400)


def test_pending_requests_are_listed_only_if_asked_for(api: Api, sandbox: Sandbox) -> None:
    first, second = api.create(), api.create()
    assert api.get(PATH).json() == {}
    found = api.get(f"{PATH}?includeForApproval=true").json()
    assert [row["id"] for row in found["result"]] == [first, second]
    assert found["totalItems"] == "2"
    sandbox.control.set_whitelist_status(first, "approved")
    assert api.listed() == [first]
    assert api.listed(f"{PATH}/for-approval?includeAlreadySignedByUser=true") == [second]
    assert api.get(f"{PATH}?includeForApproval=true&offset=2").json() == {"totalItems": "2"}
    # Another tenant cannot read the requests.
    other = sandbox.control.add_token(roles=["TPUser", "WhitelistedAddressCreator"], tenant_id="2", user_id="8")
    refused(api.get(f"{PATH}/{first}", token=other), 404)
    assert api.get(f"{PATH}/for-approval", token=other).json() == {}


@pytest.mark.parametrize(
    "path", [f"{PATH}?includeForApproval=1&", f"{PATH}/for-approval?"], ids=["all", "for approval"]
)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "123"),
        ("ids=3712&ids=3711&ids=1", "12"),
        ("blockchain=eth", "12"),
        ("network=mainnet", "1"),
        ("query=ALPH", "1"),
        ("query=111", "2"),
        ("query=addr1&blockchain=ADA", "3"),
        ("limit=2", "12"),
        ("limit=2&offset=2", "3"),
    ],
)
def test_search(searched: Api, path: str, query: str, found: str) -> None:
    assert searched.listed(path + query) == [f"371{each}" for each in found]


def test_search_for_addresses(searched: Api) -> None:
    assert searched.listed(f"{PATH}?includeForApproval=1&addresses={ADA}&addresses={ETH}&addresses=x") == [
        "3711",
        "3713",
    ]


@pytest.fixture
def searched(api: Api) -> Api:
    """Return a service with three requests."""
    api.create(label="Alpha", network="mainnet")
    api.create(label="beta \u00e9", address="0x" + "1" * 40)
    api.create(label="gamma", blockchain="ADA", address=ADA)
    return api


def test_a_webhook(api: Api) -> None:
    body = api.post("/webhooks", {"type": TYPE, "url": "https://example.com/x", "secret": "s" * 150}).json()
    assert body["secret"] == "s" * 150
    hook = body["webhook"]
    assert "secret" not in hook
    assert str(uuid.UUID(hook["id"])) == hook["id"]
    assert api.get("/webhooks").json()["webhooks"] == [hook]
    # Only the status changes. The id may be in upper case.
    changed = api.call("PATCH", f"/webhooks/{hook['id'].upper()}", {"status": "disabled"}).json()["webhook"]
    assert changed == {**hook, "status": "disabled", "updatedAt": changed["updatedAt"]}
    assert api.call("DELETE", f"/webhooks/{hook['id']}").json() == {}
    refused(api.call("DELETE", f"/webhooks/{hook['id']}"), 404)
    refused(api.call("PATCH", f"/webhooks/{hook['id']}", {"status": "enabled"}), 404)


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


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("requestStatus.updated", {"requestId": 123, "status": "APPROVED"}),
        ("currencyStatus.updated", {"currencyId": 7, "currency": "ETH", "status": "enabled"}),
        ("transactionExternal.received", {"transactionId": 46596}),
        ("transactionInternal.received", {"transactionId": 46597}),
    ],
)
def test_the_payload_of_each_published_type(api: Api, sandbox: Sandbox, kind: str, data: dict[str, Any]) -> None:
    sandbox.control.add_webhook(type=kind)
    sandbox.control.send_event(kind)
    (call,) = api.get("/webhooks/calls").json()["calls"]
    payload = json.loads(call["payload"])
    assert list(payload) == ["type", "createdAt", "data"]
    assert (payload["type"], payload["createdAt"], payload["data"]) == (kind, call["createdAt"], data)


def test_a_webhook_that_cools_down_has_another_word(api: Api, sandbox: Sandbox) -> None:
    add = sandbox.control.add_webhook
    later = {"timeout_until": "2999-01-01T00:00:00Z"}
    hooks = [add(**later), add(status="disabled", **later), add(timeout_until="2020-01-01T00:00:00Z")]

    def words() -> list[str]:
        return [each["status"] for each in api.get("/webhooks").json()["webhooks"]]

    assert words() == ["TIMEOUT", "disabled", "enabled"]
    sandbox.control.configure(cooling_word="cooling", enabling_ends_cooling=False)
    enabled = api.call("PATCH", f"/webhooks/{hooks[0]['id']}", {"status": "enabled"}).json()["webhook"]
    assert enabled["status"] == "cooling"
    sandbox.control.configure(enabling_ends_cooling=True)
    enabled = api.call("PATCH", f"/webhooks/{hooks[0]['id']}", {"status": "enabled"}).json()["webhook"]
    assert enabled["status"] == "enabled"
    assert "timeoutUntil" not in enabled


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
