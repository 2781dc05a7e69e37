from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyConfigurationError, HealthCheck
from airflow_custody.client.health.models import HealthListing
from airflow_custody.client.health.verdict import HealthCriteria, judge
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import parse_timestamp

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)


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


def test_healthy() -> None:
    verdict = judge([entry(), entry("db", report=None)], HealthCriteria(), NOW)
    assert verdict.healthy
    assert verdict.to_json()["oldest_result_age_seconds"] == 30
    assert judge([entry(status="SUCCESS")], HealthCriteria(), NOW).healthy


def test_a_clock_that_is_slow_keeps_nothing_alive() -> None:
    now, expired = NOW - timedelta(minutes=5), entry(validUntilDate="2026-06-01T11:59:59Z")
    assert judge(HealthListing([expired], date=None), HealthCriteria(), now).healthy
    assert not judge(HealthListing([expired], date=NOW), HealthCriteria(), now).healthy
    assert not judge(HealthListing([expired], date=now), HealthCriteria(), NOW).healthy


@pytest.mark.parametrize("change", UNHEALTHY.values(), ids=UNHEALTHY)
def test_one_bad_check_is_enough_to_be_unhealthy(change: dict[str, Any]) -> None:
    verdict = judge([entry(), entry(**change)], HealthCriteria(), NOW)
    assert not verdict.healthy
    assert (verdict.total, verdict.unhealthy) == (2, 1)


def test_checks_that_do_not_match_the_criteria_are_not_healthy() -> None:
    assert not judge([], HealthCriteria(), NOW).healthy
    assert not judge([entry()], HealthCriteria(tenant_id="2"), NOW).healthy
    assert not judge([HealthCheck(entry("hsm").wire, "db")], HealthCriteria(), NOW).healthy
    assert not judge([entry()], HealthCriteria(groups=("hsm", "db")), NOW).healthy
    verdict = judge([entry(), entry("db", healthCheck="x")], HealthCriteria(groups=("hsm",), checks=("x",)), NOW)
    assert not verdict.healthy
    assert "left by the other filters" in verdict.summary()


def test_filters_ignore_all_other_checks() -> None:
    checks = [entry(), entry("db", status="error")]
    assert judge(checks, HealthCriteria(groups=("hsm",)), NOW).healthy
    assert not judge(checks, HealthCriteria(groups=("db",)), NOW).healthy


def test_required_results() -> None:
    assert judge([entry()], HealthCriteria(require_results=("ETH",)), NOW).healthy
    assert not judge([entry()], HealthCriteria(require_results=("BTC",)), NOW).healthy
    bad = entry(report={"status": "success", "results": {"ETH": "behind"}})
    assert not judge([entry(), bad], HealthCriteria(require_results=("ETH",)), NOW).healthy
    assert judge([entry(), bad], HealthCriteria(), NOW).healthy


@given(st.lists(st.sampled_from(list(UNHEALTHY)), min_size=1, max_size=5), st.integers(0, 5), st.randoms())
def test_good_checks_do_not_outweigh_a_bad_one(bad: list[str], good: int, random: Random) -> None:
    checks = [entry(**UNHEALTHY[name]) for name in bad] + [entry() for _ in range(good)]
    random.shuffle(checks)
    assert not judge(checks, HealthCriteria(), NOW).healthy


@given(
    st.dictionaries(st.sampled_from(["status", "report", "validUntilDate", "group", "tenantId"]), st.none() | st.text())
)
def test_no_entry_crashes_the_verdict(changes: dict[str, Any]) -> None:
    changes.pop("report", None)
    verdict = judge([entry(**changes)], HealthCriteria(), NOW)
    json.dumps(verdict.to_json())
    assert all("\n" not in line and "\x1b" not in line for line in verdict.table())


def test_the_verdict_stays_small() -> None:
    checks = [entry(f"{i}" + "g" * 500, componentName="c" * 5000, status="s" * 5000) for i in range(10_000)]
    assert len(json.dumps(judge(checks, HealthCriteria(), NOW).to_json())) < 30_000


def test_criteria_from_the_arguments_of_an_author() -> None:
    criteria = HealthCriteria.of(groups="hsm", healthy_statuses=["HEALTHY"], tenant_id=3)
    assert criteria == HealthCriteria(tenant_id="3", groups=("hsm",), healthy_statuses=("healthy",))


@pytest.mark.parametrize(
    "change",
    [
        {"groups": []},
        {"checks": [" "]},
        {"components": [1]},
        {"healthy_statuses": []},
        {"require_fresh": "yes"},
        {"groups": 5},
        {"groups": b"hsm"},
        {"groups": {"hsm": 1}},
        {"groups": [None]},
        {"checks": [["a"]]},
        {"require_results": 1.5},
        {"healthy_statuses": None},
        {"healthy_statuses": [True]},
        {"tenant_id": 1.0},
        {"tenant_id": True},
        {"tenant_id": -1},
        {"tenant_id": 10**5000},
        {"tenant_id": ""},
        {"tenant_id": [1]},
        {"tenant_id": b"1"},
    ],
    ids=lambda change: sanitize(str({name: type(value) for name, value in change.items()}), 60),
)
def test_invalid_criteria_are_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        HealthCriteria.of(**change)
    assert caught.value.setting == next(iter(change))


def test_a_date_that_only_looks_readable_is_not_fresh() -> None:
    verdict = judge([entry(validUntilDate="2999-02-28T10:20:30.Z\x00Z")], HealthCriteria(), NOW)
    assert not verdict.healthy
    assert "readably" in verdict.summary()


@given(st.lists(st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)), min_size=1), st.integers(0, 9))
def test_the_oldest_update_is_the_oldest(moments: list[datetime], digits: int) -> None:
    texts = [f"{moment.isoformat(timespec='microseconds')}000"[: 20 + digits].rstrip(".") + "Z" for moment in moments]
    dates = [parse_timestamp(text) for text in texts]
    checks = [entry(lastUpdateDate=text) for text in texts]
    assert judge(checks, HealthCriteria(), NOW).oldest_update == min(date for date in dates if date)


@pytest.mark.parametrize(
    "text", [None, "", "0000-00-00T00:00:00Z", "yesterday", "2001-01-01 00:00:00Z", "2026-13-01T00:00:00Z"]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_oldest_update_is_not_known_if_one_check_does_not_say(text: str | None, is_first: bool) -> None:
    checks = [entry(lastUpdateDate=text), entry(lastUpdateDate="2026-05-01T00:00:00Z")]
    verdict = judge(checks if is_first else checks[::-1], HealthCriteria(), NOW)
    assert verdict.oldest_update is None
    assert verdict.to_json()["oldest_result_age_seconds"] is None
    assert "oldest result: not known, as not all checks say readably when they last ran" in verdict.table()


def test_a_word_is_the_same_only_with_the_letters_of_ascii() -> None:
    criteria = HealthCriteria.of(healthy_statuses=["ok"])
    assert judge([entry(status="OK", report=None)], criteria, NOW).healthy
    assert not judge([entry(status="o\u212a", report=None)], criteria, NOW).healthy


def test_a_group_that_could_not_be_read_is_not_passed_over() -> None:
    checks = [entry(), HealthCheck({}, "hsm-2", is_readable=False)]
    verdict = judge(checks, HealthCriteria(), NOW)
    assert [str(each) for each in verdict.problems] == ["hsm-2: the group could not be read: it has no 'healthChecks'"]
    assert verdict.groups["hsm-2"].unhealthy == 1
    # It may hold any component and any check, but is no other group.
    assert not judge(checks, HealthCriteria.of(checks=[str(checks[0].health_check)]), NOW).healthy
    assert not judge(checks, HealthCriteria.of(components=[str(checks[0].component_name)]), NOW).healthy
    assert judge(checks, HealthCriteria.of(groups=[checks[0].listed_under]), NOW).healthy


NAMES = st.sampled_from(["hsm", "db", "c", "k", "x", "ETH", "BTC"])
FILTER = st.none() | st.lists(NAMES, min_size=1, max_size=3).map(tuple)
CRITERIA_STRATEGY = st.builds(
    HealthCriteria,
    tenant_id=st.sampled_from([None, "1", "2"]),
    groups=FILTER,
    components=FILTER,
    checks=FILTER,
    require_results=FILTER,
)
CHECKS = st.lists(
    st.builds(
        lambda group, change: entry(group, **change),
        st.sampled_from(["hsm", "db"]),
        st.sampled_from([*UNHEALTHY.values(), {}, {}, {}, {"healthCheck": "x"}, {"report": None}]),
    ),
    max_size=4,
)


@given(CHECKS, CRITERIA_STRATEGY)
def test_the_summary_never_contradicts_itself(checks: list[HealthCheck], criteria: HealthCriteria) -> None:
    verdict = judge(checks, criteria, NOW)
    summary = verdict.summary()
    assert ("not healthy" in summary) is not verdict.healthy
    assert ("the service is healthy: " in summary) is verdict.healthy
    numbers = re.findall(r"(\d+) of (\d+) checks? unhealthy", summary)
    if verdict.unhealthy:
        assert numbers == [(str(verdict.unhealthy), str(verdict.total))]
    else:
        # A number would say that all is well.
        assert numbers == []
    if not verdict.healthy:
        assert verdict.problems
        assert str(verdict.problems[0]) in summary


@given(CHECKS, CRITERIA_STRATEGY)
def test_a_missing_name_is_one_that_was_asked_for(checks: list[HealthCheck], criteria: HealthCriteria) -> None:
    verdict = judge(checks, criteria, NOW)
    for setting, name in verdict.missing:
        assert name in getattr(criteria, setting)
    if verdict.healthy or not checks:
        assert not verdict.missing


def test_missing_names_come_with_those_that_exist() -> None:
    checks = [entry(), entry("db", healthCheck="ping")]
    verdict = judge(checks, HealthCriteria(groups=("hsm", "hsn"), require_results=("BTC",)), NOW)
    assert verdict.summary() == (
        "the service is not healthy: no group named 'hsn' exists; the groups are 'db', 'hsm'; "
        "no check reports a result for 'BTC'; the results are 'ETH'"
    )
    assert verdict.missing == {("groups", "hsn"), ("require_results", "BTC")}
    error = verdict.error(verdict.missing)
    assert not error.retryable
    assert error.setting == "groups"


def test_names_from_the_service_stay_short_and_printable() -> None:
    checks = [entry(f"{i:04}\x1b[31m\n" + "g" * 500) for i in range(1000)]
    verdict = judge(checks, HealthCriteria(groups=tuple(f"no {i}" for i in range(30))), NOW)
    assert len(verdict.summary()) < 1500
    assert "and 990 more" in verdict.summary()
    assert "\x1b" not in verdict.summary() + json.dumps(verdict.to_json(), ensure_ascii=False)
    assert len(json.dumps(verdict.to_json())) < 30_000


def test_a_result_that_an_unhealthy_check_may_hide_is_not_missing() -> None:
    criteria = HealthCriteria(require_results=("BTC",))
    assert judge([entry()], criteria, NOW).missing
    assert not judge([entry(), entry(status="error")], criteria, NOW).missing
