"""Creating and listing webhooks, and verifying what they deliver."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.sandbox import Sandbox

ONE, TWO = "00000001-0000-4000-8000-000000000000", "00000002-0000-4000-8000-000000000000"
TYPE, URL = "requestStatus.updated", "https://hooks.example.com/custody"


def test_create_returns_the_secret_and_the_listing_does_not(sandbox: Sandbox, client: CustodyClient) -> None:
    number, secret = client.create_webhook(TYPE, URL)
    assert len(secret) > 20
    assert client.create_webhook(TYPE, URL, secret="my own")[1] == "my own"
    found = list(client.list_webhooks(webhook_type=TYPE))
    assert found[0]["id"] == number
    assert secret not in repr(found)


def test_a_cursor_is_sent_as_it_came_and_only_if_there_is_a_next_page(sandbox: Sandbox, client: CustodyClient) -> None:
    for number in "0123":
        sandbox.control.add_webhook_call(id=number)
        sandbox.control.add_webhook()
    sandbox.control.configure(listings={name: {"page_size": 2} for name in ("webhooks", "webhook-calls")})
    assert [each.id for each in client.list_webhook_calls()] == ["0", "1", "2", "3"]
    assert len(list(client.list_webhooks())) == 4
    # Of the calls, only the first page is read again.
    for path, pages in (("/webhooks/calls", ["FIRST", "NEXT", "FIRST"]), ("/webhooks", ["FIRST", "NEXT"] * 2)):
        calls = [each for each in sandbox.control.request_log("GET") if each["path"].endswith(path)]
        queries = [each["query"] for each in calls]
        assert [each["cursor.pageRequest"][0] for each in queries] == pages
        assert all({"+", "/", "="} <= {*each["cursor.currentPage"][0]} for each in queries[1::2])


NO_IDS: list[Any] = ["", None, " 7", "x" * 201, {}]


@pytest.mark.parametrize(
    "bodies",
    [
        [{"status": "UP"}],
        [{"webhooks": [], "cursor": {"hasNext": True}}],
        [{"webhooks": [], "cursor": {"hasNext": True, "currentPage": "a"}}] * 2,
        *([{"webhooks": [{"id": each}]}] for each in NO_IDS),
    ],
    ids=lambda bodies: str(bodies)[:60],
)
def test_a_listing_that_cannot_be_read_is_refused(sandbox: Sandbox, client: CustodyClient, bodies: list[Any]) -> None:
    for rows, call in (("webhooks", client.list_webhooks), ("calls", client.list_webhook_calls)):
        for body in bodies:
            text = json.dumps(body).replace('"webhooks"', f'"{rows}"')
            sandbox.control.add_fault("status", status=200, body=json.loads(text))
        with pytest.raises(CustodyResponseError):
            list(call())


@pytest.mark.parametrize(
    ("rows", "oddities"),
    [
        # One call disappears between the two readings, one appears before the first page, and one is delivered in the
        # end.
        ("webhooks", {"page_size": 1, "orders": [[ONE, TWO]] * 2 + [[ONE]]}),
        ("webhook-calls", {"page_size": 1, "orders": [["1", "2"], ["0", "1", "2"]]}),
        *((rows, {"page_size": 1, "ignored": ["cursor"]}) for rows in ("webhooks", "webhook-calls")),
    ],
    ids=str,
)
def test_a_listing_is_complete_or_an_error(
    sandbox: Sandbox, client: CustodyClient, rows: str, oddities: dict[str, Any]
) -> None:
    for number in (ONE, TWO):
        sandbox.control.add_webhook(id=number)
    for number in "0123":
        sandbox.control.add_webhook_call(id=number)
    sandbox.control.configure(listings={rows: oddities})
    with pytest.raises(CustodyResponseError) as caught:
        list(client.list_webhooks() if rows == "webhooks" else client.list_webhook_calls())
    assert caught.value.retryable


def test_a_webhook_of_another_type_than_requested_is_refused(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_webhook(type="currencyStatus.updated")
    assert list(client.list_webhooks(webhook_type=TYPE)) == []
    sandbox.control.configure(listings={"webhooks": {"ignored": ["type"]}})
    with pytest.raises(CustodyResponseError, match="'type'"):
        list(client.list_webhooks(webhook_type=TYPE))


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("rows", ["webhooks", "calls"])
def test_a_response_that_shows_webhooks_is_never_quoted(
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


@pytest.mark.parametrize("status", [400, 403])
def test_a_refusal_of_a_call_that_sends_no_secret_is_quoted_without_what_may_be_one(
    sandbox: Sandbox, client: CustodyClient, status: int
) -> None:
    webhook_id = sandbox.control.add_webhook()["id"]
    urls = 'https://ann:s3cret@receiver.test:8443/s3cret?token=s3cret#s3cret, "https:\\/\\/x.test\\/s3cret"'
    body = {"error": "Refused", "message": f"in use by {urls} now", "code": status, "error_code": "E900-7"}
    quoted: list[Callable[[], Any]] = [
        lambda: client.set_webhook_status(webhook_id, "disabled"),
        lambda: client.delete_webhook(webhook_id),
    ]
    not_quoted: list[Callable[[], Any]] = [
        lambda: list(client.list_webhooks()),
        lambda: client.create_webhook(TYPE, URL),
    ]
    for call in quoted + not_quoted:
        sandbox.control.add_fault("status", path="/webhooks", status=status, body=body)
        with pytest.raises(CustodyError) as caught:
            call()
        error = caught.value
        assert "s3cret" not in f"{error} {error.to_json()}"
        if call in quoted:
            assert error.message == "Refused: in use by https://***@receiver.test:8443/*** *** now"
            assert error.status == status
            assert error.error_code == "E900-7"
        else:
            assert "not shown: it may contain a secret" in error.message
            assert error.error_code is None


@pytest.mark.parametrize("secret", ["", "x" * 151])
def test_a_secret_of_a_wrong_length_is_refused(sandbox: Sandbox, client: CustodyClient, secret: str) -> None:
    with pytest.raises(CustodyRequestError, match="1 to 150"):
        client.create_webhook(TYPE, URL, secret=secret)
    assert sandbox.control.request_log() == []


LATER, BEFORE = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
RESPONSES: list[dict[str, Any]] = [{}, {"status": 200, "body": {"x": [1]}}, {"status": 409, "body": {"error": "Busy"}}]


@pytest.mark.parametrize("response", RESPONSES, ids=["shows it", "shows nothing", "refuses"])
@pytest.mark.parametrize("word", ["TIMEOUT", "cooling-down"])
def test_a_webhook_that_cools_down_is_enabled(
    sandbox: Sandbox, client: CustodyClient, word: str, response: dict[str, Any]
) -> None:
    sandbox.control.configure(cooling_word=word, enabling_ends_cooling=False)
    webhook_id = sandbox.control.add_webhook(timeout_until=LATER)["id"]
    if response:
        body = response["body"] | ({"message": "no", "code": 409} if response["status"] == 409 else {})
        sandbox.control.add_fault("status", **response | {"body": body}, method="PATCH", path="/webhooks")
    client.set_webhook_status(webhook_id, "enabled")


@pytest.mark.parametrize(
    "webhook",
    [
        {"status": "disabled", "timeout_until": LATER},
        {"status": "TIMEOUT", "timeout_until": BEFORE},
        {"status": "TIMEOUT", "timeout_until": "soon"},
        {"status": "TIMEOUT"},
    ],
    ids=str,
)
def test_a_webhook_in_another_state_is_not_enabled(
    sandbox: Sandbox, client: CustodyClient, webhook: dict[str, Any]
) -> None:
    webhook_id = sandbox.control.add_webhook(**webhook)["id"]
    sandbox.control.add_fault("status", status=200, body={"x": [1]}, method="PATCH", path="/webhooks")
    with pytest.raises(CustodyResponseError, match=f"the webhook's status is '{webhook['status']}'") as caught:
        client.set_webhook_status(webhook_id, "enabled")
    # The webhook may only be listed late.
    assert caught.value.retryable


def test_a_webhook_that_cools_down_is_not_disabled(sandbox: Sandbox, client: CustodyClient) -> None:
    webhook_id = sandbox.control.add_webhook(timeout_until=LATER)["id"]
    sandbox.control.add_fault("status", status=200, body={"x": [1]}, method="PATCH", path="/webhooks")
    with pytest.raises(CustodyResponseError, match="the webhook's status is 'enabled'"):
        client.set_webhook_status(webhook_id, "disabled")
    client.set_webhook_status(webhook_id, "disabled")
    assert [each["status"] for each in sandbox.control.webhooks()] == ["disabled"]
