"""What a card says first."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow_runs import AIRFLOW

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client.approvals.models import PendingApprovals
from airflow_custody.client.verification.trust import TrustState
from airflow_custody.overview.models import (
    CheckRow,
    HealthView,
    JournalView,
    Overview,
    RequestRow,
    RequestsView,
    Section,
    WebhookRow,
)
from airflow_custody.plugin.cards import Card, make_card
from airflow_custody.plugin.readings import Reading

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
GOOD = Overview(
    read_at=NOW,
    base_url="https://custody.example.com",
    health=Section(HealthView(True, "the service is healthy: 9 of 9 checks are healthy", (), total=9)),
    pending=Section(RequestsView((), 0)),
    recent=Section(RequestsView((), 0)),
    unknown=Section(RequestsView((), 0)),
    rejected=0,
    approvals=Section(PendingApprovals()),
    webhooks=Section(()),
    journal=Section(JournalView()),
)


def card(overview: Overview | None = GOOD, **reading: Any) -> Card:
    return make_card("custody_default", Reading(overview, **reading), NOW)


def health(*wrong: str, total: int = 9, **facts: Any) -> Section[HealthView]:
    checks = tuple(CheckRow("hsm", "hsm-1", each, False, "failure", "its status is 'failure'", NOW) for each in wrong)
    return Section(HealthView(False, "not healthy", checks, total=total, unhealthy=len(wrong), **facts))


@pytest.mark.parametrize(
    ("overview", "level", "verdict"),
    [
        (GOOD, "good", "The service is healthy: 9 of 9 checks are healthy"),
        (replace(GOOD, health=health("link")), "bad", "Not healthy"),
        (replace(GOOD, health=Section(problem="refused")), "bad", "Health: refused"),
        (replace(GOOD, pending=Section(problem="refused")), "warning", "Whitelisting requests: refused"),
        (
            replace(GOOD, pending=Section(RequestsView((RequestRow("1", "pending", trust="unverified"),), 1))),
            "bad",
            "Whitelisting request 1 (pending): not verified",
        ),
        (
            replace(GOOD, recent=Section(RequestsView((RequestRow("1", "approved", problem="odd"),), 1))),
            "warning",
            "Whitelisting request 1 (in effect): odd",
        ),
        (
            replace(GOOD, webhooks=Section((WebhookRow("w1", "t", "u", "disabled", problem="It is disabled."),) * 3)),
            "warning",
            "Webhook w1: It is disabled.",
        ),
        (replace(GOOD, webhooks=Section(problem="refused")), "warning", "Webhooks: refused"),
        (
            replace(
                GOOD, webhooks=Section(problem="x", not_offered=True), journal=Section(problem="x", not_offered=True)
            ),
            "good",
            "The service is healthy: 9 of 9 checks are healthy",
        ),
        (
            replace(GOOD, health=Section(problem="refused", not_offered=True)),
            "bad",
            "Health: refused",
        ),
        (
            replace(GOOD, approvals=Section(problem="refused")),
            "warning",
            "Pending approvals: refused",
        ),
        (
            replace(GOOD, recent=Section(RequestsView((RequestRow("1", "approved", trust="unverified"),), 9, 4))),
            "bad",
            "Whitelisting request 1 (in effect): not verified",
        ),
        (
            replace(GOOD, unknown=Section(RequestsView((RequestRow("1", "WEIRD", trust="unverified"),), 1))),
            "bad",
            "Whitelisting request 1 (status not known): not verified",
        ),
        (replace(GOOD, journal=Section(problem="x")), "warning", "Journal of webhook calls: x"),
    ],
)
def test_verdicts(overview: Overview, level: str, verdict: str) -> None:
    found = card(overview)
    assert (found.level, found.verdict) == (level, verdict)


def test_the_worst_comes_first() -> None:
    found = card(replace(GOOD, webhooks=Section(problem="x"), health=health("link")))
    assert [each.level for each in found.findings] == ["bad", "warning"]
    assert (found.level_of("health"), found.level_of("webhooks"), found.level_of("pending")) == (
        "bad",
        "warning",
        None,
    )
    others = [card(), card(None, awaited_for=0.0), card(replace(GOOD, webhooks=Section(problem="x"))), found]
    assert [each.word for each in sorted(others, key=lambda each: each.order)] == [
        "Trouble",
        "No response",
        "Attention",
        "Healthy",
    ]


def test_a_service_that_has_not_responded() -> None:
    assert card(None, awaited_for=0.0).verdict.startswith("The service is being read, and has not responded yet.")
    before = NOW - timedelta(minutes=5)
    slow = card(read_at=before, awaited_for=60.0)
    assert (slow.level, slow.word) == ("unknown", "No response")
    assert slow.verdict == "The service has not responded yet to a new reading: what is shown is 5 min old."
    # That it is read again is no reason to worry.
    again = card(read_at=before, awaited_for=5.0)
    assert (again.level, again.is_being_read, card().is_being_read) == ("good", True, False)


def test_a_service_of_which_nothing_can_be_read() -> None:
    wrong = card(None, problem="The connection is wrong.")
    assert (wrong.level, wrong.verdict) == ("bad", "The connection is wrong.")
    before = card(problem="No connection.", read_at=NOW - timedelta(minutes=5))
    assert (before.level, before.verdict) == ("bad", "No connection. What is shown is 5 min old.")
    assert before.findings[1].text == "The service is healthy: 9 of 9 checks are healthy"


def test_green_means_that_something_is_right() -> None:
    def row(trust: TrustState) -> RequestRow:
        return RequestRow("1", "approved", trust=trust)

    right = replace(
        GOOD,
        pending=Section(RequestsView((row("unsigned"),), 1)),
        recent=Section(RequestsView((row("verified"),), 1)),
        webhooks=Section((WebhookRow("w1", "t", "u", "enabled"),)),
    )
    parts = ("health", "pending", "recent", "webhooks")
    assert [card(right).level_of(each) for each in parts] == ["good", None, "good", "good"]
    assert [card().level_of(each) for each in parts] == ["good", None, None, None]
    unpinned = replace(GOOD, recent=Section(RequestsView((row("not checked"),), 1)))
    assert card(unpinned).level_of("recent") is None
    assert card(None, awaited_for=0.0).level_of("health") is None
