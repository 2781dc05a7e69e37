from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Create, Run

from airflow_custody.client.whitelist.addresses import MISSING_LIBRARY
from airflow_custody.sandbox import Sandbox

ROW = {"label": "L1", "address": f"0x{1:040x}", "blockchain": "ETH"}


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {**ROW, "label": f"L{number}", "address": f"0x{number:040x}", **fields}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with two rows."""
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"version": 1, "addresses": [row(1), row(2)]}))
    return path


# --- files --------------------------------------------------------------------------------------------------


def test_a_valid_file(plain: Run, file: Path) -> None:
    ran = plain("whitelist", "validate", str(file))
    assert (ran.code, ran.err) == (0, "")
    header, values = ran.out.splitlines()
    assert (header.split(), values.split()[:3]) == (["FILE", "VALID", "ROWS", "SHA256"], [str(file), "yes", "2"])
    (data,) = json.loads(plain("whitelist", "validate", str(file), "-o", "json").out)
    assert (data["valid"], data["rows"], data["faults"], len(data["sha256"])) == (True, 2, [], 64)


@pytest.mark.parametrize("installed", [True, False])
def test_addresses_that_could_not_be_verified_are_told(
    plain: Run, custody: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    unchecked, text = 1, "addresses: 1 of 2 could not be checked (XYZ)"
    if installed:
        pytest.importorskip("bip_utils")
    else:
        unchecked, text = 2, f"addresses were not checked: {MISSING_LIBRARY}"
        monkeypatch.setattr("airflow_custody.client.whitelist.addresses.is_installed", lambda: False)
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"version": 1, "addresses": [row(1), row(2, address="abc", blockchain="XYZ")]}))
    ran = plain("whitelist", "validate", str(file))
    assert (ran.code, ran.err) == (0, f"custody: {file}: {text}\n")
    assert json.loads(plain("whitelist", "validate", str(file), "-o", "json").out)[0]["unchecked"] == unchecked
    assert plain("whitelist", "validate", str(file), "--no-check-addresses").err == ""
    ran = custody("whitelist", "plan", str(file))
    assert (ran.code, ran.err) == (2, f"custody: {text}\n")
    assert custody("whitelist", "plan", str(file), "--no-check-addresses").err == ""


def test_every_fault_of_a_file_is_printed(plain: Run, tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    rows = "".join(f"- {{label: L{number}, adress: x}}\n" for number in range(300))
    file.write_text(f"version: 1\naddresses:\n{rows}")
    ran = plain("whitelist", "validate", str(file))
    assert ran.code == 1
    assert all(f"{file}: line {number + 3}: " in ran.out for number in range(300))
    assert ran.err == f"custody: {file}: {len(ran.out.splitlines())} faults [custody/file-wrong]\n"
    (data,) = json.loads(plain("whitelist", "validate", str(file), "-o", "json").out)
    assert (data["valid"], len(data["faults"])) == (False, len(ran.out.splitlines()))


def test_several_files(plain: Run, file: Path, tmp_path: Path) -> None:
    """As pre-commit gives them: all are checked, and each fault has its file."""
    one, two = tmp_path / "one.csv", tmp_path / "two.yaml"
    one.write_text("label;address;chain\n")
    two.write_text("version: 1\naddresses: []\n")
    ran = plain("whitelist", "validate", str(one), str(file), str(two))
    assert ran.code == 1
    *faults, _, valid = ran.out.splitlines()
    assert [each.partition(": line ")[0] for each in faults] == [str(one), str(one), str(two)]
    assert valid.startswith(str(file))
    assert ran.err.splitlines() == [
        f"custody: {path}: {number} [custody/file-wrong]" for path, number in ((one, "2 faults"), (two, "1 fault"))
    ]
    data = json.loads(plain("whitelist", "validate", str(one), str(file), str(two), "-o", "json").out)
    assert [(each["file"], each["valid"], len(each["faults"])) for each in data] == [
        (str(one), False, 2),
        (str(file), True, 0),
        (str(two), False, 1),
    ]
    assert plain("whitelist", "validate", str(file), str(file)).code == 0


SHEET = f"Label;Address;Blockchain;Notes\r\nL1;0x{1:040x};ETH;é\r\n"


def test_a_file_from_standard_input(plain: Run, custody: Run, create: Create) -> None:
    create(1)
    ran = plain("whitelist", "validate", "-", "--format", "csv", "-o", "json", stdin=f"\ufeff{SHEET}")
    (data,) = json.loads(ran.out)
    assert (ran.code, data["file"], data["rows"]) == (0, "-", 1)
    assert custody("whitelist", "plan", "-", "--format", "csv", stdin=SHEET).code == 0
    ran = custody("whitelist", "plan", "-", "--format", "yaml", stdin=SHEET)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("custody: -: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-"], "--format is missing: standard input has no name that tells"),
        (["-", "--format", "csv", "--token-stdin"], "--token-stdin: the file is read from standard input already"),
        (["-", "--format", "csv"], "there are no addresses"),
    ],
)
def test_what_standard_input_cannot_be(custody: Run, sandbox: Sandbox, arguments: list[str], reason: str) -> None:
    ran = custody("whitelist", "plan", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert reason in ran.err
    assert sandbox.control.request_log() == []


def test_a_file_that_is_not_there(plain: Run, tmp_path: Path) -> None:
    ran = plain("whitelist", "validate", str(tmp_path / "none.yaml"))
    assert ran.code == 1
    assert "there is no such file" in ran.out


def test_the_schema_is_json(plain: Run) -> None:
    ran = plain("whitelist", "schema")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["properties"]["addresses"]


# --- the plan -----------------------------------------------------------------------------------------------


def test_nothing_to_do_is_0(custody: Run, create: Create, file: Path) -> None:
    create(1)
    create(2, status="pending")
    ran = custody("whitelist", "plan", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Plan: nothing to delete or create; 1 pending, 1 unchanged.\n")
    assert "L1" not in ran.out
    assert "L1" in custody("whitelist", "plan", str(file), "--all").out


def test_changes_are_2_in_each_form(custody: Run, create: Create, sandbox: Sandbox, file: Path) -> None:
    create(1)
    create(3)
    ran = custody("whitelist", "plan", str(file), "-o", "json")
    assert (ran.code, ran.err) == (2, "")
    data = json.loads(ran.out)
    assert (data["counts"]["create"], data["counts"]["undeclared"], data["over_limits"]) == (1, 1, [])
    assert (data["service"], data["file"], data["has_changes"]) == (f"{sandbox.url} (tenant 1)", str(file), True)
    for form in ("table", "markdown"):
        ran = custody("whitelist", "plan", str(file), "--output", form)
        assert ran.code == 2
        assert data["plan_hash"] in ran.out


def test_prune_plans_deletions(custody: Run, create: Create, file: Path) -> None:
    create(3)
    data = json.loads(custody("whitelist", "plan", str(file), "--prune", "-o", "json").out)
    assert [each["action"] for each in data["rows"]] == ["create", "create", "delete"]
    other = json.loads(custody("whitelist", "plan", str(file), "-o", "json").out)
    assert other["rows"][2]["action"] is None
    assert other["plan_hash"] != data["plan_hash"]


def test_what_differs_is_replaced_and_duplicates_are_pruned(custody: Run, create: Create, file: Path) -> None:
    first = create(1, label="Old")
    ran = custody("whitelist", "plan", str(file))
    assert (ran.code, "or have replace=True (--replace)" in ran.err) == (2, True)
    data = json.loads(custody("whitelist", "plan", str(file), "--replace", "-o", "json").out)
    assert (data["counts"]["replace"], data["rows"][0]["action"], data["rows"][0]["others"]) == (1, "create", [first])
    kept = create(1)
    for option in ("--replace", "--prune"):
        data = json.loads(custody("whitelist", "plan", str(file), option, "-o", "json").out)
        (row,) = [each for each in data["rows"] if each["state"] == "duplicate"]
        assert (row["action"], row["id"], row["others"]) == ("delete", first, [kept])


def test_a_plan_may_be_about_some_of_the_service(custody: Run, create: Create, file: Path) -> None:
    create(1)
    create(3, customer_id="b")
    file.write_text(json.dumps({"version": 1, "addresses": [row(1, customer_id="a"), row(2, customer_id="a")]}))
    only = ["--only", "customer_id=a", "--only", "customer_id=c", "--only", "blockchain=Ethereum"]
    data = json.loads(custody("whitelist", "plan", str(file), *only, "--prune", "-o", "json").out)
    assert [each["state"] for each in data["rows"]] == ["differs", "create"]
    assert data["only"] == {"customer_id": ["a", "c"], "blockchain": ["eth"]}
    for wrong in ("customer_id", "customer_id=", "label=x", "=x"):
        ran = custody("whitelist", "plan", str(file), "--only", wrong)
        assert (ran.code, ran.out) == (1, "")
        assert "custody: only" in ran.err


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (["--max-creates", "1"], "it creates 2, and max_creates is 1"),
        (["--max-create-percent", "99.5"], "max_create_percent is 99.5"),
        (["--prune", "--max-deletes", "0"], "it deletes 1, and max_deletes is 0"),
        (["--must-keep", "L1", "--must-keep", "other"], "must_keep names 'other'"),
    ],
)
def test_a_plan_over_a_limit_is_1_and_shown_in_full(
    custody: Run, create: Create, file: Path, limit: list[str], text: str
) -> None:
    create(3)
    ran = custody("whitelist", "plan", str(file), *limit)
    assert ran.code == 1
    assert all(label in ran.out for label in ("L1", "L2", "L3"))
    assert ran.err.startswith("custody: the plan is over a limit: ")
    assert text in ran.err
    data = json.loads(custody("whitelist", "plan", str(file), *limit, "-o", "json").out)
    assert text in data["over_limits"][0]
    assert len(data["over_limits"]) == 1


def test_limits_can_be_lifted(custody: Run, create: Create, file: Path) -> None:
    for number in range(3, 15):
        create(number)
    assert custody("whitelist", "plan", str(file), "--prune").code == 1
    limits = ["--max-deletes", "none", "--max-delete-percent", "none"]
    assert custody("whitelist", "plan", str(file), "--prune", *limits).code == 2


def test_a_dry_run_of_a_chain(custody: Run, file: Path) -> None:
    data = json.loads(custody("whitelist", "plan", str(file), "--dry-run-chain", "eth", "-o", "json").out)
    assert [each["action"] for each in data["rows"]] == [None, None]


def test_what_nobody_asked_for_is_accepted_by_name(custody: Run, create: Create, sandbox: Sandbox, file: Path) -> None:
    for number in (1, 2):
        identifier = create(number)
        text = json.dumps({"currency": "ETH", "address": f"0x{number:040x}", "label": f"L{number}", "tag": "99"})
        sandbox.control.set_whitelist_metadata(
            identifier, payloadAsString=text, hash=hashlib.sha256(text.encode()).hexdigest()
        )
        sandbox.control.set_whitelist_envelope(identifier, action="ARCHIVE")
    ran = custody("whitelist", "plan", str(file))
    assert ran.code == 2
    assert "tag at the service: 99\n" in ran.out
    accept = ["--accept-field", "tag", "--accept-field", "envelope.action"]
    assert custody("whitelist", "plan", str(file), *accept).code == 0
    ran = custody("whitelist", "dump")
    assert ran.code == 1
    assert "differs from this in tag, envelope.action" in ran.err
    assert custody("whitelist", "dump", *accept).code == 0


def test_status_words(custody: Run, create: Create, file: Path) -> None:
    create(1, status="live")
    create(2, status="live")

    def plan(*options: str) -> dict[str, int]:
        counts = json.loads(custody("whitelist", "plan", str(file), *options, "-o", "json").out)["counts"]
        return {state: number for state, number in counts.items() if number}

    assert plan() == {"differs": 2}
    assert plan("--effective-status", "Live") == {"unchanged": 2}
    assert plan("--any-status") == {"unchanged": 2}
    assert plan("--rejected-status", "live") == {"rejected": 2}


def test_status_words_that_contradict_each_other(custody: Run, file: Path) -> None:
    ran = custody("whitelist", "plan", str(file), "--any-status", "--effective-status", "live")
    assert ran.code == 1
    assert "--any-status" in ran.err


def test_a_wrong_file_asks_the_service_nothing(custody: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"version": 1, "addresses": [{"label": "L"}, {**ROW, "x\x1b[2J": 1}]}))
    ran = custody("whitelist", "plan", str(file))
    assert (ran.code, ran.out) == (1, "")
    lines = ran.err.splitlines()
    assert all(line.startswith(f"custody: {file}: ") for line in lines)
    assert lines[-1].endswith(f"{len(lines) - 1} faults; the service was not asked [custody/file-wrong]")
    assert "\x1b" not in ran.err
    assert sandbox.control.request_log() == []


def test_a_listing_that_cannot_be_read_is_no_plan(custody: Run, create: Create, sandbox: Sandbox, file: Path) -> None:
    create(1)
    sandbox.control.add_fault("status", status=500, method="GET", path="/whitelists/addresses")
    ran = custody("whitelist", "plan", str(file), "-o", "json")
    assert (ran.code, ran.out) == (1, "")


def test_what_cannot_be_read_can_be_ignored(custody: Run, file: Path, create: Create, sandbox: Sandbox) -> None:
    broken = create(1)
    sandbox.control.set_whitelist_metadata(broken, payloadAsString=None)
    counts = json.loads(custody("whitelist", "plan", str(file), "-o", "json").out)["counts"]
    assert (counts["create"], counts["unreadable"]) == (0, 3)
    found = json.loads(custody("whitelist", "plan", str(file), "-o", "json", "--ignore", broken).out)
    assert (found["counts"]["create"], found["counts"]["unreadable"], found["ignored"]) == (2, 1, [broken])
