from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyConfigurationError, HealthCheck
from airflow_custody.client.health import HealthCriteria, judge

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)


def entry(group: str = "hsm", **changes: Any) -> HealthCheck:
    wire = {
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
    return HealthCheck({name: value for name, value in wire.items() if value is not None}, group)


UNHEALTHY = {
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


def test_healthy():
    verdict = judge([entry(), entry("db", report=None)], HealthCriteria(), NOW)
    assert verdict.healthy
    assert verdict.to_json()["oldest_result_age_seconds"] == 30
    assert judge([entry(status="SUCCESS")], HealthCriteria(), NOW).healthy


@pytest.mark.parametrize("change", UNHEALTHY.values(), ids=UNHEALTHY)
def test_one_bad_check_spoils_it(change):
    verdict = judge([entry(), entry(**change)], HealthCriteria(), NOW)
    assert not verdict.healthy
    assert (verdict.total, verdict.unhealthy) == (2, 1)


def test_what_does_not_fit_the_question_is_not_healthy():
    assert not judge([], HealthCriteria(), NOW).healthy
    assert not judge([entry()], HealthCriteria(tenant_id="2"), NOW).healthy
    assert not judge([HealthCheck(entry("hsm").wire, "db")], HealthCriteria(), NOW).healthy
    assert not judge([entry()], HealthCriteria(groups=("hsm", "db")), NOW).healthy
    verdict = judge([entry(), entry("db", healthCheck="x")], HealthCriteria(groups=("hsm",), checks=("x",)), NOW)
    assert not verdict.healthy
    assert "left by the other filters" in verdict.summary()


def test_filters_leave_out_what_is_not_asked_for():
    checks = [entry(), entry("db", status="error")]
    assert judge(checks, HealthCriteria(groups=("hsm",)), NOW).healthy
    assert not judge(checks, HealthCriteria(groups=("db",)), NOW).healthy


def test_required_results():
    assert judge([entry()], HealthCriteria(require_results=("ETH",)), NOW).healthy
    assert not judge([entry()], HealthCriteria(require_results=("BTC",)), NOW).healthy
    bad = entry(report={"status": "success", "results": {"ETH": "behind"}})
    assert not judge([entry(), bad], HealthCriteria(require_results=("ETH",)), NOW).healthy
    assert judge([entry(), bad], HealthCriteria(), NOW).healthy


@given(st.lists(st.sampled_from(list(UNHEALTHY)), min_size=1, max_size=5), st.integers(0, 5), st.randoms())
def test_nothing_makes_up_for_a_bad_check(bad, good, random):
    checks = [entry(**UNHEALTHY[name]) for name in bad] + [entry() for _ in range(good)]
    random.shuffle(checks)
    assert not judge(checks, HealthCriteria(), NOW).healthy


@given(
    st.dictionaries(st.sampled_from(["status", "report", "validUntilDate", "group", "tenantId"]), st.none() | st.text())
)
def test_no_entry_breaks_the_judge(changes):
    changes.pop("report", None)
    verdict = judge([entry(**changes)], HealthCriteria(), NOW)
    json.dumps(verdict.to_json())
    assert all("\n" not in line and "\x1b" not in line for line in verdict.table())


def test_the_verdict_stays_small():
    checks = [entry(f"{i}" + "g" * 500, componentName="c" * 5000, status="s" * 5000) for i in range(10_000)]
    assert len(json.dumps(judge(checks, HealthCriteria(), NOW).to_json())) < 30_000


def settings(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "tenant_id": None,
            "groups": None,
            "components": None,
            "checks": None,
            "require_results": None,
            "healthy_statuses": ("success",),
            "require_fresh": True,
            **changes,
        }
    )


def test_criteria_from_settings():
    criteria = HealthCriteria.of(settings(groups="hsm", healthy_statuses=["HEALTHY"], tenant_id=3))
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
    ],
)
def test_criteria_that_make_no_sense_are_refused_by_name(change):
    with pytest.raises(CustodyConfigurationError) as caught:
        HealthCriteria.of(settings(**change))
    assert caught.value.setting == next(iter(change))
