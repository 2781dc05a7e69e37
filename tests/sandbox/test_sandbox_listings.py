"""What listings may do that the interface leaves open."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_api import Api

from airflow_custody.sandbox import Sandbox, SandboxError

REQUEST = {"label": "Treasury", "address": "0x" + "ab" * 20, "blockchain": "ETH"}
PENDING = {"includeForApproval": "true"}


@pytest.fixture
def ids(api: Api) -> list[str]:
    return [api.post("/whitelists/addresses", REQUEST).json()["result"]["id"] for _ in range(4)]


def listed(api: Api, path: str = "/whitelists/addresses", **query: Any) -> tuple[list[str], Any]:
    body = api.get(path, params={**PENDING, **query}).json()
    return [each["id"] for each in body.get("result", ())], body.get("totalItems")


@pytest.mark.parametrize("path", ["/whitelists/addresses", "/whitelists/addresses/for-approval"])
def test_whitelist(api: Api, sandbox: Sandbox, ids: list[str], path: str) -> None:
    control = sandbox.control
    control.configure(listings={"whitelist": {"page_size": 3}})
    assert listed(api, path, limit=100) == (ids[:3], "4")
    assert listed(api, path, limit=2, offset=1) == (ids[1:3], "4")
    control.configure(listings={"whitelist": {"orders": [[ids[2], ids[0], "7"], []], "totals": ["9", None, "x"]}})
    assert listed(api, path) == ([ids[2], ids[0]], "9")
    assert listed(api, path) == ([], None)
    assert listed(api, path) == ([], "x")
    control.configure(listings={"whitelist": {"ignored": ["offset", "ids"]}})
    assert listed(api, path, offset=2, limit=3, ids=ids[3]) == (ids[:3], "4")
    control.configure(listings={"whitelist": {}})
    assert listed(api, path, offset=2, ids=ids[3:]) == ([], "1")


def test_webhooks(api: Api, sandbox: Sandbox) -> None:
    a, b, c = (sandbox.control.add_webhook()["id"] for _ in range(3))
    first = {"cursor.pageRequest": "FIRST", "cursor.pageSize": "100"}

    def webhooks(**query: str) -> tuple[list[str], dict[str, Any]]:
        body = api.get("/webhooks", params={**first, **query}).json()
        return [each["id"] for each in body.get("webhooks", ())], body["cursor"]

    sandbox.control.configure(listings={"webhooks": {"page_size": 2}})
    found, cursor = webhooks()
    following = {"cursor.pageRequest": "NEXT", "cursor.currentPage": cursor["currentPage"]}
    assert (found, cursor["hasNext"]) == ([a, b], True)
    assert webhooks(**following)[0] == [c]
    sandbox.control.configure(listings={"webhooks": {"page_size": 2, "orders": [[c, b, a], [b, a]]}})
    assert webhooks()[0] == [c, b]
    assert webhooks(**following)[0] == []
    sandbox.control.configure(listings={"webhooks": {"page_size": 2, "ignored": ["cursor", "type", "sortOrder"]}})
    assert webhooks(**following, type="other", sortOrder="DESC")[0] == [a, b]


def test_webhook_calls(api: Api, sandbox: Sandbox) -> None:
    for number in "123":
        sandbox.control.add_webhook_call(id=number, webhookId="w", eventId=f"e{number}", status="failed")
    sandbox.control.add_webhook_call(tenant_id="2", id="4")

    def calls(**query: str) -> list[str]:
        return [each["id"] for each in api.get("/webhooks/calls", params=query).json().get("calls", ())]

    assert calls() == ["3", "2", "1"]
    assert calls(sortOrder="ASC", webhookID="w", status="failed") == ["1", "2", "3"]
    assert calls(eventID="e2") == ["2"]
    assert calls(webhookID="v") == []
    sandbox.control.configure(
        listings={"webhook-calls": {"ignored": ["webhookID", "sortOrder"], "orders": [["2", "1"]]}}
    )
    assert calls(webhookID="v", sortOrder="ASC") == ["2", "1"]


def test_a_reset_ends_it_and_other_names_are_refused(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(listings={"webhooks": {"orders": [["x"]]}})
    sandbox.control.reset()
    sandbox.control.add_webhook()
    assert len(api.get("/webhooks").json()["webhooks"]) == 1
    with pytest.raises(SandboxError):
        sandbox.control.configure(listings={"users": {}})
    with pytest.raises(SandboxError):
        sandbox.control.configure(listings={"webhooks": {"page_size": 0}})
