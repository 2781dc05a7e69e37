from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox

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


@pytest.mark.parametrize("jwt", [False, True])
def test_expired_token(api: Api, sandbox: Sandbox, refused: Refused, jwt: bool) -> None:
    valid, expired = (sandbox.control.add_token(roles=["TPUser"], expires_in=seconds, jwt=jwt) for seconds in (600, -1))
    assert api.get("/health", token=valid).status_code == 200
    assert "expired" in refused(api.get("/health", token=expired), 401)


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
