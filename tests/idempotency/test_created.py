from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.idempotency.created import MANY, ONE, has_created
from airflow_custody.idempotency.records import Begun, Created, Intent, Refused, Untracked, digest, to_stored

URL = "https://custody.example.com"
INTENT = Intent("k", 1, 0, {"service": digest(URL)}, ("3711",), datetime.now(timezone.utc))
WINDOW = {"rows": {"a": ["created", "3711"], "b": ["found", "3712"], "c": ["sent", "", "3713"]}, "service": digest(URL)}


def test_a_task_that_creates_one() -> None:
    assert has_created(ONE, json.dumps(to_stored(Created("3711", "k", 0, INTENT))), "3711", URL)
    assert not has_created(ONE, json.dumps(to_stored(Created("3711", "k", 0, INTENT))), "371", URL)
    for record in (Begun(), INTENT, Refused(INTENT)):
        assert not has_created(ONE, json.dumps(to_stored(record)), "3711", URL)


@pytest.mark.parametrize(("key", "value"), [(f"{MANY}_0000", WINDOW), (MANY, {"format": 1, "window": WINDOW})])
def test_a_task_that_creates_many(key: str, value: dict[str, Any]) -> None:
    assert has_created(key, json.dumps(value), "3711", URL)
    assert not any(has_created(key, json.dumps(value), each, URL) for each in ("3712", "3713", "a", ""))


@pytest.mark.parametrize("base_url", ["https://other.example.com", f"{URL}/tenant"])
def test_what_was_created_at_another_service(base_url: str) -> None:
    one = json.dumps(to_stored(Created("3711", "k", 0, INTENT)))
    for key, value in ((ONE, one), (MANY, json.dumps({"window": WINDOW})), (f"{MANY}_0000", json.dumps(WINDOW))):
        assert has_created(key, value, "3711", base_url) is False


def test_what_was_created_at_a_service_that_is_not_known() -> None:
    """As by a version that did not record it."""
    for attempt in (Untracked(None), replace(INTENT, content={})):
        assert has_created(ONE, json.dumps(to_stored(Created("3711", "k", 0, attempt))), "3711", URL) is None
    assert has_created(f"{MANY}_0000", json.dumps({"rows": WINDOW["rows"]}), "3711", URL) is None
    assert has_created(f"{MANY}_0000", json.dumps(WINDOW), "3711", "") is None


def test_a_task_between_two_windows() -> None:
    assert not has_created(MANY, json.dumps({"format": 1, "plan": "3711"}), "3711", URL)


_JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["rows", "window", "state", "format", "service"]), inner)
    ),
)


@given(st.sampled_from([ONE, MANY, f"{MANY}_0001"]), _JSON.map(json.dumps) | st.text())
def test_what_is_not_ours_says_nothing(key: str, value: str) -> None:
    assert not has_created(key, value, "3711", URL)
