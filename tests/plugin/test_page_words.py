"""What pages say of what is late, at odds with itself, or not shown."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow_runs import AIRFLOW

if AIRFLOW < (3, 3):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client.verification.trust import RequestState, TrustState
from airflow_custody.overview.models import (
    HealthView,
    JournalView,
    Overview,
    RequestRow,
    RequestsView,
    RequestView,
    Section,
    WebhookRow,
)
from airflow_custody.plugin import rendering, request_page
from airflow_custody.plugin.cards import make_card
from airflow_custody.plugin.readings import Reading

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
COMMON = {"root": "/custody", "airflow": "", "standalone": True, "now": NOW, "refresh": "/r"}


def text(markup: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", markup).split())


def request(**values: Any) -> str:
    """Return the text of a request's page."""
    given = {
        **COMMON,
        "conn_id": "c",
        "request_id": "7",
        **dict.fromkeys(("problem", "awaited", "view", "command"), ""),
    }
    given |= values
    return text(rendering._render("request.html", 2_000_000, given))


@pytest.mark.parametrize(
    ("state", "trust", "problem", "verdict"),
    [
        ("effective", "not checked", "its payload does not fit its hash", ("warning", "In effect, with a problem")),
        ("effective", "verified", "its status is odd", ("warning", "In effect, with a problem")),
        ("effective", "unverified", "not signed", ("bad", "In effect, not verified")),
        ("effective", "not checked", "", ("good", "In effect")),
        ("pending", "not checked", "its status is odd", ("warning", "Pending approval")),
        ("rejected", "not checked", "its status is odd", ("bad", "Rejected")),
    ],
)
def test_what_has_a_problem_is_not_green(
    state: RequestState, trust: TrustState, problem: str, verdict: tuple[str, str]
) -> None:
    row = RequestRow("7", "approved", trust=trust, problem=problem, state=state)
    assert request_page._verdict(row) == verdict
    assert verdict[1] in request(view=RequestView(row), verdict=verdict)


@pytest.mark.parametrize(
    ("shown", "more", "full", "words"),
    [
        (200, 1, False, "The first 200 of 201 (1 is not shown)"),
        (200, 1, True, "The first 200 of 201 are shown, 1 is not."),
        (200, 3, True, "The first 200 of 203 are shown, 3 are not."),
        (200, 0, False, "All 200"),
        (200, 0, True, ""),
    ],
)
def test_webhooks_that_are_not_shown(shown: int, more: int, full: bool, words: str) -> None:
    overview = Overview(
        NOW,
        "https://a.example.com",
        health=Section(HealthView(True, "", (), total=1)),
        pending=Section(RequestsView((), 0)),
        recent=Section(RequestsView((), 0)),
        unknown=Section(RequestsView((), 0)),
        webhooks=Section((WebhookRow("w", "t", "u", "enabled"),) * shown),
        journal=Section(JournalView()),
        more_webhooks=more,
    )
    card = make_card("c", Reading(overview), NOW)
    values = {**COMMON, "card": card, "heading": "h2", "full": full, "max_rows": 10_000 if full else 5}
    found = text(rendering._render("card.html", 2_000_000, values))
    assert words in found
    assert words or "The first" not in found
