"""A refusal that somebody can do something about says what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from whitelist_forge import container, envelope, hash_of, pem, signing, text_of

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import VerificationPins, Verifier

PINS = VerificationPins([pem("admin1"), pem("admin2")], 2)
TEXT = text_of()
BOTH = [signing("alice", hash_of(TEXT)), signing("bob", hash_of(TEXT))]
NO_RULES: dict[str, Any] = {"rulesContainer": None, "rulesSignatures": None}


def refusal(given: dict[str, Any], pins: VerificationPins = PINS, *, pending: bool = False) -> CustodyVerificationError:
    verifier = Verifier(pins)
    errors = []
    # Again: what is remembered of it says the same.
    for _ in range(2):
        with pytest.raises(CustodyVerificationError) as error:
            (verifier.verify_signatures if pending else verifier.verify)(given)
        errors.append(error.value)
    assert str(errors[0]) == str(errors[1])
    assert len(str(errors[0])) < 420
    return errors[0]


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("changes", [NO_RULES, {"rulesContainer": ""}, {"rulesSignatures": None}], ids=str)
def test_rules_that_are_missing(changes: dict[str, Any], pending: bool) -> None:
    error = refusal(envelope(TEXT, *BOTH[:1], **changes), pending=pending)
    assert "its rules, or the signatures of its rules, are missing" in error.message
    assert error.advice == (
        "Without them no signature can be checked. A request in effect must show those that it was signed under; for a "
        "pending one, those in force ('GET /rules') will do. Ask those who run the service."
    )


@pytest.mark.parametrize("pending", [False, True])
def test_rules_that_are_named_and_not_there(pending: bool) -> None:
    error = refusal(envelope(TEXT, *BOTH, **NO_RULES, rulesContainerHash="a"), pending=pending)
    assert "the response does not have the rules that it names" in error.message
    assert "'rulesContainers'" in str(error.advice)


def test_rules_that_others_have_signed() -> None:
    for superadmins in (("admin1", "mallory"), ("mallory",)):
        error = refusal(envelope(TEXT, *BOTH, superadmins=superadmins))
        assert "of the 2 pinned keys that must have signed them" in error.message
        assert "'custody check'" in str(error.advice)
        assert "never the service" in str(error.advice)


def test_rules_that_are_too_old() -> None:
    pins = dataclasses.replace(PINS, rules_not_before=1800000000)
    for timestamp in (1767225600, None):
        error = refusal(envelope(TEXT, *BOTH, rules=container(timestamp=timestamp)), pins)
        assert "'rules_not_before'" in error.message
        assert "set an earlier 'rules_not_before' only if these are to count" in str(error.advice)


@pytest.mark.parametrize("network", [None, ""])
def test_a_network_that_is_not_shown(network: str | None) -> None:
    error = refusal(envelope(TEXT, *BOTH, network=network), dataclasses.replace(PINS, networks=["mainnet"]))
    assert "the service does not show its network" in error.message
    assert "leave out 'networks'" in str(error.advice)


def test_a_chain_without_a_rule() -> None:
    error = refusal(envelope(TEXT, *BOTH, rules=container(rules=[])))
    assert "no rule is for the chain 'ETH'" in error.message
    assert "super-administrators" in str(error.advice)
