"""``custody status`` and ``custody health``: what is wrong comes first, and the exit code says so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.airflow.connections import connection_json
from support.cli_runs import Create, Run

from airflow_custody.sandbox import Sandbox

ONE_LINE = "the service is healthy: 9 of 9 checks are healthy\n"


def test_a_service_without_problems_is_0(custody: Run, create: Create, sandbox: Sandbox) -> None:
    twice = [create(1), create(1)]
    pending = create(2, status="pending")
    sandbox.control.change_whitelist_request(pending, label="a\u202eb\x1b[2J\u200bc")
    sandbox.control.add_webhook(status="disabled", url="https://hooks.example.test/a?key=s3cret")
    ran = custody("status")
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"all well at {sandbox.url}, at ")
    assert lines[1] == f"NOTE: whitelisting requests {twice[0]} and {twice[1]} are in effect for the same address"
    assert "It is disabled: nothing is delivered." in lines[2]
    assert f"  {ONE_LINE}" in ran.out
    row = next(line for line in lines if line.startswith(f"    {pending}  pending  not checked  "))
    shown = re.escape(r"a\u202eb\u001b[2J\u200bc")
    assert re.search(rf"  20[-0-9]+ [0-9:]+ UTC  20[-0-9]+ [0-9:]+ UTC  ETH    0x{2:040x}  {shown}$", row)
    assert "s3cret" not in ran.out
    data = custody("status", "-o", "json").data
    assert data["ok"] is True
    assert data["wrong"] == []
    assert data["unread"] == []
    assert data["requests"]["value"]["in_effect_twice"] == [twice]
    (found,) = data["requests"]["value"]["pending"]["rows"]
    assert found["id"] == pending
    assert found["state"] == "pending"
    assert found["trust"] == "not checked"


def test_rows_that_are_left_out_are_counted(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.add_whitelist_requests(
        [{"label": f"L{each}", "address": f"0x{each:040x}", "blockchain": "ETH"} for each in range(25)]
    )
    assert "  IN EFFECT (20 of 25):\n" in custody("status").out


def unhealthy(sandbox: Sandbox, number: str) -> None:
    sandbox.control.update_health(status="failed\x1b[2J", group="hsm")
    sandbox.control.add_webhook(status="cooldown", timeout_until="2999-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("prepare", "code", "says"),
    [
        (unhealthy, 2, ["WRONG: the service is not healthy (3 of 9 checks unhealthy): hsm / ", "WRONG: webhook "]),
        (
            lambda sandbox, number: sandbox.control.add_fault("status", status=500, path="/statistics"),
            1,
            ["NOT READ: pending this user's approval: get pending approvals failed: "],
        ),
        # One failure of all is said once.
        (lambda sandbox, number: sandbox.control.add_fault("html", times=None), 1, ["NOT READ: ", "not all well at "]),
    ],
    ids=["unhealthy", "part", "all"],
)
def test_problems_come_first(
    custody: Run,
    create: Create,
    sandbox: Sandbox,
    prepare: Callable[[Sandbox, str], object],
    code: int,
    says: list[str],
) -> None:
    prepare(sandbox, create(1))
    ran = custody("status")
    assert ran.code == code
    assert ran.err == ""
    for line, start in zip(ran.out.splitlines(), says, strict=False):
        assert line.startswith(start)
    assert "\x1b" not in ran.out
    assert ("\nHEALTH: not read\n" in ran.out) is (says[0] == "NOT READ: ")


def test_hidden_requests_are_2(custody: Run, create: Create, sandbox: Sandbox) -> None:
    create(1)
    sandbox.control.configure(listings={"whitelist": {"dropped": [create(2), create(3)]}})
    ran = custody("status")
    assert ran.code == 2
    assert ran.out.startswith("WRONG: the service counts 2 requests that it does not return\n")
    assert custody("status", "-o", "json").data["requests"]["value"]["hidden"] == 2


def test_an_unverified_request_is_2(custody: Run, create: Create, pins: list[str]) -> None:
    identifier = create(1)
    ran = custody("status", *pins)
    assert ran.code == 2
    assert ran.out.startswith(f"WRONG: whitelisting request {identifier} (in effect): not verified: ")
    assert "  unverified  " in ran.out


def test_parts_that_the_service_does_not_offer_are_no_errors(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.configure(operations="contract")
    ran = custody("status")
    assert ran.code == 0
    # The unread parts are not known to be well.
    assert ran.out.startswith("all that could be read is well at ")
    for part in ("USER", "WHITELISTING REQUESTS", "WEBHOOKS", "NEWEST WEBHOOK CALL"):
        assert f"\n{part}: not offered\n" in f"{ran.out}\n"
    assert "not read" not in ran.out.casefold()


def test_parts_that_the_user_may_not_read_are_left_out(
    custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"]))
    ran = custody("status")
    assert ran.code == 0
    assert "roles: TPUser\n" in ran.out
    assert "webhook" not in ran.out.casefold()


def test_a_service_that_hangs_ends_the_command_soon(
    plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_custody.overview.read.MAX_TIMEOUT", 0.3)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=60, max_retries=5))
    sandbox.control.add_fault(path="/health", delay=3600, times=None)
    ran = plain("status")
    assert ran.code == 1
    assert ran.out.startswith("NOT READ: health: list health checks failed: no complete response from ")
    assert len(sandbox.control.request_log("GET", "/health")) == 1


# --- health --------------------------------------------------------------------------------------------------


def test_healthy_is_0_and_unhealthy_is_2(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("health")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.endswith(ONE_LINE)
    data = custody("health", "--output", "json").data
    assert data["healthy"] is True
    assert data["total"] == 9
    assert data["groups"]["hsm"] == {"total": 3, "unhealthy": 0}
    sandbox.control.update_health(status="failed\x1b[2J", group="hsm")
    ran = custody("health")
    assert ran.code == 2
    assert ran.err == ""
    assert "NOT HEALTHY: hsm / " in ran.out
    assert "\x1b" not in ran.out
    problem = custody("health", "-o", "json").data["problems"][0]
    assert problem["component_id"]
    assert problem["report"]["duration_seconds"] == 0.00085
    sandbox.control.add_fault("status", status=503, method="GET", path="/health")
    ran = custody("health", "-o", "json")
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("custody: list health checks failed: ")


def test_names_for_a_health_gate_are_listed(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("health", "--group", "blockchain")
    header, row, *_ = ran.out.splitlines()
    assert header.split() == ["GROUP", "COMPONENT", "CHECK", "STATUS", "RESULTS"]
    assert row.split()[:6] == ["blockchain", "chain-gateway", "nodes", "success", "BTC", "success,"]
    listed = custody("health", "-o", "json").data["listed"]
    criteria = {name: {each[name] for each in listed} for name in ("group", "component", "check")}
    results = {key for each in listed for key in each["results"]}
    # Each of them can be asked for.
    asked = [f"--{name}={each}" for name, names in criteria.items() for each in names]
    assert custody("health", *asked, *(f"--require-results={key}" for key in results)).code == 0
    # A name that does not exist is said with those to choose from.
    ran = custody("health", "--group", "hms")
    groups = "the groups are 'blockchain', 'database', 'hsm'. Correct --group: names are compared exactly."
    assert ran.err.startswith(f"custody: no group named 'hms' exists; {groups}")
    assert "healthy" not in ran.out


CHECK = {"healthCheck": "connectivity", "report": {"status": "success", "results": {"BTC": "success", "ETH": None}}}


@pytest.mark.parametrize(
    ("group", "row"),
    [
        ({"healthChecks": [CHECK]}, "hsm    connectivity  (missing)  BTC success, ETH (missing)"),
        ({"healthChecks": [{}]}, "hsm    (missing)"),
        ({"checks": [CHECK]}, "hsm    (missing)"),
        (None, "hsm    (missing)"),
    ],
    ids=["check without status, result without word", "empty check", "unreadable group", "no group"],
)
def test_a_check_with_missing_values_is_listed_and_is_not_healthy(
    custody: Run, sandbox: Sandbox, group: object, row: str
) -> None:
    sandbox.control.set_health_response({"groups": {"hsm": group}})
    ran = custody("health")
    assert ran.code == 2
    assert ran.err == ""
    assert ran.out.splitlines()[1] == row
    assert "the service is not healthy (1 of 1 check unhealthy)" in ran.out
    (listed,) = custody("health", "-o", "json").data["listed"]
    assert listed["status"] is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--group hsm --group database", 0),
        ("--component nothing", 1),
        ("--healthy-status fine", 2),
        ("--healthy-status fine --healthy-status SUCCESS", 0),
        ("--tenant-id 99", 2),
        # The result of this one has expired.
        ("--group expired", 2),
        ("--group expired --no-require-fresh", 0),
    ],
)
def test_criteria(custody: Run, sandbox: Sandbox, options: str, code: int) -> None:
    if "expired" in options:
        sandbox.control.update_health(group="hsm", validUntilDate="2020-01-01T00:00:00Z")
    ran = custody("health", *options.replace("expired", "hsm").split())
    assert ran.code == code
    assert ran.err.endswith("names are compared exactly. [custody/parameter-wrong]\n" if code == 1 else "")
    assert bool(ran.err) is (code == 1)
