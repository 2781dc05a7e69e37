"""Further behaviour of a verifier: pending requests, rules alone, the clock, its reports and its memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.keys.envelopes import (
    PINNED,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    TIMESTAMP,
    b64,
    container,
    envelope,
    hash_of,
    rules_signatures,
    sign,
    user_entry,
    user_id,
)

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification import signed_rules
from airflow_custody.client.verification.keys import MAX_HASHES, read_user_signatures
from airflow_custody.client.verification.results import VerifiedRules
from airflow_custody.client.verification.verifier import (
    RequestSignatures,
    VerificationPins,
    Verifier,
    verify_envelope,
)
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

PINS = VerificationPins(PINNED, 2)
LEGACY = dataclasses.replace(PINS, allow_legacy_signatures=True)
DATA = container()
HASH_A = hash_of(TEXT_A)
BY_ALICE = user_entry("alice", HASH_A, hash_of(TEXT_B))
BY_BOB = user_entry("bob", HASH_A)
BY_CAROL = user_entry("carol", hash_of(TEXT_CS))
#: A signature by alice, shown as bob's.
ALICE_AS_BOB = BY_ALICE | {"signature": BY_ALICE["signature"] | {"userId": user_id("bob")}}
GOOD = envelope(TEXT_A, BY_ALICE, BY_BOB)
NO_RULES: dict[str, Any] = {"rulesContainer": None, "rulesSignatures": None}
LABELLED = {**NO_RULES, "rulesContainerHash": "x"}


def refused(work: Callable[..., object], *given: object) -> str:
    with pytest.raises(CustodyVerificationError) as error:
        work(*given)
    assert len(str(error.value)) < 500
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return str(error.value)


def shown_rules(*signatures: object, data: bytes = DATA) -> dict[str, Any]:
    """Return rules in the form of ``GET /rules``. For a name, the signature is valid."""
    names = {name: b64(sign(name, data)) for name in ("admin1", "admin2")}
    shown = [{"userId": "x", "signature": names.get(str(each), each)} for each in signatures]
    return {"rulesContainer": b64(data), "rulesSignatures": shown}


IN_FORCE = shown_rules("admin1", "admin2")


def test_more_hashes_than_are_read() -> None:
    both = [{**BY_ALICE, "hashes": [HASH_A] * (MAX_HASHES + more)} for more in (0, 1)]
    assert [each.fault for each in read_user_signatures(envelope(TEXT_A, *both))] == [
        "",
        "its hashes are not a list, or there are more than 10000",
    ]


# --- pending requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "users", "has_rules"),
    [
        pytest.param(envelope(TEXT_A, **NO_RULES), [], False, id="no signatures and no rules"),
        pytest.param(envelope(TEXT_A), [], True, id="no signatures"),
        pytest.param(envelope(TEXT_A, BY_ALICE, BY_ALICE), ["alice"], True, id="one user twice"),
        pytest.param(GOOD, ["alice", "bob"], True, id="two users"),
        pytest.param(envelope(TEXT_C, BY_CAROL), ["carol"], True, id="a legacy form"),
    ],
)
def test_signatures_of_a_pending_request(shown: dict[str, Any], users: list[str], has_rules: bool) -> None:
    found = Verifier(LEGACY).verify_signatures(shown)
    assert found.user_ids == tuple(f"{name}@example.test" for name in users)
    assert found.hash == shown["metadata"]["hash"]
    assert (found.rules is not None) == has_rules
    if not has_rules:
        assert found == RequestSignatures(HASH_A, None)
    else:
        groups = [[(group.group_id, group.minimum, len(group.user_ids)) for group in path] for path in found.paths]
        ops, board = len({*users} - {"carol"}), len({*users} & {"carol"})
        assert groups == [[("ops", 2, ops)], [("board", 1, board)]]


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (envelope(TEXT_A, BY_ALICE, **NO_RULES), "signatures of its rules, are missing"),
        (envelope(TEXT_A, rulesSignatures=None), "signatures of its rules, are missing"),
        (envelope(TEXT_A, **NO_RULES, rulesContainerHash="x"), "lacks the rules that it refers to"),
        (envelope(TEXT_B, BY_ALICE, BY_BOB), "its signature 2 of 2 is not valid: it does not cover the current text"),
        (envelope(TEXT_A, ALICE_AS_BOB), "it is not a signature of 'bob@example.test'"),
        (envelope(TEXT_A, {**BY_ALICE, "hashes": [HASH_A]}), "it is not a signature of 'alice@example.test'"),
        (
            envelope(TEXT_A, user_entry("alice", HASH_A, label=user_id("eve"))),
            "'eve@example.test' is not a user in its rules",
        ),
        (envelope(TEXT_A, user_entry("alice", HASH_A, signature=b"\0")), "it is not 64 bytes in base64"),
        (envelope(TEXT_A, {**BY_ALICE, "hashes": "x"}), "its hashes are not a list"),
        (envelope(TEXT_A, {**BY_ALICE, "signature": {"signature": b64(bytes(64))}}), "it names no user"),
        (envelope(TEXT_A, {**BY_ALICE, "signature": None}, BY_ALICE), "signature 1 of 2 is not valid: it is missing"),
        (envelope(TEXT_A, *[BY_ALICE] * 201), "more than 200 signatures"),
    ],
)
def test_pending_requests_that_are_refused(shown: dict[str, Any], why: str) -> None:
    assert why in refused(Verifier(PINS).verify_signatures, shown)


@pytest.mark.parametrize(
    "named", [{}, {"rulesContainerHash": "x"}], ids=["not named", "named, and not in the response"]
)
def test_a_request_without_rules_is_verified_by_those_in_force(named: dict[str, Any]) -> None:
    one = Verifier(PINS, rules_in_force=IN_FORCE)
    expected = one.verify_signatures(envelope(TEXT_A, BY_ALICE))
    for _ in range(2):
        assert one.verify_signatures(envelope(TEXT_A, BY_ALICE, **NO_RULES, **named)) == expected


@pytest.mark.parametrize("rules", [{}, {"rulesContainer": "AAAA", "rulesSignatures": []}], ids=["none", "junk"])
def test_a_request_with_rules_is_verified_by_its_own_whatever_is_in_force(rules: Any) -> None:
    expected = Verifier(PINS).verify_signatures(envelope(TEXT_A, BY_ALICE))
    assert Verifier(PINS, rules_in_force=rules).verify_signatures(envelope(TEXT_A, BY_ALICE)) == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({**LABELLED, "rulesFault": "wrong label"}, "is not the hash of the rules that have this label"),
        ({**LABELLED, "rulesFault": "several"}, "several rules"),
        ({"rulesContainer": None}, "are missing"),
        ({"rulesSignatures": None}, "are missing"),
        ({**NO_RULES, "signedAddress": {"signatures": [ALICE_AS_BOB]}}, "it is not a signature of 'bob@"),
    ],
)
def test_rules_in_force_stand_in_for_missing_rules_only(changes: dict[str, Any], why: str) -> None:
    one = Verifier(PINS, rules_in_force=IN_FORCE)
    assert why in refused(one.verify_signatures, {**GOOD, **changes})


def test_a_request_in_effect_must_have_its_own_rules() -> None:
    assert "are missing" in refused(Verifier(PINS, rules_in_force=IN_FORCE).verify, GOOD | NO_RULES)


@pytest.mark.parametrize("rules", [5, {}, {**IN_FORCE, "rulesSignatures": None}, shown_rules("admin1", "admin1")])
def test_rules_in_force_that_are_not_signed_as_pinned(rules: Any) -> None:
    one = Verifier(PINS, rules_in_force=rules)
    why = refused(one.verify_signatures, envelope(TEXT_A, BY_ALICE, **NO_RULES))
    assert "without rules, and the rules in force cannot be used: " in why


@pytest.mark.parametrize(
    ("shown", "counts"),
    [(7, True), ("7", True), (7.0, False), (True, False), pytest.param(10**5000, False, id="long")],
)
def test_a_user_whose_id_is_shown_as_a_number(shown: Any, counts: bool) -> None:
    signature = {**BY_ALICE["signature"], "userId": shown}
    wire: Any = {"signedAddress": {"signatures": [{**BY_ALICE, "signature": signature}]}}
    (found,) = read_user_signatures(wire)
    assert (not found.fault and found.user_id == "7") is counts
    assert [each.user_id for each in WhitelistEnvelope(wire).signings] == ["7"] * counts


# --- rules -------------------------------------------------------------------------------------------------


def test_rules_alone() -> None:
    found = Verifier(PINS).verify_rules(shown_rules(None, 5, "x", "AA==", "admin2", "admin1") | {"locked": False})
    assert found.timestamp == TIMESTAMP
    assert found.signed_by == PINS.fingerprints
    one = VerificationPins(PINS.superadmin_keys, 1)
    assert Verifier(one).verify_rules(shown_rules("admin2")).signed_by == PINS.fingerprints[1:]
    assert Verifier(PINS).verify_rules(shown_rules("admin1", "admin2", data=DATA[:-6])).timestamp == 0
    assert Verifier(PINS).verify_rules(shown_rules(*["x"] * 30, "admin1", "admin2"))


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (shown_rules("admin1", "admin1"), "signed by 1 of the 2 required pinned keys"),
        (shown_rules("admin1", "admin2", *["x"] * 31), "more than 32 signatures"),
        (IN_FORCE | {"rulesSignatures": rules_signatures(DATA, "admin1", "admin2")}, "signatures are missing"),
        (IN_FORCE | {"rulesContainer": "A" * 6_000_000}, "are larger than"),
    ],
    # The signatures may differ from process to process.
    ids=lambda each: each if isinstance(each, str) else "rules",
)
def test_rules_that_are_refused(rules: dict[str, Any], why: str) -> None:
    assert why in refused(Verifier(PINS).verify_rules, rules)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param(TIMESTAMP - 300, None, id="the clocks differ by minutes"),
        pytest.param(TIMESTAMP - 301, "its rules are of 2026-01-01T00:00:00Z, which is in the future", id="well ahead"),
    ],
)
def test_rules_of_the_future_do_not_pass_a_floor(now: int, why: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_rules, "time", SimpleNamespace(time=lambda: float(now)))
    # Without a minimum date, the date of the rules has no effect.
    assert verify_envelope(GOOD, PINS)
    pins = dataclasses.replace(PINS, rules_not_before=TIMESTAMP)
    if why is None:
        assert verify_envelope(GOOD, pins)
    else:
        assert why in refused(verify_envelope, GOOD, pins)


# --- what is reported and remembered -----------------------------------------------------------------------


def test_as_json() -> None:
    found = json.loads(json.dumps(verify_envelope(GOOD, PINS).to_json()))
    users = ["alice@example.test", "bob@example.test"]
    assert found["fields"]["label"] == "demo A"
    assert found["rules"]["signed_by"] == list(PINS.fingerprints)
    assert found["user_ids"] == users
    assert found["applied"][0]["path"] == [{"group_id": "ops", "minimum": 2, "user_ids": users}]


@pytest.mark.parametrize(("timestamp", "date"), [(1767225600, "2026-01-01T00:00:00Z"), (0, None)])
def test_the_date_of_rules_is_text_and_may_be_missing(timestamp: int, date: str | None) -> None:
    assert VerifiedRules("ab" * 32, timestamp, ()).to_json()["date"] == date
