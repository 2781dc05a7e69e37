"""The service's whitelist as a file, which is the start of a list in Git: a plan of it finds nothing to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cli_runs import Create, Ran, Run

from airflow_custody.client.whitelist.addresses import AddressCheck
from airflow_custody.sandbox import Sandbox

Plan = Callable[[Ran], dict[str, int]]


@pytest.fixture
def plan(custody: Run, tmp_path: Path) -> Plan:
    """Return what plans with a file that was printed, and returns the counts that are not zero."""

    def plan(ran: Ran) -> dict[str, int]:
        file = tmp_path / "list.yaml"
        file.write_text(ran.out)
        counts = json.loads(custody("whitelist", "plan", str(file), "-o", "json").out)["counts"]
        return {state: number for state, number in counts.items() if number}

    return plan


def test_a_plan_of_what_was_dumped_finds_nothing_to_do(custody: Run, create: Create, plan: Plan) -> None:
    create(3, label="Zürich: vault #1", memo="007", address_type="individual")
    create(1, status="pending", network="mainnet")
    create(2, status="rejected")
    create(10, blockchain="BTC", address="1BoatSLRHtKNngkdXEeobR76b53LETtpyT")
    ran = custody("whitelist", "dump")
    assert (ran.code, ran.err) == (0, "custody: left out: 1 rejected request\n")
    assert "is pending approval (status pending)" in ran.out
    rows = yaml.safe_load(ran.out)["addresses"]
    assert [each["label"] for each in rows] == ["Zürich: vault #1", "L1", "L10"]
    assert rows[0]["memo"] == "007"
    assert plan(ran) == {"pending": 1, "unchanged": 2}


def test_requests_for_one_destination_become_one_row(custody: Run, create: Create, plan: Plan) -> None:
    first, second, third = create(10, status="pending"), create(10), create(10, label="another")
    ran = custody("whitelist", "dump")
    assert ran.code == 0
    (row,) = yaml.safe_load(ran.out)["addresses"]
    assert row["label"] == "L10"
    assert f"more requests: {third}, {first}" in ran.out or f"more requests: {first}, {third}" in ran.out
    assert second not in ran.out.split("more requests: ")[2].splitlines()[0]
    assert "a plan shows them as duplicate or undeclared" in ran.err
    assert plan(ran) == {"unchanged": 1, "duplicate": 1, "undeclared": 1}


def test_what_cannot_be_read_is_named_and_the_file_says_so(
    custody: Run, create: Create, sandbox: Sandbox, plan: Plan
) -> None:
    create(1)
    broken, spaced = create(2), create(3)
    sandbox.control.set_whitelist_metadata(broken, hash="0" * 64)
    sandbox.control.change_whitelist_request(spaced, address=" x\nversion: 2")
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "THIS FILE IS NOT COMPLETE" in ran.out
    assert len(ran.err.splitlines()) == 2
    for identifier in (broken, spaced):
        assert f"missing: whitelisting request {identifier}" in ran.err
        assert f"# missing: whitelisting request {identifier}" in ran.out
    assert yaml.safe_load(ran.out)["version"] == 1
    assert plan(ran)["unchanged"] == 1


def test_what_a_file_cannot_say_is_named(custody: Run, create: Create, sandbox: Sandbox, plan: Plan) -> None:
    identifier = create(1)
    sandbox.control.set_whitelist_envelope(identifier, blockchain="BTC")
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert f"whitelisting request {identifier} differs from this in " in ran.err
    assert len(yaml.safe_load(ran.out)["addresses"]) == 1
    assert plan(ran) == {"differs": 1}


def test_an_address_that_a_file_would_be_refused_for_is_named(
    custody: Run, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(1)
    monkeypatch.setattr(
        "airflow_custody.client.whitelist.addresses.check_address",
        lambda *address: AddressCheck("invalid", "its checksum is wrong"),
    )
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "the file would be refused: line 4: address: " in ran.err
    assert len(yaml.safe_load(ran.out)["addresses"]) == 1


def test_a_status_that_is_not_known_is_said(custody: Run, create: Create) -> None:
    identifier = create(1, status="live")
    ran = custody("whitelist", "dump")
    # All that it asks for is in the file.
    assert ran.code == 0
    assert f"whitelisting request {identifier} has status live, which is not known to be in effect" in ran.err
    ran = custody("whitelist", "dump", "--effective-status", "live")
    assert (ran.code, ran.err) == (0, "")
    assert custody("whitelist", "dump", "--any-status").err == ""
    assert "left out: 1 rejected request" in custody("whitelist", "dump", "--rejected-status", "live").err


def test_a_service_that_lists_nothing(custody: Run) -> None:
    ran = custody("whitelist", "dump")
    assert ran.code == 0
    assert yaml.safe_load(ran.out) == {"version": 1, "addresses": []}
    assert "a file without addresses is refused" in ran.err


def test_a_listing_that_cannot_be_read_is_no_file(custody: Run, create: Create, sandbox: Sandbox) -> None:
    create(1)
    sandbox.control.add_fault("status", status=500, method="GET", path="/whitelists/addresses/for-approval")
    ran = custody("whitelist", "dump")
    assert (ran.code, ran.out) == (1, "")
