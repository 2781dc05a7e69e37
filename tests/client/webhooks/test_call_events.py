"""Which calls an event tells of, and what it says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_custody.client.webhooks.call_events import CallFilter, to_event
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.client.webhooks.models import WebhookCall
from airflow_custody.client.webhooks.results import NewCalls

CALLS = (
    WebhookCall("1", "AB", "e1", '{"a": 1}', "success"),
    WebhookCall("2", "cd", "e2", "text", "failed"),
    WebhookCall("3", "deleted", "e1", None, "Success"),
)
TYPES = {"ab": "requestStatus.updated", "CD": "currencyStatus.updated"}


@pytest.mark.parametrize(
    ("criteria", "ids"),
    [
        ({}, "123"),
        ({"webhook_ids": ["ab"]}, "1"),
        ({"webhook_ids": ["CD", "x"]}, "2"),
        ({"event_ids": ["e1"]}, "13"),
        ({"statuses": ["SUCCESS"]}, "13"),
        ({"event_ids": ["e1"], "webhook_ids": ["deleted"]}, "3"),
        # Which type a webhook had that was deleted is not known.
        ({"webhook_types": ["requeststatus.UPDATED"]}, "13"),
        ({"webhook_types": ["currencyStatus.updated"]}, "23"),
        ({"webhook_ids": [], "webhook_types": ()}, "123"),
    ],
    ids=str,
)
def test_selection(criteria: dict[str, Any], ids: str) -> None:
    selection = CallFilter(**criteria)
    assert [each.id for each in selection.select(CALLS, TYPES)] == list(ids)
    assert selection.needs_types is bool(criteria.get("webhook_types"))


def test_an_event_with_the_calls() -> None:
    event = to_event(NewCalls(CALLS, CallCursor(0, {}), late=frozenset("31"), more=True, gap="why"))
    assert event == {
        "count": 3,
        "calls": [each.to_json() for each in CALLS],
        "late_ids": ["1", "3"],
        "gap": "why",
        "more": True,
    }
    assert json.loads(json.dumps(event)) == event


def test_an_event_of_calls_alone() -> None:
    event = to_event(iter(CALLS), with_payload=False)
    assert (event["count"], event["late_ids"], event["gap"], event["more"]) == (3, [], "", False)
    assert all("payload" not in each for each in event["calls"])


def test_an_event_that_would_be_too_large_has_the_ids() -> None:
    size = len(json.dumps([each.to_json() for each in CALLS]))
    assert "calls" in to_event(CALLS, max_bytes=size + 2)
    event = to_event(CALLS, max_bytes=size - 1)
    assert event["call_ids"] == ["1", "2", "3"]
    assert "calls" not in event
    assert to_event([], max_bytes=2)["calls"] == []
    assert "since" not in event
    times = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in (3, 1, 2)]
    dated = [replace(each, created_at=at) for each, at in zip(CALLS, times, strict=True)]
    assert to_event(dated, max_bytes=2)["since"] == "2026-01-01T00:00:00+00:00"
    assert "since" not in to_event([*dated, CALLS[0]], max_bytes=2)
