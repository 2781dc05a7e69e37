from __future__ import annotations

import uuid
from typing import Any

from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox

TYPES = [
    "requestStatus.updated",
    "transactionExternal.received",
    "transactionInternal.received",
    "currencyStatus.updated",
]


def test_set_status(api: Api, sandbox: Sandbox) -> None:
    hook = sandbox.control.add_webhook(type=TYPES[1], url="https://example.com/a")
    assert hook["status"] == "enabled"
    for status in ("disabled", "disabled", "enabled", "enabled"):
        response = api.patch(f"/webhooks/{hook['id']}", {"status": status})
        assert response.status_code == 200
        webhook = response.json()["webhook"]
        assert webhook["status"] == status
        assert {**webhook, "updatedAt": hook["updatedAt"], "status": "enabled"} == hook
        assert sandbox.control.webhooks()[0]["status"] == status


def test_delete(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    hook, other = sandbox.control.add_webhook(), sandbox.control.add_webhook()
    response = api.delete(f"/webhooks/{hook['id'].upper()}")
    assert response.status_code == 200
    assert response.json() == {}
    refused(api.delete(f"/webhooks/{hook['id']}"), 404)
    refused(api.patch(f"/webhooks/{hook['id']}", {"status": "enabled"}), 404)
    assert [one["id"] for one in sandbox.control.webhooks()] == [other["id"]]


UUID = uuid.UUID("3f0c6a52-5f0e-4c5c-9e0b-0d7a1f6f2b64")


def test_create(api: Api) -> None:
    response = api.post("/webhooks", {"type": TYPES[0], "url": "https://example.com/x", "secret": "s" * 150})
    assert response.status_code == 200
    body = response.json()
    assert body["secret"] == "s" * 150
    assert body["webhook"]["status"] == "enabled"
    assert "secret" not in body["webhook"]
    uuid.UUID(body["webhook"]["id"])
    assert api.get("/webhooks").json()["webhooks"] == [body["webhook"]]
    assert api.post("/webhooks", {"type": TYPES[0], "url": "https://example.com/x"}).json()["secret"]


def test_list_and_filter(api: Api, sandbox: Sandbox) -> None:
    hooks = [sandbox.control.add_webhook(type=TYPES[i % 2], url=f"https://example.com/{i % 3}") for i in range(6)]
    numbers = [hook["id"] for hook in hooks]

    def found(query: str = "") -> list[str]:
        return [hook["id"] for hook in api.get(f"/webhooks?{query}").json().get("webhooks", [])]

    assert found() == numbers
    assert found("sortOrder=DESC") == numbers[::-1]
    assert found(f"type={TYPES[1]}") == numbers[1::2]
    assert found("url=https://example.com/2") == numbers[2::3]
    assert found(f"type={TYPES[0]}&url=https://example.com/2") == numbers[2:3]
    assert found("type=nothing") == []


def test_pages(api: Api, sandbox: Sandbox) -> None:
    numbers = [sandbox.control.add_webhook()["id"] for _ in range(5)]

    def page(request: str, current: str | None = None) -> tuple[list[str], dict[str, Any]]:
        query = {"cursor.pageRequest": request, "cursor.pageSize": 2, "cursor.currentPage": current}
        body = api.get("/webhooks", params=query).json()
        return [hook["id"] for hook in body.get("webhooks", [])], body["cursor"]

    first, cursor = page("FIRST")
    assert first == numbers[:2]
    assert cursor == {"currentPage": cursor["currentPage"], "hasNext": True}
    second, cursor = page("NEXT", cursor["currentPage"])
    assert second == numbers[2:4]
    assert cursor["hasNext"]
    assert cursor["hasPrevious"]
    third, cursor = page("NEXT", cursor["currentPage"])
    assert third == numbers[4:]
    assert "hasNext" not in cursor
    assert page("LAST") == (third, cursor)
    assert page("PREVIOUS", cursor["currentPage"])[0] == second
    beyond, cursor = page("NEXT", cursor["currentPage"])
    assert beyond == []
    assert cursor["hasPrevious"]
