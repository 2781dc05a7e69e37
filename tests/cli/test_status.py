"""``custody status`` and ``custody health``: what is wrong comes first, and the exit code says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.airflow.connections import connection_json
from support.cli_runs import Create, Run

from airflow_custody.sandbox import Sandbox

CRITERIA = ("group", "component", "check")
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
    assert lines[0].startswith(f"Attention at {sandbox.url}, at ")
    assert lines[1] == f"NOTE: whitelisting requests {twice[0]} and {twice[1]} are in effect for the same address"
    assert "It is disabled: nothing is delivered." in lines[2]
    assert f"  {ONE_LINE}" in ran.out
    row = next(line for line in lines if line.startswith(f"    {pending}  pending approval  pending  not checked  "))
    assert row.endswith(f"  ETH    0x{2:040x}  " + r"a\u202eb\u001b[2J\u200bc")
    data = custody("status", "-o", "json").data
    assert (data["ok"], data["level"], data["wrong"], data["unread"]) == (True, "warning", [], [])
    assert "listed" not in data["requests"]["value"]
    assert data["health"]["value"]["healthy"] is True
    (found,) = data["requests"]["value"]["pending"]["rows"]
    assert (found["id"], found["trust"]) == (pending, "not checked")
    assert "s3cret" not in f"{ran.out} {data}"


def test_rows_that_are_left_out_are_counted(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.add_whitelist_requests(
        [{"label": f"L{each}", "address": f"0x{each:040x}", "blockchain": "ETH"} for each in range(25)]
    )
    assert "  IN EFFECT (20 of 25):\n" in custody("status").out


def test_requests_that_have_been_pending_for_long_are_reported(custody: Run, create: Create, sandbox: Sandbox) -> None:
    sandbox.control.set_whitelist_age(create(1, status="pending"), 4 * 86_400)
    ran = custody("status")
    assert ran.code == 0
    assert ran.out.startswith("Waiting at ")
    text = "1 whitelisting request is pending approval for 4 d"
    assert ran.out.splitlines()[1] == f"WAITING: {text}"
    data = custody("status", "-o", "json").data
    assert (data["level"], data["waiting"]) == ("waiting", [text])


def unhealthy(sandbox: Sandbox, number: str) -> None:
    sandbox.control.update_health(status="failed\x1b[2J", group="hsm")
    sandbox.control.add_webhook(status="cooldown", timeout_until="2999-01-01T00:00:00Z")


def hide(sandbox: Sandbox, number: str) -> None:
    sandbox.control.configure(listings={"whitelist": {"dropped": [number]}})


@pytest.mark.parametrize(
    ("prepare", "code", "says"),
    [
        (unhealthy, 2, ["WRONG: the service is not healthy (3 of 9 checks unhealthy): hsm / ", "WRONG: webhook "]),
        (hide, 2, ["WRONG: the service counts 1 request that it does not return"]),
        (
            lambda sandbox, number: sandbox.control.add_fault("status", status=500, path="/statistics"),
            1,
            ["NOT READ: pending this user's approval: get pending approvals failed: "],
        ),
        # If all parts have the same failure, it is reported once.
        (
            lambda sandbox, number: sandbox.control.add_fault("html", times=None),
            1,
            ["NOT READ: ", "Trouble (not complete) at "],
        ),
    ],
    ids=["unhealthy", "hidden", "part", "all"],
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


def test_parts_that_the_service_does_not_offer_are_no_errors(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.configure(operations="contract")
    ran = custody("status")
    assert ran.code == 0
    # The parts that could not be read are not reported as good.
    assert ran.out.startswith("Healthy (not complete) at ")
    assert "\nWEBHOOKS: not offered\n" in ran.out


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
    assert custody("health", "--output", "json").data["healthy"] is True
    sandbox.control.update_health(status="failed\x1b[2J", group="hsm")
    ran = custody("health")
    assert ran.code == 2
    assert ran.err == ""
    assert "NOT HEALTHY: hsm / " in ran.out
    assert "\x1b" not in ran.out
    data = custody("health", "-o", "json").data
    assert data["groups"]["hsm"] == {"total": 3, "unhealthy": 3}
    assert data["problems"][0]["component_id"]
    sandbox.control.add_fault("status", status=503, method="GET", path="/health")
    ran = custody("health", "-o", "json")
    assert ran.code == 1
    assert ran.out == ""


def test_names_for_a_health_gate_are_listed(custody: Run) -> None:
    ran = custody("health", "--group", "blockchain")
    header, row, *_ = ran.out.splitlines()
    assert header.split() == ["GROUP", "COMPONENT", "CHECK", "STATUS", "RESULTS"]
    assert row.split()[:6] == ["blockchain", "chain-gateway", "nodes", "success", "BTC", "success,"]
    # Each of these checks can be selected.
    names = [f"--{name}={each[name]}" for each in custody("health", "-o", "json").data["listed"] for name in CRITERIA]
    assert custody("health", *names, "--require-results", "BTC").code == 0
    # If a name does not exist, the error lists the existing names.
    ran = custody("health", "--group", "hms")
    assert ran.code == 1
    assert ran.err.startswith("custody: no group named 'hms' exists; the groups are 'blockchain', 'database', 'hsm'.")
    assert "healthy" not in ran.out


CHECK = {"healthCheck": "connectivity", "report": {"status": "success", "results": {"BTC": "success", "ETH": None}}}


@pytest.mark.parametrize(
    ("group", "row"),
    [
        ({"healthChecks": [CHECK]}, "hsm    connectivity  (missing)  BTC success, ETH (missing)"),
        (None, "hsm    (missing)"),
    ],
)
def test_a_check_with_missing_values_is_listed_and_is_not_healthy(
    custody: Run, sandbox: Sandbox, group: object, row: str
) -> None:
    sandbox.control.set_health_response({"groups": {"hsm": group}})
    ran = custody("health")
    assert ran.code == 2
    assert ran.err == ""
    assert ran.out.splitlines()[1] == row


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--group hsm --group database", 0),
        ("--healthy-status fine", 2),
        ("--healthy-status fine --healthy-status SUCCESS", 0),
        ("--tenant-id 99", 2),
        # The result of this check has expired.
        ("--group expired", 2),
        ("--group expired --no-require-fresh", 0),
    ],
)
def test_criteria(custody: Run, sandbox: Sandbox, options: str, code: int) -> None:
    if "expired" in options:
        sandbox.control.update_health(group="hsm", validUntilDate="2020-01-01T00:00:00Z")
    ran = custody("health", *options.replace("expired", "hsm").split())
    assert ran.code == code
    assert ran.err == ""
