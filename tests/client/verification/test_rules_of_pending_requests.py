"""Pending requests that are shown without rules, and users whose ids are shown as numbers."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from worked_example import ALICE, BY_ALICE, BY_BOB, CONTAINER, HASH_A, PINS, SIGNATURES, TEXT_A, TEXT_B, entry, envelope

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.rules_container import read_signatures
from airflow_custody.client.verification.signature_count import read_entries
from airflow_custody.client.verification.verifier import Verifier
from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

NO_RULES: dict[str, Any] = {"rulesContainer": None, "rulesSignatures": None}
IN_FORCE: dict[str, Any] = {
    "rulesContainer": CONTAINER,
    "rulesSignatures": [
        {"userId": "admin", "signature": base64.b64encode(each).decode()}
        for each in read_signatures(base64.b64decode(SIGNATURES))
    ],
}


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(CustodyVerificationError) as error:
        work()
    assert len(str(error.value)) < 500
    return str(error.value)


def test_a_request_without_rules_is_verified_by_those_in_force() -> None:
    verifier = Verifier(PINS, rules_in_force=IN_FORCE)
    for _ in range(2):
        found = verifier.verify_signatures(envelope(TEXT_A, BY_ALICE, **NO_RULES))
        assert found == verifier.verify_signatures(envelope(TEXT_A, BY_ALICE))
    # Named, and not in the response.
    label = envelope(TEXT_A, **NO_RULES, rulesContainerHash="x")
    assert verifier.verify_signatures(label).rules == found.rules
    # One that has rules of its own is verified by these, whatever is in force.
    for rules in (IN_FORCE, {}, {"rulesContainer": "AAAA", "rulesSignatures": []}):
        assert Verifier(PINS, rules_in_force=rules).verify_signatures(envelope(TEXT_A, BY_ALICE)) == found
    for half in ({"rulesContainer": None}, {"rulesSignatures": None}):
        why = refused(lambda half=half: verifier.verify_signatures(envelope(TEXT_A, BY_ALICE, **half)))  # type: ignore[misc]
        assert "signatures of its rules, are missing" in why
    # And they make nothing valid that is not.
    for shown in (envelope(TEXT_B, BY_BOB, **NO_RULES), envelope(TEXT_A, entry("bob", ALICE, HASH_A), **NO_RULES)):
        assert "is not valid: " in refused(lambda shown=shown: verifier.verify_signatures(shown))  # type: ignore[misc]
    # What is in effect must have its own.
    assert "are missing" in refused(lambda: verifier.verify(envelope(TEXT_A, BY_ALICE, BY_BOB, **NO_RULES)))


@pytest.mark.parametrize(
    "rules",
    [
        *(5, [], "x", {}, {"rulesContainer": CONTAINER}, {**IN_FORCE, "rulesSignatures": None}),
        {**IN_FORCE, "rulesSignatures": IN_FORCE["rulesSignatures"][:1]},
        {**IN_FORCE, "rulesSignatures": IN_FORCE["rulesSignatures"][:1] * 2},
        {**IN_FORCE, "rulesSignatures": SIGNATURES},
        {**IN_FORCE, "rulesContainer": CONTAINER[:-4]},
        {**IN_FORCE, "rulesContainer": 5},
    ],
    ids=lambda rules: str(rules)[:20],
)
def test_rules_in_force_that_are_not_signed_as_pinned(rules: Any) -> None:
    verifier = Verifier(PINS, rules_in_force=rules)
    why = refused(lambda: verifier.verify_signatures(envelope(TEXT_A, BY_ALICE, **NO_RULES)))
    assert "shown without rules, and those in force cannot be used: " in why


@pytest.mark.parametrize(
    ("shown", "counts"),
    [(7, True), ("7", True), (7.0, False), (True, False), pytest.param(10**5000, False, id="long")],
)
def test_a_user_whose_id_is_shown_as_a_number(shown: Any, counts: bool) -> None:
    signature = {**BY_ALICE["signature"], "userId": shown}
    wire: Any = {"signedAddress": {"signatures": [{**BY_ALICE, "signature": signature}]}}
    (found,) = read_entries(wire)
    assert (not found.fault and found.user_id == "7") is counts
    assert [each.user_id for each in WhitelistEnvelope(wire).signings] == ["7"] * counts
