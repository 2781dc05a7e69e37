"""The protocol's worked example: how it is read, and what is reported. Its verdicts are cases."""

from __future__ import annotations

import base64
import dataclasses

from support.keys.worked_example import (
    BY_ALICE,
    BY_BOB,
    BY_CAROL,
    CONTAINER,
    HASH_A,
    HASH_CS,
    PINS,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    envelope,
    private_key,
)

from airflow_custody.client.verification.rules_container import Line, Rule, Threshold, read_container
from airflow_custody.client.verification.verifier import verify_envelope

CONTAINER_SHA256 = "539f19e6809306318637beefcebad7aa99037c7fee017842900beedd76d0dccc"


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
    assert container.groups == {"ops": {"alice@example.test", "bob@example.test"}, "board": {"carol@example.test"}}
    assert container.rules == (
        Rule("ETH", "", ((ops,), (board,)), (Line("demo/7", ((Threshold("ops", 1),),)),)),
        Rule("", "", ((Threshold("ops", 1), board),)),
    )


def test_two_of_ops() -> None:
    found = verify_envelope(envelope(TEXT_A, BY_ALICE, BY_BOB), PINS)
    assert found.fields["address"] == "0x00000000000000000000000000000000000000A1"
    assert (found.hash, found.legacy, found.omitted) == (HASH_A, False, ())
    assert found.user_ids == ("alice@example.test", "bob@example.test")
    assert (found.rules.sha256, found.rules.timestamp) == (CONTAINER_SHA256, 1767225600)
    assert found.rules.signed_by == PINS.fingerprints
    (applied,) = found.applied
    assert (applied.currency, applied.network, applied.wallet_path) == ("ETH", "", None)
    (group,) = applied.path
    assert (group.group_id, group.minimum) == ("ops", 2)


def test_one_of_ops_by_the_line_of_a_wallet() -> None:
    found = verify_envelope(envelope(TEXT_B, BY_ALICE), PINS)
    assert found.applied[0].wallet_path == "demo/7"
    assert found.user_ids == ("alice@example.test",)


def test_legacy_form_of_both_keys() -> None:
    found = verify_envelope(envelope(TEXT_C, BY_CAROL), dataclasses.replace(PINS, allow_legacy_signatures=True))
    assert (found.hash, found.omitted) == (HASH_CS, ("contractType", "linkedInternalAddresses.label"))
