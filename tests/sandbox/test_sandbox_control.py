from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

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


FAULTS: list[dict[str, Any] | None] = [
    None,
    {"kind": "drop"},
    {"kind": "status", "status": 500},
    {"kind": "truncate_body"},
    {"kind": "normal", "delay": 0.01},
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_request_log_shows_no_secret(api: Api, sandbox: Sandbox, fault: dict[str, Any] | None) -> None:
    sandbox.control.add_user("ann", ["TPUser"], password="ann-s-p4ssword")
    shown = [sandbox.token, "ann-s-p4ssword", "wr0ng-one", "987654", "wh-s3cret", "pr0xy", "c00kie"]
    sign_in = {"username": "ann", "password": "ann-s-p4ssword", "totp": "987654"}
    calls: list[Callable[[], object]] = [
        lambda: api.post("/authentication/token", sign_in),
        lambda: api.post("/authentication/token", {**sign_in, "password": "wr0ng-one"}),
        lambda: api.post("/webhooks", {"type": "t", "url": "https://x", "secret": "wh-s3cret"}),
        lambda: api.post("/webhooks", {"a": [{"Secret": {"deep": ["wh-s3cret"]}}], "TOKEN": "wr0ng-one"}),
        lambda: api.call("POST", "/webhooks", data=b'{"secret": "wh-s3cret"'),
        lambda: api.call("POST", "/authentication/token", data=b"username=ann&password=wr0ng-one"),
        lambda: api.post("/whitelists/addresses", {"label": f"x {sandbox.token} y", sandbox.token: "ann-s-p4ssword"}),
        lambda: api.get(f"/health?tenantId={sandbox.token}&password=wr0ng-one"),
        lambda: api.get(f"/whitelists/addresses/{sandbox.token}"),
        lambda: api.get("/health", headers={"Proxy-Authorization": "Basic pr0xy", "Cookie": "a=c00kie"}),
        lambda: api.get("/health", headers={"X-Thing": f"is {sandbox.token}"}),
    ]
    for call in calls:
        if fault is not None:
            sandbox.control.add_fault(**fault)
        with contextlib.suppress(requests.RequestException):
            call()
    log = sandbox.control.request_log()
    assert len(log) == len(calls)
    assert [secret for secret in shown if secret in str(log)] == []
    assert log[0]["body"] == {"username": "ann", "password": "***", "totp": "***"}
    assert log[2]["body"] == {"type": "t", "url": "https://x", "secret": "***"}


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
