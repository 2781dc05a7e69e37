"""What an auditor keeps, and what a file says besides its evidence: that proves nothing, and is compared."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import whitelist_forge as forge
from cli_runs import Create, Ran, Run
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_custody.cli.evidence import differences, evidence_to_json, take_evidence
from airflow_custody.cli.verify import verify_row
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signature_count import Entry, read_entries
from airflow_custody.client.verification.verifier import VerificationPins, Verifier
from airflow_custody.sandbox import Sandbox

HASH = "0" * 64
SIGNED = base64.b64encode(bytes(64)).decode()
SIGNATURE = {"userId": "ann", "signature": SIGNED}
NUMERIC = {"signature": {"userId": 7, "signature": SIGNED}, "hashes": [HASH]}


@pytest.fixture
def audit(custody: Run, pins: list[str]) -> Callable[..., Ran]:
    return lambda *arguments: custody("whitelist", "verify", *pins, *arguments)


@pytest.fixture
def again(plain: Run, pins: list[str], tmp_path: Path) -> Callable[..., Ran]:
    """Return what verifies once more from what an audit has printed."""

    def again(printed: str, *arguments: str) -> Ran:
        file = tmp_path / "audit.json"
        file.write_text(printed)
        return plain("whitelist", "verify", "--from", str(file), *pins, *arguments)

    return again


def test_a_user_id_that_is_a_number_counts_as_in_the_library() -> None:
    rules = forge.container(
        users=[forge.field(1, "7") + forge.field(2, forge.pem("alice"))],
        groups=[forge.field(1, "ops") + forge.field(2, "7")],
        rules=[forge.rule("ETH", forge.path(("ops", 1)))],
    )
    shown = forge.envelope(forge.TEXT_A, forge.signing("alice", forge.hash_of(forge.TEXT_A), label=7), rules=rules)
    verifier = Verifier(VerificationPins([forge.pem("admin1"), forge.pem("admin2")], 2))
    assert verifier.verify(shown).user_ids == ("7",)
    row = verify_row(verifier, take_evidence("3711", "settled", shown))
    assert (row["state"], row["user_ids"]) == ("verified", ["7"])


# --- what is kept -------------------------------------------------------------------------------------------


def test_what_verification_does_not_read_is_not_kept() -> None:
    envelope = {"id": "1", "status": "APPROVED", "trails": [{"comment": "private"}], "metadata": {"hash": HASH}}
    (row,) = evidence_to_json([take_evidence("1", "settled", envelope)])["rows"]
    assert row == {
        "id": "1",
        "listed": "settled",
        "status": "APPROVED",
        "metadata": {"hash": HASH},
        "rules": None,
    }


def test_rules_that_are_not_there_have_no_hash() -> None:
    for held in (None, "", 5, "not base64!"):
        row = take_evidence("1", "settled", {"rulesContainer": held, "rulesSignatures": "AAAA"})
        assert evidence_to_json([row])["rules"][0]["sha256"] is None


@pytest.mark.parametrize("broken", [{"metadata": 5}, {"signedAddress": "x"}])
def test_a_row_that_cannot_be_read_is_its_own_finding(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create, sandbox: Sandbox, broken: dict[str, Any]
) -> None:
    good, bad = signed(1), signed(2)
    sandbox.control.set_whitelist_envelope(bad, **broken)
    for ids in ([], ["--id", good, "--id", bad]):
        ran = audit(*ids)
        assert (ran.code, ran.err) == (2, "")
        assert f"request {bad}: UNVERIFIED: " in ran.out
        assert "2 requests: 1 verified, 1 unverified (" in ran.out
    ran = again(audit("--evidence", "-o", "json").out)
    assert ran.code == 2
    assert f"request {bad}: UNVERIFIED: " in ran.out


FINITE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(HASH)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "signature": st.fixed_dictionaries({}, optional={"userId": FINITE, "signature": FINITE | st.just(SIGNED)}),
        "hashes": st.lists(FINITE, max_size=4),
        "comment": FINITE,
    },
)


@given(st.lists(ENTRY | FINITE, max_size=4) | FINITE)
@example([NUMERIC])
def test_whatever_came_is_read_the_same_way(signatures: Any) -> None:
    """As the library reads it, also a user whose id is a number."""

    def read(envelope: Any) -> Any:
        try:
            return [
                (each.user_id, each.signature, each.digest)
                for each in read_entries(envelope)
                if isinstance(each, Entry)
            ]
        except RefusalError as error:
            return str(error)

    envelope = {"id": "1", "signedAddress": {"signatures": signatures}}
    (row,) = json.loads(json.dumps(evidence_to_json([take_evidence("1", "settled", envelope)])))["rows"]
    assert read(row) == read(envelope)
    assert signatures != [NUMERIC] or read(row)[0][0] == "7"


def test_a_row_with_too_many_signatures(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create, sandbox: Sandbox
) -> None:
    identifier = signed(1)
    junk = {"signature": SIGNATURE, "hashes": [1] * 5}
    sandbox.control.set_whitelist_envelope(identifier, signedAddress={"signatures": [junk] * 201})
    ran = audit("--evidence", "-o", "json")
    assert ran.code == 2
    (row,) = json.loads(ran.out)["rows"]
    assert row["reason"] == "it has more than 200 signatures"
    assert json.loads(again(ran.out, "-o", "json").out)["rows"] == [row]


# --- the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('"rows": [', '"rows": [], "rows": [', "has the key rows twice"),
        ('"rows": [', '"Rows": [], "rows": [', "has the keys Rows and rows, which differ in case"),
        ('"address": "', '"address": "0x9", "address": "', "has the key address twice"),
        ('"listed": "', '"listed": "rejected", "listed": "', "has the key listed twice"),
        ('"hash": "', '"hash": NaN, "hash": "', "has a number that is not whole: NaN"),
    ],
)
def test_a_file_that_can_be_read_in_two_ways_is_refused(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create, before: str, after: str, fault: str
) -> None:
    signed(1)
    printed = audit("--evidence", "-o", "json").out
    assert again(printed).code == 0
    for place in (match.start() for match in re.finditer(re.escape(before), printed)):
        ran = again(printed[:place] + printed[place:].replace(before, after, 1))
        assert (ran.code, ran.out) == (1, "")
        assert f"audit.json {fault}" in ran.err


@pytest.mark.parametrize("junk", [[{}], [{"rulesContainer": 5, "rulesSignatures": {}}], [{"rulesSignatures": [5]}], []])
def test_rules_in_force_that_cannot_be_used(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create, junk: list[Any]
) -> None:
    signed(1)
    data = json.loads(audit("--evidence", "-o", "json").out)
    entry = {"signature": SIGNATURE, "hashes": [HASH]}
    row = {**data["evidence"]["rows"][0], "id": "9", "listed": "pending", "rules": None}
    data["evidence"]["rows"].append({**row, "signedAddress": {"signatures": [entry]}})
    data["evidence"]["rules_in_force"] = junk
    for more in ((), ("--evidence", "-o", "json")):
        ran = again(json.dumps(data), *more)
        assert ran.code == 2
        assert "missing" in ran.out


def test_an_id_that_the_file_does_not_have(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create
) -> None:
    signed(1)
    ran = again(audit("--evidence", "-o", "json").out, "--id", "99999")
    assert ran.code == 2
    assert "request 99999: ABSENT: it is not listed\n" in ran.out


# --- what it says besides -----------------------------------------------------------------------------------

FOUND: dict[str, Any] = {
    "pins": {"superadmin_keys": ["a", "b"], "superadmin_minimum": 2, "networks": None},
    "counts": {"verified": 1, "absent": 1},
    "rows": [
        {"id": "1", "state": "verified", "verified": True, "fields": {"label": "L1", "memo": ""}},
        {"id": "2", "state": "absent", "verified": False, "fields": None},
    ],
}


def edited(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(json.dumps(FOUND))
    edit(said)
    return said


def test_the_same_is_no_difference() -> None:
    assert list(differences(FOUND, FOUND)) == []
    # One that was asked for, and that the file has nowhere.
    assert list(differences(FOUND, {**FOUND, "rows": [{"id": "9", "state": "absent"}]}, ["9"])) == []


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda said: said["rows"][0]["fields"].update(label="X1"), "request 1: the file says otherwise: fields"),
        (lambda said: said["rows"][0].update(verified=1), "request 1: the file says otherwise: verified"),
        (lambda said: said["rows"][0].pop("verified"), "request 1: the file says otherwise: verified"),
        (lambda said: said["rows"][0].update(note="fine"), "request 1: the file says otherwise: note"),
        (lambda said: said["rows"].pop(0), "request 1: the file says otherwise: it is not among its 'rows'"),
        (lambda said: said["rows"].append({"id": "7", "verified": True}), "request 7: the file has it in its 'rows'"),
        (lambda said: said["rows"].append(said["rows"][0]), "its 'rows' are no list of rows, each with an id"),
        (lambda said: said["rows"].append(5), "its 'rows' are no list of rows"),
        (lambda said: said.update(rows={}), "its 'rows' are no list of rows"),
        (lambda said: said.pop("rows"), "its 'rows' are no list of rows"),
        (lambda said: said["counts"].update(verified=2), "its 'counts' are {"),
        (lambda said: said.pop("counts"), "its 'counts' are null, and now {"),
        (lambda said: said["pins"].update(superadmin_minimum=1), "its 'pins' are {"),
        (lambda said: said.update(pins="all"), "its 'pins' are \"all\", and now {"),
    ],
)
def test_each_difference_is_named(edit: Callable[[dict[str, Any]], object], text: str) -> None:
    (found,) = differences(edited(edit), FOUND)
    assert text in found


def test_only_some_requests() -> None:
    said = edited(lambda said: said["rows"][1].update(verified=True) or said["counts"].clear())
    assert list(differences(said, {**FOUND, "rows": FOUND["rows"][:1]}, ["1"])) == []
    assert len(list(differences(said, FOUND, ["1", "2"]))) == 1


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["id", "rules", "a"]), each, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["pins", "counts", "rows"]), JUNK))
def test_junk_is_a_difference(said: dict[str, Any]) -> None:
    assert list(differences(said, FOUND))


def test_an_edited_file_is_not_confirmed(audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create) -> None:
    good = signed(1)
    data = json.loads(audit("--evidence", "-o", "json").out)
    assert again(json.dumps(data)).code == 0
    data["rows"][0]["fields"]["address"] = f"0x{9:040x}"
    data["rows"].append({**data["rows"][0], "id": "77"})
    data["counts"]["verified"] = 2
    ran = again(json.dumps(data))
    assert (ran.code, ran.err) == (2, "")
    line, first, *lines, last = ran.out.splitlines()
    # What is proved is what the evidence shows.
    assert line.startswith(f"request {good}: verified: ETH 0x{1:040x} ")
    assert first.startswith("the file says otherwise: its 'counts' are {")
    assert lines == [
        f"request {good}: the file says otherwise: fields",
        "request 77: the file has it in its 'rows', and no evidence of it",
    ]
    assert last.startswith("1 request: 1 verified (")
    ran = again(json.dumps(data), "-o", "json")
    assert ran.code == 2
    assert json.loads(ran.out)["file"]["differences"] == [first, *lines]


def test_other_pins_than_those_of_the_file_are_named(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create
) -> None:
    signed(1)
    ran = again(audit("--evidence", "-o", "json").out, "--allow-legacy-signatures")
    assert ran.code == 2
    assert "the file says otherwise: its 'pins' are {" in ran.out
