"""An overview is read from a real service; what cannot be read hides nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_custody.client import ClientSettings, CustodyClient
from airflow_custody.overview import for_people, read_overview
from airflow_custody.overview.models import Overview, UserView
from airflow_custody.overview.verdict import judge_overview
from airflow_custody.sandbox import Sandbox

SECTIONS = ("user", "health", "pending", "recent", "unknown", "approvals", "webhooks", "journal")
ONE_GROUP = [{"sequential": [{"externalGroupID": "ops", "minimumSignatures": 2}]}]
Create = Callable[..., str]


def problems(overview: Overview) -> dict[str, str]:
    return {name: getattr(overview, name).problem for name in SECTIONS if getattr(overview, name).problem}


def test_all_is_well(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    waiting, signed = create(1), create(2, network="mainnet")
    sandbox.control.set_whitelist_age(waiting, 3600)
    sandbox.control.sign_whitelist_requests([signed])
    sandbox.control.add_webhook(url="https://ann:s3cret@hooks.example.test/a?key=s3cret")
    sandbox.control.add_webhook_call(id="7", webhookId="w", createdAt="2026-01-02T03:04:05.123456789Z")
    overview = read_overview(client)
    assert problems(overview) == {}
    assert judge_overview(overview).ok
    assert overview.base_url == sandbox.url
    health = overview.health.value
    assert health is not None
    assert (health.healthy, len(health.checks)) == (True, 9)
    assert overview.user.value is not None
    assert overview.user.value == UserView("user-1@example.test", "1", overview.user.value.roles)
    assert overview.pending.value is not None
    (row,) = overview.pending.value.rows
    assert (row.id, row.chain, row.address, row.label) == (waiting, "ETH", f"0x{1:040x}", "L1")
    assert (row.trust, row.state, row.signatures, row.problem) == ("not checked", "pending", 0, "")
    assert row.created_at is not None
    assert 3595 < (overview.read_at - row.created_at).total_seconds() < 3700
    assert overview.recent.value is not None
    (row,) = overview.recent.value.rows
    assert (row.id, row.state, row.chain, row.label) == (signed, "effective", "ETH mainnet", "L2")
    assert row.changed_at is not None
    assert overview.approvals.value is not None
    assert overview.approvals.value.whitelisted_addresses == 1
    assert overview.webhooks.value is not None
    assert [each.url for each in overview.webhooks.value] == ["https://***@hooks.example.test/***"]
    assert overview.journal.value is not None
    assert overview.journal.value.newest_id == "7"
    assert str(overview.journal.value.newest_at) == "2026-01-02 03:04:05.123456+00:00"
    assert "s3cret" not in str(overview)


def test_what_is_wrong_with_health_comes_first(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.update_health(check="vault", status="failed\x1b[2J")
    health = read_overview(client).health.value
    assert health is not None
    assert not health.healthy
    assert [each.healthy for each in health.checks] == sorted(each.healthy for each in health.checks)
    assert health.checks[0].check == "vault"
    assert "failed" in health.checks[0].problem
    sandbox.control.set_health([])
    health = read_overview(client).health.value
    assert health is not None
    assert (health.healthy, health.problems) == (False, ("the service lists no health checks",))


def test_the_newest_journal_call_takes_one_request(sandbox: Sandbox, client: CustodyClient) -> None:
    for number in range(150):
        sandbox.control.add_webhook_call(id=str(number), webhookId="w", createdAt=f"2026-01-02T03:04:05.{number:03}Z")
    sandbox.control.clear_request_log()
    journal = read_overview(client).journal.value
    assert journal is not None
    assert journal.newest_id == "149"
    assert len(sandbox.control.request_log("GET", "/webhooks/calls")) == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("health", "/health"),
        ("pending", "/whitelists/addresses"),
        ("approvals", "/statistics"),
        ("webhooks", "/webhooks"),
        ("journal", "/webhooks/calls"),
    ],
)
@pytest.mark.parametrize("kind", ["html", "drop", "truncate_body", "status"])
def test_a_section_that_cannot_be_read_hides_no_other(
    sandbox: Sandbox, client: CustodyClient, name: str, path: str, kind: str
) -> None:
    options = {"status": 500} if kind == "status" else {}
    # What is at or below the path.
    sandbox.control.add_fault(kind, path=path, times=1 if name == "webhooks" else None, **options)
    overview = read_overview(client)
    failed = {"pending", "recent", "unknown"} if name == "pending" else {name}
    assert set(problems(overview)) == failed
    assert len(judge_overview(overview).texts("unread")) == 1
    assert "\n" not in problems(overview)[name]
    assert getattr(overview, name).value is None


def test_a_user_without_roles_sees_what_is_missing(sandbox: Sandbox, create: Create) -> None:
    create(1)
    token = sandbox.control.add_token(["TPUser"])
    with CustodyClient(sandbox.url, token, max_retries=0) as client:
        overview = read_overview(client)
    assert set(problems(overview)) == {"webhooks", "journal"}
    assert "Admin" in overview.webhooks.problem
    assert token not in str(overview)
    assert overview.webhooks.not_offered
    assert overview.pending.value is not None
    # Nothing is wrong with the service.
    assert len(overview.pending.value.rows) == 1
    assert judge_overview(overview).ok


def test_a_service_that_is_away() -> None:
    with CustodyClient("http://127.0.0.1:1", "token", max_retries=0) as client:
        overview = read_overview(client)
    assert set(problems(overview)) == set(SECTIONS)
    (problem,) = judge_overview(overview).texts("unread")
    assert "127.0.0.1:1 cannot be reached" in problem


@pytest.mark.parametrize("status", [403, 404, 405, 501])
@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    ("path", "is_needed"),
    [("/health", True), ("/whitelists/addresses", True), ("/statistics", False), ("/webhooks", False)],
)
def test_what_is_not_offered_is_well_only_where_it_may_be_missing(
    sandbox: Sandbox, client: CustodyClient, path: str, is_needed: bool, is_own: bool, status: int
) -> None:
    body = {"error": "Denied", "message": "no", "code": status} if is_own else {}
    sandbox.control.add_fault("status", path=path, times=None, status=status, body=body)
    verdict = judge_overview(read_overview(client))
    assert verdict.texts("wrong") == ()
    assert verdict.ok is (is_own and not is_needed)


def test_many_pending_requests_are_bounded_and_the_oldest_come_first(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in range(250)]
    ids = sandbox.control.add_whitelist_requests(rows, status="pending")
    sandbox.control.set_whitelist_age(ids[-1], 9000)
    view = read_overview(client).pending.value
    assert view is not None
    assert (len(view.rows), view.total) == (200, 250)
    assert [each.id for each in view.rows[:3]] == [ids[-1], ids[0], ids[1]]


def test_a_whitelist_that_is_too_large_is_not_read(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    for number in range(4):
        create(number)
    overview = read_overview(client, max_listed=3)
    assert problems(overview).keys() == {"pending", "recent", "unknown"}
    (unread,) = judge_overview(overview).texts("unread")
    assert unread == (
        "whitelisting requests: There are more than 3 requests, too many to read here. 'custody status' reads them all."
    )
    assert problems(read_overview(client, max_listed=4)) == {}


def test_the_latest_in_effect_come_first(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    ids = [create(number) for number in range(25)]
    for each in ids:
        sandbox.control.set_whitelist_age(each, 3600)
    sandbox.control.sign_whitelist_requests(ids[:22])
    sandbox.control.sign_whitelist_requests([ids[24]])
    view = read_overview(client).recent.value
    assert view is not None
    assert (len(view.rows), view.total) == (20, 23)
    assert view.rows[0].id == ids[24]


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        ({}, ""),
        ({"status": "disabled"}, "It is disabled: nothing is delivered."),
        (
            {"status": "cooldown", "timeout_until": "2999-01-01T00:00:00Z"},
            "It is cooling down until 2999-01-01 00:00:00 UTC, as deliveries failed.",
        ),
        ({"timeout_until": "2020-01-01T00:00:00Z"}, ""),
        ({"status": ""}, "Its status, '', is not known."),
        ({"status": "tired"}, "Its status, 'tired', is not known."),
        ({"status": "enable\u017f"}, "Its status, 'enable\u017f', is not known."),
        (
            {"timeout_until": "garbage"},
            "It is cooling down until a time that cannot be read ('garbage'), as deliveries failed.",
        ),
    ],
)
def test_what_is_wrong_with_a_webhook(
    sandbox: Sandbox, client: CustodyClient, webhook: dict[str, str], problem: str
) -> None:
    sandbox.control.add_webhook(**webhook)
    overview = read_overview(client)
    assert overview.webhooks.value is not None
    assert [each.problem for each in overview.webhooks.value] == [problem]
    # Somebody may have meant it.
    assert judge_overview(overview).ok is (not problem or webhook.get("status") == "disabled")


def test_an_overview_changes_nothing(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    create(1)
    sandbox.control.clear_request_log()
    read_overview(pinning)
    log = sandbox.control.request_log()
    assert {each["method"] for each in log} == {"GET"}
    assert len(log) <= 12


def test_a_journal_in_the_wrong_order_is_not_believed(sandbox: Sandbox, client: CustodyClient) -> None:
    for number in range(3):
        sandbox.control.add_webhook_call(id=str(number), webhookId="w", createdAt=f"2026-01-02T03:04:0{number}Z")
    sandbox.control.configure(listings={"webhook-calls": {"ignored": ["sortOrder"], "orders": [["0", "1", "2"]]}})
    overview = read_overview(client)
    assert set(problems(overview)) == {"journal"}
    assert "the oldest call first" in overview.journal.problem


@pytest.mark.parametrize(
    ("status", "is_own", "says", "code"),
    [
        (
            401,
            True,
            "The token is wrong, revoked or has expired; it comes from the 'token' given to CustodyClient.",
            "credentials-refused",
        ),
        (
            401,
            False,
            "'token' given to CustodyClient. A gateway in between may have sent this response.",
            "credentials-refused",
        ),
        (403, True, "). The user needs the role Admin or AdminReadOnly.", "role-missing"),
        (
            403,
            False,
            "needs the role Admin or AdminReadOnly. A gateway in between may have sent this response.",
            "role-missing",
        ),
        (
            404,
            True,
            "). The service may not offer this operation: it is not part of its documented interface.",
            "not-offered",
        ),
        (
            404,
            False,
            "response. The service may not offer this operation: it is not part of its documented interface.",
            "not-offered",
        ),
    ],
)
def test_why_a_part_cannot_be_read(
    sandbox: Sandbox, client: CustodyClient, status: int, is_own: bool, says: str, code: str
) -> None:
    body = {"error": "Denied", "message": "no", "code": status} if is_own else {}
    sandbox.control.add_fault("status", path="/webhooks", times=None, status=status, body=body)
    section = read_overview(client).webhooks
    assert section.problem.endswith(f"{says} [custody/{code}]")
    assert section.not_offered is (is_own and status != 401)


def test_of_many_webhooks_the_faulty_ones_come_first(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [{"id": f"d{n}", "type": "aaa", "url": "https://x.test", "status": "disabled"} for n in range(200)]
    rows += [{"id": f"odd{n}", "type": "zzz", "url": "https://x.test", "status": "odd"} for n in range(205)]
    for faulty in (3, 205):
        body = {"webhooks": rows[: 200 + faulty]}
        sandbox.control.add_fault("status", status=200, body={"calls": []}, path="/webhooks/calls", times=None)
        sandbox.control.add_fault("status", status=200, body=body, path="/webhooks", times=None)
        overview = read_overview(client)
        assert overview.webhooks.value is not None
        assert overview.webhooks.value[0].id == "odd0"
        assert len(overview.webhooks.value) == 200 + faulty
        wrong = judge_overview(overview).texts("wrong")
        assert (len(wrong), wrong[-1][:21]) == (
            (3, "webhook odd2: Its sta") if faulty == 3 else (21, "and 185 other webhook")
        )
        sandbox.control.clear_faults()


@pytest.mark.parametrize("group", [None, {"checks": [{"status": "failed"}]}, {"healthCheck": []}])
def test_a_group_that_cannot_be_read_is_named(sandbox: Sandbox, client: CustodyClient, group: object) -> None:
    sandbox.control.set_health_response({"groups": {"hsm-2": group, "empty": {"healthChecks": []}, "none": {}}})
    health = read_overview(client).health.value
    assert health is not None
    assert not health.healthy
    assert [(each.group, each.problem) for each in health.checks] == [
        ("hsm-2", "the group could not be read: it has no 'healthChecks'")
    ]


def test_a_person_does_not_wait_for_long() -> None:
    given = ClientSettings(base_url="https://custody.example.com", timeout=120, max_retries=9)
    found = for_people(given)
    assert (found.timeout, found.max_retries, found.base_url) == (10, 0, given.base_url)
    assert found.max_response_bytes == 8 * 1024 * 1024
    less = for_people(replace(given, timeout=2, max_response_bytes=1000))
    assert (less.timeout, less.max_response_bytes) == (2, 1000)
