"""Authentication and roles of the routes."""

from __future__ import annotations

import base64
import re
import time
import uuid
from typing import Any

import pytest
import requests
from support.service.sandbox_api import APPROVER, ETH, PATH, Api, refused

from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.users.tokens import sign

WEBHOOK = "/webhooks/3f1c1f0e-6c1b-4c57-9d0e-6a3c5f3f0b11"
OPERATIONS = [
    ("GET", "/health", None, ["TPUser"]),
    ("POST", PATH, {"blockchain": "ETH", "label": "x", "address": ETH}, ["WhitelistedAddressCreator", "TPUser"]),
    ("GET", PATH, None, ["TPUser"]),
    ("GET", f"{PATH}/for-approval", None, ["TPUser"]),
    ("GET", f"{PATH}/1", None, ["TPUser"]),
    ("POST", f"{PATH}/reject", {"ids": ["1"], "comment": "x"}, APPROVER),
    ("PATCH", WEBHOOK, {"status": "enabled"}, ["Admin"]),
    ("DELETE", WEBHOOK, None, ["Admin"]),
    ("POST", "/webhooks", {"type": "requestStatus.updated", "url": "https://example.com"}, ["Admin"]),
    ("GET", "/statistics/for-approval", None, ["TPUser"]),
    ("GET", "/users/me", None, []),
    ("GET", "/rules", None, []),
    ("GET", "/currencies", None, []),
    ("GET", "/config/tenant", None, []),
]
ALL_ROLES = ["TPUser", "WhitelistedAddressCreator", "WhitelistedAddressApprover", "Admin"]


@pytest.mark.parametrize(("method", "path", "body", "roles"), OPERATIONS, ids=str)
def test_each_operation_needs_a_token_and_its_roles(
    api: Api, sandbox: Sandbox, method: str, path: str, body: Any, roles: list[str]
) -> None:
    assert "bearer" in refused(api.call(method, path, body, headers={"Authorization": "Basic eA=="}), 401)
    enough = sandbox.control.add_token(roles=roles)
    assert api.call(method, path, body, token=enough).status_code in (200, 404)
    for role in roles:
        others = [each for each in ALL_ROLES if each != role]
        message = refused(api.call(method, path, body, token=sandbox.control.add_token(roles=others)), 403)
        # The operations that read webhooks accept one of two roles.
        assert re.fullmatch(rf"one of the '{role.lower()}( - adminreadonly)?' role is required", message)


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer unknown"])
def test_a_malformed_or_unknown_token_is_refused(api: Api, authorization: str) -> None:
    refused(api.get("/health", headers={"Authorization": authorization}), 401)


@pytest.mark.parametrize("jwt", [False, True])
def test_an_expired_token_is_refused(api: Api, sandbox: Sandbox, jwt: bool) -> None:
    valid, expired = (sandbox.control.add_token(roles=["TPUser"], expires_in=seconds, jwt=jwt) for seconds in (600, -1))
    assert api.get("/health", token=valid).status_code == 200
    assert "expired" in refused(api.get("/health", token=expired), 401)


@pytest.fixture
def key(sandbox: Sandbox) -> dict[str, str]:
    return sandbox.control.add_api_key(sandbox.control.add_user("ann", ["TPUser"]))


def call_with_key(sandbox: Sandbox, key: dict[str, str], query: str = "", **changes: str) -> requests.Response:
    """
    Make a call that an API key signs.

    :param changes: fields of the header to replace after signing.
    """
    nonce = changes.get("Nonce", str(uuid.uuid4()))
    fields = {"ApiKey": key["id"], "Nonce": nonce, "Timestamp": str(round(time.time() * 1000))}
    parts = [*fields.values(), "GET", sandbox.url.removeprefix("http://"), f"/api/rest/v1{PATH}", query, ""]
    fields |= {"Signature": base64.b64encode(sign(key["secret"], parts, b"")).decode(), **changes}
    header = "TPV1-HMAC-SHA256 " + " ".join(f"{name}={value}" for name, value in fields.items() if value)
    return Api(sandbox.url).call("GET", f"{PATH}?{query}", headers={"Authorization": header})


@pytest.mark.parametrize(
    "changes",
    [
        {"ApiKey": "unknown"},
        {"Signature": base64.b64encode(b"x" * 32).decode()},
        {"Signature": "?"},
        {"Nonce": ""},
        {"Timestamp": "10"},
        {"Timestamp": "soon"},
    ],
    ids=str,
)
def test_a_wrong_signature_is_refused(sandbox: Sandbox, key: dict[str, str], changes: dict[str, str]) -> None:
    refused(call_with_key(sandbox, key, **changes), 401)


def test_a_nonce_is_good_for_one_call_and_clocks_must_agree(sandbox: Sandbox, key: dict[str, str]) -> None:
    assert call_with_key(sandbox, key, "limit=1&query=a%20b", Nonce="once").status_code == 200
    assert "nonce" in refused(call_with_key(sandbox, key, Nonce="once"), 401)
    sandbox.control.configure(clock_offset=60)
    assert "clock" in refused(call_with_key(sandbox, key), 401)
    sandbox.control.configure(clock_offset=-20)
    assert call_with_key(sandbox, key).status_code == 200
