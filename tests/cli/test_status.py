from __future__ import annotations

import json
import re

import pytest
from cli_runs import Create, Run, read
from connections import connection_json

from airflow_custody.sandbox import Sandbox


def test_all_well_is_0(custody: Run, create: Create, sandbox: Sandbox) -> None:
    create(1)
    pending = create(2, status="pending")
    sandbox.control.set_whitelist_age(pending, 7300)
    sandbox.control.add_webhook(status="disabled", url="https://hooks.example.test/a?key=s3cret")
    ran = custody("status")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"all well at {sandbox.url}, at ")
    titles = [line for line in ran.out.splitlines() if not line.startswith(" ")][2:]
    assert titles == [
        "USER:",
        "HEALTH:",
        "PENDING:",
        "STATUS NOT KNOWN:",
        "LATEST IN EFFECT:",
        "PENDING THIS USER'S APPROVAL:",
        "WEBHOOKS:",
        "NEWEST WEBHOOK CALL: none",
    ]
    assert "  the service is healthy: 9 of 9 checks are healthy\n" in ran.out
    row = next(line for line in ran.out.splitlines() if line.startswith(f"  {pending}  pending  not checked  "))
    assert re.search(rf"  20[-0-9]+ [0-9:]+ UTC  20[-0-9]+ [0-9:]+ UTC  ETH    0x{2:040x}  L2$", row)
    assert "  whitelisted_addresses: 1\n" in ran.out
    assert "It is disabled: nothing is delivered." in ran.out
    assert "s3cret" not in ran.out


def test_what_is_wrong_comes_first_and_is_2(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.update_health(status="failed\x1b[2J", group="hsm")
    sandbox.control.add_webhook(status="cooldown", timeout_until="2999-01-01T00:00:00Z")
    ran = custody("status")
    assert (ran.code, ran.err) == (2, "")
    first, second, third = ran.out.splitlines()[:3]
    assert first.startswith("WRONG: the service is not healthy (3 of 9 checks unhealthy): hsm / ")
    assert second.startswith("WRONG: webhook ")
    assert third.startswith("not all well at ")
    assert "\x1b" not in ran.out


def test_an_unverified_request_is_2(custody: Run, create: Create, pins: list[str]) -> None:
    identifier = create(1)
    ran = custody("status", *pins)
    assert ran.code == 2
    assert ran.out.startswith(f"WRONG: whitelisting request {identifier} (in effect): not verified: ")
    assert "  unverified  " in ran.out
    assert custody("status").code == 0


def test_what_a_user_may_not_see_is_no_error(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"]))
    ran = custody("status")
    assert ran.code == 0
    assert "roles: TPUser\n" in ran.out
    assert "webhook" not in ran.out.casefold()
    # Programs are told why.
    assert "role-missing" in read(custody("status", "-o", "json"))["webhooks"]["problem"]


def test_a_part_that_cannot_be_read_is_1(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=500, path="/statistics")
    ran = custody("status")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("NOT READ: pending approvals: get pending approvals failed: ")
    assert "\nHEALTH:\n  the service is healthy: " in ran.out


def test_one_failure_of_all_is_said_once(custody: Run, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("html", times=None)
    ran = custody("status")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.count("[custody/") == ran.out.count("not a response of the custody service") == 1
    assert "\nWEBHOOKS: not read\n" in ran.out


def test_a_status_that_is_not_known_is_2(custody: Run, create: Create, sandbox: Sandbox) -> None:
    identifier = create(1)
    create(2, status="REJECTED")
    sandbox.control.set_whitelist_status(identifier, "WEIRD")
    ran = custody("status")
    assert ran.code == 2
    assert ran.out.startswith(f"WRONG: whitelisting request {identifier} (status not known): Its status, 'WEIRD', ")
    assert "\nSTATUS NOT KNOWN:\n  1\n  ID " in ran.out


@pytest.mark.parametrize("from_airflow", [False, True])
def test_a_service_that_hangs(
    custody: Run, plain: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, from_airflow: bool
) -> None:
    monkeypatch.setattr("airflow_custody.overview.read.MAX_TIMEOUT", 0.3)
    sandbox.control.add_fault(path="/health", delay=3600, times=None)
    if from_airflow:
        text = connection_json(sandbox, timeout=60, max_retries=5)
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_SLOW", text)
        ran = plain("status", "--conn-id", "custody_slow")
    else:
        ran = custody("status", "--timeout", "60", "--max-retries", "5")
    assert ran.code == 1
    assert ran.out.startswith("NOT READ: health: list health checks failed: no complete response from ")
    assert len(sandbox.control.request_log("GET", "/health")) == 1


def test_hostile_texts_are_escaped(custody: Run, create: Create, sandbox: Sandbox) -> None:
    identifier = create(1, status="pending")
    sandbox.control.change_whitelist_request(identifier, label="a\u202eb\x1b[2J\u200bc")
    out = custody("status").out
    assert r"a\u202eb\u001b[2J\u200bc" in out
    assert not {"\u202e", "\x1b", "\u200b"} & set(out)


def test_data_for_programs(custody: Run, create: Create) -> None:
    create(1)
    create(2, status="pending", label="<script>")
    data = read(custody("status", "-o", "json"))
    assert list(data)[:5] == ["ok", "wrong", "unread", "read_at", "base_url"]
    assert (data["ok"], data["wrong"], data["unread"]) == (True, [], [])
    assert data["pending"]["value"]["total"] == 1
    (row,) = data["pending"]["value"]["rows"]
    assert (row["label"], row["state"], row["trust"]) == ("<script>", "pending", "not checked")
    assert (row["signatures"], row["paths"]) == (0, [])
    assert row["created_at"].endswith("+00:00")
    assert data["health"] == {**data["health"], "problem": "", "not_offered": False}
    assert json.dumps(data["approvals"]["value"])


def test_what_is_in_effect_twice_is_named(custody: Run, create: Create) -> None:
    ids = [create(1), create(1)]
    ran = custody("status")
    assert ran.code == 0
    assert f"NOTE: whitelisting requests {ids[0]} and {ids[1]} are in effect for the same address\n" in ran.out
    assert read(custody("status", "-o", "json"))["in_effect_twice"] == [ids]
