"""The stored form of what was sent: it survives JSON, and what cannot be read is refused."""

from __future__ import annotations

import json
from datetime import timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyOutcomeUnknownError
from airflow_custody.idempotency.records import Batch, Row, from_stored, to_stored

ROW: dict[str, Any] = {
    "state": "sent",
    "known_ids": ["3702"],
    "content": {"service": "a" * 64, "address": "b" * 64},
    "max_tries": 3,
}
BATCH: dict[str, Any] = {
    "format": 2,
    "state": "open",
    "number": 0,
    "key": "3f9c2a71d0be4d5f8a1b2c3d4e5f6071",
    "plan": "",
    "try_number": 1,
    "recorded_at": "2026-11-20T10:11:12.131415Z",
    "rows": {"one": ROW},
}
# As version 1 of the format had it.
EARLIER = {"format": 1, "state": "intent", "try": 1, "max_tries": 3, "content": {}, "before": [], "key": "k"}


def test_the_stored_form_stays_as_it_is() -> None:
    assert to_stored(from_stored(BATCH)) == BATCH


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"format": None},
        {"recorded_at": "yesterday"},
        {"recorded_at": "2026-11-20T10:11:12"},
        {"try_number": "first"},
        {"try_number": True},
        {"key": 5},
        {"rows": []},
        {"more": 1},
        {"rows": {"one": {**ROW, "state": "done"}}},
        {"rows": {"one": {**ROW, "known_ids": "3702"}}},
        {"rows": {"one": {**ROW, "known_ids": [1]}}},
        {"rows": {"one": {**ROW, "content": ["a"]}}},
        {"rows": {"one": {**ROW, "detail": 3711}}},
        {"rows": {"one": {**ROW, "max_tries": float("inf")}}},
        {"rows": {"one": {"detail": "3711"}}},
    ],
    ids=str,
)
def test_an_unreadable_record_is_refused(change: dict[str, Any]) -> None:
    for stored in ({**BATCH, **change}, EARLIER, None):
        with pytest.raises(CustodyOutcomeUnknownError, match="nothing is sent"):
            from_stored(stored)  # type: ignore[arg-type]


ROWS = st.builds(
    Row,
    state=st.sampled_from(["sent", "created", "deleted", "found", "refused", "void"]),
    detail=st.text(),
    known_ids=st.none() | st.lists(st.text()),
    content=st.dictionaries(st.text(), st.text()),
    max_tries=st.integers(0, 99),
)


@given(
    rows=st.dictionaries(st.text(), ROWS),
    key=st.text(),
    at=st.none() | st.datetimes(timezones=st.just(timezone.utc)),
)
def test_a_record_survives_json(rows: dict[str, Row], key: str, at: Any) -> None:
    batch = Batch(number=7, key=key, plan="p", try_number=2, recorded_at=at, rows=rows)
    assert from_stored(json.loads(json.dumps(to_stored(batch)))) == batch
