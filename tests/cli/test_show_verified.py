"""What ``custody whitelist show`` says of one request with pinned keys: nothing that is not signed looks like it."""

from __future__ import annotations

import pytest
from attacks import attack
from cli_runs import Create, Run, read

from airflow_custody.sandbox import Sandbox

TWO_SIGN = [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}]


@pytest.fixture
def show(custody: Run, pins: list[str]) -> Run:
    return lambda *arguments: custody("whitelist", "show", *arguments, *pins)


def test_a_verified_request(show: Run, signed: Create) -> None:
    identifier = signed(1)
    ran = show(identifier)
    assert (ran.code, ran.err) == (0, "")
    assert "verified: yes: validly signed by signer-1@example.test\n" in ran.out
    assert "UNVERIFIED" not in ran.out
    data = read(show(identifier, "-o", "json"))
    assert (data["verified"], data["reason"], data["unverified_payload"]) == (True, None, None)
    assert data["verification"]["fields"] == data["payload"]


def test_one_that_nobody_signed(show: Run, create: Create) -> None:
    identifier = create(1)
    ran = show(identifier)
    assert ran.code == 0
    assert "verified: NO: unverified, no signature covers its text\n" in ran.out
    assert "\npayload, UNVERIFIED:\n" in ran.out
    assert "  label: L1\n" in ran.out
    data = read(show(identifier, "-o", "json"))
    assert data["verified"] is False
    assert data["reason"] == "no signature covers its text"
    assert (data["payload"], data["unverified_payload"]["label"]) == (None, "L1")


def test_a_pending_one_says_so_as_verify_does(show: Run, custody: Run, create: Create, sandbox: Sandbox) -> None:
    sandbox.control.set_approvers(TWO_SIGN)
    identifier = create(1, status="pending")
    assert "verified: NO: pending, signed by nobody\n" in show(identifier).out
    data = read(show(identifier, "-o", "json"))
    assert (data["verified"], data["reason"], data["verification"]["state"]) == (False, None, "pending")
    junk = {"signature": {"userId": "ann", "signature": "A" * 88}, "hashes": ["0" * 64]}
    sandbox.control.set_whitelist_envelope(identifier, signedAddress={"signatures": [junk]})
    ran = show(identifier)
    assert "verified: NO: pending, its signature 1 of 1 " in ran.out
    assert read(show(identifier, "-o", "json"))["payload"] is None


def test_a_rejected_one(show: Run, create: Create) -> None:
    identifier = create(1, status="rejected")
    assert "verified: NO: rejected, in the service's word\n" in show(identifier).out
    assert read(show(identifier, "-o", "json"))["payload"] is None


def test_what_a_legacy_form_does_not_cover(
    show: Run, custody: Run, pins: list[str], sandbox: Sandbox, signed: Create
) -> None:
    identifier = signed(1)
    attack(sandbox.control, sandbox.token, identifier, "invented contract type")
    assert "NO: unverified, no signature covers its text" in show(identifier).out
    legacy = "--allow-legacy-signatures"
    ran = show(identifier, legacy)
    assert "verified: yes: " in ran.out
    what = "in a legacy form: what is received as contractType is not signed"
    assert f"signed: {what}\n" in ran.out
    assert "ERC20" not in ran.out
    data = read(show(identifier, legacy, "-o", "json"))
    assert "contractType" not in data["payload"]
    assert data["unverified_payload"] == {**data["payload"], "contractType": "ERC20"}
    assert data["verification"]["omitted"] == ["contractType"]
    # And the audit names it.
    ran = custody("whitelist", "verify", *pins, legacy)
    assert ran.code == 0
    first, last = ran.out.splitlines()
    assert first.startswith(f"request {identifier}: verified: ETH 0x")
    assert first.endswith(f', "L1", validly signed by signer-1@example.test, {what}'.lstrip(", "))
    assert last.startswith("1 request: 1 verified (")


def test_without_pins_the_payload_is_what_its_hash_says(custody: Run, create: Create) -> None:
    identifier = create(1)
    assert "the payload is what its hash says\n" in custody("whitelist", "show", identifier).out
    data = read(custody("whitelist", "show", identifier, "-o", "json"))
    assert (data["payload"]["label"], data["unverified_payload"], data["verified"]) == ("L1", None, None)
