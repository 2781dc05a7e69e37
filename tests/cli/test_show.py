"""What ``custody whitelist show`` says of one request: nothing that is not signed looks like it."""

from __future__ import annotations

import pytest
from attacks import attack
from cli_runs import Create, Run, read

from airflow_custody.sandbox import Sandbox


@pytest.fixture
def show(custody: Run, pins: list[str]) -> Run:
    return lambda *arguments: custody("whitelist", "show", *arguments, *pins)


def test_without_pins_nothing_is_verified(custody: Run, create: Create) -> None:
    identifier = create(1, status="pending", label="Zürich vault", memo="007")
    ran = custody("whitelist", "show", identifier)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"id: {identifier}\nstate: pending\nstatus: pending\ntrust: not checked\n")
    assert "payload, not verified:\n" in ran.out
    assert "  label: Zürich vault\n" in ran.out
    data = read(custody("whitelist", "show", identifier, "-o", "json"))
    assert (data["id"], data["payload"]["memo"], data["signatures"]) == (identifier, "007", [])
    assert (data["trust"], data["around"]["Tenant"]) == ("not checked", "1")
    assert [each["action"] for each in data["trail"]] == ["created"]
    assert data["trail"][0]["at"] == data["created_at"]


def test_a_verified_request(show: Run, signed: Create) -> None:
    identifier = signed(1)
    ran = show(identifier)
    assert (ran.code, ran.err) == (0, "")
    assert "trust: verified\n" in ran.out
    assert "verification: Verified: signed by signer-1@example.test under rules of 2" in ran.out
    assert "\npayload:\n" in ran.out
    assert "not verified" not in ran.out


@pytest.mark.parametrize("status", ["APPROVED", "pending", "rejected"])
def test_one_that_nobody_signed(show: Run, create: Create, status: str) -> None:
    identifier = create(1, status=status)
    ran = show(identifier)
    assert ran.code == 0
    trust = {"APPROVED": "UNVERIFIED", "pending": "unsigned", "rejected": "not checked"}[status]
    assert f"trust: {trust}\n" in ran.out
    assert "\npayload, not verified:\n" in ran.out
    assert "\npayload:" not in ran.out
    assert ("no signature covers its text" in ran.out) is (status == "APPROVED")


def test_a_signature_that_is_not_valid(show: Run, create: Create, sandbox: Sandbox) -> None:
    identifier = create(1, status="pending")
    junk = {"signature": {"userId": "ann\x1b", "signature": "A" * 88}, "hashes": ["0" * 64]}
    sandbox.control.set_whitelist_envelope(identifier, signedAddress={"signatures": [junk]})
    ran = show(identifier)
    assert "trust: UNVERIFIED\n" in ran.out
    assert "its signature 1 of 1 " in ran.out
    assert "\x1b" not in ran.out
    assert [each["valid"] for each in read(show(identifier, "-o", "json"))["signatures"]] == [False]


def test_what_a_legacy_form_does_not_cover(
    show: Run, custody: Run, pins: list[str], sandbox: Sandbox, signed: Create
) -> None:
    identifier = signed(1)
    attack(sandbox.control, sandbox.token, identifier, "invented contract type")
    assert "trust: UNVERIFIED\n" in show(identifier).out
    legacy = "--allow-legacy-signatures"
    ran = show(identifier, legacy)
    what = "in a legacy form: what is received as contractType is not signed"
    assert "trust: verified\n" in ran.out
    assert f"legacy: {what}\n" in ran.out
    assert "ERC20" not in ran.out
    assert "contractType" not in read(show(identifier, legacy, "-o", "json"))["payload"]
    # And the audit names it.
    ran = custody("whitelist", "verify", *pins, legacy)
    assert ran.code == 0
    first, last = ran.out.splitlines()
    assert first.startswith(f"request {identifier}: verified: ETH 0x")
    assert first.endswith(f', "L1", validly signed by signer-1@example.test, {what}'.lstrip(", "))
    assert last.startswith("1 request: 1 verified (")


def test_a_payload_that_cannot_be_used_is_not_shown(custody: Run, create: Create, sandbox: Sandbox) -> None:
    identifier = create(1, label="not to be believed")
    sandbox.control.set_whitelist_metadata(identifier, hash="0" * 64)
    ran = custody("whitelist", "show", identifier)
    assert ran.code == 1
    assert "not to be believed" not in ran.out
    assert "does not have the hash" in ran.err
    assert read(custody("whitelist", "show", identifier, "-o", "json"))["payload"] == {}


@pytest.mark.parametrize("identifier", ["99999", "../1", "x"])
def test_a_request_that_does_not_exist(custody: Run, identifier: str) -> None:
    ran = custody("whitelist", "show", identifier)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("custody: ")
