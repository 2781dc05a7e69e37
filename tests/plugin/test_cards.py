"""What a card of a service says first, and which connections it is made of."""

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
WELL = "The service is healthy: 9 of 9 checks are healthy"
NONE = RequestsView((), 0)
EMPTY = Requests(NONE, NONE, NONE)
GOOD = Overview(
    read_at=NOW,
    base_url=URL,
    user=Section(UserView("ann", "1", ("TPUser", "Admin"))),
    health=Section(HealthVerdict(NOW, 9)),
    requests=Section(EMPTY),
    approvals=Section(PendingApprovals()),
    webhooks=Section(()),
    journal=Section(JournalView()),
)


def card(overview: Overview | None = GOOD, **reading: Any) -> Card:
    (found,) = cards(custody_default=Reading(overview, service=URL, **reading))
    return found


def cards(**readings: Reading[Overview]) -> list[Card]:
    return make_cards(readings.items(), NOW)


def texts(card: Card) -> list[str]:
    return [each.text for _, each in card.findings]


def unhealthy() -> Section[HealthVerdict]:
    return Section(HealthVerdict(NOW, 9, 1, problems=[Problem("it has no status", HealthCheck({}, "hsm"))]))


def request(status: str, **fields: Any) -> RequestsView:
    return RequestsView((RequestRow("1", status, **fields),), 1)


def webhook(status: str, problem: str = "") -> Section[tuple[WebhookRow, ...]]:
    return Section((WebhookRow("w1", "t", "u", status, problem=problem),))


REFUSED: Section[Any] = Section(problem="refused")
#: The user of the connection may not see it.
MISSING: Section[Any] = Section(problem="a role is missing", not_offered=True)


@pytest.mark.parametrize(
    ("changes", "level", "verdict"),
    [
        ({}, "good", WELL),
        ({"health": unhealthy()}, "bad", "The service is not healthy (1 of 9 checks unhealthy): hsm: it has no status"),
        ({"health": MISSING}, "bad", "Health: a role is missing"),
        ({"webhooks": MISSING, "journal": MISSING}, "good", WELL),
        ({"requests": REFUSED}, "warning", "Whitelisting requests: refused"),
        (
            {"requests": Section(Requests(request("pending", trust="unverified"), NONE, NONE))},
            "bad",
            "Whitelisting request 1 (pending): not verified",
        ),
    ],
)
def test_verdicts(changes: dict[str, Any], level: str, verdict: str) -> None:
    found = card(replace(GOOD, **changes))
    assert (found.level, texts(found)[0]) == (level, verdict)


def test_the_worst_comes_first() -> None:
    found = card(replace(GOOD, webhooks=REFUSED, health=unhealthy()))
    assert [each.level for _, each in found.findings] == ["bad", "warning"]
    assert [found.level_of(each) for each in ("health", "webhooks", "pending")] == ["bad", "warning", None]
    others = [card(), card(None, awaited_for=0.0), card(replace(GOOD, webhooks=REFUSED)), found]
    words = [each.word for each in sorted(others, key=lambda each: each.order)]
    assert words == ["Trouble", "No response", "Attention", "Healthy"]


@pytest.mark.parametrize(
    ("found", "level", "says"),
    [
        (card(None, awaited_for=0.0), "unknown", "The service is being read, and has not responded yet. Refresh this "),
        (
            card(read_at=BEFORE, awaited_for=60.0),
            "unknown",
            "The service has not responded yet to a new reading: what is shown is 5 min old.",
        ),
        # That it is read again is no reason to worry.
        (card(read_at=BEFORE, awaited_for=5.0), "good", WELL),
        (card(problem="No connection.", read_at=BEFORE), "bad", "No connection. What is shown is 5 min old."),
    ],
    ids=lambda value: getattr(value, "word", None),
)
def test_a_service_that_was_not_read_just_now(found: Card, level: str, says: str) -> None:
    assert (found.level, texts(found)[0].startswith(says)) == (level, True)
    assert (WELL in texts(found)) is (found.overview is not None)


def test_green_means_that_something_is_right() -> None:
    right = replace(
        GOOD,
        requests=Section(
            Requests(request("pending", trust="unsigned"), request("approved", trust="verified"), NONE),
        ),
        webhooks=webhook("enabled"),
    )
    unpinned = replace(GOOD, requests=Section(Requests(NONE, request("approved", trust="not checked"), NONE)))
    for found, expected in (
        (card(right), ["good", None, "good", "good"]),
        (card(), ["good", None, None, None]),
        (card(unpinned), ["good", None, None, None]),
        (card(None, awaited_for=0.0), [None] * 4),
    ):
        assert [found.level_of(each) for each in ("health", "pending", "recent", "webhooks")] == expected


# --- several connections to a service ------------------------------------------------------------------------


def seen(overview: Overview = GOOD, *, tenant: str = "1", **changes: Any) -> Any:
    user = Section(UserView("u", tenant, ("TPUser",)))
    return Reading(replace(overview, user=user, **changes), service=URL, read_at=NOW)


def test_one_card_for_a_service() -> None:
    webhooks = webhook("enabled")
    (found,) = cards(
        auditor=seen(health=MISSING, requests=MISSING, webhooks=MISSING),
        broken=Reading(problem="The token is wrong.", service=URL),
        signer=seen(webhooks=MISSING, journal=MISSING, pinned=True),
        treasury=seen(webhooks=webhooks),
    )
    assert found.title == URL
    # Requests are shown by pinned keys.
    assert [each.conn_id for each in found.connections] == ["signer", "treasury", "auditor", "broken"]
    assert [each.level for each in found.connections] == ["good", "good", "good", "bad"]
    assert (found.sources["requests"], found.sources["webhooks"]) == ("signer", "treasury")
    assert found.overview is not None
    assert found.overview.webhooks is webhooks
    # A part that one user may not see is not missing, and the service is no worse for a wrong token.
    assert [(each.level, each.text) for _, each in found.findings] == [
        ("warning", "broken: The token is wrong."),
        ("good", WELL),
    ]


def test_what_is_wrong_is_said_whichever_user_sees_it() -> None:
    wrong = RequestsView((RequestRow("7", "approved", trust="unverified"),), 1, 1)
    second = seen(pinned=True, requests=Section(Requests(NONE, wrong, NONE)))
    (found,) = cards(pinned=seen(pinned=True), second=second)
    assert found.sources["requests"] == "pinned"
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
    old = Reading(replace(GOOD, health=unhealthy()), "The token is wrong.", URL, BEFORE)
    (found,) = cards(a=seen(), b=old)
    assert texts(found) == ["b: The token is wrong. What is shown is 5 min old.", WELL]
    (alone,) = cards(b=old)
    assert any("not healthy" in each for each in texts(alone))
