"""A 2xx whose body says that something failed is no success, whatever else the body holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_server import raw_server

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.client.http.responses import Response
from airflow_custody.sandbox import Sandbox

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")
WEBHOOK = "00000000-0000-4000-8000-000000000000"
ENTRIES = {"groups": {"db": {"healthChecks": [{"healthCheck": "x", "status": "success"}]}}}

ERRORS: list[dict[str, Any]] = [
    {"error": "Internal"},
    {"error": {"reason": "locked"}},
    {"error": True},
    {"error_code": "E900"},
    {"code": 13, "message": "rolled back"},
    {"code": 13, "error": "Internal", "message": "rolled back"},
    {"code": "13", "message": ""},
    {"success": False},
]
FINE: list[dict[str, Any]] = [
    {"error": ""},
    {"error": None, "error_code": None},
    {"code": 0, "message": "OK"},
    {"code": 13},
    {"message": "done"},
    {"success": True},
]


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=3) as made:
        yield made


READS: dict[str, tuple[dict[str, Any], Callable[[CustodyClient], object]]] = {
    "health": (ENTRIES, lambda client: client.list_health_checks()),
    "requests": ({"result": [], "totalItems": "0"}, lambda client: list(client.find_whitelist_requests())),
    "no requests": ({"result": []}, lambda client: list(client.find_whitelist_requests_for_approval())),
    "request": ({"result": {"id": "7"}}, lambda client: client.get_whitelist_request("7")),
    "webhooks": ({"webhooks": []}, lambda client: list(client.list_webhooks())),
    "calls": ({"calls": []}, lambda client: list(client.list_webhook_calls())),
    "user": ({"result": {"id": "1"}}, lambda client: client.get_current_user()),
}
SENDS: dict[str, tuple[dict[str, Any], Callable[[CustodyClient], object]]] = {
    "create": ({"result": {"id": "7"}}, lambda client: client.create_whitelist_request(REQUEST)),
    "create webhook": (
        {"webhook": {"id": WEBHOOK}, "secret": "s" * 20},
        lambda client: client.create_webhook(webhook_type="requestStatus.updated", url="https://hooks.example.com/"),
    ),
    "approve": ({"signatures": "1"}, lambda client: client.approve_whitelist_requests(["7"], "c2ln", "fine")),
}


@pytest.mark.parametrize("error", ERRORS, ids=str)
@pytest.mark.parametrize("name", READS)
def test_a_read(sandbox: Sandbox, client: CustodyClient, name: str, error: dict[str, Any]) -> None:
    body, call = READS[name]
    sandbox.control.add_fault("status", status=200, body={**body, **error}, times=None)
    with pytest.raises(CustodyResponseError, match="the body an error") as caught:
        call(client)
    assert not caught.value.retryable
    assert not caught.value.from_service
    assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize("error", ERRORS, ids=str)
@pytest.mark.parametrize("name", SENDS)
def test_what_must_not_be_sent_twice(sandbox: Sandbox, client: CustodyClient, name: str, error: dict[str, Any]) -> None:
    body, call = SENDS[name]
    sandbox.control.add_fault("status", status=200, body={**body, **error}, times=None)
    with pytest.raises(CustodyOutcomeUnknownError, match="the body an error"):
        call(client)
    assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize("extra", FINE, ids=str)
@pytest.mark.parametrize("name", [*READS, *SENDS])
def test_what_is_no_error(sandbox: Sandbox, client: CustodyClient, name: str, extra: dict[str, Any]) -> None:
    body, call = {**READS, **SENDS}[name]
    sandbox.control.add_fault("status", status=200, body={**body, **extra}, times=None)
    call(client)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_a_write_is_read_back(sandbox: Sandbox, client: CustodyClient, error: dict[str, Any]) -> None:
    webhook, _ = client.create_webhook(webhook_type="requestStatus.updated", url="https://hooks.example.com/")
    shown = {"webhook": {"id": webhook, "status": "disabled"}, **error}
    sandbox.control.add_fault("status", method="PATCH", status=200, body=shown)
    with pytest.raises(CustodyResponseError, match="status is 'enabled'"):
        client.set_webhook_status(webhook, "disabled")
    sandbox.control.add_fault("status", method="DELETE", status=200, body=error)
    with pytest.raises(CustodyResponseError, match="the service was asked, and"):
        client.delete_webhook(webhook)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_a_listing_with_an_error_proves_no_deletion(
    sandbox: Sandbox, client: CustodyClient, error: dict[str, Any]
) -> None:
    sandbox.control.add_fault("status", method="DELETE", status=200, body={"done": "maybe"})
    sandbox.control.add_fault("status", method="GET", status=200, body={"webhooks": [], **error}, times=None)
    with pytest.raises(CustodyResponseError, match="reading it back failed too"):
        client.delete_webhook(WEBHOOK)


@pytest.mark.parametrize("identifier", [True, False, 7.0, 1.5, None, "", " 7", [], {}, {"id": "7"}], ids=repr)
def test_what_is_no_id(sandbox: Sandbox, client: CustodyClient, identifier: object) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": {"id": identifier}})
    with pytest.raises(CustodyError) as caught:
        client.create_whitelist_request(REQUEST)
    assert type(caught.value) is CustodyOutcomeUnknownError


@pytest.mark.parametrize("identifier", ["7", 7, "a7"])
def test_what_is_an_id(sandbox: Sandbox, client: CustodyClient, identifier: object) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": {"id": identifier}})
    assert client.create_whitelist_request(REQUEST) == str(identifier)


@pytest.mark.parametrize(
    ("body", "says_error"),
    [
        (b'{"error": "", "calls": [], "error": "x"}', True),
        (b'{"error": "x", "calls": [], "error": ""}', False),
        (b'{"\\u0065rror": "x"}', True),
        (b'{"error": "x"} {}', False),
        (b'{"error": "x", "calls": ' + b"[" * 100 + b"]" * 100 + b"}", True),
        (b'{"error": "x", "calls": ' + b"[" * 300 + b"]" * 300 + b"}", False),
        (b'[{"error": "x"}]', False),
    ],
    ids=["last counts", "last is empty", "escaped", "no JSON", "deep", "too deep", "a list"],
)
def test_the_error_of_a_body(body: bytes, says_error: bool) -> None:
    assert Response(200, "OK", "application/json", None, None, body).says_error is says_error


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("health", '{"groups": {"db": {"healthChecks": [{"status": "failed"}]}, "db": {"healthChecks": []}}}'),
        ("health", '{"groups": {"db": {"healthChecks": [{"status": "failed", "stat\\u0075s": "success"}]}}}'),
        ("health", '{"groups": {"db": {"healthChecks": []}}, "groups": {}}'),
        ("user", '{"result": {"id": "7", "roles": [], "roles": ["TPUser"]}}'),
        ("user", '{"result": {"id": "7", "roles": []}, "result": {"id": "7", "roles": ["TPUser"]}}'),
    ],
    ids=["group", "status", "groups", "roles", "user"],
)
def test_what_decides_and_has_a_key_twice_is_refused(name: str, body: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with (
        raw_server(lambda stream: stream.sendall((head + body).encode())) as (url, _),
        CustodyClient(url, "token", max_retries=0) as client,
        pytest.raises(CustodyResponseError, match="it has a key twice in one object"),
    ):
        READS[name][1](client)
