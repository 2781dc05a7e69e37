"""``custody whitelist show``; and ``custody whitelist delete``, the only command that changes anything."""

from __future__ import annotations

import io

import pytest
from support.cli_runs import Create, Run
from support.keys.attacks import attack

from airflow_custody.sandbox import Sandbox


@pytest.fixture
def show(custody: Run, pins: list[str]) -> Run:
    return lambda *arguments: custody("whitelist", "show", *arguments, *pins)


def test_without_pins_nothing_is_verified(custody: Run, create: Create) -> None:
    identifier = create(1, status="pending", label="Zürich vault", memo="007")
    ran = custody("whitelist", "show", identifier)
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.startswith(f"id: {identifier}\nstate: pending\nstatus: pending\ntrust: not checked\n")
    assert "payload, not verified:\n" in ran.out
    assert "  label: Zürich vault\n" in ran.out
    data = custody("whitelist", "show", identifier, "-o", "json").data
    assert data["payload"]["memo"] == "007"
    assert data["trust"] == "not checked"


@pytest.mark.parametrize(
    ("status", "trust", "says"),
    [
        ("signed", "verified", "Verified: signed by signer-1@example.test under rules of 2"),
        ("APPROVED", "UNVERIFIED", "no signature covers its text"),
        ("pending", "unsigned", "It has no signatures yet."),
        ("rejected", "not checked", "there is nothing to verify"),
    ],
    ids=["signed", "forged", "pending", "rejected"],
)
def test_only_signed_content_is_shown_as_proved(
    show: Run, create: Create, signed: Create, status: str, trust: str, says: str
) -> None:
    ran = show(signed(1) if status == "signed" else create(1, status=status))
    assert ran.code == 0
    assert ran.err == ""
    assert f"trust: {trust}\n" in ran.out
    assert says in ran.out
    assert ("\npayload:\n" in ran.out) is (status == "signed") is ("\npayload, not verified:\n" not in ran.out)


def test_a_legacy_form_names_what_it_does_not_cover(
    show: Run, custody: Run, pins: list[str], sandbox: Sandbox, signed: Create
) -> None:
    identifier = signed(1)
    attack(sandbox.control, sandbox.token, identifier, "invented contract type")
    assert "trust: UNVERIFIED\n" in show(identifier).out
    legacy = "--allow-legacy-signatures"
    what = "in a legacy form, which does not cover contractType\n"
    out = show(identifier, legacy).out
    assert "trust: verified\n" in out
    assert f"legacy: {what}" in out
    assert "ERC20" not in out
    # The audit names this request, too.
    assert f'"L1", validly signed by signer-1@example.test, {what}' in custody("whitelist", "verify", *pins, legacy).out


def test_a_payload_that_cannot_be_used_is_not_shown(custody: Run, create: Create, sandbox: Sandbox) -> None:
    identifier = create(1, label="not to be believed")
    sandbox.control.set_whitelist_metadata(identifier, hash="0" * 64)
    ran = custody("whitelist", "show", identifier)
    assert ran.code == 1
    assert "not to be believed" not in ran.out
    assert "does not have the hash" in ran.err
    assert custody("whitelist", "show", identifier, "-o", "json").data["payload"] == {}


@pytest.mark.parametrize("identifier", ["99999", "x"])
def test_a_request_that_does_not_exist(custody: Run, identifier: str) -> None:
    ran = custody("whitelist", "show", identifier)
    assert ran.code == 1
    assert ran.out == ""


# --- deleting ------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal at which somebody types an answer."""

    def isatty(self) -> bool:
        return True


def deletions(sandbox: Sandbox) -> list[str]:
    return [each["body"]["comment"] for each in sandbox.control.request_log() if each["method"] != "GET"]


@pytest.fixture
def delete(custody: Run) -> Run:
    return lambda *arguments, **options: custody("whitelist", "delete", *arguments, "--comment", "moved", **options)


@pytest.mark.parametrize(("answer", "is_deleted"), [("y", True), ("Yes", True), ("", False), ("yep", False)])
def test_it_shows_what_it_deletes_and_asks(
    delete: Run, create: Create, sandbox: Sandbox, answer: str, is_deleted: bool
) -> None:
    identifier = create(1)
    sandbox.control.change_whitelist_request(identifier, label="Zürich\x1b[2K")
    sandbox.control.clear_request_log()
    ran = delete(identifier, stdin=Terminal(f"{answer}\n"))
    # The question contains no text from the service.
    assert ran.err.startswith(
        f"custody: label: Zürich\\u001b[2K\ncustody: chain: ETH\ncustody: address: 0x{1:040x}\n"
        f"Delete request {identifier}, in effect, at {sandbox.url}? [y/N] "
    )
    assert ran.code == (0 if is_deleted else 1)
    assert f"deleted: {'yes' if is_deleted else 'no'}" in ran.out
    assert deletions(sandbox) == ["moved"] * is_deleted
    assert bool(sandbox.control.whitelist_requests()) is not is_deleted


def test_without_a_terminal_yes_is_required(delete: Run, create: Create, sandbox: Sandbox) -> None:
    identifier = create(1)
    sandbox.control.clear_request_log()
    ran = delete(identifier, stdin="y\n")
    assert ran.code == 1
    assert ran.out == ""
    assert "standard input is not a terminal" in ran.err
    assert delete(identifier, "--yes", "--comment", " ").code == 1
    assert sandbox.control.request_log() == []
    data = delete(identifier, "--yes", "-o", "json").data
    address = f"0x{1:040x}"
    gone = {"id": identifier, "deleted": True, "state": "effective", "chain": "ETH", "address": address, "label": "L1"}
    assert data == gone
    assert sandbox.control.whitelist_requests() == []
    ran = delete(identifier, "--yes")
    assert ran.code == 0
    assert f"request {identifier} does not exist; nothing to do" in ran.err


def test_a_deletion_that_is_refused_is_not_reported_as_done(delete: Run, create: Create, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", method="POST", path="/whitelists/addresses/delete", status=409)
    ran = delete(create(1), "--yes")
    assert ran.code == 1
    assert ran.out == ""
