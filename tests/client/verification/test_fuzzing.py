"""Bytes that are no rules, and rules of any size: refused or read, in bounded time, and never a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whitelist_forge import (
    DEFAULT_RULE,
    ETH_RULE,
    GROUPS,
    RULES,
    TEXT_A,
    TEXT_B,
    USERS,
    b64,
    compact,
    container,
    envelope,
    field,
    group,
    hash_of,
    line,
    packed,
    path,
    raw,
    rule,
    rules_signatures,
    signing,
    superadmin_entry,
    tag,
    text_of,
    user,
    varint,
    wallet_cell,
)
from whitelist_verdicts import PINS, accept, bounded, plain, refuse, refused, signers

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import Verifier

BOTH = ("alice", "bob")
QUICK = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
VERIFIER = Verifier(PINS)


def survive(given_envelope: dict[str, Any], verifier: Verifier = VERIFIER) -> bool:
    """Verify an envelope, and return whether it is accepted. All but a refusal fails the test."""
    try:
        result = verifier.verify(given_envelope)
    except CustodyVerificationError:
        return False
    assert plain(result.fields) == json.loads(given_envelope["metadata"]["payloadAsString"])
    return True


@QUICK
@given(st.binary(max_size=80))
def test_random_bytes_that_the_superadmins_signed(body: bytes) -> None:
    assert not survive(envelope(TEXT_A, *BOTH, rules=body))


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, 784), st.integers(0, 6), st.binary(max_size=6)), min_size=1, max_size=3),
    st.sampled_from([TEXT_A, TEXT_B]),
)
def test_mutated_rules_that_the_superadmins_signed(edits: list[tuple[int, int, bytes]], text: str) -> None:
    body = container()
    for start, length, new in edits:
        body = body[:start] + new + body[start + length :]
    survive(envelope(text, *BOTH, "carol", rules=body))


@QUICK
@given(st.binary(max_size=100))
def test_random_bytes_in_place_of_the_signatures(body: bytes) -> None:
    assert not survive(envelope(TEXT_A, *BOTH) | {"rulesSignatures": b64(body)})


@QUICK
@given(st.text(max_size=40), st.sampled_from(["rulesContainer", "rulesSignatures"]))
def test_random_text_in_place_of_base64(text: str, key: str) -> None:
    assert not survive(envelope(TEXT_A, *BOTH) | {key: text})


@QUICK
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda body: body.decode("utf-8", "surrogateescape")))
def test_random_texts_that_users_signed(text: str) -> None:
    assert not survive(envelope(text, *BOTH, "carol"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = [*json.loads(text_of()), "linkedWallets", "tnParticipantID", "network"]


@QUICK
@given(st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3), JSON)
def test_texts_with_values_of_any_type_that_users_signed(values: dict[str, Any], more: Any) -> None:
    survive(envelope(compact(json.loads(TEXT_A) | values), *BOTH, "carol"))
    survive(envelope(compact(json.loads(TEXT_A) | {"more": more}), *BOTH, "carol"))
    survive(envelope(compact(more), *BOTH, "carol"))


# Sizes. The rules are really signed here: what is not signed must not even be read.

MANY = 10_000
BOMBS: dict[str, Callable[[], bytes]] = {
    "10 MB": lambda: container(extra=field(99, b"\0" * 10_000_000)),
    "endless varints": lambda: b"\xff" * 1_000_000,
    "an endless varint behind a key": lambda: container(extra=tag(99, 0) + b"\x80" * 1_000_000),
    "an endless packed varint": lambda: container(users=[user("dave", roles=field(3, b"\x80" * 1_000_000))]),
    "lengths in lengths": lambda: b"\x0a\x80" * 500_000,
    "lengths of what is not there": lambda: b"\x0a" * 1_000_000,
    "messages in messages": lambda: nested(1_000),
    "a length of 2^63": lambda: tag(1, 2) + varint(2**63),
    "empty users": lambda: container(extra=b"\x0a\0" * MANY),
    "one user many times": lambda: container(users=[*USERS, *[USERS[0]] * MANY]),
    "one group many times": lambda: container(groups=[*GROUPS, *[GROUPS[0]] * MANY]),
    "one rule many times": lambda: container(rules=[*RULES, *[ETH_RULE] * MANY]),
    "many cells, the last broken": lambda: by_line(line("", cells=[*[wallet_cell("a")] * MANY, b"\xff"])),
    "no timestamp at all, many times": lambda: container(extra=field(10, 1) * MANY),
}


def nested(depth: int) -> bytes:
    """Return users in users."""
    body = b""
    for _ in range(depth):
        body = field(1, body)
    return body


def by_line(*lines: bytes) -> bytes:
    """Return rules of the worked example, in which ETH has more lines."""
    return container(rules=[rule("ETH", path(("ops", 2)), lines=lines), DEFAULT_RULE])


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_rules_that_are_refused_in_bounded_time(make: Callable[[], bytes]) -> None:
    rules = make()
    bad = envelope(TEXT_A, *BOTH, rules=rules)
    with bounded():
        refuse(bad)
    with bounded(2.0):
        refuse(bad | {"rulesSignatures": ""})


LARGE: dict[str, Callable[[], bytes]] = {
    "unknown fields": lambda: container(extra=b"\x78\0" * 100_000),
    "roles": lambda: container(users=[user("dave", roles=field(3, packed([1] * 100_000))), *USERS]),
    "users without keys": lambda: container(users=[*(field(1, f"u{n}") for n in range(50_000)), *USERS]),
    "one user in a group many times": lambda: container(groups=[group("ops", *BOTH, *["alice"] * MANY), GROUPS[1]]),
    "groups": lambda: container(groups=[*(field(1, f"g{n}") for n in range(MANY)), *GROUPS]),
    "rules of other chains": lambda: container(rules=[*(rule(f"C{n}", path(("ops", 1))) for n in range(MANY)), *RULES]),
    "rules of other chains, twice": lambda: container(rules=[*[rule("XLM", path(("ops", 1)))] * MANY, *RULES]),
    "lines of other wallets": lambda: by_line(*[line("demo/9", path(("ops", 1)))] * MANY),
    "large groups in many paths": lambda: container(
        groups=[group("ops", *BOTH), group("crowd", *(f"u{n}" for n in range(MANY)), "alice", "bob")],
        rules=[rule("ETH", *[path(("crowd", 3))] * 2_000, path(("ops", 2)))],
    ),
    "a large group in many parts of a path": lambda: container(
        groups=[group("crowd", *(f"u{n}" for n in range(MANY)), "alice", "bob")],
        rules=[rule("ETH", path(*[("crowd", 2)] * 2_000))],
    ),
    "impossible paths": lambda: container(rules=[rule("ETH", *[path(("ops", 3))] * MANY, path(("ops", 2)))]),
    "paths of unknown minimum": lambda: container(
        rules=[rule("ETH", *(path(("ops", n)) for n in range(3, MANY)), path(("ops", 2)))]
    ),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_large_rules_are_read_in_bounded_time(make: Callable[[], bytes]) -> None:
    given_envelope = envelope(TEXT_A, *BOTH, rules=make())
    verifier = Verifier(PINS)
    with bounded(12.0):
        assert signers(verifier.verify(given_envelope)) == set(BOTH)
    # Once they are known, it is quick.
    with bounded(1):
        for _ in range(10):
            verifier.verify(given_envelope)


def test_many_wallets_and_many_lines() -> None:
    rules = by_line(*(line(f"demo/{n}", path(("ops", 2))) for n in range(MANY)))
    wallet = {"id": 7, "name": "hot", "path": f"demo/{MANY - 1}"}
    with bounded(12.0):
        accept(envelope(text_of(linkedWallets=[wallet]), *BOTH, rules=rules))
        accept(envelope(text_of(linkedWallets=[wallet] * 2_000), *BOTH, rules=rules))


def test_many_signatures_of_the_rules() -> None:
    rules = container()
    one = superadmin_entry("mallory", rules)
    for count in (1_000, 10_000):
        given_envelope = envelope(TEXT_A, *BOTH) | {"rulesSignatures": rules_signatures(rules, *[one] * count)}
        with bounded():
            refuse(given_envelope)
    different = [superadmin_entry("x", rules, signature=raw(n, n)) for n in range(1, 31)]
    with bounded():
        accept(envelope(TEXT_A, *BOTH, superadmins=(*different, "admin1", "admin2")))
        refuse(envelope(TEXT_A, *BOTH, superadmins=(*different, "admin1")))


def test_rules_alone_with_many_signatures() -> None:
    rules = container()
    for entries in ([{"userId": "x", "signature": b64(raw(5, 5))}] * 100_000, [None] * 100_000, "A" * 1_000_000):
        with bounded():
            refused(
                lambda entries=entries: Verifier(PINS).verify_rules(  # type: ignore[misc]
                    {"rulesContainer": b64(rules), "rulesSignatures": entries}
                )
            )


@pytest.mark.parametrize("key", ["rulesContainer", "rulesSignatures"])
@pytest.mark.parametrize("filling", ["A", "=", "$", "é", "\n", "AAAA\n"])
def test_long_base64(key: str, filling: str) -> None:
    given_envelope = envelope(TEXT_A, *BOTH) | {key: filling * 8_000_000}
    with bounded():
        refuse(given_envelope)


def test_refusals_are_remembered_or_quick() -> None:
    verifier = Verifier(PINS)
    rows = [envelope(TEXT_A, *BOTH, rules=container(extra=field(99, n)), superadmins=("admin1",)) for n in range(200)]
    with bounded():
        for row in rows:
            assert not survive(row, verifier)
    assert survive(envelope(TEXT_A, *BOTH), verifier)


def test_one_signature_of_many_texts() -> None:
    hashes = [hash_of(text_of(label=str(n))) for n in range(2_000)]
    shown = [signing(name, *hashes) for name in BOTH]
    verifier = Verifier(PINS)
    with bounded():
        for number in range(20):
            result = verifier.verify(envelope(text_of(label=str(number)), *shown))
            assert result.fields["label"] == str(number)
        refuse(envelope(text_of(label="none"), *shown))
