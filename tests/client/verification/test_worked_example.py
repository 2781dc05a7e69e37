"""The protocol's worked example: how its rules are read, and what is reported. Its verdicts are cases."""

from __future__ import annotations

import pytest
from support.keys import envelopes
from support.keys.envelopes import PINNED, TEXT_A, envelope, hash_of, private_key

from airflow_custody.client.verification.rules_container import Line, Rule, RulesContainer, Threshold, read_container
from airflow_custody.client.verification.verifier import VerificationPins, verify_envelope

CONTAINER_SHA256 = "539f19e6809306318637beefcebad7aa99037c7fee017842900beedd76d0dccc"
PINS = VerificationPins(PINNED, 2)
ALICE, BOB, CAROL = (f"{name}@example.test" for name in ("alice", "bob", "carol"))
OPS_1, OPS_2, BOARD_1 = Threshold("ops", 1), Threshold("ops", 2), Threshold("board", 1)


@pytest.fixture(scope="module")
def container() -> RulesContainer:
    return read_container(envelopes.container())


def test_the_rules_are_those_that_were_published(container: RulesContainer) -> None:
    assert container.sha256 == CONTAINER_SHA256
    assert container.timestamp == 1767225600
    assert container.groups == {"ops": {ALICE, BOB}, "board": {CAROL}}
    assert container.rules == (
        Rule("ETH", "", ((OPS_2,), (BOARD_1,)), (Line("demo/7", ((OPS_1,),)),)),
        Rule("", "", ((OPS_1, BOARD_1),)),
    )


def test_each_user_has_a_key(container: RulesContainer) -> None:
    assert list(container.users) == [ALICE, BOB, CAROL]
    for name in ("alice", "bob", "carol"):
        numbers = private_key(name).public_key().public_numbers()
        key = container.users[f"{name}@example.test"]
        assert key is not None
        assert key.point == numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")


def test_two_of_ops() -> None:
    found = verify_envelope(envelope(TEXT_A, "alice", "bob"), PINS)
    assert found.fields["address"] == "0x00000000000000000000000000000000000000A1"
    assert found.hash == hash_of(TEXT_A)
    assert found.legacy is False
    assert found.omitted == ()
    assert found.user_ids == (ALICE, BOB)
    assert found.rules.sha256 == CONTAINER_SHA256
    assert found.rules.timestamp == 1767225600
    assert found.rules.signed_by == PINS.fingerprints
    (applied,) = found.applied
    assert applied.currency == "ETH"
    assert applied.network == ""
    assert applied.wallet_path is None
    (group,) = applied.path
    assert group.group_id == "ops"
    assert group.minimum == 2
