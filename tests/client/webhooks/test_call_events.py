"""Which calls an event tells of, and what it says of them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_custody.client.webhooks import call_events
from airflow_custody.client.webhooks.call_events import CallFilter, to_event
from airflow_custody.client.webhooks.models import WebhookCall

TIMES = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in (3, 1, 2)]
CALLS = (
    WebhookCall("1", "AB", "e1", '{"a": 1}', "success", created_at=TIMES[0]),
    WebhookCall("2", "cd", "e2", "text", "failed", created_at=TIMES[1]),
    WebhookCall("3", "deleted", "e1", None, "Success", created_at=TIMES[2]),
)
TYPES = {"ab": "requestStatus.updated", "CD": "currencyStatus.updated"}


@pytest.mark.parametrize(
    ("criteria", "ids"),
    [
        ({"webhook_ids": ["CD", "x"]}, "2"),
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
    assert [each.id for each in CallFilter(**criteria).select(CALLS, TYPES)] == list(ids)


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
    assert (event["call_ids"], event["since"]) == (["1", "2", "3"], "2026-01-01T00:00:00+00:00")
    assert "calls" not in event
