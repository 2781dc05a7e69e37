from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyConfigurationError, HealthCheck
from airflow_custody.client.health.models import HealthListing
from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict
from airflow_custody.client.health.verdict import judge as judge_listing
from airflow_custody.client.timestamps import parse_timestamp

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)


def judge(checks: Iterable[HealthCheck], criteria: HealthCriteria, now: datetime) -> HealthVerdict:
    """Judge a health listing of a service that does not report its time."""
    return judge_listing(HealthListing(checks), criteria, now)


def entry(group: str = "hsm", **changes: Any) -> HealthCheck:
    wire: Any = {
        "tenantId": "1",
        "componentName": "c",
        "group": group,
        "healthCheck": "k",
        "status": "success",
        "report": {"name": "k", "status": "success", "duration": "1ms", "results": {"ETH": "success"}},
        "lastUpdateDate": (NOW - timedelta(seconds=30)).isoformat(),
        "validUntilDate": (NOW + timedelta(seconds=30)).isoformat(),
        **changes,
    }
    given: Any = {name: value for name, value in wire.items() if value is not None}
    return HealthCheck(given, group)


UNHEALTHY: dict[str, dict[str, Any]] = {
    "no status": {"status": None},
    "empty status": {"status": ""},
    "unknown word": {"status": "ok"},
    "report disagrees": {"report": {"status": "error"}},
    "report without status": {"report": {"name": "k"}},
    "report with an error": {"report": {"status": "success", "error": "lost"}},
    "stale": {"validUntilDate": "2026-06-01T11:59:59Z"},
    "no date": {"validUntilDate": None},
    "unreadable date": {"validUntilDate": "tomorrow"},
    "zero date": {"validUntilDate": "0001-01-01T00:00:00Z"},
}


@pytest.mark.parametrize("change", UNHEALTHY.values(), ids=UNHEALTHY)
def test_one_bad_check_is_enough_to_be_unhealthy(change: dict[str, Any]) -> None:
    for checks in ([entry(), entry(**change)], [entry(**change), entry(), entry()]):
        verdict = judge(checks, HealthCriteria(), NOW)
        assert not verdict.healthy
        assert verdict.total == len(checks)
        assert verdict.unhealthy == 1


ERROR, OTHER = entry("db", status="error"), entry("db", healthCheck="x")
BEHIND = entry(report={"status": "success", "results": {"ETH": "behind"}})
# The unreadable entry may contain any component and any check, but it is not in another group.
UNREADABLE = HealthCheck({}, "hsm-2", is_readable=False)


@pytest.mark.parametrize(
    ("checks", "criteria", "healthy"),
    [
        ([entry(), entry("db", report=None)], {}, True),
        ([entry(status="SUCCESS")], {}, True),
        ([entry(), ERROR], {"groups": ["hsm"]}, True),
        ([entry(), ERROR], {"groups": ["db"]}, False),
        ([entry()], {"require_results": ["ETH"]}, True),
        ([entry(), BEHIND], {}, True),
        ([entry(), BEHIND], {"require_results": ["ETH"]}, False),
        ([entry(validUntilDate="2026-06-01T11:59:59Z")], {"require_fresh": False}, True),
        ([entry(status="OK", report=None)], {"healthy_statuses": ["ok"]}, True),
        # Only ASCII letters are compared without regard to case.
        ([entry(status="o\u212a", report=None)], {"healthy_statuses": ["ok"]}, False),
        ([entry(), UNREADABLE], {}, False),
        ([entry(), UNREADABLE], {"groups": ["hsm"]}, True),
        ([entry(), UNREADABLE], {"checks": ["k"]}, False),
        ([entry(), UNREADABLE], {"components": ["c"]}, False),
    ],
    ids=[
        "all",
        "in capitals",
        "another group is not",
        "its group is not",
        "its result is there",
        "another result is not needed",
        "its result is not healthy",
        "stale, and allowed",
        "another word, and allowed",
        "a letter that folds to k",
        "one that cannot be read",
        "one that cannot be read in another group",
        "one that cannot be read may be that check",
        "one that cannot be read may be that component",
    ],
)
def test_healthy(checks: list[HealthCheck], criteria: dict[str, Any], healthy: bool) -> None:
    assert judge(checks, HealthCriteria.of(**criteria), NOW).healthy is healthy


@pytest.mark.parametrize(
    ("checks", "criteria", "why"),
    [
        ([], {}, "no health check"),
        ([entry()], {"tenant_id": "2"}, "tenant"),
        ([HealthCheck(entry("hsm").wire, "db")], {}, "db"),
        ([entry()], {"groups": ["hsm", "db"]}, "no group named 'db' exists; the groups are 'hsm'"),
        ([entry()], {"require_results": ["BTC"]}, "no check reports a result for 'BTC'; the results are 'ETH'"),
        ([entry(), OTHER], {"groups": ["hsm"], "checks": ["x"]}, "matches the other filters"),
    ],
    ids=["none", "tenant", "listed under another group", "group", "result", "left out by another filter"],
)
def test_checks_that_do_not_match_the_criteria_are_not_healthy(
    checks: list[HealthCheck], criteria: dict[str, Any], why: str
) -> None:
    verdict = judge(checks, HealthCriteria.of(**criteria), NOW)
    assert not verdict.healthy
    assert why in verdict.summary()


def test_a_clock_that_is_slow_keeps_nothing_alive() -> None:
    now, expired = NOW - timedelta(minutes=5), entry(validUntilDate="2026-06-01T11:59:59Z")
    assert judge_listing(HealthListing([expired], date=None), HealthCriteria(), now).healthy
    assert not judge_listing(HealthListing([expired], date=NOW), HealthCriteria(), now).healthy
    assert not judge_listing(HealthListing([expired], date=now), HealthCriteria(), NOW).healthy


@pytest.mark.parametrize(
    "change",
    [
        {"groups": []},
        {"checks": [" "]},
        {"components": [1]},
        {"groups": {"hsm": 1}},
        {"require_fresh": "yes"},
        {"healthy_statuses": None},
        {"tenant_id": True},
        {"tenant_id": ""},
    ],
    ids=str,
)
def test_invalid_criteria_are_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        HealthCriteria.of(**change)
    assert caught.value.setting == next(iter(change))


@given(st.lists(st.datetimes(datetime(2009, 1, 1), datetime(2026, 1, 1)), min_size=1), st.integers(0, 9))
def test_the_oldest_update_is_the_oldest(moments: list[datetime], digits: int) -> None:
    texts = [f"{moment.isoformat(timespec='microseconds')}000"[: 20 + digits].rstrip(".") + "Z" for moment in moments]
    oldest = min(date for date in map(parse_timestamp, texts) if date)
    verdict = judge([entry(lastUpdateDate=text) for text in texts], HealthCriteria(), NOW)
    assert verdict.oldest_update == oldest
    assert judge([entry()], HealthCriteria(), NOW).to_json()["oldest_result_age_seconds"] == 30


@pytest.mark.parametrize("text", [None, "yesterday", "0001-01-01T00:00:00Z"])
def test_the_oldest_update_is_not_known_if_one_check_does_not_say(text: str | None) -> None:
    checks = [entry(lastUpdateDate=text), entry(lastUpdateDate="2026-05-01T00:00:00Z")]
    for listed in (checks, checks[::-1]):
        verdict = judge(listed, HealthCriteria(), NOW)
        assert verdict.oldest_update is None
        assert verdict.to_json()["oldest_result_age_seconds"] is None
        assert "oldest result: unknown, because some checks have no readable time of their last run" in verdict.table()


NAMES = st.sampled_from(["hsm", "db", "c", "k", "x", "ETH", "BTC"])
FILTER = st.none() | st.lists(NAMES, min_size=1, max_size=3).map(tuple)
CRITERIA = st.builds(
    HealthCriteria,
    tenant_id=st.sampled_from([None, "1", "2"]),
    groups=FILTER,
    components=FILTER,
    checks=FILTER,
    require_results=FILTER,
)
ODD = st.dictionaries(st.sampled_from(["status", "validUntilDate", "healthCheck", "tenantId"]), st.none() | st.text())
CHECKS = st.lists(
    st.builds(
        lambda group, change: entry(group, **change),
        st.sampled_from(["hsm", "db"]),
        st.sampled_from([*UNHEALTHY.values(), {}, {}, {}, {"healthCheck": "x"}, {"report": None}]) | ODD,
    ),
    max_size=4,
)


@given(CHECKS, CRITERIA)
def test_the_summary_never_contradicts_itself(checks: list[HealthCheck], criteria: HealthCriteria) -> None:
    verdict = judge(checks, criteria, NOW)
    summary = verdict.summary()
    assert ("not healthy" in summary) is not (verdict.healthy or verdict.missing)
    assert ("health is unknown: " in summary) is bool(verdict.missing)
    # Some of the checks report nothing about the service.
    assert ("the service is healthy: " in summary) is (verdict.healthy and not criteria.is_selection)
    assert ("selected check" in summary) is (criteria.is_selection and bool(verdict.total) and not verdict.missing)
    # If no check is unhealthy, a number would wrongly say that all is well.
    counted = verdict.unhealthy and not verdict.missing
    expected = [(str(verdict.unhealthy), str(verdict.total))] if counted else []
    assert re.findall(r"(\d+) of (\d+) (?:selected )?checks? unhealthy", summary) == expected
    assert verdict.healthy or str(verdict.problems[0]) in summary
    assert all(name in getattr(criteria, setting) for setting, name in verdict.missing)
    assert not (verdict.missing and (verdict.healthy or not checks))
    json.dumps(verdict.to_json())
    assert all("\n" not in line and "\x1b" not in line for line in verdict.table())


def test_missing_names_are_a_mistake_of_the_author_unless_an_unhealthy_check_may_hide_them() -> None:
    criteria = HealthCriteria(groups=("hsm", "hsn"), require_results=("BTC",))
    verdict = judge([entry(), entry("db", healthCheck="ping")], criteria, NOW)
    assert verdict.missing == {("groups", "hsn"), ("require_results", "BTC")}
    error = verdict.wrong_names()
    assert error.code == "parameter-wrong"
    assert error.retryable is False
    assert error.setting == "groups"
    assert error.message.startswith("no group named 'hsn' exists; the groups are 'db', 'hsm'; no check reports")
    assert not judge([entry(), entry(status="error")], HealthCriteria(require_results=("BTC",)), NOW).missing


def test_names_from_the_service_stay_short_and_printable() -> None:
    long: dict[str, Any] = {"componentName": "c" * 5000, "status": "s" * 5000}
    checks = [entry(f"{i:04}\x1b[31m\n" + "g" * 500, **long) for i in range(1000)]
    verdict = judge(checks, HealthCriteria(groups=tuple(f"no {i}" for i in range(30))), NOW)
    assert len(verdict.summary()) < 1500
    assert "and 990 more" in verdict.summary()
    assert "\x1b" not in verdict.summary() + json.dumps(verdict.to_json(), ensure_ascii=False)
    for each in (verdict, judge(checks, HealthCriteria(), NOW)):
        assert len(json.dumps(each.to_json())) < 80_000


def test_the_json_shows_the_entries_that_are_not_healthy() -> None:
    vault = {"hostPort": "vault-1:8200", "connected": True, "lastPing": "2026-06-01T11:59:58Z"}
    report = {"status": "failure", "duration": "0s", "results": {"ETH": "no\x1b[31m peers"}, "vaultdClients": [vault]}
    bad = entry(componentId="c-1", report={"name": "k", "message": "since noon", "error": "lost", **report})
    verdict = judge([entry(), *[bad] * 52, UNREADABLE], HealthCriteria(), NOW)
    found = verdict.to_json()
    assert len(found["problems"]) == 50
    assert found["problems_not_named"] == 3
    assert found["problems"][0] == {
        "group": "hsm",
        "component": "c",
        "component_id": "c-1",
        "check": "k",
        "tenant_id": "1",
        "status": "success",
        "reason": "its report's status is 'failure'; its report has an error: lost",
        "last_update_date": "2026-06-01T11:59:30+00:00",
        "valid_until_date": "2026-06-01T12:00:30+00:00",
        "report": {
            "name": "k",
            "status": "failure",
            "duration_seconds": 0.0,
            "results": {"ETH": "no [31m peers"},
            "results_not_named": 0,
            "message": "since noon",
            "error": "lost",
            "vaultd_clients": [
                {
                    "host_port": "vault-1:8200",
                    "connected": True,
                    "error": None,
                    "last_ping": "2026-06-01T11:59:58+00:00",
                }
            ],
            "vaultd_clients_not_named": 0,
        },
    }
    (unread,) = judge([UNREADABLE], HealthCriteria(), NOW).to_json()["problems"]
    assert unread["report"] is unread["last_update_date"] is unread["valid_until_date"] is None


def test_a_hostile_report_makes_no_large_json() -> None:
    text = "\U0001f600" * 5000
    report = {
        **dict.fromkeys(("name", "status", "duration", "message", "error"), text),
        "results": {f"{number:04} {text}": text for number in range(500)},
        "vaultdClients": [{"hostPort": text, "error": text}] * 500,
    }
    found = judge([entry(report=report)] * 60, HealthCriteria(), NOW).to_json()
    first = found["problems"][0]["report"]
    assert len(first["results"]) + first["results_not_named"] == 500
    assert len(first["vaultd_clients"]) + first["vaultd_clients_not_named"] == 500
    assert len(found["problems"]) + found["problems_not_named"] == 60
    assert len(json.dumps(found)) < 100_000
