"""The words for the state of a request, and for a service whose requests have been pending for long."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_custody.overview.models import Overview, RequestRow, Requests, RequestsView, Section
from airflow_custody.overview.verdict import describe_state, judge_overview

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
NONE = RequestsView((), 0)


@pytest.mark.parametrize(
    ("row", "level", "words"),
    [
        pytest.param({"state": "effective", "trust": "verified"}, "good", "in effect", id="verified"),
        pytest.param({"state": "effective"}, "unknown", "in effect", id="without-pinned-keys"),
        pytest.param(
            {"state": "effective", "problem": "odd"}, "warning", "in effect, with a problem", id="effective-problem"
        ),
        pytest.param(
            {"state": "effective", "deletion_pending": True}, "warning", "in effect, deletion pending", id="deletion"
        ),
        pytest.param(
            {"state": "effective", "trust": "unverified"}, "bad", "in effect, not verified", id="effective-unverified"
        ),
        pytest.param({"state": "pending"}, "waiting", "pending approval", id="pending"),
        pytest.param(
            {"state": "pending", "problem": "odd"}, "warning", "pending approval, with a problem", id="pending-problem"
        ),
        pytest.param(
            {"state": "pending", "judged": "unreadable", "problem": "odd"},
            "warning",
            "pending approval, not readable",
            id="unreadable",
        ),
        pytest.param({"state": "rejected", "problem": "odd"}, "warning", "rejected", id="rejected-problem"),
        pytest.param({"state": "unknown", "problem": "odd"}, "unknown", "state unknown", id="unknown"),
        pytest.param({"judged": "missing", "problem": "odd"}, "unknown", "not listed", id="missing"),
    ],
)
def test_the_state_of_a_request_in_words(row: dict[str, Any], level: str, words: str) -> None:
    assert describe_state(RequestRow("7", "approved", **row)) == (level, words)


@pytest.mark.parametrize(
    ("total", "age", "text"),
    [
        pytest.param(0, None, "", id="none"),
        pytest.param(1, timedelta(hours=71), "", id="one-over-a-weekend"),
        pytest.param(1, timedelta(days=3), "1 whitelisting request is pending approval for 3 d", id="one-for-long"),
        pytest.param(49, timedelta(hours=2), "", id="some"),
        pytest.param(311, timedelta(minutes=59), "", id="many-just-now"),
        pytest.param(
            50, timedelta(hours=1), "50 whitelisting requests are pending approval, the oldest for 1 h", id="many"
        ),
        pytest.param(1, None, "", id="one-without-a-date"),
        pytest.param(
            50,
            None,
            "50 whitelisting requests are pending approval; the date of the oldest is unknown",
            id="many-without-a-date",
        ),
    ],
)
def test_many_requests_or_a_long_time_are_a_state_of_their_own(total: int, age: timedelta | None, text: str) -> None:
    pending = RequestsView((), total, oldest_at=None if age is None else NOW - age)
    verdict = judge_overview(Overview(NOW, "https://x", requests=Section(Requests(pending, NONE, NONE))))
    assert verdict.texts("waiting") == ((text,) if text else ())
    assert {each.level for each in verdict.findings if each.kind == "waiting"} <= {"waiting"}
