from __future__ import annotations

import time

import pytest
import requests

from airflow_custody.sandbox import SandboxControl, SandboxError, fingerprint
from airflow_custody.sandbox.received import ReceivedLog


def test_about(sandbox):
    assert sandbox.control.about() == {"sandbox": True, "version": "3.20"}
    sandbox.control.set_version("3.13")
    assert sandbox.control.about()["version"] == "3.13"


def test_received(api, sandbox):
    begin = time.time()
    api.get("/health?tenantId=1&x=a&x=b&y=")
    api.post("/whitelists/addresses", {"a": 1}, token="wrong", headers={"X-Thing": "1"})
    api.call("PATCH", "/webhooks/x", data=b"not json")
    api.get("/nothing")
    first, second, third, fourth = sandbox.control.received()
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
    assert sandbox.control.received(method="post") == [second]
    assert sandbox.control.received(path="/health") == [first]
    assert sandbox.control.received(path="/api/rest/v1/webhooks", method="PATCH") == [third]
    assert sandbox.control.received(method="DELETE") == []
    sandbox.control.clear_received()
    assert sandbox.control.received() == []


def test_received_credentials_of_any_form(api, sandbox):
    for header, shown in (
        ("secret", fingerprint("secret")),
        ("TPV1-HMAC-SHA256 ApiKey=x", f"TPV1-HMAC-SHA256 {fingerprint('ApiKey=x')}"),
    ):
        api.get("/health", headers={"Authorization": header})
        assert sandbox.control.received()[-1]["headers"]["authorization"] == shown
    assert len(fingerprint("x")) == 8


def test_unanswered_calls_are_received(api, sandbox):
    sandbox.control.order_fault(delay=1)
    with pytest.raises(requests.Timeout):
        api.get("/health", timeout=0.05)
    assert sandbox.control.received()[-1]["status"] is None


def test_received_is_bounded(api, sandbox):
    api.call("POST", "/nothing", data=b"x" * 200_000)
    api.call("POST", "/nothing", data=b"[" * 60_000)
    assert [len(one["body"]) for one in sandbox.control.received()] == [65_536, 60_000]
    log = ReceivedLog()
    scope = {"method": "GET", "query_string": b"", "headers": [(b"a", b"1"), (b"A", b"2")]}
    for number in range(20_005):
        log.add({**scope, "path": f"/{number}"}, b"")
    assert len(log.list(None, None)) == 20_000
    assert log.list(None, None)[0]["path"] == "/5"
    assert log.list(None, None)[0]["headers"] == {"a": "1, 2"}


def test_reset(api, sandbox, refused):
    control = sandbox.control
    other = control.add_token(roles=["TPUser"])
    control.set_health([])
    control.set_currencies(["DOGE"])
    control.set_version("3.13")
    control.add_webhook()
    control.order_fault(answer="drop", path="/nothing")
    api.post("/whitelists/addresses", {"blockchain": "DOGE", "label": "x", "address": "D"})
    control.reset()
    assert control.whitelist_requests() == control.webhooks() == control.faults() == control.received() == []
    assert control.about()["version"] == "3.20"
    assert set(api.get("/health").json()["groups"]) == {"hsm", "blockchain", "database"}
    answer = api.post("/whitelists/addresses", {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40})
    assert answer.json() == {"result": {"id": "3711"}}
    refused(api.get("/health", token=other), 401)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/health", {"entries": "x"}),
        ("PUT", "/health", {"entries": [1]}),
        ("PUT", "/health", {}),
        ("PUT", "/health/answer", {}),
        ("PATCH", "/health", {"status": "x"}),
        ("PUT", "/currencies", {"currencies": [1]}),
        ("PUT", "/version", {"version": "new"}),
        ("POST", "/tokens", {"role": ["TPUser"]}),
        ("POST", "/webhooks", {"url": 3}),
        ("PUT", "/whitelist-requests/1", {}),
        ("POST", "/faults", {"answer": None}),
    ],
)
def test_bad_calls(sandbox, refused, method, path, body):
    refused(requests.request(method, f"{sandbox.url}/sandbox{path}", json=body, timeout=10), 400)


def test_without_a_sandbox(sandbox):
    with pytest.raises(SandboxError, match="no answer"):
        SandboxControl("http://127.0.0.1:1").about()
    control = SandboxControl(sandbox.url + "/api/rest/v1/")
    with pytest.raises(SandboxError, match="Not Found"):
        control.about()
    sandbox.control.order_fault(answer="html")
    with pytest.raises(SandboxError, match="not an answer"):
        control.about()
    control.close()


def test_from_elsewhere(sandbox):
    control = SandboxControl(sandbox.url)
    assert control.add_webhook() in [
        {name: value for name, value in hook.items() if name != "tenantId"} for hook in sandbox.control.webhooks()
    ]
    control.close()
