from __future__ import annotations

import base64
import time
import uuid
from typing import Any

import pytest
import requests
from sandbox_api import Api

from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.users.tokens import sign

PASSWORD = "a sandbox password"


def user(sandbox: Sandbox, **changes: Any) -> str:
    return sandbox.control.add_user("ann", ["TPUser"], **{"password": PASSWORD, **changes})


def sign_in(api: Api, **changes: Any) -> requests.Response:
    return Api(api.root.removesuffix("/api/rest/v1"), None).post(
        "/authentication/token", {"username": "ann", "password": PASSWORD, **changes}
    )


def test_a_password_gives_a_token_that_expires_and_can_be_revoked(sandbox: Sandbox, api: Api) -> None:
    number = user(sandbox)
    token = sign_in(api).json()["result"]
    me = api.get("/users/me", token=token).json()["result"]
    assert me.pop("externalUserId") == f"user-{number}@example.test"
    assert me == {"id": number, "tenantId": "1", "roles": ["TPUser"], "status": "active"}
    another = sign_in(api).json()["result"]
    assert another != token
    sandbox.control.configure(token_lifetime=1)
    short = sign_in(api).json()["result"]
    assert api.get("/users/me", token=short).status_code == 200
    time.sleep(1.1)
    assert api.get("/users/me", token=short).status_code == 401
    sandbox.control.revoke_tokens(number)
    for revoked in (token, another):
        assert api.get("/users/me", token=revoked).status_code == 401


def test_a_one_time_code_is_required(sandbox: Sandbox, api: Api) -> None:
    user(sandbox, totp=True)
    response = sign_in(api)
    assert response.status_code == 401
    assert "one-time code" in response.json()["message"]
    assert sign_in(api, totp="123456").status_code == 200


# --- API keys ----------------------------------------------------------------------------------------------

VECTOR = ["api-key-id", "nonce-1", "10"]


@pytest.mark.parametrize(
    ("method", "query", "content_type", "body", "signature"),
    [
        ("GET", "", "", b"", "aFKP2oy2IXAONlBbGQDvT8DVjryhl2J8ZAcLMADl0kE="),
        ("GET", "limit=1&statuses=PENDING", "", b"", "3mX69Af51iO81BQ6NsBpnyNgVSvjfgSz9lu1a9q84+Q="),
        (
            "POST",
            "",
            "application/json; charset=utf-8",
            b'{"walletId":"1"}',
            "JzsbyoTlQoN8QpG46w+qtPFFeXpIlS5Sn+Jlkutlz5A=",
        ),
    ],
)
def test_published_vectors(method: str, query: str, content_type: str, body: Any, signature: str) -> None:
    parts = [*VECTOR, method, "api.example.test", "/api/rest/v1/wallets", query, content_type]
    assert base64.b64encode(sign("0badc0de" * 4, parts, body)).decode() == signature


class Key:
    """An API key that signs calls."""

    def __init__(self, sandbox: Sandbox, api: Api) -> None:
        self.key = sandbox.control.add_api_key(user(sandbox))
        self.api = Api(api.root.removesuffix("/api/rest/v1"), None)
        self.host = sandbox.url.removeprefix("http://")

    def call(self, path: str = "/users/me", query: str = "", **changes: str) -> requests.Response:
        fields = {
            "ApiKey": self.key["id"],
            "Nonce": str(uuid.uuid4()),
            "Timestamp": str(round(time.time() * 1000)),
            **changes,
        }
        parts = [*fields.values(), "GET", self.host, f"/api/rest/v1{path}", query, ""][:8]
        signature = base64.b64encode(sign(self.key["secret"], parts[:3] + parts[-5:], b"")).decode()
        fields = {**fields, "Signature": signature, **changes}
        header = "TPV1-HMAC-SHA256 " + " ".join(f"{name}={value}" for name, value in fields.items() if value)
        return self.api.get(path + (f"?{query}" if query else ""), headers={"Authorization": header})


@pytest.fixture
def key(sandbox: Sandbox, api: Api) -> Key:
    return Key(sandbox, api)


def test_a_signed_call_is_made_for_the_user_of_the_key(key: Key) -> None:
    assert key.call().json()["result"]["roles"] == ["TPUser"]
    assert key.call("/whitelists/addresses", "limit=1&query=a%20b").status_code == 200


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
)
def test_a_wrong_signature_is_refused(key: Key, changes: dict[str, Any]) -> None:
    assert key.call(**changes).status_code == 401


def test_a_nonce_is_good_for_one_call(key: Key) -> None:
    assert key.call(Nonce="once").status_code == 200
    response = key.call(Nonce="once")
    assert response.status_code == 401
    assert "nonce" in response.json()["message"]


def test_clocks_must_agree(sandbox: Sandbox, key: Key) -> None:
    sandbox.control.configure(clock_offset=60)
    assert "clock" in key.call().json()["message"]
    sandbox.control.configure(clock_offset=-20)
    assert key.call().status_code == 200
