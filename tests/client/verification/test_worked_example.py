"""The cases of the protocol's worked example."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from typing import Any

import pytest
from worked_example import (
    ALICE,
    BY_ALICE,
    BY_BOB,
    BY_CAROL,
    CONTAINER,
    HASH_A,
    HASH_B,
    HASH_C,
    HASH_CS,
    PINS,
    SIGNATURES,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    TEXT_X,
    entry,
    envelope,
    private_key,
    sign,
)

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.rules_container import Line, Rule, Threshold, read_container
from airflow_custody.client.verification.verifier import VerificationPins, verify_envelope

LEGACY = dataclasses.replace(PINS, allow_legacy_signatures=True)
CONTAINER_SHA256 = "539f19e6809306318637beefcebad7aa99037c7fee017842900beedd76d0dccc"


def appended(text: str, more: str) -> str:
    return text[:-1] + more + "}"


def test_container() -> None:
    data = base64.b64decode(CONTAINER)
    container = read_container(data)
    ops, board = Threshold("ops", 2), Threshold("board", 1)
    assert len(data) == 784
    assert container.sha256 == CONTAINER_SHA256
    assert container.timestamp == 1767225600
    assert list(container.users) == ["alice@example.test", "bob@example.test", "carol@example.test"]
    for name in ("alice", "bob", "carol"):
        numbers = private_key(name).public_key().public_numbers()
        key = container.key_of(f"{name}@example.test")
        assert key is not None
        assert key.point == numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
    assert container.groups == {
        "ops": {"alice@example.test", "bob@example.test"},
        "board": {"carol@example.test"},
    }
    assert container.rules == (
        Rule("ETH", "", ((ops,), (board,)), (Line("demo/7", ((Threshold("ops", 1),),)),)),
        Rule("", "", ((Threshold("ops", 1), board),)),
    )


@pytest.mark.parametrize(("text", "hash_"), [(TEXT_A, HASH_A), (TEXT_B, HASH_B), (TEXT_C, HASH_C), (TEXT_CS, HASH_CS)])
def test_hashes(text: str, hash_: str) -> None:
    assert hashlib.sha256(text.encode()).hexdigest() == hash_


def test_two_of_ops() -> None:
    found = verify_envelope(envelope(TEXT_A, BY_ALICE, BY_BOB), PINS)
    assert found.fields["address"] == "0x00000000000000000000000000000000000000A1"
    assert found.hash == HASH_A
    assert not found.legacy
    assert found.omitted == ()
    assert found.user_ids == ("alice@example.test", "bob@example.test")
    assert found.rules.sha256 == CONTAINER_SHA256
    assert found.rules.timestamp == 1767225600
    assert found.rules.signed_by == PINS.fingerprints
    (applied,) = found.applied
    assert (applied.currency, applied.network, applied.wallet_path) == ("ETH", "", None)
    (group,) = applied.path
    assert (group.group_id, group.minimum) == ("ops", 2)


def test_one_of_ops_by_the_line_of_a_wallet() -> None:
    found = verify_envelope(envelope(TEXT_B, BY_ALICE), PINS)
    assert found.applied[0].wallet_path == "demo/7"
    assert found.user_ids == ("alice@example.test",)
    assert found.fields["linkedWallets"] == [{"id": 7, "name": "hot", "path": "demo/7"}]


def test_legacy_form_of_both_keys() -> None:
    found = verify_envelope(envelope(TEXT_C, BY_CAROL), LEGACY)
    assert found.legacy
    assert found.hash == HASH_CS
    assert found.omitted == ("contractType", "linkedInternalAddresses.label")
    assert "contractType" not in found.fields
    assert found.fields["linkedInternalAddresses"] == [
        {"id": "12", "address": "0x0000000000000000000000000000000000000D12"}
    ]


def test_legacy_form_with_an_invented_contract_type() -> None:
    found = verify_envelope(envelope(appended(TEXT_CS, ',"contractType":"ERC20"'), BY_CAROL), LEGACY)
    assert found.legacy
    assert found.omitted == ("contractType",)
    assert "contractType" not in found.fields


def signatures_of(*signatures: bytes) -> str:
    parts = [b"\x12\x40" + each for each in signatures]
    return base64.b64encode(b"".join(b"\x0a" + bytes([len(each)]) + each for each in parts)).decode()


DATA = base64.b64decode(CONTAINER)
REFUSED: dict[str, tuple[VerificationPins, dict[str, Any], str]] = {
    "2 one of two": (PINS, envelope(TEXT_A, BY_ALICE), "1 of 2 of the group 'ops'"),
    "3 one twice": (PINS, envelope(TEXT_A, BY_ALICE, BY_ALICE), "1 of 2 of the group 'ops'"),
    "5 one and under another name": (
        PINS,
        envelope(TEXT_A, BY_ALICE, entry("bob", ALICE, HASH_A, HASH_B)),
        "1 of 2 of the group 'ops'",
    ),
    "6 legacy not allowed": (PINS, envelope(TEXT_C, BY_CAROL), "no signature covers its text"),
    "8 label appended to C": (
        LEGACY,
        envelope(appended(TEXT_C, ',"label":"x"'), BY_CAROL),
        "has the key label twice",
    ),
    "9 another chain": (
        PINS,
        envelope(TEXT_B, BY_ALICE, blockchain="XLM"),
        "its text is for the chain 'ETH', and the service shows 'XLM'",
    ),
    "10 one super-administrator twice": (
        PINS,
        envelope(TEXT_A, BY_ALICE, BY_BOB, rulesSignatures=signatures_of(*[sign("admin1", DATA)] * 2)),
        "its rules are signed by 1 of the 2 pinned keys",
    ),
    "11 hashes swapped": (
        PINS,
        envelope(TEXT_A, entry("alice", ALICE, HASH_B, HASH_A), BY_BOB),
        "1 of 2 of the group 'ops'",
    ),
    "12 container cut": (
        PINS,
        envelope(TEXT_A, BY_ALICE, BY_BOB, rulesContainer=base64.b64encode(DATA[:-6]).decode()),
        "its rules are signed by 0 of the 2 pinned keys",
    ),
    "13 label appended to A": (
        PINS,
        envelope(appended(TEXT_A, ',"label":"x"'), BY_ALICE, BY_BOB),
        "has the key label twice",
    ),
    "14 signed text made to vanish": (LEGACY, envelope(TEXT_X, BY_CAROL), "has the key contractType twice"),
    "16 users in place of super-administrators": (
        PINS,
        envelope(TEXT_A, BY_ALICE, BY_BOB, rulesSignatures=signatures_of(sign("alice", DATA), sign("bob", DATA))),
        "its rules are signed by 0 of the 2 pinned keys",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    pins, shown, why = REFUSED[case]
    with pytest.raises(CustodyVerificationError) as error:
        verify_envelope(shown, pins)
    assert str(error.value).startswith("whitelisting request 7 is not verified: ")
    assert why in str(error.value)
    assert not error.value.retryable


def test_advice_about_legacy_forms() -> None:
    with pytest.raises(CustodyVerificationError, match="see 'allow_legacy_signatures'"):
        verify_envelope(envelope(TEXT_C, BY_CAROL), PINS)


def test_removed_injections_are_what_was_signed() -> None:
    assert verify_envelope(envelope(TEXT_CS, BY_CAROL), PINS).fields["memo"] == "4242"


def test_signatures_of_the_container() -> None:
    assert base64.b64decode(SIGNATURES)[:2] == b"\x0a\x57"
