"""Creating and listing webhooks, and verifying what they deliver."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyClient,
    CustodyConfigurationError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.webhooks import verify_delivery
from airflow_custody.sandbox import Sandbox

TYPE, URL = "requestStatus.updated", "https://hooks.example.com/custody"


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=2, max_retries=0) as made:
        yield made


def test_create_returns_the_secret_and_the_listing_does_not(sandbox: Sandbox, client: CustodyClient) -> None:
    number, secret = client.create_webhook(TYPE, URL)
    assert len(secret) > 20
    assert client.create_webhook(TYPE, URL, secret="my own")[1] == "my own"
    found = list(client.list_webhooks(webhook_type=TYPE, url=URL))
    assert found[0]["id"] == number
    assert secret not in repr(found)


def test_lists_all_pages(sandbox: Sandbox, client: CustodyClient) -> None:
    made = [sandbox.control.add_webhook(url=f"https://h{number % 2}.example.com")["id"] for number in range(205)]
    assert [each["id"] for each in client.list_webhooks()] == made
    assert len(sandbox.control.request_log()) == 3
    assert len(list(client.list_webhooks(url="https://h1.example.com"))) == 102
    assert list(client.list_webhooks(webhook_type="currencyStatus.updated")) == []


def test_lists_calls(sandbox: Sandbox, client: CustodyClient) -> None:
    call = {"id": "7", "status": "failed", "whatever": {"else": 1}}
    body = {"calls": [call], "cursor": {"currentPage": "a", "hasNext": True}}
    sandbox.control.add_fault("status", status=200, body=body)
    sandbox.control.add_fault("status", status=200, body={"calls": [{"id": "8"}], "cursor": {"currentPage": "b"}})
    calls = list(client.list_webhook_calls(webhook_id="w", event_id="e", status="failed"))
    assert calls == [call, {"id": "8"}]
    first, second = sandbox.control.request_log(path="/webhooks/calls")
    assert first["query"]["webhookID"] == ["w"]
    assert second["query"]["cursor.currentPage"] == ["a"]
    assert list(client.list_webhook_calls()) == []


@pytest.mark.parametrize(
    "bodies",
    [
        [{"status": "UP"}],
        [{"webhooks": [], "cursor": {"hasNext": True}}],
        [{"webhooks": [], "cursor": {"hasNext": True, "currentPage": "a"}}] * 2,
    ],
)
def test_listings_whose_pages_lead_nowhere_are_refused(
    sandbox: Sandbox, client: CustodyClient, bodies: list[Any]
) -> None:
    for body in bodies:
        sandbox.control.add_fault("status", status=200, body=body)
    with pytest.raises(CustodyResponseError):
        list(client.list_webhooks())


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "truncate_body", "keep": 230},
        {"kind": "status", "status": 200, "body": {"secret": "shh-shh-shh"}},
        {"kind": "status", "status": 200, "body": '{"secret": "shh-shh-shh"'},
        {"kind": "status", "status": 500},
    ],
    ids=str,
)
def test_a_lost_response_leaves_the_outcome_unknown_and_reveals_no_secret(
    sandbox: Sandbox, client: CustodyClient, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(method="POST", **fault)
    with pytest.raises(CustodyOutcomeUnknownError) as caught:
        client.create_webhook(TYPE, URL, secret="shh-shh-shh")
    assert "shh" not in str(caught.value)


@pytest.mark.parametrize("secret", ["", "x" * 151])
def test_a_secret_of_a_wrong_length_is_refused(sandbox: Sandbox, client: CustodyClient, secret: str) -> None:
    with pytest.raises(CustodyRequestError, match="1 to 150"):
        client.create_webhook(TYPE, URL, secret=secret)
    assert sandbox.control.request_log() == []


# --- deliveries --------------------------------------------------------------------------------------------

SECRET = "not a real secret"
NOW = 1_790_000_000


def delivery(body: bytes = b"{}", secret: str = SECRET, number: str = "evt-1", at: int = NOW) -> dict[str, str]:
    digest = hmac.digest(secret.encode(), f"{number}.{at}.".encode() + body, hashlib.sha256)
    return {
        "X-Webhook-Id": number,
        "X-Webhook-Timestamp": str(at),
        "X-Webhook-Signature": "v1," + base64.b64encode(digest).decode(),
    }


def verify(headers: dict[str, str], body: bytes = b"{}", **kwargs: Any) -> str:
    return verify_delivery(headers, body, SECRET, **{"now": NOW, **kwargs})


@given(st.binary(), st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_a_delivery_signed_by_the_service_is_accepted(body: bytes, number: str) -> None:
    assert verify(delivery(body, number=number), body) == number


@given(st.binary(), st.binary())
def test_another_body_is_refused(body: bytes, other: bytes) -> None:
    if body != other:
        with pytest.raises(CustodyRequestError, match="no signature matches"):
            verify(delivery(body), other)


def test_one_good_signature_among_others_is_enough() -> None:
    headers = delivery()
    headers["X-Webhook-Signature"] = f"v2,abcd v1,?? {headers['X-Webhook-Signature']} v1,"
    assert verify(headers) == "evt-1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X-Webhook-Signature": ""}, "no signature"),
        ({"X-Webhook-Signature": "v1,"}, "no signature"),
        ({"X-Webhook-Id": "evt-2"}, "no signature"),
        ({"X-Webhook-Id": "\udcff"}, "no signature"),
        ({"X-Webhook-Timestamp": str(NOW + 1)}, "no signature"),
    ],
)
def test_a_tampered_delivery_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CustodyRequestError, match=message):
        verify({**delivery(), **change})


def test_a_signature_of_another_version_does_not_count() -> None:
    headers = delivery()
    with pytest.raises(CustodyRequestError, match="no signature matches"):
        verify({**headers, "X-Webhook-Signature": headers["X-Webhook-Signature"].replace("v1,", "v2,")})


def test_without_a_secret_nothing_is_accepted() -> None:
    with pytest.raises(CustodyConfigurationError, match="secret is missing"):
        verify_delivery(delivery(secret=""), b"{}", "", now=NOW)


@pytest.mark.parametrize("name", ["X-Webhook-Id", "X-Webhook-Timestamp", "X-Webhook-Signature"])
def test_a_missing_header_is_named(name: str) -> None:
    headers = {key: value for key, value in delivery().items() if key != name}
    with pytest.raises(CustodyRequestError, match=name.lower()):
        verify(headers)


@pytest.mark.parametrize("at", [NOW - 301, NOW + 301, 0])
def test_an_old_delivery_is_refused(at: int) -> None:
    with pytest.raises(CustodyRequestError, match="300 s"):
        verify(delivery(at=at))
    assert verify(delivery(at=NOW - 299)) == "evt-1"
    assert verify(delivery(at=at), tolerance=float("inf")) == "evt-1"


def test_another_secret_is_refused_and_never_quoted() -> None:
    with pytest.raises(CustodyRequestError) as caught:
        verify(delivery(secret="somebody else's"))
    assert SECRET not in str(caught.value)


def test_a_replay_is_refused_and_only_valid_deliveries_are_remembered() -> None:
    seen: set[str] = set()

    def first_time(number: str) -> bool:
        new = number not in seen
        seen.add(number)
        return new

    with pytest.raises(CustodyRequestError):
        verify(delivery(secret="wrong"), first_time=first_time)
    assert verify(delivery(), first_time=first_time) == "evt-1"
    with pytest.raises(CustodyRequestError, match="seen before"):
        verify(delivery(), first_time=first_time)
