"""Whitelist files, the plan of one, and the service's whitelist as a file: options, forms and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_runs import Create, Ran, Run

from airflow_custody.client.whitelist.addresses.checks import AddressCheck
from airflow_custody.sandbox import Sandbox


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"label": f"L{number}", "address": f"0x{number:040x}", "blockchain": "ETH", **fields}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": 1, "addresses": rows}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with two rows."""
    return write(tmp_path / "list.json", row(1), row(2))


def counts(ran: Ran) -> dict[str, int]:
    """Return how many rows of a plan are in each state."""
    return {state: number for state, number in ran.data["counts"].items() if number}


# --- files --------------------------------------------------------------------------------------------------


def test_unchecked_addresses_are_counted(plain: Run, custody: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.control.configure(currencies=["ETH", "XYZ"])
    text = "addresses: 1 of 2 could not be checked (XYZ)"
    path = str(write(tmp_path / "list.json", row(1), row(2, address="abc", blockchain="XYZ")))
    ran = plain("whitelist", "validate", path, "-o", "json")
    assert ran.code == 0
    assert ran.err == f"custody: {path}: {text}\n"
    assert ran.data[0]["unchecked"] == 1
    assert custody("whitelist", "plan", path).err == f"custody: {text}\n"
    for run, command in ((plain, "validate"), (custody, "plan")):
        assert run("whitelist", command, path, "--no-check-addresses").err == ""


def test_a_plan_is_printed_and_fails_if_a_chain_is_not_enabled(custody: Run, sandbox: Sandbox, file: Path) -> None:
    sandbox.control.configure(currencies=["BTC"], disabled_currencies=["ETH"])
    ran = custody("whitelist", "plan", str(file), "-o", "json")
    assert ran.code == 1
    assert "the chain ETH is not enabled at the service: row 1, row 2; nothing is sent" in ran.err
    assert counts(ran) == {"create": 2}
    ran = custody("whitelist", "plan", str(write(file, row(1, blockchain="Etherium"))))
    assert ran.code == 2
    assert "does not list the chain Etherium, and may refuse it." in ran.err


def test_every_mistake_in_several_files_is_reported(plain: Run, file: Path, tmp_path: Path) -> None:
    """Commands get several files from pre-commit: all files are checked, and each fault names its file."""
    wrong = tmp_path / "two.yaml"
    wrong.write_text("version: 1\naddresses:\n" + "- {label: L, address: x, blockchain: ETH, adress: x}\n" * 2)
    arguments = ["whitelist", "validate", str(file), str(wrong), "/nope.yaml"]
    ran = plain(*arguments)
    assert ran.code == 1
    assert all(f"{wrong}: line {number}: " in ran.out for number in (3, 4))
    assert "/nope.yaml: No such file or directory" in ran.out
    faults = sum(line.startswith(f"{wrong}: ") for line in ran.out.splitlines())
    assert ran.err.splitlines() == [
        f"custody: {wrong}: {faults} faults [custody/file-wrong]",
        "custody: /nope.yaml: 1 fault [custody/file-wrong]",
    ]
    found = [(each["file"], each["valid"], each["rows"]) for each in plain(*arguments, "-o", "json").data]
    assert found == [(str(file), True, 2), (str(wrong), False, None), ("/nope.yaml", False, None)]


SHEET = f"label,address,blockchain\r\nL1,0x{1:040x},ETH\r\n"


def test_a_file_from_standard_input(plain: Run, custody: Run, create: Create) -> None:
    create(1)
    ran = plain("whitelist", "validate", "-", "--format", "csv", "-o", "json", stdin=f"\ufeff{SHEET}")
    assert ran.code == 0
    assert ran.data[0]["rows"] == 1
    assert custody("whitelist", "plan", "-", "--format", "csv", stdin=SHEET).code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-"], "--format is missing: standard input has no file name"),
        (["-", "--format", "csv", "--token-stdin"], "--token-stdin: standard input is already used for the file"),
        (["FILE", "--effective-statuses", "expired"], "contains 'expired', which is in 'rejected_statuses', or in its"),
        (["FILE", "--only", "label=x"], "custody: only"),
        (["WRONG"], " faults; the service was not read [custody/file-wrong]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_before_the_service_is_called(
    custody: Run, sandbox: Sandbox, file: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    wrong = write(tmp_path / "wrong.json", {"label": "L"}, row(1, **{"x\x1b[2J": 1}))
    names = {"FILE": str(file), "WRONG": str(wrong)}
    ran = custody("whitelist", "plan", *(names.get(each, each) for each in arguments))
    assert ran.code == 1
    assert ran.out == ""
    assert reason in ran.err
    assert "\x1b" not in ran.err
    assert sandbox.control.request_log() == []


def test_the_schema_is_json(plain: Run) -> None:
    ran = plain("whitelist", "schema")
    assert ran.code == 0
    assert ran.data["properties"]["addresses"]


# --- the plan -----------------------------------------------------------------------------------------------


def test_a_plan_without_changes_is_0(custody: Run, create: Create, file: Path) -> None:
    create(1)
    create(2, status="pending")
    ran = custody("whitelist", "plan", str(file))
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.startswith("Plan: nothing to create or delete; 1 pending, 1 unchanged.\n")
    assert "L1" not in ran.out
    assert "L1" in custody("whitelist", "plan", str(file), "--all").out


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_changes_are_2_in_each_form(custody: Run, create: Create, file: Path, form: str) -> None:
    create(1, label="Old")
    create(3)
    ran = custody("whitelist", "plan", str(file), "-o", form)
    assert ran.code == 2
    assert "or plan with replace=True (--replace)" in ran.err
    data = custody("whitelist", "plan", str(file), "-o", "json").data
    assert data["plan_hash"] in ran.out
    assert data["counts"].items() >= {"create": 1, "differs": 1, "undeclared": 1}.items()
    assert data["has_changes"] is True
    assert data["over_limits"] == []


@pytest.mark.parametrize(
    ("options", "states", "actions"),
    [
        # Of the file's two rows, one has another label at the service, and the other has an unknown status word.
        ([], ["differs", "differs", "undeclared"], []),
        (["--prune"], ["differs", "differs", "undeclared"], ["delete"]),
        (["--prune", "--ignore", "ID"], ["differs", "differs", "undeclared"], []),
        (["--replace"], ["differs", "replace", "undeclared"], ["create"]),
        (["--effective-statuses", "Live, approved"], ["differs", "unchanged", "undeclared"], []),
        (["--rejected-statuses", "live"], ["differs", "rejected", "undeclared"], []),
    ],
    ids=" ".join,
)
def test_options_of_a_plan(
    custody: Run, create: Create, file: Path, options: list[str], states: list[str], actions: list[str]
) -> None:
    create(1, label="Old")
    create(2, status="live")
    other = create(3)
    given = [other if each == "ID" else each for each in options]
    data = custody("whitelist", "plan", str(file), *given, "-o", "json").data
    assert sorted(each["state"] for each in data["rows"]) == sorted(states)
    assert [each["action"] for each in data["rows"] if each["action"]] == actions


def test_a_plan_of_a_part_of_the_whitelist(custody: Run, create: Create, file: Path) -> None:
    create(3, customer_id="b")
    write(file, row(1, customer_id="a"))
    only = ["--only", "customer_id=a", "--only", "customer_id=c", "--only", "blockchain=Ethereum"]
    ran = custody("whitelist", "plan", str(file), *only, "-o", "json")
    assert counts(ran) == {"create": 1}
    assert ran.data["only"] == {"customer_id": ["a", "c"], "blockchain": ["eth"]}


def test_a_part_of_a_plan(custody: Run, create: Create, file: Path) -> None:
    create(2)
    arguments = ["whitelist", "plan", str(write(file, row(1), row(2), row(3))), "--max-creates", "2"]
    ran = custody(*arguments, "--at-most", "1", "-o", "json")
    assert ran.code == 2
    assert counts(ran) == {"create": 1, "later": 1, "unchanged": 1}
    assert [(each["state"], each["action"], each["note"]) for each in ran.data["rows"]][2] == (
        ("later", None, "to be created by a later run")
    )
    hashes = {custody(*arguments, *given, "-o", "json").data["plan_hash"] for given in ([], ["--at-most", "none"])}
    assert ran.data["plan_hash"] not in hashes
    assert len(hashes) == 1
    line = "1 of 2 operations; the rest follows in the next run."
    assert custody(*arguments, "--at-most", "1").out.startswith(line)
    assert custody(*arguments, "--at-most", "1", "-o", "markdown").out.startswith(f"**{line}**")
    # The limits apply to the whole plan.
    assert custody(*arguments[:3], "--at-most", "1", "--max-creates", "1").code == 1
    assert "--at-most: must be a whole number of at least 1" in custody(*arguments, "--at-most", "0").err


def test_a_plan_over_a_limit_is_1_and_shown_in_full(custody: Run, create: Create, file: Path) -> None:
    create(3)
    arguments = ["whitelist", "plan", str(file), "--max-creates", "1", "--must-keep", "L1", "--must-keep", "other"]
    ran = custody(*arguments)
    assert ran.code == 1
    assert all(label in ran.out for label in ("L1", "L2", "L3"))
    assert ran.err.startswith("custody: the plan is over a limit: ")
    creates, keeps = custody(*arguments, "-o", "json").data["over_limits"]
    assert "it creates 2 requests, but max_creates is 1" in creates
    assert "must_keep requires 'other'" in keeps


def test_limits_can_be_lifted(custody: Run, create: Create, file: Path) -> None:
    for number in range(3, 15):
        create(number)
    arguments = ["whitelist", "plan", str(file), "--prune"]
    assert custody(*arguments).code == 1
    assert custody(*arguments, "--max-deletes", "none", "--max-delete-percent", "none").code == 2


# --- what the service has: a plan of it finds nothing to do --------------------------------------------------

Plan = Callable[[Ran], dict[str, int]]


@pytest.fixture
def plan(custody: Run, tmp_path: Path) -> Plan:
    """Return what plans with a file that was printed, and returns the counts that are not zero."""

    def plan(ran: Ran) -> dict[str, int]:
        file = tmp_path / "list.yaml"
        file.write_text(ran.out)
        return counts(custody("whitelist", "plan", str(file), "-o", "json"))

    return plan


def test_a_plan_of_what_was_dumped_finds_nothing_to_do(custody: Run, create: Create, plan: Plan) -> None:
    create(3, label="Zürich: vault #1", memo="007", address_type="individual")
    create(1, status="pending", network="mainnet")
    create(2, status="rejected")
    create(10, blockchain="BTC", address="1BoatSLRHtKNngkdXEeobR76b53LETtpyT")
    ran = custody("whitelist", "dump")
    assert ran.code == 0
    assert ran.err == "custody: left out: 1 rejected request\n"
    assert "is pending approval (status pending)" in ran.out
    rows = yaml.safe_load(ran.out)["addresses"]
    assert [each["label"] for each in rows] == ["Zürich: vault #1", "L1", "L10"]
    assert rows[0]["memo"] == "007"
    assert plan(ran) == {"pending": 1, "unchanged": 2}


def test_requests_for_one_destination_become_one_row(custody: Run, create: Create, plan: Plan) -> None:
    first, _, third = create(10, status="pending"), create(10), create(10, label="another")
    ran = custody("whitelist", "dump")
    assert ran.code == 0
    (row,) = yaml.safe_load(ran.out)["addresses"]
    assert row["label"] == "L10"
    assert f"for the same destination: {third}, {first}" in ran.out
    assert "a plan lists them as duplicate or undeclared" in ran.err
    assert plan(ran) == {"unchanged": 1, "duplicate": 1, "undeclared": 1}


def test_hidden_requests_make_a_dump_incomplete(custody: Run, create: Create, sandbox: Sandbox, file: Path) -> None:
    sandbox.control.configure(listings={"whitelist": {"dropped": [create(7)]}})
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "THIS FILE IS INCOMPLETE" in ran.out
    assert "missing: the service counts 1 request that it does not return" in ran.err
    # A plan only observes these requests.
    assert custody("whitelist", "plan", str(file), "-o", "json").data["hidden"] == 1


def test_an_incomplete_dump_names_what_is_missing(custody: Run, create: Create, sandbox: Sandbox, plan: Plan) -> None:
    create(1)
    broken, spaced, other = create(2), create(3), create(4)
    sandbox.control.set_whitelist_metadata(broken, hash="0" * 64)
    sandbox.control.change_whitelist_request(spaced, address=" x\nversion: 2")
    sandbox.control.set_whitelist_envelope(other, blockchain="BTC")
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "THIS FILE IS INCOMPLETE" in ran.out
    for identifier in (broken, spaced):
        assert f"custody: missing: whitelisting request {identifier}" in ran.err
        assert f"# missing: whitelisting request {identifier}" in ran.out
    assert f"whitelisting request {other} differs from this row in " in ran.err
    assert [each["label"] for each in yaml.safe_load(ran.out)["addresses"]] == ["L1", "L4"]
    assert plan(ran)["unchanged"] == 1


def test_an_id_that_is_not_a_number_is_missing_from_a_dump(custody: Run, create: Create, sandbox: Sandbox) -> None:
    sandbox.control.set_whitelist_envelope(create(2), id="9" * 101)
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "missing: whitelisting request 9" in ran.err
    assert "its id is not a number" in ran.err


def test_a_dump_with_an_invalid_address_is_incomplete(
    custody: Run, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(1)
    monkeypatch.setattr(
        "airflow_custody.client.whitelist.addresses.checks.check_address",
        lambda *address: AddressCheck("invalid", "its checksum is wrong"),
    )
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "the file would be refused: line 4: address: " in ran.err


def test_an_unknown_status_is_reported(custody: Run, create: Create) -> None:
    ran = custody("whitelist", "dump")
    assert ran.code == 0
    assert yaml.safe_load(ran.out) == {"version": 1, "addresses": []}
    assert "a plan refuses a file without addresses" in ran.err
    identifier = create(1, status="live")
    ran = custody("whitelist", "dump")
    # The file contains all of the request's content.
    assert ran.code == 0
    assert f"whitelisting request {identifier} has the unknown status live, and may not be in effect" in ran.err
    ran = custody("whitelist", "dump", "--effective-statuses", "live")
    assert ran.code == 0
    assert ran.err == ""
    assert "left out: 1 rejected request" in custody("whitelist", "dump", "--rejected-statuses", "live").err


def test_with_pins_unverified_requests_are_not_dumped(
    custody: Run, create: Create, signed: Create, pins: list[str]
) -> None:
    signed(1)
    forged, waiting = create(2), create(3, status="pending")
    assert custody("whitelist", "dump").code == 0
    ran = custody("whitelist", "dump", *pins)
    assert ran.code == 1
    assert [each["label"] for each in yaml.safe_load(ran.out)["addresses"]] == ["L1", "L3"]
    text = f"missing: whitelisting request {forged}: not verified: "
    assert f"custody: {text}" in ran.err
    assert f"# {text}" in ran.out
    # Only the service says that this address was requested, so anybody may have added it.
    assert f"request {waiting} is pending approval (status pending), and has no signature: keep this row" in ran.out
    assert f"1 row is not proved by any signature: {waiting}. Keep only addresses" in ran.err
