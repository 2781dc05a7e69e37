"""The stored form of a record: this version continues tasks that the previous version started."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyOutcomeUnknownError
from airflow_custody.idempotency.records import Created, Intent, Refused, Untracked, from_stored, to_stored

# As version 1.1.0 wrote them.
INTENT: dict[str, Any] = {
    "format": 1,
    "state": "intent",
    "try": 1,
    "max_tries": 3,
    "content": {"service": "a" * 64, "address": "b" * 64},
    "before": ["3702"],
    "key": "3f9c2a71d0be4d5f8a1b2c3d4e5f6071",
    "at": "2026-11-20T10:11:12.131415+00:00",
}
CREATED = {**INTENT, "state": "created", "id": "3711", "max_tries": 4, "key": "0" * 32}
REFUSED = {**INTENT, "state": "refused"}
WITHOUT_A_LOOKUP = {name: value for name, value in INTENT.items() if name != "before"}
# A later try that had no record found the request, and stored this; see "clear_on_success".
FOUND = {"format": 1, "state": "created", "id": "3711", "max_tries": 4, "key": "0" * 32}
FOUND_SINCE = {**FOUND, "since": "2026-11-20T10:00:00+00:00"}


@pytest.mark.parametrize("stored", [INTENT, CREATED, REFUSED, WITHOUT_A_LOOKUP, FOUND, FOUND_SINCE])
def test_records_of_the_previous_version_are_read_and_written_unchanged(stored: dict[str, Any]) -> None:
    record = from_stored(stored)
    assert not isinstance(record, Untracked)
    assert to_stored(record) == stored


def test_each_state_is_a_type() -> None:
    intent = from_stored(INTENT)
    assert intent == Intent(
        key="3f9c2a71d0be4d5f8a1b2c3d4e5f6071",
        try_number=1,
        max_tries=3,
        content={"service": "a" * 64, "address": "b" * 64},
        known_ids=("3702",),
        recorded_at=datetime(2026, 11, 20, 10, 11, 12, 131415, tzinfo=timezone.utc),
    )
    assert from_stored(REFUSED) == Refused(intent)
    created = from_stored(CREATED)
    assert isinstance(created, Created)
    assert (created.id, created.max_tries, created.key) == ("3711", 4, "0" * 32)
    found = from_stored(FOUND)
    assert isinstance(found, Created)
    assert found.attempt == Untracked(None)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"state": "done"},
        {"state": None},
        {"at": None},
        {"at": "yesterday"},
        {"content": 7},
        {"try": "first"},
        {"try": 1.5},
        {"try": True},
        {"before": "3712"},
        {"before": [1, 2]},
        {"before": {"a": 1}},
        {"content": ["ab"]},
        {"content": {"address": 1}},
        {"key": 5},
        {"max_tries": float("inf")},
        {"max_tries": "3"},
        {"at": "2026-11-20T10:11:12"},
    ],
    ids=str,
)
def test_an_unreadable_record_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CustodyOutcomeUnknownError, match="nothing is sent"):
        from_stored({**INTENT, **change})
    for name in change:
        if name in ("before", "key"):
            continue  # optional
        with pytest.raises(CustodyOutcomeUnknownError):
            from_stored({key: value for key, value in INTENT.items() if key != name})


@pytest.mark.parametrize("identifier", [None, "", ["1"], 3711])
def test_an_id_that_is_no_text_is_not_returned(identifier: object) -> None:
    with pytest.raises(CustodyOutcomeUnknownError, match="nothing is sent"):
        from_stored({**CREATED, "id": identifier})


@given(
    key=st.none() | st.text(min_size=1),
    tries=st.integers(1, 99),
    known=st.none() | st.lists(st.text(min_size=1)).map(tuple),
    at=st.datetimes(timezones=st.just(timezone.utc)),
)
def test_a_record_survives_json(key: str | None, tries: int, known: tuple[str, ...] | None, at: datetime) -> None:
    intent = Intent(key, tries, tries + 1, {"address": "c" * 64}, known, at)
    for record in (intent, Refused(intent), Created("7", "k", 5, Untracked(at))):
        assert from_stored(json.loads(json.dumps(to_stored(record)))) == record
    # After a success, key and max_tries are those of the outcome.
    kept = replace(intent, key="k", max_tries=5)
    assert from_stored(to_stored(Created("7", "k", 5, intent))) == Created("7", "k", 5, kept)


def test_an_untracked_attempt_is_not_stored_as_an_intent() -> None:
    since = datetime.now(timezone.utc) - timedelta(hours=1)
    stored = to_stored(Created("7", "k", 5, Untracked(since)))
    assert "state" in stored
    assert "try" not in stored
