"""The first statement on the card of a service, and the connections that share a card."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client.approvals.operations import PendingApprovals
from airflow_custody.client.health.models import HealthCheck
from airflow_custody.client.health.verdict import HealthVerdict, Problem
from airflow_custody.overview.models import (
    JournalView,
    Overview,
    RequestRow,
    Requests,
    RequestsView,
    Section,
    UserView,
    WebhookRow,
)
from airflow_custody.plugin.cards import Card, make_cards
from airflow_custody.plugin.readings import Reading

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
BEFORE = NOW - timedelta(minutes=5)
URL = "https://custody.example.com"
HEALTHY = "The service is healthy: 9 of 9 checks are healthy"
NONE = RequestsView((), 0)
GOOD = Overview(
    read_at=NOW,
    base_url=URL,
    user=Section(UserView("ann", "1", ("TPUser", "Admin"))),
    health=Section(HealthVerdict(NOW, 9)),
    requests=Section(Requests(NONE, NONE, NONE)),
    approvals=Section(PendingApprovals()),
    webhooks=Section(()),
    journal=Section(JournalView()),
)
UNHEALTHY = Section(HealthVerdict(NOW, 9, 1, problems=[Problem("it has no status", HealthCheck({}, "hsm"))]))
UNREAD: Section[Any] = Section(problem="refused")
NOT_OFFERED: Section[Any] = Section(problem="no such path", not_offered=True)
WAITING = Section(Requests(RequestsView((), 60, oldest_at=NOW - timedelta(hours=5)), NONE, NONE))
#: A section that the connection's user may not see.
FORBIDDEN: Section[Any] = Section(problem="a role is missing", role_missing=True)
ENABLED_WEBHOOK = Section((WebhookRow("w1", "t", "u", "enabled"),))


def make_card(**changes: Any) -> Card:
    """Return the card of one connection whose overview differs from a good one."""
    return card_of(Reading(replace(GOOD, **changes), service=URL))


def card_of(reading: Reading[Overview]) -> Card:
    (card,) = cards_of(custody_default=reading)
    return card


def cards_of(**readings: Reading[Overview]) -> list[Card]:
    return make_cards(readings.items(), NOW)


def texts(card: Card) -> list[str]:
    return [finding.text for finding in card.findings]


def listing(status: str, **fields: Any) -> RequestsView:
    """Return a listing of one request."""
    return RequestsView((RequestRow("1", status, **fields),), 1)


def pending(**fields: Any) -> Section[Requests]:
    return Section(Requests(listing("pending", **fields), NONE, NONE))


def in_effect(**fields: Any) -> Section[Requests]:
    return Section(Requests(NONE, listing("approved", **fields), NONE))


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        pytest.param({}, "good", HEALTHY, id="good"),
        pytest.param(
            {"health": UNHEALTHY},
            "bad",
            "The service is not healthy (1 of 9 checks unhealthy): hsm: it has no status",
            id="unhealthy",
        ),
        pytest.param({"health": NOT_OFFERED}, "bad", "Health: no such path", id="no-health"),
        pytest.param({"webhooks": FORBIDDEN, "journal": FORBIDDEN}, "good", HEALTHY, id="forbidden-webhooks"),
        pytest.param({"requests": UNREAD}, "warning", "Whitelisting requests: refused", id="unread-requests"),
        pytest.param(
            {"requests": pending(trust="unverified")},
            "bad",
            "Whitelisting request 1 (pending approval): not verified",
            id="unverified-request",
        ),
        pytest.param(
            {"requests": WAITING},
            "waiting",
            "60 whitelisting requests are pending approval, the oldest for 5 h",
            id="waiting",
        ),
    ],
)
def test_the_worst_finding_is_the_verdict(changes: dict[str, Any], level: str, text: str) -> None:
    card = make_card(**changes)
    assert card.level == level
    assert texts(card)[0] == text


def test_cards_and_their_findings_are_sorted_by_level() -> None:
    cards = cards_of(
        a=Reading(GOOD, service="https://a.example.com"),
        b=Reading(service="https://b.example.com", is_awaited=True),
        c=Reading(replace(GOOD, webhooks=UNREAD), service="https://c.example.com"),
        e=Reading(replace(GOOD, requests=WAITING), service="https://e.example.com"),
        d=Reading(replace(GOOD, webhooks=UNREAD, health=UNHEALTHY), service="https://d.example.com"),
    )
    assert [card.word for card in cards] == ["Trouble", "No response", "Attention", "Waiting", "Healthy"]
    assert [finding.level for finding in cards[0].findings] == ["bad", "warning"]


class TestAServiceThatWasNotReadJustNow:
    def test_no_response_yet(self) -> None:
        card = card_of(Reading(service=URL, is_awaited=True))
        assert card.level == "unknown"
        assert texts(card) == ["The service has not responded yet."]
        assert card.is_awaited

    def test_an_old_reading(self) -> None:
        card = card_of(Reading(GOOD, service=URL, read_at=BEFORE, is_awaited=True))
        assert card.level == "unknown"
        assert texts(card) == ["The service has not responded yet. This data is 5 min old.", HEALTHY]
        assert card.is_awaited
        # No tile is green either.
        assert {card.level_of(part) for part in ("health", "pending", "recent", "webhooks", "journal")} == {None}

    def test_a_reading_that_is_not_a_minute_old(self) -> None:
        read_at = NOW - timedelta(seconds=59)
        card = card_of(Reading(GOOD, service=URL, read_at=read_at, is_awaited=True))
        assert card.level == "good"
        assert texts(card) == [HEALTHY]
        assert not card.is_awaited

    def test_a_failed_read(self) -> None:
        card = card_of(Reading(GOOD, service=URL, problem="No connection.", read_at=BEFORE))
        assert card.level == "bad"
        assert texts(card) == ["No connection. This data is 5 min old.", HEALTHY]
        assert not card.is_awaited


@pytest.mark.parametrize(
    ("part", "changes", "level"),
    [
        pytest.param("health", {}, "good", id="healthy"),
        pytest.param("health", {"health": UNHEALTHY}, "bad", id="unhealthy"),
        pytest.param("pending", {"requests": pending(trust="unsigned")}, None, id="pending-is-never-green"),
        pytest.param("pending", {"requests": WAITING}, "waiting", id="pending-for-long"),
        pytest.param("recent", {"requests": in_effect(trust="verified")}, "good", id="verified"),
        pytest.param("recent", {"requests": in_effect(trust="not checked")}, None, id="no-pinned-keys"),
        pytest.param("webhooks", {"webhooks": ENABLED_WEBHOOK}, "good", id="webhook"),
        pytest.param("webhooks", {"webhooks": UNREAD}, "warning", id="unread-webhooks"),
    ],
)
def test_a_section_is_green_only_if_something_is_right(part: str, changes: dict[str, Any], level: str | None) -> None:
    assert make_card(**changes).level_of(part) == level


def test_no_section_is_green_before_the_service_responds() -> None:
    card = card_of(Reading(service=URL, is_awaited=True))
    assert {card.level_of(part) for part in ("health", "pending", "recent", "webhooks")} == {None}


# --- several connections to a service ------------------------------------------------------------------------


def read_by(tenant: str = "1", **changes: Any) -> Reading[Overview]:
    """Return a reading by a user of a tenant."""
    user = Section(UserView("u", tenant, ("TPUser",)))
    return Reading(replace(GOOD, user=user, **changes), service=URL, read_at=NOW)


class TestOneCardForSeveralConnections:
    @pytest.fixture
    def card(self) -> Card:
        (card,) = cards_of(
            auditor=read_by(health=FORBIDDEN, requests=FORBIDDEN, webhooks=FORBIDDEN),
            broken=Reading(problem="The token is wrong.", service=URL),
            signer=read_by(webhooks=FORBIDDEN, journal=FORBIDDEN, pinned=True),
            treasury=read_by(webhooks=ENABLED_WEBHOOK),
        )
        return card

    def test_the_connection_with_pinned_keys_comes_first_and_the_broken_one_last(self, card: Card) -> None:
        assert [row.conn_id for row in card.connections] == ["signer", "treasury", "auditor", "broken"]
        assert [row.level for row in card.connections] == ["good", "good", "good", "bad"]

    def test_a_section_comes_from_the_first_that_can_read_it(self, card: Card) -> None:
        assert (card.sources["requests"], card.sources["webhooks"]) == ("signer", "treasury")
        assert card.overview is not None
        assert card.overview.webhooks is ENABLED_WEBHOOK

    def test_neither_hidden_sections_nor_a_wrong_token_make_the_service_unhealthy(self, card: Card) -> None:
        assert texts(card) == ["broken: The token is wrong.", HEALTHY]
        assert card.level == "warning"


def test_a_problem_is_reported_whichever_user_sees_it() -> None:
    unverified = RequestsView((RequestRow("7", "approved", trust="unverified"),), 1, 1)
    second = read_by(pinned=True, requests=Section(Requests(NONE, unverified, NONE)))
    (card,) = cards_of(first=read_by(pinned=True), second=second)
    assert card.sources["requests"] == "first"
    assert card.findings[0].conn_id == "second"
    assert card.findings[0].level == "bad"
    assert card.findings[0].request_ids == ("7",)


def test_how_long_requests_have_been_pending_is_reported_once() -> None:
    later = replace(read_by(requests=WAITING), value=replace(GOOD, read_at=NOW + timedelta(hours=2), requests=WAITING))
    (card,) = cards_of(first=read_by(pinned=True, requests=WAITING), second=later)
    assert [each.conn_id for each in card.findings if each.kind == "waiting"] == ["first"]


UNREADABLE: Reading[Overview] = Reading(problem="x", service=URL)


@pytest.mark.parametrize(
    ("readings", "conn_ids"),
    [
        pytest.param({"a": read_by("1"), "b": read_by("1")}, ["a b"], id="same-tenant"),
        pytest.param({"a": read_by("1"), "b": read_by("2")}, ["a", "b"], id="two-tenants"),
        pytest.param(
            {"a": read_by("1"), "b": Reading(replace(GOOD, user=NOT_OFFERED), service=URL)},
            ["a", "b"],
            id="unknown-tenant",
        ),
        pytest.param({"a": read_by("1"), "b": UNREADABLE}, ["a b"], id="unread-joins-the-only-tenant"),
        pytest.param(
            {"a": read_by("1"), "b": read_by("2"), "c": UNREADABLE}, ["c", "a", "b"], id="unread-joins-no-tenant-of-two"
        ),
        pytest.param(
            {"a": read_by("1"), "b": replace(read_by("1"), service=f"{URL}/other")}, ["a", "b"], id="two-urls"
        ),
    ],
)
def test_connections_of_a_tenant_share_a_card(readings: dict[str, Any], conn_ids: list[str]) -> None:
    assert [" ".join(row.conn_id for row in card.connections) for card in cards_of(**readings)] == conn_ids


BROKEN = Reading(replace(GOOD, health=UNHEALTHY), "The token is wrong.", URL, BEFORE)


def test_the_health_from_a_broken_connection_is_not_reported_if_another_one_works() -> None:
    (card,) = cards_of(a=read_by("1"), b=BROKEN)
    assert texts(card) == ["b: The token is wrong. This data is 5 min old.", HEALTHY]


def test_the_last_known_health_is_reported_if_no_connection_works() -> None:
    assert "The service is not healthy (1 of 9 checks unhealthy): hsm: it has no status" in texts(card_of(BROKEN))
