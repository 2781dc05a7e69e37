"""What a card of a service says first, and which connections it is made of."""

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
    UserView,
    WebhookRow,
)
from airflow_custody.plugin.cards import Card, make_cards
from airflow_custody.plugin.readings import Reading

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
URL = "https://custody.example.com"
GOOD = Overview(
    read_at=NOW,
    base_url=URL,
    user=Section(UserView("ann", "1", ("TPUser", "Admin"))),
    health=Section(HealthView(True, "the service is healthy: 9 of 9 checks are healthy", ())),
    pending=Section(RequestsView((), 0)),
    recent=Section(RequestsView((), 0)),
    unknown=Section(RequestsView((), 0)),
    approvals=Section(PendingApprovals()),
    webhooks=Section(()),
    journal=Section(JournalView()),
)


def card(overview: Overview | None = GOOD, **reading: Any) -> Card:
    (found,) = cards(custody_default=Reading(overview, service=URL, **reading))
    return found


def cards(**readings: Reading[Overview]) -> list[Card]:
    return make_cards(readings.items(), NOW)


def verdict_of(card: Card) -> str:
    return card.findings[0][1].text


def health(*wrong: str) -> Section[HealthView]:
    checks = tuple(CheckRow("hsm", "hsm-1", each, False, "failure", "its status is 'failure'", NOW) for each in wrong)
    return Section(HealthView(False, "not healthy", checks))


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
            replace(GOOD, recent=Section(RequestsView((RequestRow("1", "approved", trust="unverified"),), 9, 5))),
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
    assert (found.level, verdict_of(found)) == (level, verdict)


def test_the_worst_comes_first() -> None:
    found = card(replace(GOOD, webhooks=Section(problem="x"), health=health("link")))
    assert [each.level for _, each in found.findings] == ["bad", "warning"]
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
    assert verdict_of(card(None, awaited_for=0.0)).startswith("The service is being read, and has not responded yet.")
    before = NOW - timedelta(minutes=5)
    slow = card(read_at=before, awaited_for=60.0)
    assert (slow.level, slow.word) == ("unknown", "No response")
    assert verdict_of(slow) == "The service has not responded yet to a new reading: what is shown is 5 min old."
    # That it is read again is no reason to worry.
    again = card(read_at=before, awaited_for=5.0)
    assert again.level == "good"


def test_a_service_of_which_nothing_can_be_read() -> None:
    wrong = card(None, problem="The connection is wrong.")
    assert (wrong.level, verdict_of(wrong)) == ("bad", "The connection is wrong.")
    before = card(problem="No connection.", read_at=NOW - timedelta(minutes=5))
    assert (before.level, verdict_of(before)) == ("bad", "No connection. What is shown is 5 min old.")
    assert before.findings[1][1].text == "The service is healthy: 9 of 9 checks are healthy"


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


# --- several connections to a service ------------------------------------------------------------------------

MISSING: Section[Any] = Section(problem="a role is missing", not_offered=True)


def seen(overview: Overview = GOOD, *, tenant: str = "1", roles: tuple[str, ...] = ("TPUser",), **changes: Any) -> Any:
    user = Section(UserView("u", tenant, roles))
    return Reading(replace(overview, user=user, **changes), service=URL, read_at=NOW)


def test_one_card_for_a_service() -> None:
    webhooks = Section((WebhookRow("w1", "t", "u", "enabled"),))
    (found,) = cards(
        auditor=seen(health=MISSING, pending=MISSING, recent=MISSING, unknown=MISSING, webhooks=MISSING),
        broken=Reading(problem="The token is wrong.", service=URL),
        signer=seen(webhooks=MISSING, journal=MISSING, pinned=True),
        treasury=seen(webhooks=webhooks),
    )
    assert found.title == URL
    # Requests are shown by pinned keys.
    assert [each.conn_id for each in found.connections] == ["signer", "treasury", "auditor", "broken"]
    assert [each.level for each in found.connections] == ["good", "good", "good", "bad"]
    assert (found.sources["recent"], found.sources["webhooks"]) == ("signer", "treasury")
    assert found.overview is not None
    assert found.overview.webhooks is webhooks
    # A part that one user may not see is not missing, and the service is no worse for a wrong token.
    assert [(each.level, each.text) for _, each in found.findings] == [
        ("warning", "broken: The token is wrong."),
        ("good", "The service is healthy: 9 of 9 checks are healthy"),
    ]


def test_what_is_wrong_is_said_whichever_user_sees_it() -> None:
    wrong = Section(RequestsView((RequestRow("7", "approved", trust="unverified"),), 1, 1))
    (found,) = cards(pinned=seen(pinned=True), second=seen(pinned=True, recent=wrong))
    assert found.sources["recent"] == "pinned"
    conn_id, worst = found.findings[0]
    assert (conn_id, worst.level, worst.request_ids) == ("second", "bad", ("7",))


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ({"a": seen(), "b": seen(tenant="2")}, [["a"], ["b"]]),
        # A tenant that is not known may be any.
        ({"a": seen(), "b": Reading(replace(GOOD, user=MISSING), service=URL)}, [["a"], ["b"]]),
        ({"a": Reading(problem="x", service=URL), "b": Reading(problem="y", service=URL)}, [["a", "b"]]),
        ({"a": Reading(problem="x"), "b": Reading(problem="y")}, [["a"], ["b"]]),
        ({"a": seen(), "b": seen(tenant="2"), "c": Reading(problem="x", service=URL)}, [["c"], ["a"], ["b"]]),
        ({"a": seen(), "b": replace(seen(), service=f"{URL}/other")}, [["a"], ["b"]]),
    ],
)
def test_which_connections_share_a_card(readings: dict[str, Any], expected: list[list[str]]) -> None:
    assert [[each.conn_id for each in found.connections] for found in cards(**readings)] == expected


def test_health_is_what_was_read_last() -> None:
    before = NOW - timedelta(minutes=5)
    old = Reading(replace(GOOD, health=health("link")), "The token is wrong.", URL, before)
    (found,) = cards(a=seen(), b=old)
    assert [each.text for _, each in found.findings] == [
        "b: The token is wrong. What is shown is 5 min old.",
        "The service is healthy: 9 of 9 checks are healthy",
    ]
    (alone,) = cards(b=old)
    assert "Not healthy" in [each.text for _, each in alone.findings]


def test_nothing_can_be_read_with_any_connection() -> None:
    (found,) = cards(a=Reading(problem="x", service=URL), b=Reading(awaited_for=0.0, service=URL))
    assert [(each.level, each.text[:4]) for _, each in found.findings] == [("bad", "a: x"), ("unknown", "b: T")]
