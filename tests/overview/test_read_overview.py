"""An overview is read from a real service; what cannot be read hides nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.service.refusals import OTHER_REFUSAL, role_refusal

from airflow_custody.client import ClientSettings, CustodyClient
from airflow_custody.overview import for_people, read_overview
from airflow_custody.overview.models import Overview, UserView
from airflow_custody.overview.verdict import SECTIONS, judge_overview
from airflow_custody.sandbox import Sandbox

Create = Callable[..., str]


def problems(overview: Overview) -> dict[str, str]:
    return {name: getattr(overview, name).problem for name in SECTIONS if getattr(overview, name).problem}


def value(overview: Overview, section: str) -> Any:
    found = getattr(overview, section).value
    assert found is not None, getattr(overview, section).problem
    return found


def test_all_is_well(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    waiting, signed = create(1), create(2, network="mainnet")
    sandbox.control.sign_whitelist_requests([signed])
    sandbox.control.add_webhook(url="https://ann:s3cret@hooks.example.test/a?key=s3cret")
    sandbox.control.add_webhook_call(id="7", webhookId="w", createdAt="2026-01-02T03:04:05.123456789Z")
    overview = read_overview(client)
    assert problems(overview) == {}
    assert judge_overview(overview).ok
    assert overview.base_url == sandbox.url
    assert value(overview, "health").healthy
    user, journal, requests = (value(overview, name) for name in ("user", "journal", "requests"))
    assert user == UserView("user-1@example.test", "1", user.roles)
    shown = [
        (each.id, each.chain, each.label) for part in ("pending", "recent") for each in getattr(requests, part).rows
    ]
    assert shown == [(waiting, "ETH", "L1"), (signed, "ETH mainnet", "L2")]
    assert value(overview, "approvals").whitelisted_addresses == 1
    assert [each.url for each in value(overview, "webhooks")] == ["https://***@hooks.example.test/***"]
    assert (journal.newest_id, str(journal.newest_at)) == ("7", "2026-01-02 03:04:05.123456+00:00")
    assert "s3cret" not in str(overview)


def test_an_overview_changes_nothing(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    create(1)
    for number in range(150):
        sandbox.control.add_webhook_call(id=str(number), webhookId="w", createdAt=f"2026-01-02T03:04:05.{number:03}Z")
    sandbox.control.clear_request_log()
    assert value(read_overview(pinning), "journal").newest_id == "149"
    log = sandbox.control.request_log()
    assert {each["method"] for each in log} == {"GET"}
    assert len(log) <= 12


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("health", "/health"),
        ("requests", "/whitelists/addresses"),
        ("approvals", "/statistics"),
        ("webhooks", "/webhooks"),
        ("journal", "/webhooks/calls"),
    ],
)
@pytest.mark.parametrize("kind", ["html", "status"])
def test_a_section_that_cannot_be_read_hides_no_other(
    sandbox: Sandbox, client: CustodyClient, name: str, path: str, kind: str
) -> None:
    options = {"status": 500} if kind == "status" else {}
    # The calls to this path, or below it.
    sandbox.control.add_fault(kind, path=path, times=1 if name == "webhooks" else None, **options)
    overview = read_overview(client)
    assert set(problems(overview)) == {name}
    assert len(judge_overview(overview).texts("unread")) == 1
    assert "\n" not in problems(overview)[name]


def test_a_service_that_is_away() -> None:
    with CustodyClient("http://127.0.0.1:1", "token", max_retries=0) as client:
        overview = read_overview(client)
    assert set(problems(overview)) == set(SECTIONS)
    (problem,) = judge_overview(overview).texts("unread")
    assert "127.0.0.1:1 cannot be reached" in problem


@pytest.mark.parametrize("status", [401, 404, 501])
@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    ("path", "is_needed"),
    [("/health", True), ("/whitelists/addresses", False), ("/statistics", False), ("/webhooks", False)],
)
def test_a_section_that_is_not_offered_is_well_only_where_it_may_be_missing(
    sandbox: Sandbox, client: CustodyClient, path: str, is_needed: bool, is_own: bool, status: int
) -> None:
    body = {"error": "Denied", "message": "no", "code": status} if is_own else {}
    sandbox.control.add_fault("status", path=path, times=None, status=status, body=body)
    verdict = judge_overview(read_overview(client))
    assert verdict.texts("wrong") == ()
    assert verdict.ok is (is_own and not is_needed and status != 401)


@pytest.mark.parametrize(
    ("path", "is_needed"),
    [("/health", True), ("/whitelists/addresses", True), ("/statistics", False), ("/webhooks", False)],
)
@pytest.mark.parametrize(("body", "is_about_roles"), [(role_refusal("operator"), True), (OTHER_REFUSAL, False)])
def test_a_missing_role_is_well_only_where_not_every_user_has_it(
    sandbox: Sandbox, client: CustodyClient, path: str, is_needed: bool, body: dict[str, Any], is_about_roles: bool
) -> None:
    sandbox.control.add_fault("status", path=path, times=None, status=403, body=body)
    assert judge_overview(read_overview(client)).ok is (is_about_roles and not is_needed)


def test_a_whitelist_that_is_too_large_is_not_read(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    for number in range(4):
        create(number)
    overview = read_overview(client, max_listed=3)
    assert problems(overview).keys() == {"requests"}
    (unread,) = judge_overview(overview).texts("unread")
    assert "There are more than 3 requests" in unread
    assert "'custody status' reads all of them" in unread
    assert problems(read_overview(client, max_listed=4)) == {}


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        ({}, ""),
        ({"status": "disabled"}, "It is disabled: nothing is delivered."),
        (
            {"status": "cooldown", "timeout_until": "2999-01-01T00:00:00Z"},
            "cooling down until 2999-01-01 00:00:00 UTC",
        ),
        ({"status": "disabled", "timeout_until": "2999-01-01T00:00:00Z"}, "It is disabled: nothing is delivered."),
        ({"timeout_until": "2020-01-01T00:00:00Z"}, ""),
        ({"status": "enable\u017f"}, "Its status is not recognized: 'enable\u017f'."),
        ({"timeout_until": "garbage"}, "until a time that cannot be read ('garbage')"),
    ],
    ids=[
        "enabled",
        "disabled",
        "cooling down",
        "disabled since",
        "cooled down",
        "unknown status",
        "unreadable time",
    ],
)
def test_the_problem_of_a_webhook(
    sandbox: Sandbox, client: CustodyClient, webhook: dict[str, str], problem: str
) -> None:
    sandbox.control.add_webhook(**webhook)
    overview = read_overview(client)
    (found,) = value(overview, "webhooks")
    assert problem in found.problem
    assert bool(problem) == bool(found.problem)
    # The webhook may have been disabled on purpose.
    assert judge_overview(overview).ok is (not problem or webhook.get("status") == "disabled")


def test_faulty_webhooks_come_first(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_webhook(type="aaa", status="disabled")
    sandbox.control.add_webhook(type="zzz", status="odd")
    assert [each.type for each in value(read_overview(client), "webhooks")] == ["zzz", "aaa"]


def test_a_person_does_not_wait_for_long() -> None:
    given = ClientSettings(base_url="https://custody.example.com", timeout=120, max_retries=9)
    found = for_people(given)
    assert found.timeout == 10
    assert found.max_retries == 0
    assert found.max_response_bytes == 8 * 1024 * 1024
    less = for_people(replace(given, timeout=2, max_response_bytes=1000))
    assert less.timeout == 2
    assert less.max_response_bytes == 1000
    assert less.base_url == given.base_url
