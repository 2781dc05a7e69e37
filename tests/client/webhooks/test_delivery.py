"""Verifying what a webhook delivers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_custody.client import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.webhooks import Delivery, verify_delivery

SECRET = "not a real secret"
NOW = 1_790_000_000


def delivery(body: bytes = b"{}", secret: str = SECRET, number: str = "evt-1", at: int = NOW) -> dict[str, str]:
    digest = hmac.digest(secret.encode(), f"{number}.{at}.".encode() + body, hashlib.sha256)
    return {
        "X-Webhook-Id": number,
        "X-Webhook-Timestamp": str(at),
        "X-Webhook-Signature": "v1," + base64.b64encode(digest).decode(),
    }


def verify(headers: Any, body: Any = b"{}", secret: Any = SECRET, **options: Any) -> str:
    return deliver(headers, body, secret, **options).id


def deliver(headers: Any, body: Any = b"{}", secret: Any = SECRET, **options: Any) -> Delivery:
    return verify_delivery(headers, body, secret, **{"now": NOW, **options})


@given(st.binary(), st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.binary())
def test_a_delivery_is_accepted_if_its_body_is_the_one_that_was_signed(body: bytes, number: str, other: bytes) -> None:
    headers = delivery(body, number=number)
    for buffer in (body, bytearray(body), memoryview(body)):
        assert verify(headers, buffer) == number
    if body != other:
        with pytest.raises(CustodyRequestError, match="no signature matches"):
            verify(headers, other)


@pytest.mark.parametrize("version", ["v1a", "v2", "V1", "v", ""])
def test_a_signature_of_an_unknown_version_is_skipped(version: str) -> None:
    headers = delivery()
    known = headers["X-Webhook-Signature"]
    for signature in (f"{version},{known[3:]}", f"{version},w5\u00fc!", version):
        assert verify(headers | {"X-Webhook-Signature": f"{signature} {known}"}) == "evt-1"
        with pytest.raises(CustodyRequestError, match="no signature matches"):
            verify(headers | {"X-Webhook-Signature": signature})


def test_a_delivery_has_the_type_the_time_and_the_data_of_its_event() -> None:
    event = {"type": "requestStatus.updated", "createdAt": "2026-09-21T14:13:20.5Z"}
    body = json.dumps({**event, "data": {"requestId": 123, "status": "APPROVED"}}).encode()
    assert deliver(delivery(body), body) == Delivery(
        id="evt-1",
        type="requestStatus.updated",
        created_at=datetime(2026, 9, 21, 14, 13, 20, 500_000, timezone.utc),
        data={"requestId": "123", "status": "APPROVED"},
    )


@given(st.binary())
@example(b"\xff")
@example(b'{"type": "a", "type": "b"}')
@example(b'{"requestId": 123}')
def test_a_signed_body_of_another_form_is_a_delivery_without_an_event(body: bytes) -> None:
    found = deliver(delivery(body), body)
    assert found == Delivery("evt-1", None, None, {})


GOOD = delivery()


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        pytest.param(GOOD | {"X-Webhook-Signature": ""}, "no signature", id="an empty signature"),
        pytest.param(GOOD | {"X-Webhook-Id": "evt-2"}, "no signature", id="another id"),
        pytest.param(GOOD | {"X-Webhook-Id": "\udcff"}, "no signature", id="an id that is no text"),
        pytest.param(GOOD | {"X-Webhook-Timestamp": str(NOW + 1)}, "no signature", id="another time"),
        pytest.param(delivery(secret="another webhook's"), "no signature", id="another secret"),
        pytest.param(delivery(at=NOW - 31), r"is 31\.0 s behind .* clock; 30 s are allowed", id="too old"),
        pytest.param(delivery(at=NOW + 31), r"is 31\.0 s ahead of .* clock; 30 s are allowed", id="of the future"),
        *(
            pytest.param({key: GOOD[key] for key in GOOD if key != name}, name.lower(), id=f"no {name}")
            for name in GOOD
        ),
        pytest.param(GOOD | {"X-WEBHOOK-ID": "evt-2"}, "no signature", id="an id twice"),
    ],
)
def test_another_delivery_is_refused(headers: dict[str, str], why: str) -> None:
    with pytest.raises(CustodyRequestError, match=why) as caught:
        verify(headers)
    assert SECRET not in str(caught.value)


def test_a_clock_that_is_off_needs_another_tolerance_and_the_refusal_says_so() -> None:
    for at in (NOW - 30, NOW + 30):
        assert verify(delivery(at=at)) == "evt-1"
    for at in (NOW - 240, NOW + 240):
        with pytest.raises(CustodyRequestError, match=r"240\.0 s") as caught:
            verify(delivery(at=at))
        assert "NTP" in str(caught.value)
        assert "'tolerance'" in str(caught.value)
        assert verify(delivery(at=at), tolerance=300) == "evt-1"


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("tolerance", [None, float("nan"), -1, True, "300"]),
        ("now", [float("nan"), "300"]),
        ("secret", [None, "", "  ", b"secret"]),
    ],
)
def test_an_argument_of_a_wrong_type_or_value_accepts_nothing(argument: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(CustodyConfigurationError, match=argument) as caught:
            verify(delivery(), **{argument: value})
        assert argument != "secret" or repr(value) not in str(caught.value)
        assert caught.value.__context__ is None or caught.value.__suppress_context__
    # The delivery is signed with an empty secret.
    with pytest.raises(CustodyConfigurationError, match="secret is missing"):
        verify(delivery(secret=""), secret="")


@pytest.mark.parametrize("body", [None, "{}", [b"{}"]], ids=repr)
def test_a_body_that_is_not_bytes_is_refused(body: Any) -> None:
    with pytest.raises(CustodyRequestError, match="bytes"):
        verify(delivery(), body)


def test_a_replay_is_refused_and_only_valid_deliveries_are_remembered() -> None:
    seen: set[str] = set()

    def first_time(number: str) -> bool:
        new = number not in seen
        seen.add(number)
        return new

    with pytest.raises(CustodyRequestError):
        verify(delivery(secret="wrong"), first_time=first_time)
    assert verify(delivery(), first_time=first_time) == "evt-1"
    # If the service repeats a delivery, the delivery has a new timestamp.
    for now in (NOW, NOW + 3600):
        with pytest.raises(CustodyRequestError, match="seen before"):
            verify(delivery(at=now), now=now, first_time=first_time)
    for answer in (False, None):
        with pytest.raises(CustodyRequestError, match="seen before"):
            verify(delivery(), first_time=lambda identifier, answer=answer: answer)
