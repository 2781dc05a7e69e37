"""What an auditor keeps: all that verification reads, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import whitelist_forge as forge
from cli_runs import Create, Ran, Run
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.cli.evidence import evidence_to_json, take_evidence
from airflow_custody.cli.verify import verify_row
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signature_count import read_entries
from airflow_custody.client.verification.verifier import VerificationPins, Verifier
from airflow_custody.client.whitelist.envelopes import UnreadableRow
from airflow_custody.sandbox import Sandbox

HASH = "0" * 64
SIGNATURE = {"userId": "ann", "signature": "A" * 88}


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


def kept(**envelope: Any) -> dict[str, Any]:
    """Return the row of an envelope in evidence, which is JSON."""
    found = evidence_to_json([take_evidence("1", "settled", envelope)])
    row: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))["rows"][0]
    return row


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


def test_what_is_refused_unread_is_named_and_not_copied() -> None:
    entry = {"signature": SIGNATURE, "hashes": [HASH]}
    for envelope, fault in (
        ({"signedAddress": {"signatures": [entry] * 201}}, "it has more than 200 signatures: it is refused unread"),
        ({"rulesContainer": "A" * 6_000_000}, "its rules are larger than 4194304 bytes: it is refused unread"),
        ({"rulesSignatures": "A" * 90_000}, "the signatures of its rules are larger than 65536 bytes: "),
        ({"metadata": {"payloadAsString": "x" * 1_050_000}}, "its payload is larger than 1048576 bytes: "),
    ):
        row = kept(status="APPROVED", blockchain="ETH", **envelope)
        assert row["fault"].startswith(fault)
        assert len(json.dumps(row)) < 300
        assert row["status"] == "APPROVED"


def test_signatures_that_cannot_count_are_not_copied() -> None:
    found = [
        {"signature": {**SIGNATURE, "comment": "x" * 1000}, "hashes": [HASH], "more": 5},
        {"signature": SIGNATURE, "hashes": [HASH] * 10_001},
        {"signature": SIGNATURE, "hashes": [HASH, 1, float("nan")]},
        {"signature": SIGNATURE, "hashes": {"a": [[]]}},
        {"signature": {"userId": [], "signature": "A" * 5000}, "hashes": []},
        float("inf"),
    ]
    one, two, three, four, five, six = kept(signedAddress={"signatures": found, "payload": "x"})["signedAddress"][
        "signatures"
    ]
    assert one == {"signature": SIGNATURE, "hashes": [HASH]}
    assert two == {"signature": SIGNATURE, "hashes": False, "left_out": "hashes: no list, or more than 10000"}
    assert three["hashes"] == [None]
    assert "one of them is none" in three["left_out"]
    assert four["hashes"] is False
    assert five == {"signature": {}, "hashes": []}
    assert six is None


@pytest.mark.parametrize(
    "entry",
    [
        0,
        {},
        {"signature": {}},
        {"signature": {}, "hashes": 0},
        {"signature": {}, "hashes": [0]},
        {"hashes": [1] * 9999},
    ],
    ids=range(6),
)
def test_evidence_is_never_much_larger_than_what_came(entry: object) -> None:
    came = {"id": "1", "signedAddress": {"signatures": [entry] * 200}}
    assert len(json.dumps(kept(**came))) < 4 * len(json.dumps(came, separators=(",", ":")))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(HASH),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=12,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "signature": JUNK
            | st.fixed_dictionaries({}, optional={"userId": JUNK, "signature": JUNK | st.just("A" * 88)}),
            "hashes": JUNK | st.lists(JUNK, max_size=4),
        },
    )
    | JUNK,
    max_size=4,
)


@given(JUNK | ENTRIES.map(lambda each: {"signatures": each}))
def test_whatever_came_is_read_the_same_way(address: Any) -> None:
    def read(envelope: Any) -> Any:
        try:
            return [(each.user_id, each.signature, each.digest) for each in read_entries(envelope)]
        except RefusalError as error:
            return str(error)

    row = kept(signedAddress=address)
    assert read(row) == read({"signedAddress": address})
    # Once more, from the file.
    assert kept(**{name: row[name] for name in row if name == "signedAddress"}) == row


@given(
    st.dictionaries(st.sampled_from(["status", "network", "metadata", "rulesContainer", "rulesContainerHash"]), JUNK)
)
def test_whatever_came_can_be_written(envelope: dict[str, Any]) -> None:
    assert kept(**envelope)["id"] == "1"


def test_rules_that_are_not_there_have_no_hash() -> None:
    for container in (None, "", 5, "not base64!"):
        row = take_evidence("1", "settled", {"rulesContainer": container, "rulesSignatures": "AAAA"})
        assert evidence_to_json([row])["rules"][0]["sha256"] is None


# --- a row that cannot be read ------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [{"metadata": 5}, {"signedAddress": "x"}])
def test_a_row_that_cannot_be_read_is_its_own_finding(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create, sandbox: Sandbox, broken: dict[str, Any]
) -> None:
    good, bad = signed(1), signed(2)
    sandbox.control.set_whitelist_envelope(bad, **broken)
    line = f"request {bad}: UNVERIFIED: it cannot be read: a field of it has another type than is known\n"
    for ids in ([], ["--id", good, "--id", bad]):
        ran = audit(*ids)
        assert (ran.code, ran.err) == (2, "")
        assert line in ran.out
        assert "2 requests: 1 verified, 1 unverified (" in ran.out
    ran = again(audit("--evidence", "-o", "json").out)
    assert ran.code == 2
    assert line in ran.out


def test_an_unreadable_row_that_is_pending_or_rejected() -> None:
    row = UnreadableRow(id="1")
    assert take_evidence("1", "pending", row).fault
    assert take_evidence("1", "pending", row).status is None


def test_a_row_with_too_many_signatures(
    audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create, sandbox: Sandbox
) -> None:
    identifier = signed(1)
    junk = {"signature": SIGNATURE, "hashes": [1] * 5}
    sandbox.control.set_whitelist_envelope(identifier, signedAddress={"signatures": [junk] * 201})
    ran = audit("--evidence", "-o", "json")
    assert ran.code == 2
    (row,) = json.loads(ran.out)["rows"]
    assert row["reason"] == "it has more than 200 signatures: it is refused unread"
    assert len(ran.out) < 6000
    assert json.loads(again(ran.out, "-o", "json").out)["rows"] == [row]


# --- the file -----------------------------------------------------------------------------------------------


def test_a_file_says_nothing_good(audit: Callable[..., Ran], again: Callable[..., Ran], signed: Create) -> None:
    signed(1)
    data = json.loads(audit("--evidence", "-o", "json").out)
    data["evidence"]["rows"][0]["fault"] = "left\nout"
    ran = again(json.dumps(data))
    assert ran.code == 2
    assert ": UNVERIFIED: left out\n" in ran.out


@pytest.mark.parametrize(
    "junk", [[5], [None], [{}], [{"rulesContainer": 5, "rulesSignatures": {}}], [{"rulesSignatures": [5, {}]}], []]
)
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
    assert "request 99999: ABSENT: the file does not have it\n" in ran.out


def test_evidence_has_a_line_for_each_row(audit: Callable[..., Ran], signed: Create) -> None:
    identifier = signed(1)
    out = audit("--evidence", "-o", "json").out
    (line,) = [line for line in out.splitlines() if '"listed": "settled"' in line]
    assert json.loads(line)["id"] == identifier
    assert json.loads(out)["evidence"]["rows"] == [json.loads(line)]
    assert '\n    "rules_in_force": [],\n' in out
