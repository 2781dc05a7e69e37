"""
Envelopes that verify, changed at random; bytes and sizes that no service sends.

Whatever is accepted reports what people really signed: these fields, these users, these thresholds. Everything else is
refused in one way, in bounded time, and never a crash.
"""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.keys.envelopes import (
    DEFAULT_RULE,
    PINNED,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    b64,
    compact,
    container,
    envelope,
    field,
    group,
    hash_of,
    line,
    message_of,
    path,
    pem,
    raw,
    rule,
    sign,
    superadmin_entry,
    text_of,
    twin,
    user_entry,
    user_id,
    wallet_cell,
    with_text,
)

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import VerificationPins, VerifiedAddress, Verifier

BOTH = ("alice", "bob")
TEXT_D = text_of(currency="BTC", address="bc1q", label="demo D")
TEXT_N = text_of(network="mainnet", label="demo N", contractType="ERC20")
BATCH = user_entry("alice", hash_of(TEXT_A), hash_of(TEXT_B))
ENVELOPES = (
    envelope(TEXT_A, BATCH, "bob"),
    envelope(TEXT_B, BATCH, id="3712"),
    envelope(TEXT_C, user_entry("carol", hash_of(TEXT_CS)), id="3713"),
    envelope(TEXT_D, "alice", "carol", blockchain="BTC", id="3714"),
    envelope(TEXT_N, *BOTH, id="3715"),
)
#: Nothing is accepted under the weak rules, which only one of two super-administrators has signed.
WEAK = container(rules=(rule("", path(("ops", 1))),))
WEAKER = envelope(TEXT_D, "alice", rules=WEAK, superadmins=("admin1",), blockchain="BTC")

PINS = VerificationPins(PINNED, 2)
LEGACY = VerificationPins([*PINNED, pem("admin3")], 2, allow_legacy_signatures=True)
MAINNET = VerificationPins(PINNED, 2, networks=["mainnet"])
REMEMBERING = {pins: Verifier(pins) for pins in (PINS, LEGACY, MAINNET)}
ALL_PINS = st.sampled_from([*REMEMBERING])

#: The true facts: the texts that people have signed, the members of the groups, and the sufficient paths.
SIGNED = {TEXT_A: {"alice", "bob"}, TEXT_B: {"alice"}, TEXT_CS: {"carol"}, TEXT_D: {"alice", "carol"}}
SIGNED[TEXT_N] = {"alice", "bob"}
TEXTS = {hash_of(text): text for text in SIGNED}
MEMBERS = {"ops": {"alice", "bob"}, "board": {"carol"}}
PATHS = {
    ("ETH", None): [[("ops", 2)], [("board", 1)]],
    ("ETH", "demo/7"): [[("ops", 1)]],
    ("", None): [[("ops", 1), ("board", 1)]],
}

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
QUICK = settings(max_examples=250, deadline=None, suppress_health_check=SLOW)


def names(user_ids: tuple[str, ...]) -> set[str]:
    return {each.partition("@")[0] for each in user_ids}


def judge(verifier: Verifier, given_envelope: Any) -> VerifiedAddress | None:
    """Return what is proved, or None. Everything but a refusal fails the test."""
    try:
        return verifier.verify(given_envelope)
    except CustodyVerificationError:
        return None


def check(given_envelope: Any, pins: VerificationPins) -> bool:
    """Check that an envelope is either refused or true, and return whether it is accepted."""
    before = copy.deepcopy(given_envelope)
    result = judge(Verifier(pins), given_envelope)
    # Earlier verifications make no difference, and verifying changes nothing.
    assert judge(REMEMBERING[pins], given_envelope) == result
    assert given_envelope == before
    if result is not None:
        text = TEXTS[result.hash]
        assert result.rules.sha256 == Verifier(pins).verify(ENVELOPES[0]).rules.sha256
        assert result.fields == json.loads(text)
        assert bool(result.omitted) <= result.legacy <= pins.allow_legacy_signatures
        currency = "ETH" if result.fields["currency"] == "ETH" else ""
        for applied in result.applied:
            found = [(each.group_id, each.minimum) for each in applied.path]
            assert applied.currency == currency
            assert applied.wallet_path == ("demo/7" if text == TEXT_B else None)
            assert found in PATHS[currency, applied.wallet_path]
            for each in applied.path:
                assert len(names(each.user_ids)) == len(each.user_ids) == each.minimum
                assert names(each.user_ids) <= MEMBERS[each.group_id] & SIGNED[text]
    try:
        pending = REMEMBERING[pins].verify_signatures(given_envelope)
    except CustodyVerificationError:
        return result is not None
    forms = {pending.hash, hash_of(TEXT_CS)} & TEXTS.keys()
    assert all(any(name in SIGNED[TEXTS[form]] for form in forms) for name in names(pending.user_ids))
    return result is not None


def test_they_are_accepted_as_they_are() -> None:
    for pins in REMEMBERING:
        accepted = [check(each, pins) for each in ENVELOPES]
        assert accepted == [True, True, pins.allow_legacy_signatures, True, True]
        assert not check(WEAKER, pins)


# The JSON


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in JSON data, except for the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*where, key)
        yield from places(item, (*where, key))


def at(value: Any, where: tuple[Any, ...]) -> Any:
    """Return the value at a place."""
    for key in where:
        value = value[key]
    return value


TWIN = user_entry("alice", hash_of(TEXT_A), signature=twin(sign("alice", message_of([hash_of(TEXT_A)]))))
POOL: list[Any] = [None, "", 0, -1, 2**64, 1.5, True, False, [], {}, [[]], [None], {"": None}, "x", "\ud800", "\0"]
POOL += ["BTC", "testnet", "Any", user_id("mallory"), hash_of(TEXT_A).upper(), "é" * 64, b64(bytes(64)), "A" * 88]
POOL += [at(one, where) for one in (*ENVELOPES, WEAKER, TWIN) for where in places(one)]
OPERATIONS = ["replace", "drop", "duplicate", "swap", "append", "rename", "nest"]
MUTATION = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 500), st.integers(0, 500))


def mutate(value: Any, operation: str, first: int, second: int) -> None:
    """Change one place of JSON data."""
    known = list(places(value))
    if not known:
        return
    *above, key = known[first % len(known)]
    parent, other = at(value, tuple(above)), POOL[second % len(POOL)]
    if operation == "replace":
        parent[key] = copy.deepcopy(other)
    elif operation == "drop":
        del parent[key]
    elif operation == "swap":
        *there, far = known[second % len(known)]
        theirs = at(value, tuple(there))
        parent[key], theirs[far] = copy.deepcopy(theirs[far]), copy.deepcopy(parent[key])
    elif operation == "nest":
        parent[key] = [parent[key]]
    elif isinstance(parent, list):
        parent.insert(second % (len(parent) + 1), copy.deepcopy(parent[key] if operation == "duplicate" else other))
    else:
        name = known[second % len(known)][-1] if operation == "duplicate" else str(other)[:80]
        parent[name] = copy.deepcopy(parent[key])


@settings(QUICK, max_examples=400)
@given(st.sampled_from(ENVELOPES), st.lists(MUTATION, min_size=1, max_size=4), ALL_PINS)
def test_mutations_of_the_json(one: dict[str, Any], mutations: list[Any], pins: VerificationPins) -> None:
    changed = copy.deepcopy(one)
    for mutation in mutations:
        mutate(changed, *mutation)
    check(changed, pins)


KEYS = ["metadata", "signedAddress", "rulesContainer", "rulesSignatures", "blockchain", "signatures", "hash"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(POOL),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=12,
)


@QUICK
@given(JSON, ALL_PINS)
def test_any_json_in_place_of_an_envelope(anything: Any, pins: VerificationPins) -> None:
    verifier = REMEMBERING[pins]
    for call in (verifier.verify, verifier.verify_signatures, verifier.verify_rules):
        try:
            partial(call, anything)()
        except CustodyVerificationError as refusal:
            json.dumps(str(refusal))


# The text

SNIPPETS = [',"label":"x"', ',"contractType":"x"', ',"contractType":"\\"', ',"address":"0xdead"', ',"Address":"x"']
SNIPPETS += [*'"\\,:{}[] \n\0xé\ud800', "\\\\", "\\u0022", '"network":"testnet",', "null", "1e9", "NaN"]
SNIPPETS += ['"linkedWallets":[{"id":7,"name":"hot","path":"demo/7"}],']
EDIT = st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(["", *SNIPPETS]) | st.text(max_size=3))


def edit(text: Any, edits: list[tuple[int, int, Any]]) -> Any:
    """Replace characters or bytes of a text."""
    for start, length, new in edits:
        start %= len(text) + 1
        text = text[:start] + new + text[start + length :]
    return text


@settings(QUICK, max_examples=400)
@given(st.sampled_from(ENVELOPES), st.lists(EDIT, min_size=1, max_size=4), st.booleans(), ALL_PINS)
def test_mutations_of_the_text(one: dict[str, Any], edits: list[Any], rehash: bool, pins: VerificationPins) -> None:
    text = edit(one["metadata"]["payloadAsString"], edits)
    changed = with_text(one, text)
    if not rehash:
        changed["metadata"]["hash"] = one["metadata"]["hash"]
    check(changed, pins)


@QUICK
@given(st.dictionaries(st.sampled_from([*json.loads(TEXT_B), "network"]), JSON, min_size=1, max_size=3), JSON)
def test_texts_of_any_form_that_users_signed(values: dict[str, Any], more: Any) -> None:
    for text in (json.loads(TEXT_A) | values, json.loads(TEXT_A) | {"more": more}, more):
        given_envelope = envelope(compact(text), *BOTH, "carol")
        result = judge(REMEMBERING[PINS], given_envelope)
        assert result is None or result.fields == json.loads(given_envelope["metadata"]["payloadAsString"])


# The bytes

BYTE_EDITS = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 6), st.binary(max_size=6)), min_size=1, max_size=3)


@QUICK
@given(st.sampled_from(ENVELOPES), st.sampled_from(["rulesContainer", "rulesSignatures", "signature"]), BYTE_EDITS)
def test_mutations_of_the_bytes(one: dict[str, Any], key: str, edits: list[Any]) -> None:
    changed = copy.deepcopy(one)
    shown = changed["signedAddress"]["signatures"][0]["signature"] if key == "signature" else changed
    body = base64.b64decode(shown[key])
    shown[key] = b64(edit(body, edits))
    assert check(changed, LEGACY) == (edit(body, edits) == body) or key == "rulesSignatures"


# Sizes. The rules are really signed here: what is not signed must not even be read.

MANY = 10_000


@contextmanager
def bounded(seconds: float = 6.0) -> Iterator[None]:
    """Fail if what is inside takes more processor time of this thread than that: generous, as others are at work."""
    start = time.thread_time()
    yield
    assert time.thread_time() - start < seconds


def refuse(given_envelope: Any, verify: Callable[[Any], object] | None = None) -> None:
    with bounded(), pytest.raises(CustodyVerificationError) as caught:
        (verify or Verifier(PINS).verify)(given_envelope)
    assert len(str(caught.value)) < 500


def by_line(*lines: bytes) -> bytes:
    """Return the rules of the worked example, with more lines for ETH."""
    return container(rules=[rule("ETH", path(("ops", 2)), lines=lines), DEFAULT_RULE])


def sized(body: bytes, size: int) -> bytes:
    """Return a message with as much behind it as makes it this large."""
    return body + field(99, bytes(size - len(body) - len(field(99, bytes(size))) + size))


BOMBS: dict[str, Callable[[], bytes]] = {
    "too large": lambda: sized(container(), 4 * 1024 * 1024 + 3),
    "endless varints": lambda: b"\xff" * 1_000_000,
    "many cells, the last broken": lambda: by_line(line("", cells=[*[wallet_cell("a")] * MANY, b"\xff"])),
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_rules_that_are_refused_in_bounded_time(make: Callable[[], bytes]) -> None:
    bad = envelope(TEXT_A, *BOTH, rules=make())
    refuse(bad)
    refuse(bad | {"rulesSignatures": ""})


LARGE: dict[str, Callable[[], bytes]] = {
    "as large as is read": lambda: sized(container(), 4 * 1024 * 1024),
    "a large group in many parts of a path": lambda: container(
        groups=[group("crowd", *(f"u{n}" for n in range(MANY)), "alice", "bob")],
        rules=[rule("ETH", path(*[("crowd", 2)] * 2_000))],
    ),
    "impossible paths": lambda: container(rules=[rule("ETH", *[path(("ops", 3))] * MANY, path(("ops", 2)))]),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_large_rules_are_read_in_bounded_time(make: Callable[[], bytes]) -> None:
    given_envelope = envelope(TEXT_A, *BOTH, rules=make())
    verifier = Verifier(PINS)
    with bounded(12.0):
        assert names(verifier.verify(given_envelope).user_ids) == set(BOTH)
    # The second verification is quick, because the rules are known.
    with bounded():
        for _ in range(10):
            verifier.verify(given_envelope)


def test_many_signatures_of_the_rules() -> None:
    rules = container()
    refuse(ENVELOPES[0] | {"rulesSignatures": b64(field(1, superadmin_entry("mallory", rules)) * MANY)})
    signatures = base64.b64decode(ENVELOPES[0]["rulesSignatures"])
    assert Verifier(PINS).verify(ENVELOPES[0] | {"rulesSignatures": b64(sized(signatures, 64 * 1024))})
    refuse(ENVELOPES[0] | {"rulesSignatures": b64(sized(signatures, 64 * 1024 + 3))})
    different = [superadmin_entry("x", rules, signature=raw(n, n)) for n in range(1, 31)]
    refuse(envelope(TEXT_A, *BOTH, superadmins=(*different, "admin1")))
    for entries in ([{"userId": "x", "signature": b64(raw(5, 5))}] * 100_000, "A" * 1_000_000):
        refuse({"rulesContainer": b64(rules), "rulesSignatures": entries}, Verifier(PINS).verify_rules)


@pytest.mark.parametrize("key", ["rulesContainer", "rulesSignatures"])
def test_long_base64(key: str) -> None:
    refuse(ENVELOPES[0] | {key: "é" * 8_000_000})


def test_many_signatures_of_users() -> None:
    alice = user_entry("alice", hash_of(TEXT_A))
    bad = [user_entry("alice", hash_of(TEXT_A), signature=bytes([1, number]) * 32) for number in range(199)]
    for entries in (bad, bad * 100, [None] * 100_000, [{**alice, "hashes": [hash_of(TEXT_A)] * 20_000}] * 10):
        given_envelope = envelope(TEXT_A)
        given_envelope["signedAddress"]["signatures"] = entries
        refuse(given_envelope)


@pytest.mark.parametrize("filling", [',"contractType":"', ',"label":"x"', "\\", "["])
def test_long_texts(filling: str) -> None:
    text = TEXT_CS[:-1] + filling * (100_000 // len(filling)) + "}"
    refuse(with_text(ENVELOPES[2], text), Verifier(LEGACY).verify)
