from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any

import httpx
import pytest
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.faults.middleware import FaultMiddleware
from airflow_custody.sandbox.server import build_app
from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.state import State

ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}
WEBHOOK = "/webhooks/3f1c1f0e-6c1b-4c57-9d0e-6a3c5f3f0b11"

OPERATIONS = [
    ("GET", "/health", None, ["TPUser"]),
    ("POST", "/whitelists/addresses", ADDRESS, ["WhitelistedAddressCreator", "TPUser"]),
    ("GET", "/whitelists/addresses", None, ["TPUser"]),
    ("GET", "/whitelists/addresses/for-approval", None, ["TPUser"]),
    ("GET", "/whitelists/addresses/1", None, ["TPUser"]),
    ("PATCH", WEBHOOK, {"status": "enabled"}, ["Admin"]),
    ("DELETE", WEBHOOK, None, ["Admin"]),
    ("POST", "/webhooks", {"type": "requestStatus.updated", "url": "https://example.com"}, ["Admin"]),
    ("GET", "/statistics/for-approval", None, ["TPUser"]),
    ("GET", "/users/me", None, []),
    ("GET", "/rules", None, []),
]
ALL_ROLES = ["TPUser", "WhitelistedAddressCreator", "WhitelistedAddressApprover", "Admin"]


@pytest.mark.parametrize(("method", "path", "body", "roles"), OPERATIONS)
def test_roles(
    api: Api, sandbox: Sandbox, refused: Refused, method: str, path: str, body: Any, roles: list[str]
) -> None:
    enough = sandbox.control.add_token(roles=roles)
    assert api.call(method, path, json=body, token=enough).status_code in (200, 404)
    for role in roles:
        others = [one for one in ALL_ROLES if one != role]
        response = api.call(method, path, json=body, token=sandbox.control.add_token(roles=others))
        message = refused(response, 403)
        assert role in message
        assert not any(other in message for other in others)


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/calls"])
def test_either_of_two_roles(api: Api, sandbox: Sandbox, refused: Refused, path: str) -> None:
    for role in ("Admin", "AdminReadOnly"):
        assert api.get(path, token=sandbox.control.add_token(roles=[role])).status_code == 200
    others = [one for one in ALL_ROLES if one != "Admin"]
    message = refused(api.get(path, token=sandbox.control.add_token(roles=others)), 403)
    assert message == "permission denied: missing role Admin or AdminReadOnly"
    assert "bearer" in refused(api.get(path, headers={"Authorization": "Basic eA=="}), 401)


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_who_may_only_read_changes_nothing(api: Api, sandbox: Sandbox, refused: Refused, method: str) -> None:
    token = sandbox.control.add_token(roles=["AdminReadOnly"])
    body = {"status": "disabled"} if method == "PATCH" else None
    path = f"/webhooks/{sandbox.control.add_webhook()['id']}"
    assert "missing role Admin" in refused(api.call(method, path, json=body, token=token), 403)
    (webhook,) = sandbox.control.webhooks()
    assert webhook["status"] == "enabled"


@pytest.mark.parametrize(("method", "path", "body", "roles"), OPERATIONS)
def test_no_token(
    api: Api, sandbox: Sandbox, refused: Refused, method: str, path: str, body: Any, roles: list[str]
) -> None:
    assert "bearer" in refused(api.call(method, path, json=body, headers={"Authorization": "Basic eA=="}), 401)


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Basic abc", "nonsense", "Bearer unknown", "Bearer \xe9"]
)
def test_malformed_or_unknown_token(api: Api, refused: Refused, authorization: str) -> None:
    refused(api.get("/health", headers={"Authorization": authorization.encode("latin-1")}), 401)


def test_missing_header(api: Api, refused: Refused) -> None:
    api.token = None
    refused(api.get("/health"), 401)


def test_the_scheme_is_case_insensitive(api: Api, sandbox: Sandbox) -> None:
    assert api.get("/health", headers={"Authorization": f"bearer {sandbox.token}"}).status_code == 200


def test_several_missing_roles_are_all_named(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    message = refused(api.post("/whitelists/addresses", ADDRESS, token=sandbox.control.add_token(roles=[])), 403)
    assert "WhitelistedAddressCreator" in message
    assert "TPUser" in message


def test_the_caller_is_checked_before_the_body(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    without_roles = sandbox.control.add_token(roles=[])
    refused(api.call("POST", "/whitelists/addresses", data=b"{", token=without_roles), 403)
    refused(api.call("POST", "/whitelists/addresses", data=b"{", token="unknown"), 401)


@pytest.mark.parametrize("jwt", [False, True])
def test_expired_token(api: Api, sandbox: Sandbox, refused: Refused, jwt: bool) -> None:
    short = sandbox.control.add_token(roles=["TPUser"], expires_in=0.2, jwt=jwt)
    assert api.get("/health", token=short).status_code == 200
    time.sleep(0.21)
    assert "expired" in refused(api.get("/health", token=short), 401)
    refused(api.get("/health", token=sandbox.control.add_token(roles=["TPUser"], expires_in=-1, jwt=jwt)), 401)


def test_jwt_claims(api: Api, sandbox: Sandbox) -> None:
    token = sandbox.control.add_token(roles=["TPUser", "Admin"], tenant_id="7", user_id="9", expires_in=60, jwt=True)
    head, claims, signature = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    assert json.loads(head) == {"alg": "HS256", "typ": "JWT"}
    assert len(signature) == 32
    decoded = json.loads(claims)
    assert decoded["roles"] == ["tpuser", "admin"]
    assert decoded["sub"] == "9"
    assert decoded["exp"] == pytest.approx(time.time() + 60, abs=3)
    assert api.get("/health", token=token).status_code == 200
    default = json.loads(base64.urlsafe_b64decode(sandbox.control.add_token([], jwt=True).split(".")[1] + "=="))
    assert default["exp"] == pytest.approx(time.time() + 1800, abs=3)


def test_current_user(api: Api, sandbox: Sandbox) -> None:
    token = sandbox.control.add_token(roles=["TPUser"], tenant_id="7", user_id="9")
    me = {
        "id": "9",
        "tenantId": "7",
        "externalUserId": "user-9@example.test",
        "roles": ["TPUser"],
        "status": "active",
    }
    assert api.get("/users/me", token=token).json() == {"result": me}
    assert set(api.get("/users/me").json()["result"]["roles"]) == set(ALL_ROLES)
    nobody = sandbox.control.add_token(roles=[])
    assert "roles" not in api.get("/users/me", token=nobody).json()["result"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/nothing",
        "/health/",
        "/health/a/b/c",
        "/users",
        "/authentication",
        "/whitelists",
        "/webhooks/a/b",
    ],
)
def test_unknown_route(api: Api, refused: Refused, path: str) -> None:
    refused(api.get(path), 404)


def test_paths_outside_the_service(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    refused(api.session.get(sandbox.url + "/"), 404)
    refused(api.session.get(sandbox.url + "/sandboxes"), 404)
    refused(api.session.get(sandbox.url + "/sandbox/nothing"), 404)
    refused(api.session.get(sandbox.url + "/openapi.json"), 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/health"),
        ("PUT", "/whitelists/addresses"),
        ("GET", WEBHOOK),
        ("DELETE", "/webhooks"),
        ("OPTIONS", "/health"),
    ],
)
def test_wrong_method(api: Api, refused: Refused, method: str, path: str) -> None:
    response = api.call(method, path)
    refused(response, 405)
    assert response.headers["allow"]


def test_a_route_that_fails_unexpectedly(refused: Refused, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("broken")

    async def call(app: FaultMiddleware) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sandbox") as client:
            return await client.get("/api/rest/v1/failing")

    service = Service(State())
    app = build_app(service)
    app.add_api_route("/api/rest/v1/failing", fail)
    refused(asyncio.run(call(FaultMiddleware(app, service))), 500)
    assert "broken" in caplog.text
    assert service.request_log.request_log()[-1]["status"] == 500
    service.state.close()
