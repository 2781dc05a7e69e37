"""What a file says besides its evidence: it proves nothing, and is compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Create, Ran, Run
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.cli.comparison import differences
from airflow_custody.sandbox import Sandbox

FOUND = {
    "pins": {"superadmin_keys": ["a", "b"], "superadmin_minimum": 2, "networks": None},
    "counts": {"verified": 1, "absent": 1},
    "rows": [
        {
            "id": "1",
            "state": "verified",
            "verified": True,
            "fields": {"label": "L1", "memo": ""},
            "rules": {"signed_by": ["a", "b"]},
        },
        {"id": "2", "state": "absent", "verified": False, "fields": None, "rules": None},
    ],
}


def edited(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(json.dumps(FOUND))
    edit(said)
    return said


def test_the_same_is_no_difference() -> None:
    assert list(differences(FOUND, FOUND)) == []
    # The order in which keys are pinned says nothing.
    for each in (edited(lambda said: said["pins"]["superadmin_keys"].reverse()),):
        assert list(differences(each, FOUND)) == []
    swapped = edited(lambda said: said["rows"][0]["rules"]["signed_by"].reverse())
    assert list(differences(swapped, FOUND)) == []


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            lambda said: said["rows"][0]["fields"].update(label="X1"),
            'request 1: the file says otherwise: fields.label is "X1" there, and "L1" now',
        ),
        (lambda said: said["rows"][0].update(verified=1), "verified is 1 there, and true now"),
        (lambda said: said["rows"][0]["fields"].pop("memo"), 'fields.memo is missing there, and "" now'),
        (lambda said: said["rows"][0].update(note="fine"), 'note is "fine" there, and missing now'),
        (lambda said: said["rows"].pop(0), "request 1: the file says otherwise: it is missing"),
        (lambda said: said["rows"].append({"id": "7", "verified": True}), "request 7: the file has it in its 'rows'"),
        (lambda said: said["rows"].append(said["rows"][0]), "row 3 of its 'rows' has no id, or one that another"),
        (lambda said: said["rows"].append(5), "row 3 of its 'rows' has no id"),
        (lambda said: said.update(rows={}), "its 'rows' are missing, or no list"),
        (lambda said: said.pop("rows"), "its 'rows' are missing, or no list"),
        (lambda said: said["counts"].update(verified=2), "counts.verified is 2 there, and 1 now"),
        (lambda said: said.pop("counts"), "counts is missing there"),
        (lambda said: said["pins"].update(superadmin_minimum=1), "pins.superadmin_minimum is 1 there, and 2 now"),
        (lambda said: said["pins"].update(superadmin_keys=["a"]), 'pins.superadmin_keys is ["a"] there'),
        (lambda said: said.update(pins="all"), 'pins is "all" there'),
    ],
)
def test_each_difference_is_named(edit: Callable[[dict[str, Any]], object], text: str) -> None:
    (found,) = differences(edited(edit), FOUND)
    assert text in found


def test_differences_are_bounded() -> None:
    said = edited(lambda said: said["rows"][0]["fields"].update({f"k{n}" * 500: "v" * 5000 for n in range(9)}))
    (found,) = differences(said, FOUND)
    assert found.endswith("; and more")
    assert len(found) < 1500


def test_only_some_requests() -> None:
    said = edited(lambda said: said["rows"][1].update(verified=True) or said["counts"].clear())
    rows: Any = FOUND["rows"]
    some = {**FOUND, "rows": rows[:1]}
    assert list(differences(said, some, ["1"])) == []
    assert len(list(differences(said, FOUND, ["1", "2"]))) == 1
    # One that was asked for, and that the file has nowhere.
    absent = {**FOUND, "rows": [{"id": "9", "state": "absent"}]}
    assert list(differences(FOUND, absent, ["9"])) == []


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["id", "rules", "a"]), each, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["pins", "counts", "rows"]), JUNK))
def test_junk_is_a_difference(said: dict[str, Any]) -> None:
    assert list(differences(said, FOUND))


def test_an_edited_file_is_not_confirmed(
    plain: Run, custody: Run, pins: list[str], signed: Create, tmp_path: Path, sandbox: Sandbox
) -> None:
    good = signed(1)
    file = tmp_path / "audit.json"
    file.write_text(custody("whitelist", "verify", *pins, "--evidence", "-o", "json").out)
    data = json.loads(file.read_text())

    def again(*more: str) -> Ran:
        return plain("whitelist", "verify", "--from", str(file), *pins, *more)

    assert again().code == 0
    data["rows"][0]["fields"]["address"] = f"0x{9:040x}"
    data["rows"].append({**data["rows"][0], "id": "77"})
    data["counts"]["verified"] = 2
    file.write_text(json.dumps(data))
    ran = again()
    assert (ran.code, ran.err) == (2, "")
    line, *lines, last = ran.out.splitlines()
    # What is proved is what the evidence shows.
    assert line.startswith(f"request {good}: verified: ETH 0x{1:040x} ")
    assert lines == [
        "the file says otherwise: counts.verified is 2 there, and 1 now",
        f'request {good}: the file says otherwise: fields.address is "0x{9:040x}" there, and "0x{1:040x}" now',
        "request 77: the file has it in its 'rows', and no evidence of it",
    ]
    assert last.startswith("1 request: 1 verified (")
    ran = again("-o", "json")
    assert ran.code == 2
    assert json.loads(ran.out)["file"]["differences"] == lines


def test_other_pins_than_those_of_the_file_are_named(
    plain: Run, custody: Run, pins: list[str], signed: Create, tmp_path: Path
) -> None:
    signed(1)
    file = tmp_path / "audit.json"
    file.write_text(custody("whitelist", "verify", *pins, "--evidence", "-o", "json").out)
    ran = plain("whitelist", "verify", "--from", str(file), *pins, "--allow-legacy-signatures")
    assert ran.code == 2
    assert "the file says otherwise: pins.allow_legacy_signatures is false there, and true now\n" in ran.out
