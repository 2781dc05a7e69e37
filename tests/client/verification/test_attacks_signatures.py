"""Users' signatures that a malicious service shows: rows 6, 7, 8, 16 and 17 of the attack list."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from whitelist_forge import (
    ETH_RULE,
    GROUPS,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    USERS,
    container,
    envelope,
    group,
    hash_of,
    message_of,
    path,
    pem,
    rule,
    sign,
    sign_der,
    signing,
    twin,
    user,
    user_id,
)
from whitelist_verdicts import LEGACY, PINS, accept, bounded, refuse, refused, signers

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import Verifier

A, B = hash_of(TEXT_A), hash_of(TEXT_B)
ALICE, BOB, CAROL = (signing(name, A) for name in ("alice", "bob", "carol"))
TWIN = twin(sign("alice", message_of([A])))


def test_who_has_signed_is_reported() -> None:
    result = accept(envelope(TEXT_A, ALICE, BOB, CAROL))
    assert result.hash == A
    assert signers(result) in ({"alice", "bob"}, {"carol"})
    assert not result.legacy


# Row 6: one user several times


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([ALICE], id="once"),
        pytest.param([ALICE, ALICE, ALICE], id="three times"),
        pytest.param([ALICE, signing("alice", A, label=user_id("bob"))], id="relabelled"),
        pytest.param([ALICE, signing("alice", A, signature=TWIN)], id="twin"),
        pytest.param([ALICE, signing("alice", A, signature=TWIN, label=user_id("bob"))], id="twin, relabelled"),
        pytest.param([ALICE, signing("alice", A, B), signing("alice", B, A)], id="over other lists"),
        pytest.param([ALICE, signing("alice", A, label=user_id("alice").upper())], id="in capitals"),
        pytest.param([ALICE, signing("alice", A, label=f"{user_id('alice')} ")], id="with a space"),
        pytest.param([ALICE, signing("alice", A, label=user_id("carol"))], id="labelled as the board"),
    ],
)
def test_row_6_one_user_counts_once(entries: list[dict[str, Any]]) -> None:
    refuse(envelope(TEXT_A, *entries))
    refuse(envelope(TEXT_A, *entries[::-1]))
    assert signers(accept(envelope(TEXT_A, *entries, BOB))) == {"alice", "bob"}


def test_row_6_one_user_signs_twice_with_other_numbers() -> None:
    first = sign("alice", message_of([A]))
    sign_der.cache_clear()
    assert sign("alice", message_of([A])) != first
    refuse(envelope(TEXT_A, ALICE, signing("alice", A, signature=first)))


@pytest.mark.parametrize("key", [pem("alice"), pem("alice").rstrip("\n")])
def test_row_6_two_users_with_one_key_count_once(key: str) -> None:
    users = (*USERS, user("ann", key=key))
    rules = container(users=users, groups=(group("ops", "alice", "ann", "bob"), GROUPS[1]))
    for entries in ([ALICE, signing("alice", A, label=user_id("ann"))], [signing("alice", A, label=user_id("ann"))]):
        refuse(envelope(TEXT_A, *entries, rules=rules))
        accept(envelope(TEXT_A, *entries, BOB, rules=rules))


def test_row_6_one_key_in_two_groups_is_one_person_in_two_groups() -> None:
    rules = container(
        users=(*USERS, user("ann", key=pem("alice"))),
        groups=(group("ops", "alice"), group("board", "ann", "carol")),
        rules=(rule("ETH", path(("ops", 1), ("board", 2))),),
    )
    shown = [ALICE, signing("alice", A, label=user_id("ann"))]
    refuse(envelope(TEXT_A, *shown, rules=rules))
    accept(envelope(TEXT_A, *shown, CAROL, rules=rules))


# Row 7: other hashes

MANY = (A, B, hash_of(TEXT_C))


@pytest.mark.parametrize(
    ("shown", "signed"),
    [
        pytest.param(MANY[:2], MANY, id="one removed"),
        pytest.param(MANY[:1], MANY, id="the others removed"),
        pytest.param(MANY, MANY[:2], id="one added"),
        pytest.param(MANY, MANY[1:], id="added to another signature"),
        pytest.param(MANY[:1], MANY[1:], id="put in place of others"),
        pytest.param(MANY[::-1], MANY, id="reversed"),
        pytest.param((A, A), (A,), id="doubled"),
        pytest.param((A, A), (A, B), id="overwritten"),
        pytest.param((A,), (), id="an empty list"),
        pytest.param((f'{A}","{B}',), (A, B), id="two as one text"),
        pytest.param((A, B), (f'{A}","{B}',), id="one text as two"),
        pytest.param((A.upper(),), (A,), id="shown in capitals"),
        pytest.param((A,), (A.upper(),), id="signed in capitals"),
        pytest.param((A.upper(),), (A.upper(),), id="in capitals"),
        pytest.param((B,), (B,), id="of another text"),
        pytest.param((A[:-1],), (A[:-1],), id="shorter"),
        pytest.param((f" {A}",), (f" {A}",), id="with a space"),
    ],
)
def test_row_7_lists_of_hashes(shown: tuple[str, ...], signed: tuple[str, ...]) -> None:
    bent = signing("alice", *shown, signed=signed)
    refuse(envelope(TEXT_A, bent, BOB))
    refuse(envelope(TEXT_A, BOB, bent))
    accept(envelope(TEXT_A, bent, BOB, ALICE))


@pytest.mark.parametrize(
    "message",
    [A.encode(), f'"{A}"'.encode(), f"['{A}']".encode(), f'[ "{A}" ]'.encode(), f'["{A}"]\n'.encode(), TEXT_A.encode()],
)
def test_row_7_messages_of_another_form(message: bytes) -> None:
    refuse(envelope(TEXT_A, signing("alice", A, signature=sign("alice", message)), BOB))


def test_row_7_one_signature_over_many_texts() -> None:
    for text in (TEXT_A, TEXT_B):
        assert accept(envelope(text, signing("alice", *MANY), signing("bob", *MANY))).hash == hash_of(text)
    refuse(envelope(TEXT_CS, signing("alice", *MANY), signing("bob", *MANY)))


# Row 8: signers


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(signing("mallory", A), id="unknown"),
        pytest.param(signing("mallory", A, label=user_id("bob")), id="labelled as bob"),
        pytest.param(signing("bob", A, label=user_id("mallory")), id="bob, labelled as unknown"),
        pytest.param(signing("dave", A), id="outside of the group"),
        pytest.param(signing("dave", A, label=user_id("bob")), id="outside of it, labelled as bob"),
        pytest.param(signing("admin1", A), id="a super-administrator"),
        pytest.param(signing("admin1", A, label=user_id("bob")), id="a super-administrator, labelled as bob"),
        pytest.param(signing("bob", A, label=""), id="without a label"),
        pytest.param(signing("bob", A, label=None) | {"signature": {"signature": "A" * 88}}, id="no label at all"),
        pytest.param(signing("bob", A, label=5), id="a number as label"),
        pytest.param(signing("bob", A, label=["bob@example.test"]), id="a list as label"),
        pytest.param(signing("ghost", A), id="in the group, but not a user"),
    ],
)
def test_row_8_signers_who_do_not_count(entry: dict[str, Any]) -> None:
    rules = container(users=(*USERS, user("dave")), groups=(group("ops", "alice", "bob", "ghost"), *GROUPS[1:]))
    refuse(envelope(TEXT_A, ALICE, entry, rules=rules))
    assert signers(accept(envelope(TEXT_A, entry, ALICE, BOB, rules=rules))) == {"alice", "bob"}


# Row 16: junk beside what is good

KEYLESS = ("", "junk", pem("bob").replace("M", "A", 1), "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n")
JUNK: list[Any] = [
    None,
    5,
    "",
    [],
    {},
    {"signature": None, "hashes": [A]},
    {"signature": {}, "hashes": [A]},
    {"signature": {"userId": user_id("alice"), "signature": ""}, "hashes": [A]},
    {"signature": {"userId": user_id("alice"), "signature": None}, "hashes": [A]},
    {"signature": {"userId": user_id("alice"), "signature": "\ud800"}, "hashes": [A]},
    {"signature": {"userId": "\ud800", "signature": "A" * 88}, "hashes": [A]},
    signing("alice", A, signature=b"\0" * 64),
    signing("alice", A, signature=b"\xff" * 64),
    signing("mallory", A, label=user_id("alice")),
    {**ALICE, "hashes": None},
    {**ALICE, "hashes": A},
    {**ALICE, "hashes": 5},
    {**ALICE, "hashes": {A: A}},
    {**ALICE, "hashes": [A, None]},
    {**ALICE, "hashes": [A, 5]},
    {**ALICE, "hashes": [[A]]},
    {**ALICE, "hashes": [A, "é" * 64]},
    {**ALICE, "hashes": [A, "\ud800"]},
    {**ALICE, "hashes": [A, "１" * 64]},  # digits, but not of ASCII
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_rows_16_and_17_junk_is_skipped_and_does_not_count(junk: Any) -> None:
    result = accept(envelope(TEXT_A, *[copy.deepcopy(junk) for _ in range(3)], ALICE, junk, BOB, junk))
    assert signers(result) == {"alice", "bob"}
    given = envelope(TEXT_A, BOB)
    given["signedAddress"]["signatures"] += [junk, junk]
    refuse(given)


@pytest.mark.parametrize("key", KEYLESS)
def test_row_16_bad_keys(key: str) -> None:
    users = (user("alice"), user("bob", key=key), user("carol"))
    rules = container(users=users)
    refuse(envelope(TEXT_A, ALICE, BOB, rules=rules))
    assert signers(accept(envelope(TEXT_A, ALICE, BOB, CAROL, rules=rules))) == {"carol"}
    assert signers(accept(envelope(TEXT_A, ALICE, BOB, rules=container(users=(*USERS, user("dave", key=key)))))) == {
        "alice",
        "bob",
    }


def test_row_16_junk_that_covers_the_received_text_does_not_withhold_a_legacy_one() -> None:
    legacy = signing("carol", hash_of(TEXT_CS))
    received = hash_of(TEXT_C)
    for junk in (
        signing("mallory", received),
        signing("mallory", received, label=user_id("carol")),
        signing("carol", received, signature=b"\0" * 64),
        {"signature": None, "hashes": [received]},
    ):
        assert accept(envelope(TEXT_C, junk, legacy), LEGACY).legacy
        refuse(envelope(TEXT_C, junk), LEGACY)
        refuse(envelope(TEXT_C, junk, legacy))


def test_all_that_count_have_signed_the_same_hash() -> None:
    new, old = hash_of(TEXT_C), hash_of(TEXT_CS)
    for first, second in ((new, old), (old, new)):
        refuse(envelope(TEXT_C, signing("alice", first), signing("bob", second)), LEGACY)
        refuse(envelope(TEXT_C, signing("alice", first), signing("bob", second), signing("alice", first)), LEGACY)
    assert accept(envelope(TEXT_C, signing("alice", old, new), signing("bob", old)), LEGACY).legacy
    assert not accept(envelope(TEXT_C, signing("alice", old, new), signing("bob", new)), LEGACY).legacy


def test_row_17_thousands_of_junk_entries_take_bounded_time() -> None:
    bad = [signing("alice", A, signature=bytes([1, number % 255]) * 32) for number in range(150)]
    with bounded():
        for entries in ([*bad, ALICE, BOB], bad, bad * 100, [None] * 100_000, [signing("alice", *[A] * 20_000)] * 10):
            given = envelope(TEXT_A)
            given["signedAddress"]["signatures"] = entries
            try:
                result = accept(given)
            except CustodyVerificationError:
                assert ALICE not in entries or len(entries) > 150
            else:
                assert signers(result) == {"alice", "bob"}


# Requests that are pending


def test_signatures_of_a_pending_request() -> None:
    verifier = Verifier(PINS)
    assert verifier.verify_signatures(envelope(TEXT_A, ALICE)).user_ids == (user_id("alice"),)
    assert set(verifier.verify_signatures(envelope(TEXT_A, BOB, ALICE, ALICE)).user_ids) == {
        user_id("alice"),
        user_id("bob"),
    }
    result = verifier.verify_signatures(envelope(TEXT_A))
    assert (result.hash, result.user_ids) == (A, ())
    assert result.rules is not None


def test_one_key_under_two_names_is_one_user_of_a_pending_request() -> None:
    rules = container(users=(*USERS, user("ann", key=pem("alice"))))
    given = envelope(TEXT_A, ALICE, signing("alice", A, label=user_id("ann")), BOB, rules=rules)
    try:
        result = Verifier(PINS).verify_signatures(given)
    except CustodyVerificationError:
        return
    assert len(result.user_ids) == 2
    assert user_id("bob") in result.user_ids


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_beside_a_pending_requests_signatures_is_refused(junk: Any) -> None:
    given = envelope(TEXT_A, ALICE)
    given["signedAddress"]["signatures"].insert(0, junk)
    refused(lambda: Verifier(PINS).verify_signatures(given))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(envelope(TEXT_A, "mallory"), id="unknown"),
        pytest.param(envelope(TEXT_A, signing("alice", B)), id="another text's"),
        pytest.param(envelope(TEXT_A, signing("alice", A, signed=[B])), id="added to another signature"),
        pytest.param(envelope(TEXT_A, ALICE, signing("alice", A, label=user_id("bob"))), id="relabelled"),
        pytest.param(envelope(TEXT_A, ALICE, superadmins=("admin1",)), id="rules not signed"),
        pytest.param(envelope(TEXT_A, superadmins=("admin1",)), id="rules not signed, and no signatures"),
        pytest.param(envelope(TEXT_A, ALICE, rulesContainer=None), id="signatures without rules"),
        pytest.param(envelope(TEXT_A, ALICE, rules=container(rules=(rule("BTC", path(("ops", 1))),))), id="no rule"),
        pytest.param(envelope(TEXT_A, ALICE, blockchain="XLM"), id="another chain"),
        pytest.param(envelope(TEXT_A, ALICE, rules=container(rules=(ETH_RULE, ETH_RULE))), id="two rules"),
        pytest.param(envelope(TEXT_A, ALICE, metadata={"hash": B, "payloadAsString": TEXT_A}), id="another hash"),
        pytest.param(envelope(TEXT_C, signing("carol", hash_of(TEXT_CS))), id="legacy"),
    ],
)
def test_what_a_pending_request_must_not_show(given: dict[str, Any]) -> None:
    refused(lambda: Verifier(PINS).verify_signatures(given))
    refuse(given)
