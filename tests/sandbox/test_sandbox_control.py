from __future__ import annotations

import time

import pytest
import requests
from sandbox_api import Api, Refused

from airflow_custody.sandbox import Sandbox, fingerprint


def test_about(sandbox: Sandbox) -> None:
    assert sandbox.control.about() == {"sandbox": True, "version": "3.20"}
    sandbox.control.configure(version="3.13")
    assert sandbox.control.about()["version"] == "3.13"


def test_request_log(api: Api, sandbox: Sandbox) -> None:
    begin = time.time()
    api.get("/health?tenantId=1&x=a&x=b&y=")
    api.post("/whitelists/addresses", {"a": 1}, token="wrong", headers={"X-Thing": "1"})
    api.call("PATCH", "/webhooks/x", data=b"not json")
    api.get("/nothing")
    first, second, third, fourth = sandbox.control.request_log()
    assert first["method"] == "GET"
    assert first["path"] == "/api/rest/v1/health"
    assert first["query"] == {"tenantId": ["1"], "x": ["a", "b"], "y": [""]}
    assert first["raw_query"] == "tenantId=1&x=a&x=b&y="
    assert first["headers"]["authorization"] == f"Bearer {fingerprint(sandbox.token)}"
    assert sandbox.token not in str(first)
    assert first["body"] is None
    assert first["fault"] is None
    assert begin <= first["time"] <= second["time"] <= time.time()
    assert second["headers"]["x-thing"] == "1"
    assert second["body"] == {"a": 1}
    assert third["body"] == "not json"
    assert [one["status"] for one in (first, second, third, fourth)] == [200, 401, 400, 404]
    assert sandbox.control.request_log(method="post") == [second]
    assert sandbox.control.request_log(path="/health") == [first]
    assert sandbox.control.request_log(path="/api/rest/v1/webhooks", method="PATCH") == [third]
    assert sandbox.control.request_log(method="DELETE") == []
    sandbox.control.clear_request_log()
    assert sandbox.control.request_log() == []


def test_logged_credentials_are_redacted(api: Api, sandbox: Sandbox) -> None:
    for header, redacted in (
        ("secret", fingerprint("secret")),
        ("TPV1-HMAC-SHA256 ApiKey=x", f"TPV1-HMAC-SHA256 {fingerprint('ApiKey=x')}"),
    ):
        api.get("/health", headers={"Authorization": header})
        assert sandbox.control.request_log()[-1]["headers"]["authorization"] == redacted
    assert len(fingerprint("x")) == 8


def test_the_request_log_shows_no_credentials(api: Api, sandbox: Sandbox) -> None:
    api.post("/authentication/token", {"username": "ann", "password": "ann-s-p4ssword", "totp": "987654"})
    api.post("/webhooks", {"type": "t", "url": "https://x", "secret": "wh-s3cret"})
    first, second = sandbox.control.request_log()
    assert first["body"] == {"username": "ann", "password": "***", "totp": "***"}
    assert second["body"] == {"type": "t", "url": "https://x", "secret": "***"}
    assert sandbox.token not in str(second["headers"])


def test_reset(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    control = sandbox.control
    other = control.add_token(roles=["TPUser"])
    control.set_health([])
    control.configure(currencies=["DOGE"])
    control.configure(version="3.13")
    control.add_webhook()
    control.add_fault(kind="drop", path="/nothing")
    api.post("/whitelists/addresses", {"blockchain": "DOGE", "label": "x", "address": "D"})
    control.reset()
    assert control.whitelist_requests() == control.webhooks() == control.faults() == control.request_log() == []
    assert control.about()["version"] == "3.20"
    assert set(api.get("/health").json()["groups"]) == {"hsm", "blockchain", "database"}
    response = api.post("/whitelists/addresses", {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40})
    assert response.json() == {"result": {"id": "3711"}}
    refused(api.get("/health", token=other), 401)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("set_health", b'{"entries": "x"}'),
        ("set_health", b"{}"),
        ("configure", b'{"version": "new"}'),
        ("configure", b'{"label_lenght": 3}'),
        ("add_token", b'{"role": ["TPUser"]}'),
        ("add_fault", b'{"kind": null}'),
        ("reset", b"[]"),
        ("reset", b"{"),
    ],
)
def test_bad_calls(sandbox: Sandbox, refused: Refused, name: str, body: bytes) -> None:
    refused(requests.post(f"{sandbox.url}/sandbox/{name}", data=body, timeout=10), 400)
