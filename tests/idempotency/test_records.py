"""The stored form of sent requests: it does not change, and unreadable records are refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_custody.client import CustodyOutcomeUnknownError
from airflow_custody.idempotency.store import Batch, PlanRecord, from_stored, to_stored

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
# A record in version 1 of the format.
EARLIER = {"format": 1, "state": "intent", "try": 1, "max_tries": 3, "content": {}, "before": [], "key": "k"}


def test_the_stored_form_stays_as_it_is() -> None:
    assert to_stored(from_stored(BATCH, Batch)) == BATCH


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"recorded_at": "yesterday"},
        {"more": 1},
        {"number": "0"},
        {"rows": {"one": {**ROW, "state": "done"}}},
        {"rows": {"one": {"detail": "3711"}}},
    ],
    ids=str,
)
def test_an_unreadable_record_is_refused(change: dict[str, Any]) -> None:
    for stored in ({**BATCH, **change}, EARLIER, None):
        with pytest.raises(CustodyOutcomeUnknownError, match="nothing is sent"):
            from_stored(stored, Batch)


@pytest.mark.parametrize(
    "operation",
    ["not JSON", "7", "{}", '{"delete": "9"}', '{"delete": "7", "beside": 8}'],
    ids=str,
)
def test_a_plan_whose_deletion_is_not_of_the_expected_request_is_refused(operation: str) -> None:
    plan = {"plan": "a" * 64, "rows": "b" * 64, "creations": {}, "replaced": {}, "observed": []}
    expected = {"7": ["effective", "APPROVED", "c" * 64]}
    stored = {"format": 2, "state": "planned", **plan, "deletions": [{"operation": operation, "expected": expected}]}
    with pytest.raises(CustodyOutcomeUnknownError, match="nothing is sent"):
        from_stored(stored, PlanRecord)
    stored["deletions"] = [{"operation": '{"delete": "7"}', "expected": expected}]
    assert from_stored(stored, PlanRecord).deletions[0].id == "7"
