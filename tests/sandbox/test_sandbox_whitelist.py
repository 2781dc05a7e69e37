from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox, SandboxError

PATH = "/whitelists/addresses"
ETH = "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"
ADA = "addr1vx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzers66hrl8"


def new_request(**changes: Any) -> dict[str, Any]:
    body = {"blockchain": "ETH", "label": "Cold store", "address": ETH, **changes}
    return {name: value for name, value in body.items() if value is not ...}


def create(api: Api, **changes: Any) -> str:
    response = api.post(PATH, new_request(**changes))
    assert response.status_code == 200, response.text
    return str(response.json()["result"]["id"])


def test_create(api: Api, sandbox: Sandbox) -> None:
    response = api.post(PATH, new_request())
    assert response.status_code == 200
    assert response.json() == {"result": {"id": "3711"}}
    assert create(api) == "3712"
    assert create(api) == "3713"
    kept = sandbox.control.whitelist_requests()
    assert [one["id"] for one in kept] == ["3711", "3712", "3713"]
    assert kept[0]["body"] == new_request()
    assert kept[0]["userId"] == kept[0]["tenantId"] == "1"
    assert kept[0]["label"] == "Cold store"
    assert kept[0]["createdAt"].endswith("Z")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blockchain": ...}, "blockchain"),
        ({"blockchain": " "}, "blockchain"),
        ({"blockchain": 3}, "blockchain"),
        ({"currency": "BTC"}, "not the same"),
        ({"blockchain": "DOGE", "address": "D"}, "not active"),
        ({"label": ...}, "label"),
        ({"label": None}, "label"),
        ({"label": ""}, "label"),
        ({"label": " "}, "label"),
        ({"label": 3}, "label"),
        ({"address": ...}, "address"),
        ({"address": ""}, "address"),
        ({"address": "0x12"}, "rules of ETH"),
        ({"address": [ETH]}, "address"),
        ({"linkedInternalAddressIds": "12"}, "linkedInternalAddressIds"),
        ({"linkedInternalAddressIds": [12]}, "linkedInternalAddressIds.0"),
        ({"linkedInternalAddressIds": ["12", ""]}, "linkedInternalAddressIds.1"),
        ({"linkedWalletIds": ["0x1"]}, "linkedWalletIds.0"),
        ({"linkedWalletIds": ["-1"]}, "linkedWalletIds.0"),
        ({"linkedWalletIds": ["12\n"]}, "linkedWalletIds.0"),
        ({"linkedWalletIds": {"a": 1}}, "linkedWalletIds"),
        ({"addressType": "unheard"}, "addressType"),
        ({"memo": 12}, "memo"),
        ({"network": True}, "network"),
        ({"visibilityGroupID": 1}, "visibilityGroupID"),
    ],
)
def test_refused(api: Api, sandbox: Sandbox, refused: Refused, changes: dict[str, Any], message: str) -> None:
    assert message in refused(api.post(PATH, new_request(**changes)), 400)
    assert sandbox.control.whitelist_requests() == []


def test_get(api: Api, refused: Refused) -> None:
    number = create(api, linkedInternalAddressIds=["12"], linkedWalletIds=["7"], network="sepolia", memo="\u00e9\u00b5")
    envelope = api.get(f"{PATH}/{number}").json()["result"]
    assert envelope["id"] == number
    assert envelope["tenantId"] == "1"
    assert envelope["blockchain"] == "ETH"
    assert envelope["network"] == "sepolia"
    assert envelope["status"]
    assert envelope["action"]
    text = envelope["metadata"]["payloadAsString"]
    assert envelope["metadata"]["hash"] == hashlib.sha256(text.encode()).hexdigest()
    payload = json.loads(text)
    assert payload == envelope["metadata"]["payload"]
    assert payload["currency"] == "ETH"
    assert payload["address"] == ETH
    assert payload["label"] == "Cold store"
    assert payload["memo"] == "\u00e9\u00b5"
    assert [one["id"] for one in payload["linkedInternalAddresses"]] == ["12"]
    assert [one["id"] for one in payload["linkedWallets"]] == [7]
    assert list(payload["linkedWallets"][0]) == ["id", "name", "path"]
    assert payload["network"] == "sepolia"
    assert envelope["trails"][0]["userId"] == "1"
    assert envelope["approvers"]["parallel"][0]["sequential"][0]["minimumSignatures"] == 2
    refused(api.get(f"{PATH}/1"), 404)
    for wrong in ("x", "-1", "3711x", "1" * 30):
        refused(api.get(f"{PATH}/{wrong}"), 400)


def test_the_keys_of_a_payload_have_the_published_order(api: Api, sandbox: Sandbox) -> None:
    number = create(api, linkedWalletIds=["7"], network="sepolia")
    keys = ["currency", "network", "addressType", "address", "memo", "label", "customerId", "exchangeAccountId"]
    keys += ["linkedInternalAddresses", "linkedWallets", "contractType"]
    payload = json.loads(api.get(f"{PATH}/{number}").json()["result"]["metadata"]["payloadAsString"])
    assert list(payload) == keys


def test_the_network_is_hashed_or_only_in_the_envelope(api: Api, sandbox: Sandbox) -> None:
    number = create(api, network="sepolia")
    hashes = set()
    for is_hashed in (True, False):
        sandbox.control.configure(network_is_hashed=is_hashed)
        envelope = api.get(f"{PATH}/{number}").json()["result"]
        assert ("network" in json.loads(envelope["metadata"]["payloadAsString"])) is is_hashed
        assert envelope["network"] == "sepolia"
        hashes.add(envelope["metadata"]["hash"])
    assert len(hashes) == 2


def test_pending_requests_are_listed_only_if_asked_for(api: Api, sandbox: Sandbox) -> None:
    first, second = create(api), create(api)
    assert api.get(PATH).json() == {}
    listed = api.get(f"{PATH}?includeForApproval=true").json()
    assert [row["id"] for row in listed["result"]] == [first, second]
    assert listed["totalItems"] == "2"
    sandbox.control.set_whitelist_status(first, "approved")
    assert [row["id"] for row in api.get(PATH).json()["result"]] == [first]
    assert api.get(f"{PATH}?includeForApproval=true").json()["totalItems"] == "2"
    pending = api.get(f"{PATH}/for-approval?includeAlreadySignedByUser=true").json()
    assert [row["id"] for row in pending["result"]] == [second]
    assert pending["totalItems"] == "1"
    assert api.get(f"{PATH}/{first}").json()["result"]["status"] == "approved"
    with pytest.raises(SandboxError, match="not found"):
        sandbox.control.set_whitelist_status("1", "approved")


@pytest.mark.parametrize("path", [f"{PATH}?includeForApproval=1&", f"{PATH}/for-approval?"])
def test_search(api: Api, path: str) -> None:
    one = create(api, label="Alpha", network="mainnet")
    two = create(api, label="beta \u00e9", address="0x" + "1" * 40)
    three = create(api, label="gamma", blockchain="ADA", address=ADA)

    def found(query: str) -> list[str]:
        return [row["id"] for row in api.get(path + query).json().get("result", [])]

    assert found("") == [one, two, three]
    assert found(f"ids={two}&ids={one}&ids=1") == [one, two]
    assert found("ids=1") == []
    assert found("blockchain=eth") == [one, two]
    assert found("network=mainnet") == [one]
    assert found("query=ALPH") == [one]
    assert found("query=111") == [two]
    assert found("query=addr1&blockchain=ADA") == [three]
    assert found("limit=2") == [one, two]
    assert found("limit=2&offset=2") == [three]
    assert found("offset=9") == []
    if "for-approval" not in path:
        assert found(f"addresses={ADA}&addresses={ETH}&addresses=x") == [one, three]


def test_pages(api: Api) -> None:
    for _ in range(25):
        create(api)
    page = api.get(f"{PATH}?includeForApproval=true").json()
    assert len(page["result"]) == 20
    assert page["totalItems"] == "25"
    assert len(api.get(f"{PATH}?includeForApproval=true&limit=100").json()["result"]) == 25
    beyond = api.get(f"{PATH}?includeForApproval=true&offset=25").json()
    assert beyond == {"totalItems": "25"}


def test_tenants_do_not_see_each_other(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    number = create(api)
    other = sandbox.control.add_token(roles=["TPUser", "WhitelistedAddressCreator"], tenant_id="2", user_id="8")
    refused(api.get(f"{PATH}/{number}", token=other), 404)
    assert api.get(f"{PATH}/for-approval", token=other).json() == {}
    own = api.post(PATH, new_request(), token=other).json()["result"]["id"]
    assert api.get(f"{PATH}/{own}", token=other).json()["result"]["trails"][0]["userId"] == "8"
