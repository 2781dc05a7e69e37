from __future__ import annotations

import uuid
from typing import Any

import pytest
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox, SandboxError

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


def test_a_new_status_ends_the_time_out(api: Api, sandbox: Sandbox) -> None:
    hook = sandbox.control.add_webhook(status="cooldown", timeout_until="2030-01-01T00:00:00Z")
    assert hook["timeoutUntil"] == "2030-01-01T00:00:00Z"
    assert "timeoutUntil" not in api.patch(f"/webhooks/{hook['id']}", {"status": "enabled"}).json()["webhook"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"status": "paused"},
        {"status": "Enabled"},
        {"status": None},
        {"status": True},
        {"status": "enabled", "url": "x"},
        [],
    ],
)
def test_only_the_status_can_be_changed(api: Api, sandbox: Sandbox, refused: Refused, body: Any) -> None:
    hook = sandbox.control.add_webhook()
    refused(api.patch(f"/webhooks/{hook['id']}", body), 400)
    assert sandbox.control.webhooks()[0]["updatedAt"] == hook["updatedAt"]


def test_delete(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    hook, other = sandbox.control.add_webhook(), sandbox.control.add_webhook()
    response = api.delete(f"/webhooks/{hook['id'].upper()}")
    assert response.status_code == 200
    assert response.json() == {}
    refused(api.delete(f"/webhooks/{hook['id']}"), 404)
    refused(api.patch(f"/webhooks/{hook['id']}", {"status": "enabled"}), 404)
    assert [one["id"] for one in sandbox.control.webhooks()] == [other["id"]]


UUID = uuid.UUID("3f0c6a52-5f0e-4c5c-9e0b-0d7a1f6f2b64")


@pytest.mark.parametrize("wrong", ["x", "1", str(UUID)[:-1], f"{{{UUID}}}", UUID.hex])
def test_not_a_uuid(api: Api, refused: Refused, wrong: str) -> None:
    refused(api.delete(f"/webhooks/{wrong}"), 400)
    refused(api.patch(f"/webhooks/{wrong}", {"status": "enabled"}), 400)


def test_webhooks_of_other_tenants_are_not_found(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    hook = sandbox.control.add_webhook(tenant_id="2")
    refused(api.delete(f"/webhooks/{hook['id']}"), 404)
    refused(api.patch(f"/webhooks/{hook['id']}", {"status": "disabled"}), 404)
    assert "webhooks" not in api.get("/webhooks").json()
    assert sandbox.control.webhooks()[0]["tenantId"] == "2"


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


@pytest.mark.parametrize(
    "body",
    [
        {"type": "unheard", "url": "https://example.com"},
        {"url": "https://example.com"},
        {"type": TYPES[0]},
        {"type": TYPES[0], "url": "http://example.com"},
        {"type": TYPES[0], "url": "https://"},
        {"type": TYPES[0], "url": 3},
        {"type": TYPES[0], "url": "https://example.com", "secret": "s" * 151},
    ],
)
def test_create_refused(api: Api, refused: Refused, body: Any) -> None:
    refused(api.post("/webhooks", body), 400)
    assert "webhooks" not in api.get("/webhooks").json()


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


@pytest.mark.parametrize(
    "query",
    [
        "cursor.pageRequest=NEXT",
        "cursor.pageRequest=NEXT&cursor.currentPage=%2A",
        "cursor.pageRequest=PREVIOUS&cursor.currentPage=eA==",
        "cursor.pageRequest=THIRD",
        "cursor.pageSize=101",
        "cursor.pageSize=-1",
        "sortOrder=UP",
    ],
)
def test_bad_page(api: Api, refused: Refused, query: str) -> None:
    refused(api.get(f"/webhooks?{query}"), 400)


def test_calls(api: Api, refused: Refused) -> None:
    response = api.get("/webhooks/calls?eventID=1&webhookID=2&status=x&cursor.pageSize=5")
    assert response.status_code == 200
    assert set(response.json()) == {"cursor"}
    refused(api.get("/webhooks/calls?cursor.pageSize=x"), 400)


def test_known_id(sandbox: Sandbox) -> None:
    number = "3F1C1F0E-6C1B-4C57-9D0E-6A3C5F3F0B11"
    assert sandbox.control.add_webhook(id=number)["id"] == number.lower()
    with pytest.raises(SandboxError, match="already"):
        sandbox.control.add_webhook(id=number)
