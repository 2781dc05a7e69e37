"""Creating and listing webhooks, and verifying what they deliver."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyClient,
    CustodyConfigurationError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.webhooks import verify_delivery
from airflow_custody.sandbox import Sandbox

TYPE, URL = "requestStatus.updated", "https://hooks.example.com/custody"


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
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
    # All pages twice: there is more than one.
    assert len(sandbox.control.request_log()) == 6
    assert len(list(client.list_webhooks(url="https://h1.example.com"))) == 102
    assert list(client.list_webhooks(webhook_type="currencyStatus.updated")) == []


def test_lists_calls(sandbox: Sandbox, client: CustodyClient) -> None:
    call = {"id": "7", "status": "failed", "whatever": {"else": 1}}
    body = {"calls": [call], "cursor": {"currentPage": "a", "hasNext": True}}
    sandbox.control.add_fault("status", status=200, body=body)
    last = {"calls": [{"id": 8}], "cursor": {"currentPage": "b"}}
    for each in (last, body, last):
        sandbox.control.add_fault("status", status=200, body=each)
    calls = list(client.list_webhook_calls(webhook_id="w", event_id="e", status="failed"))
    assert [each.id for each in calls] == ["7", "8"]
    assert calls[0].status == "failed"
    first, second, *again = sandbox.control.request_log(path="/webhooks/calls")
    assert [each["query"] for each in again] == [first["query"], second["query"]]
    assert first["query"]["sortOrder"] == ["ASC"]
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


A, B, C, D, E = (f"0000000{letter}-0000-4000-8000-000000000000" for letter in "abcde")


@pytest.mark.parametrize(
    ("oddities", "expected"),
    [
        ({"page_size": 1}, [A, B, C, D]),
        ({"page_size": 3}, [A, B, C, D]),
        # A row that was listed leaves, and the next is skipped.
        ({"page_size": 2, "orders": [[A, B, C, D], [B, C, D]]}, "did not list the same"),
        ({"page_size": 2, "orders": [[A, B, C, D], [B, C, D, E]]}, "did not list the same"),
        # The same in the second reading only, and after both were complete.
        ({"page_size": 2, "orders": [[A, B, C, D]] * 3 + [[B, C, D]]}, "did not list the same"),
        ({"page_size": 2, "orders": [[A, B, C, D]] * 4 + [[B, C, D]]}, [A, B, C, D]),
        # A row comes, or moves to a later page.
        ({"page_size": 2, "orders": [[A, B, C, D], [E, A, B, C, D]]}, "came twice"),
        ({"page_size": 2, "orders": [[A, B, C, D], [B, C, A, D]]}, "came twice"),
        ({"page_size": 2, "orders": [[A, B, C, D], [A, B, D, C], [A, B, C, D]]}, "did not list the same"),
        # The same page again and again.
        ({"page_size": 2, "ignored": ["cursor"]}, "came twice"),
    ],
)
def test_a_listing_of_webhooks_is_complete_or_an_error(
    sandbox: Sandbox, client: CustodyClient, oddities: dict[str, Any], expected: list[str] | str
) -> None:
    for number in (A, B, C, D, E) if "orders" in oddities else (A, B, C, D):
        sandbox.control.add_webhook(id=number)
    sandbox.control.configure(listings={"webhooks": oddities})
    if isinstance(expected, list):
        assert [each["id"] for each in client.list_webhooks()] == expected
        return
    with pytest.raises(CustodyResponseError, match=expected) as caught:
        list(client.list_webhooks())
    assert caught.value.retryable


@pytest.mark.parametrize("number", ["", None, " 7", "a\u200b", "x" * 201, True, {}, []])
def test_a_webhook_or_call_without_an_id_is_refused(sandbox: Sandbox, client: CustodyClient, number: object) -> None:
    sandbox.control.add_fault("status", status=200, body={"webhooks": [{"id": number}]})
    with pytest.raises(CustodyResponseError):
        list(client.list_webhooks())
    sandbox.control.add_fault("status", status=200, body={"calls": [{"id": number}]})
    with pytest.raises(CustodyResponseError):
        list(client.list_webhook_calls())


@pytest.mark.parametrize(
    ("oddities", "complete"),
    [
        ({}, True),
        ({"page_size": 2}, True),
        # New calls come last.
        ({"page_size": 2, "orders": [["1", "2", "3"], ["1", "2", "3", "4"], ["1", "2", "3", "4", "5"]]}, True),
        # The oldest are removed.
        ({"page_size": 2, "orders": [["1", "2", "3", "4"], ["2", "3", "4"]]}, False),
        ({"page_size": 2, "orders": [["1", "2", "3"], ["3", "4"], ["3", "4"]]}, False),
        # The newest come first, whatever was asked for.
        ({"page_size": 2, "orders": [["4", "3", "2", "1"], ["5", "4", "3", "2", "1"]]}, False),
        ({"page_size": 2, "ignored": ["cursor"]}, False),
    ],
)
def test_a_listing_of_calls_is_complete_or_an_error(
    sandbox: Sandbox, client: CustodyClient, oddities: dict[str, Any], complete: bool
) -> None:
    for number in range(1, 6):
        sandbox.control.add_webhook_call(id=str(number))
    sandbox.control.configure(listings={"webhook-calls": oddities})
    if complete:
        found = [each.id for each in client.list_webhook_calls()]
        assert found == [str(number + 1) for number in range(len(found))]
        assert len(found) >= 4
        return
    with pytest.raises(CustodyResponseError) as caught:
        list(client.list_webhook_calls())
    assert caught.value.retryable


def test_calls_that_leave_a_filtered_listing_are_noticed(sandbox: Sandbox, client: CustodyClient) -> None:
    for number in range(1, 6):
        sandbox.control.add_webhook_call(id=str(number), status="failed")
    # The second is delivered in the end, and so the third one is skipped.
    sandbox.control.configure(
        listings={"webhook-calls": {"page_size": 2, "orders": [["1", "2", "3", "4"], ["1", "3", "4"]]}}
    )
    with pytest.raises(CustodyResponseError, match="did not list the same"):
        list(client.list_webhook_calls(status="failed"))


@pytest.mark.parametrize(
    ("ignored", "filters"),
    [("webhookID", {"webhook_id": "w"}), ("eventID", {"event_id": "e"}), ("status", {"status": "failed"})],
)
def test_a_call_that_was_not_asked_for_is_refused(
    sandbox: Sandbox, client: CustodyClient, ignored: str, filters: dict[str, Any]
) -> None:
    sandbox.control.add_webhook_call(id="1", webhookId="w", eventId="e", status="failed")
    sandbox.control.add_webhook_call(id="2", webhookId="v", eventId="d", status="success")
    assert [each.id for each in client.list_webhook_calls(**filters)] == ["1"]
    sandbox.control.configure(listings={"webhook-calls": {"ignored": [ignored]}})
    with pytest.raises(CustodyResponseError, match="than was asked for"):
        list(client.list_webhook_calls(**filters))


def test_a_webhook_of_another_type_than_was_asked_for_is_refused(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_webhook(type="currencyStatus.updated")
    sandbox.control.configure(listings={"webhooks": {"ignored": ["type"]}})
    with pytest.raises(CustodyResponseError, match="'type'"):
        list(client.list_webhooks(webhook_type=TYPE))


@pytest.mark.parametrize("status", [200, 302, 400, 404, 500])
@pytest.mark.parametrize("rows", ["webhooks", "calls"])
def test_no_word_of_a_response_that_shows_webhooks_is_quoted(
    sandbox: Sandbox, client: CustodyClient, rows: str, status: int
) -> None:
    uuid, url = "123e4567-e89b-12d3-a456-426614174000", "https://ann:s3cret@receiver.example.com/"
    body = {rows: [{"id": uuid, "url": url}, {"id": 5, "url": [url], "status": [url]}], "message": url, "error": url}
    calls: list[Callable[[], Any]] = [
        lambda: list(client.list_webhooks()),
        lambda: list(client.list_webhook_calls()),
        lambda: client.read_webhook_calls(None),
        client.get_newest_webhook_call,
        lambda: client.set_webhook_status(uuid, "enabled"),
        lambda: client.delete_webhook(uuid),
        lambda: client.create_webhook(TYPE, URL),
    ]
    sandbox.control.add_fault("status", path="/webhooks", status=status, body=body, times=None)
    sandbox.control.add_fault("status", path="/webhooks/calls", status=status, body=body, times=None)
    for call in calls:
        with pytest.raises(CustodyError) as caught:
            call()
        assert "s3cret" not in f"{caught.value} {caught.value.to_json()}"
        assert "receiver" not in f"{caught.value} {caught.value.to_json()}"


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


ODD_NUMBERS = [float("nan"), float("inf"), -float("inf"), -1, -0.5, 10**5000, True, "300", None, b"1", object(), [300]]


@pytest.mark.parametrize("tolerance", ODD_NUMBERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("at", [NOW, 0])
def test_an_odd_tolerance_accepts_nothing(tolerance: Any, at: int) -> None:
    with pytest.raises(CustodyConfigurationError, match="tolerance") as caught:
        verify(delivery(at=at), tolerance=tolerance)
    assert caught.value.setting == "tolerance"


@pytest.mark.parametrize(
    "now", [each for each in ODD_NUMBERS if each is not None], ids=lambda value: type(value).__name__
)
def test_an_odd_now_accepts_nothing(now: Any) -> None:
    with pytest.raises(CustodyConfigurationError, match="now"):
        verify(delivery(at=0), now=now)


@pytest.mark.parametrize("secret", [None, "", "  ", b"secret", 5, ["s"], True, "\ud800"], ids=repr)
def test_an_odd_secret_accepts_nothing_and_is_not_quoted(secret: Any) -> None:
    with pytest.raises(CustodyConfigurationError, match="secret") as caught:
        verify_delivery(delivery(), b"{}", secret, now=NOW)
    assert repr(secret) not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("body", [None, "{}", 5, [b"{}"], {}], ids=repr)
def test_a_body_that_is_not_bytes_is_refused(body: Any) -> None:
    with pytest.raises(CustodyRequestError, match="bytes"):
        verify_delivery(delivery(), body, SECRET, now=NOW)


def test_a_body_may_be_in_any_buffer() -> None:
    assert verify_delivery(delivery(), bytearray(b"{}"), SECRET, now=NOW) == "evt-1"
    assert verify_delivery(delivery(), memoryview(b"{}"), SECRET, now=NOW) == "evt-1"


@pytest.mark.parametrize(
    "change",
    [
        lambda headers: None,
        lambda headers: 5,
        lambda headers: "x",
        lambda headers: list(headers),
        lambda headers: list(headers.items()),
        lambda headers: {name.encode(): value for name, value in headers.items()},
        lambda headers: {name: value.encode() for name, value in headers.items()},
        lambda headers: {name: [value] for name, value in headers.items()},
        lambda headers: {**headers, "x-webhook-id": None},
        lambda headers: {**headers, "X-WEBHOOK-ID": "evt-2"},
        lambda headers: {**headers, "x-webhook-id": "\ud800", "X-Webhook-Id": "\ud800"},
    ],
)
def test_odd_headers_are_refused(change: Callable[[dict[str, str]], Any]) -> None:
    with pytest.raises(CustodyRequestError):
        verify_delivery(change(delivery()), b"{}", SECRET, now=NOW)


@pytest.mark.parametrize("first_time", [5, "x", True, [], {}])
def test_an_odd_memory_of_deliveries_accepts_nothing(first_time: Any) -> None:
    with pytest.raises(CustodyConfigurationError, match="first_time"):
        verify(delivery(), first_time=first_time)


def test_an_asynchronous_memory_of_deliveries_accepts_nothing() -> None:
    async def first_time(identifier: str) -> bool:
        return False

    coroutines: list[Any] = []

    def call(identifier: str) -> Any:
        coroutines.append(first_time(identifier))
        return coroutines[-1]

    with pytest.raises(CustodyConfigurationError, match="first_time"):
        verify(delivery(), first_time=call)
    coroutines[0].close()
    with pytest.raises(CustodyRequestError, match="seen before"):
        verify(delivery(), first_time=lambda identifier: None)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers())))
def test_no_value_of_an_argument_accepts_an_old_delivery(value: Any) -> None:
    old = delivery(at=1)
    for arguments in ({"tolerance": value}, {"now": value}, {"first_time": value}):
        if isinstance(value, (int, float)) and "now" in arguments and abs(value - 1) <= 300:
            continue
        if isinstance(value, (int, float)) and "tolerance" in arguments and value > NOW / 2:
            continue
        with pytest.raises((CustodyRequestError, CustodyConfigurationError)):
            verify(old, **arguments)


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
