"""The reading of a row of the listing of calls."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.webhooks import call_events
from airflow_custody.client.webhooks.call_events import CallFilter, to_event
from airflow_custody.client.webhooks.models import MAX_DEPTH, MAX_PARSED_LENGTH, WebhookCall, WireWebhook, read_payload

ROW = {
    "id": "7",
    "eventId": 3,
    "webhookId": "w",
    "payload": '{"type": "requestStatus.updated", "createdAt": "2026-01-02T03:04:04Z", "data": {"requestId": 3711}}',
    "status": "failed",
    "statusMessage": "no route",
    "attempts": "4",
    "createdAt": "2026-01-02T03:04:05.123456789Z",
    "updatedAt": "2026-01-02T05:04:05+02:00",
}


def test_a_call_as_it_is_published() -> None:
    assert WebhookCall.from_wire("7", {}) == WebhookCall("7", "")
    assert WebhookCall.from_wire("7", ROW).to_json() == {
        "id": "7",
        "webhook_id": "w",
        "event_id": "3",
        "type": "requestStatus.updated",
        "event_at": "2026-01-02T03:04:04+00:00",
        "data": {"requestId": "3711"},
        "payload": {
            "type": "requestStatus.updated",
            "createdAt": "2026-01-02T03:04:04Z",
            "data": {"requestId": 3711},
        },
        "status": "failed",
        "status_message": "no route",
        "attempts": 4,
        "created_at": "2026-01-02T03:04:05.123456+00:00",
        "updated_at": "2026-01-02T03:04:05+00:00",
    }


def test_the_secret_parts_of_a_url_stay_out_of_events() -> None:
    message = 'Post "https://user:PassW0rd9@hooks.example.com:8443/in?token=T0KEN": no route'
    call = WebhookCall.from_wire("7", {"statusMessage": message})
    assert call.to_json()["status_message"] == "Post https://***@hooks.example.com:8443/*** no route"


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("", None),
        ("not JSON", "not JSON"),
        ("[1, 2.5, null, true]", [1, 2.5, None, True]),
        (f"{2**64 - 1}", 2**64 - 1),
        ({"a": [1]}, {"a": [1]}),
        # A value that two readers may read differently stays text.
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("NaN", "NaN"),
        (f"{2**64}", f"{2**64}"),
        # A value that would change when it is read also stays text.
        ('{"a": 12345678901234567.89}', '{"a": 12345678901234567.89}'),
        ("1e-99999999999999999999999", "1e-99999999999999999999999"),
        ("[0.1, 1.50, 1E5, -0.0, 5e-324]", [0.1, 1.5, 100000.0, 0.0, 5e-324]),
        ('{"\\ud800": 1}', '{"\\ud800": 1}'),
        ("[" * 100_000, "[" * 100_000),
        # No database can store these texts.
        ("a\0b\ud800", "a\ufffdb\ufffd"),
    ],
    ids=lambda value: re.sub(" at 0x.*", "", repr(value)[:40]),
)
def test_payloads(text: object, payload: object) -> None:
    assert WebhookCall.from_wire("7", {"payload": text}).payload == payload


def test_bounds_of_what_is_parsed() -> None:
    deep = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert read_payload(deep) != deep
    assert read_payload(f"[{deep}]") == f"[{deep}]"
    long = json.dumps("x" * (MAX_PARSED_LENGTH - 2))
    assert read_payload(long) == long[1:-1]
    assert read_payload(f"{long} ") == f"{long} "


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*ROW, "other"]), ANYTHING))
def test_any_row_becomes_plain_json(row: dict[str, Any]) -> None:
    data = WebhookCall.from_wire("7", row).to_json()
    text = json.dumps(data, allow_nan=False, ensure_ascii=False)
    assert "\0" not in text
    assert json.loads(text.encode()) == data


# --- the event in a payload --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ('{"requestId": 123, "status": "APPROVED"}', {"requestId": "123", "status": "APPROVED"}),
        # The number is kept exactly as it was sent, although a float would change it.
        ('{"requestID": 123456789012345678901234567890}', {"requestID": "123456789012345678901234567890"}),
        ('{"aId": 1.10, "bId": 1e3, "cId": -0}', {"aId": "1.10", "bId": "1e3", "cId": "-0"}),
        ('{"id": 1, "requestIds": [1, "2", null]}', {"id": "1", "requestIds": ["1", "2", None]}),
        ('{"request": {"id": 1, "paid": 2}}', {"request": {"id": "1", "paid": 2}}),
        # A number that is not an id stays a number, unless it would change.
        ('{"n": 5, "x": 0.5, "y": 12345678901234567.89}', {"n": 5, "x": 0.5, "y": "12345678901234567.89"}),
        ('{"requestId": null, "isId": true}', {"requestId": None, "isId": True}),
        ("null", {}),
    ],
)
def test_the_ids_of_an_event_are_text(data: str, found: dict[str, Any]) -> None:
    text = f'{{"type": "a.b", "createdAt": "2026-01-02T03:04:05.123456789Z", "data": {data}, "other": 1}}'
    call = WebhookCall("7", "w", payload_text=text, created_at=TIMES[0])
    assert call.type == "a.b"
    assert call.event_at == datetime(2026, 1, 2, 3, 4, 5, 123456, timezone.utc)
    assert call.data == found
    assert [type(each) for each in call.data.values()] == [type(each) for each in found.values()]
    # Calls are listed by the time at which they were created.
    assert call.created_at == TIMES[0]
    assert call.payload_text == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"type": "a.b"}', "a.b"),
        ('{"type": "a.b", "createdAt": "yesterday"}', "a.b"),
        *((text, None) for text in (None, "", "text", "[]", '{"requestId": "3711"}')),
        *((f'{{"type": {kind}, "data": {{}}}}', None) for kind in ('""', "7")),
        *((f'{{"type": "a.b", "data": {data}}}', None) for data in ("[]", '{"a": NaN}')),
        ('{"type": "a.b", "data": {"requestId": 1, "requestId": 2}}', None),
        ('{"type": "a.b", "data": {"x": "\\ud800"}}', None),
        ('{"type": "a.b", "data": {"x": ' + "[" * 5000 + "]" * 5000 + "}}", None),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_payload_of_another_form_has_no_event(text: str | None, kind: str | None) -> None:
    call = WebhookCall("7", "w", payload_text=text)
    assert (call.type, call.event_at, call.data) == (kind, None, {})
    assert call.payload_text == text


# --- events ------------------------------------------------------------------------------------------------------


TIMES = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in (3, 1, 2)]
CALLS = (
    WebhookCall("1", "AB", "e1", '{"a": 1}', "success", created_at=TIMES[0]),
    WebhookCall("2", "cd", "e2", "text", "failed", created_at=TIMES[1]),
    WebhookCall("3", "deleted", "e1", None, "Success", created_at=TIMES[2]),
)
WEBHOOKS: list[WireWebhook] = [
    {"id": "ab", "type": "requestStatus.updated"},
    {"id": "CD", "type": "currencyStatus.updated"},
]


@pytest.mark.parametrize(
    ("criteria", "ids"),
    [
        ({"webhook_ids": ["CD", "x"]}, "2"),
        ({"statuses": ["SUCCESS"]}, "13"),
        ({"event_ids": ["e1"], "webhook_ids": ["deleted"]}, "3"),
        # The type of a deleted webhook is unknown.
        ({"webhook_types": ["requeststatus.UPDATED"]}, "13"),
        ({"webhook_types": ["currencyStatus.updated"]}, "23"),
        ({"webhook_ids": [], "webhook_types": ()}, "123"),
        # None of these payloads has the published form.
        ({"data_statuses": ["disabled"]}, "123"),
    ],
    ids=str,
)
def test_selection(criteria: dict[str, Any], ids: str) -> None:
    assert [each.id for each in CallFilter(**criteria).select(CALLS, WEBHOOKS)] == list(ids)


@pytest.mark.parametrize(
    ("data", "is_selected"),
    [
        ('{"status": "disabled"}', True),
        ('{"status": "DISABLED"}', True),
        ('{"status": "enabled"}', False),
        # The service leaves out empty values, so there is no status.
        ("{}", False),
        # A call that cannot be read may be a call that the filter selects.
        ('{"status": 7}', True),
        ("[]", True),
    ],
)
def test_selection_by_the_status_in_the_data(data: str, is_selected: bool) -> None:
    call = WebhookCall("1", "ab", payload_text=f'{{"type": "currencyStatus.updated", "data": {data}}}')
    assert bool(CallFilter(data_statuses=["disabled"]).select([call], [])) is is_selected


def test_an_event() -> None:
    event = to_event(CALLS, late={"1", "3"}, more=True, gap="why")
    calls = [each.to_json() for each in CALLS]
    assert event == {"count": 3, "calls": calls, "late_ids": ["1", "3"], "gap": "why", "more": True}
    assert json.loads(json.dumps(event)) == event
    assert all("payload" not in each for each in to_event(CALLS, with_payload=False)["calls"])


def test_an_event_that_would_be_too_large_has_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(json.dumps([each.to_json() for each in CALLS]))
    monkeypatch.setattr(call_events, "MAX_EVENT_BYTES", size)
    assert "calls" in to_event(CALLS)
    monkeypatch.setattr(call_events, "MAX_EVENT_BYTES", size - 1)
    event = to_event(CALLS)
    assert event["call_ids"] == ["1", "2", "3"]
    assert event["since"] == "2026-01-01T00:00:00+00:00"
    assert "calls" not in event
