"""Users' signatures, counted by group and by path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from support.keys.envelopes import TEXT_A, der, hash_of, user_entry

from airflow_custody.client.verification.keys import PublicKey, UserSignature, read_user_signatures
from airflow_custody.client.verification.rules_container import Path, RulesContainer, Threshold
from airflow_custody.client.verification.verifier import SignatureCount

HASH_A = hash_of(TEXT_A)
KEYS: dict[str, PublicKey | None] = {name: PublicKey.from_der(der(name)) for name in ("a", "b", "c")}


def entries(names: str) -> list[UserSignature]:
    """Return signatures, one for each name: ``a``, or ``x=a`` for one by a that is said to be by x."""
    found = []
    for name in names.split():
        claimed, _, signer = name.partition("=")
        found.append(user_entry(signer or claimed, HASH_A, label=claimed))
    return read_user_signatures({"signedAddress": {"signatures": found}})


def count(
    signatures: Iterable[UserSignature], groups: Mapping[str, str], users: Mapping[str, PublicKey | None] | None = None
) -> SignatureCount:
    container = RulesContainer(
        "", 0, KEYS if users is None else users, {name: frozenset(ids.split()) for name, ids in groups.items()}, ()
    )
    return SignatureCount([HASH_A], [*signatures], container, PublicKey.verifies_digest)


def path(text: str) -> Path:
    """Return a path: ``ops:2 board:1``."""
    return tuple(Threshold(name, int(number)) for name, _, number in (each.partition(":") for each in text.split()))


GROUPS = {"ops": "a b c", "board": "c", "empty": "", "strangers": "x y"}


@pytest.mark.parametrize(
    ("signed", "paths", "expected"),
    [
        ("a b", ["ops:2"], {"ops": "a b"}),
        ("c b a", ["ops:2"], {"ops": "c b"}),
        ("a b", ["ops:3"], None),
        ("a a a", ["ops:2"], None),
        ("a b=a", ["ops:2"], None),
        ("a b=a b", ["ops:2"], {"ops": "a b"}),
        ("c a", ["ops:2 board:1"], {"ops": "c a", "board": "c"}),  # one person in two groups
        ("a b", ["ops:2 board:1"], None),
        ("a b", ["board:1", "ops:2"], {"ops": "a b"}),
        ("a b c", ["ops:3", "board:1"], {"ops": "a b c"}),  # the first
        ("a", ["ops:0"], None),
        ("a b c", ["ops:0 board:1", "ops:3 board:0"], None),
        ("a c", ["ops:0", "board:1"], {"board": "c"}),
        ("a b c", [], None),
        ("a b c", [""], None),
        ("a b c", ["unknown:0"], None),
        ("a b c", ["empty:0"], None),
        ("a b c", ["ops:1 empty:0"], None),
        ("a b c", ["unknown:1", "ops:1"], {"ops": "a"}),
        ("x y", ["strangers:1"], None),
        ("x=a", ["strangers:1", "ops:1"], None),
        ("a b", ["ops:4294967295"], None),
    ],
)
def test_paths(signed: str, paths: list[str], expected: dict[str, str] | None) -> None:
    found = count(entries(signed), GROUPS).complete([path(each) for each in paths])
    assert (None if found is None else {each.group_id: " ".join(each.user_ids) for each in found}) == expected


def test_users_with_one_key_count_once() -> None:
    shared = {**KEYS, "b": KEYS["a"]}
    assert count(entries("a b=a"), GROUPS, shared).complete([path("ops:2")]) is None
    assert count(entries("a b=a c"), GROUPS, shared).complete([path("ops:2")]) is not None


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ([], "its rule has no path in which each group has a threshold above 0"),
        (["ops:2", "board:1"], "1 of 2 in the group 'ops', or 0 of 1 in the group 'board'"),
        (["ops:2 board:1"], "1 of 2 in the group 'ops' and 0 of 1 in the group 'board'"),
    ],
)
def test_description(paths: list[str], why: str) -> None:
    assert count(entries("a"), GROUPS).describe([path(each) for each in paths]) == why


def test_description_is_short() -> None:
    paths = [path(" ".join(f"{'g' * 50}{number}:5" for number in range(50)))] * 50
    found = count(entries("a"), GROUPS).describe(paths)
    assert len(found) <= 200
