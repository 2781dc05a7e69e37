"""
Mutations of envelopes that verify.

Whatever is accepted reports what people really signed: these fields, these users, these thresholds. What is refused
is refused in one way.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from whitelist_forge import (
    CONTAINER_SHA256,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    b64,
    compact,
    container,
    envelope,
    hash_of,
    path,
    pem,
    retext,
    rule,
    sign,
    signing,
    text_of,
    twin,
    user_id,
)
from whitelist_verdicts import LEGACY, MAINNET, PINS, Facts, Ledger

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import VerificationPins, VerifiedAddress, Verifier

TEXT_D = text_of(currency="BTC", address="bc1q", label="demo D")
TEXT_N = text_of(network="mainnet", label="demo N", contractType="ERC20")
WEAK = container(rules=(rule("", path(("ops", 1))),))

WORKED_EXAMPLE = Facts(
    superadmins=frozenset({"admin1", "admin2"}),
    groups={"ops": frozenset({"alice", "bob"}), "board": frozenset({"carol"})},
    paths={
        ("ETH", "", None): ((("ops", 2),), (("board", 1),)),
        ("ETH", "", "demo/7"): ((("ops", 1),),),
        ("", "", None): ((("ops", 1), ("board", 1)),),
    },
)
#: Nothing is accepted under the weak rules, which one of two has signed: they are not in it.
LEDGER = Ledger(rules={CONTAINER_SHA256: WORKED_EXAMPLE})
LEDGER.sign(TEXT_A, "alice", "bob")
LEDGER.sign(TEXT_B, "alice")
LEDGER.sign(TEXT_CS, "carol")
LEDGER.sign(TEXT_D, "alice", "carol")
LEDGER.sign(TEXT_N, "alice", "bob")

BATCH = signing("alice", hash_of(TEXT_A), hash_of(TEXT_B))
ENVELOPES = (
    envelope(TEXT_A, BATCH, "bob"),
    envelope(TEXT_B, BATCH, id="3712"),
    envelope(TEXT_C, signing("carol", hash_of(TEXT_CS)), id="3713"),
    envelope(TEXT_D, "alice", "carol", blockchain="BTC", id="3714"),
    envelope(TEXT_N, "alice", "bob", id="3715"),
)
WEAKER = envelope(TEXT_D, "alice", rules=WEAK, superadmins=("admin1",), blockchain="BTC")
NETWORKLESS_PINS = VerificationPins((pem("admin1"), pem("admin2"), pem("admin3")), 2, allow_legacy_signatures=True)
ALL_PINS = (PINS, LEGACY, MAINNET, NETWORKLESS_PINS)
REMEMBERING = {pins: Verifier(pins) for pins in ALL_PINS}

QUICK = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
MANY = settings(QUICK, max_examples=400)


def judge(verifier: Verifier, given_envelope: Any) -> VerifiedAddress | None:
    """Return what is proved, or None. Everything but a refusal fails the test."""
    try:
        return verifier.verify(given_envelope)
    except CustodyVerificationError:
        return None


def check(given_envelope: Any, pins: VerificationPins) -> bool:
    """Check what becomes of an envelope, and return whether it is accepted."""
    before = copy.deepcopy(given_envelope)
    result = judge(Verifier(pins), given_envelope)
    # What was verified before makes no difference, and nothing is changed.
    assert judge(REMEMBERING[pins], given_envelope) == result
    assert given_envelope == before
    if result is not None:
        LEDGER.check(result, pins)
    try:
        pending = REMEMBERING[pins].verify_signatures(given_envelope)
    except CustodyVerificationError:
        return result is not None
    names = {user.partition("@")[0] for user in pending.user_ids}
    assert all(LEDGER.signed[name] & {pending.hash, hash_of(TEXT_CS)} for name in names)
    return result is not None


def test_they_are_accepted_as_they_are() -> None:
    for pins in ALL_PINS:
        accepted = [check(one, pins) for one in ENVELOPES]
        assert accepted == [True, True, pins.allow_legacy_signatures, True, True]
        assert not check(WEAKER, pins)


# Of the JSON


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value is in JSON data, but for the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*where, key)
        yield from places(item, (*where, key))


def at(value: Any, where: tuple[Any, ...]) -> Any:
    """Return the value that is somewhere."""
    for key in where:
        value = value[key]
    return value


WORDS: list[Any] = [None, "", 0, -1, 2**64, 1.5, True, False, [], {}, [[]], [None], {"": None}, "x", "\ud800", "\0"]
WORDS += ["ETH", "BTC", "mainnet", "testnet", "Any", *(user_id(name) for name in ("alice", "bob", "carol", "mallory"))]
WORDS += [hash_of(text) for text in (TEXT_A, TEXT_B, TEXT_C, TEXT_CS)] + [hash_of(TEXT_A).upper(), "é" * 64]
WORDS += [b64(twin(sign("alice", compact([hash_of(TEXT_A)]).encode()))), b64(b"\0" * 64), "A" * 88]
POOL = WORDS + [at(one, where) for one in (*ENVELOPES, WEAKER) for where in places(one)]

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


@MANY
@given(st.sampled_from(ENVELOPES), st.lists(MUTATION, min_size=1, max_size=4), st.sampled_from(ALL_PINS))
def test_mutations_of_the_json(one: dict[str, Any], mutations: list[Any], pins: VerificationPins) -> None:
    changed = copy.deepcopy(one)
    for mutation in mutations:
        mutate(changed, *mutation)
    check(changed, pins)


PARTS = ("metadata", "signedAddress", "rulesContainer", "rulesSignatures", "blockchain", "network")


@QUICK
@given(st.tuples(*(st.sampled_from((*ENVELOPES, WEAKER)) for _ in PARTS)), st.sampled_from(ALL_PINS))
def test_envelopes_made_of_parts_of_others(sources: tuple[dict[str, Any], ...], pins: VerificationPins) -> None:
    made = {part: copy.deepcopy(source[part]) for part, source in zip(PARTS, sources, strict=True)}
    check(made, pins)


ENTRIES = [
    *(entry for one in (*ENVELOPES, WEAKER) for entry in one["signedAddress"]["signatures"]),
    *(
        signing(name, hash_of(text), label=user_id(label))
        for name, label, text in (("alice", "bob", TEXT_A), ("mallory", "bob", TEXT_B), ("alice", "carol", TEXT_D))
    ),
    signing("alice", hash_of(TEXT_A), signature=twin(sign("alice", compact([hash_of(TEXT_A)]).encode()))),
]


@QUICK
@given(st.sampled_from(ENVELOPES), st.lists(st.sampled_from(ENTRIES), max_size=6), st.sampled_from(ALL_PINS))
def test_signatures_of_others(one: dict[str, Any], entries: list[Any], pins: VerificationPins) -> None:
    check(one | {"signedAddress": {"signatures": copy.deepcopy(entries)}}, pins)


# Of the text

SNIPPETS = [
    *(',"label":"x"', ',"contractType":"x"', ',"contractType":"\\"', ',"address":"0xdead"', ',"memo":"1"'),
    *(
        ',"Address":"x"',
        '"',
        "\\",
        "\\\\",
        "\\u0022",
        ",",
        ":",
        "{",
        "}",
        "[",
        "]",
        " ",
        "\n",
        "\0",
        "x",
        "é",
        "\ud800",
    ),
    *('"linkedWallets":[{"id":7,"name":"hot","path":"demo/7"}],', '"network":"testnet",', "null", "1e9", "NaN"),
]
EDIT = st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(["", *SNIPPETS]) | st.text(max_size=3))


def edit(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Cut characters out of a text and put others in."""
    for start, length, new in edits:
        start %= len(text) + 1
        text = text[:start] + new + text[start + length :]
    return text


@MANY
@given(st.sampled_from(ENVELOPES), st.lists(EDIT, min_size=1, max_size=4), st.booleans(), st.sampled_from(ALL_PINS))
def test_mutations_of_the_text(one: dict[str, Any], edits: list[Any], rehash: bool, pins: VerificationPins) -> None:
    text = edit(one["metadata"]["payloadAsString"], edits)
    changed = retext(one, text)
    if not rehash:
        changed["metadata"]["hash"] = one["metadata"]["hash"]
    check(changed, pins)


INJECTIONS = [
    *(',"contractType":"\\"', ',"contractType":"', ',"contractType":""', ',"contractType":"ERC20"', ',"label":"x"'),
]
INJECTION = st.tuples(st.integers(0, 300), st.sampled_from(INJECTIONS))


@MANY
@given(
    st.sampled_from([TEXT_CS, TEXT_C]),
    st.lists(INJECTION, max_size=6),
)
@example(TEXT_CS, [])
def test_injections_that_a_legacy_form_takes_out_again(text: str, injections: list[tuple[int, str]]) -> None:
    text = edit(text, [(start, 0, new) for start, new in injections])
    check(retext(ENVELOPES[2], text), LEGACY)


# Of the bytes

BYTE_EDIT = st.tuples(st.integers(0, 900), st.integers(0, 4), st.binary(max_size=4))


def edit_bytes(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Cut bytes out and put others in."""
    for start, length, new in edits:
        start %= len(body) + 1
        body = body[:start] + new + body[start + length :]
    return body


@QUICK
@given(
    st.sampled_from(ENVELOPES),
    st.sampled_from(["rulesContainer", "rulesSignatures"]),
    st.lists(BYTE_EDIT, min_size=1, max_size=3),
)
def test_mutations_of_the_rules(one: dict[str, Any], key: str, edits: list[Any]) -> None:
    body = base64.b64decode(one[key])
    changed = edit_bytes(body, edits)
    accepted = check(one | {key: b64(changed)}, NETWORKLESS_PINS)
    assert key == "rulesSignatures" or accepted == (changed == body)


@QUICK
@given(st.sampled_from(ENVELOPES), st.integers(0, 1), st.lists(BYTE_EDIT, min_size=1, max_size=3))
def test_mutations_of_a_users_signature(one: dict[str, Any], number: int, edits: list[Any]) -> None:
    changed = copy.deepcopy(one)
    entries = changed["signedAddress"]["signatures"]
    shown = entries[number % len(entries)]["signature"]
    body = base64.b64decode(shown["signature"])
    shown["signature"] = b64(edit_bytes(body, edits))
    assert check(changed, NETWORKLESS_PINS) == (edit_bytes(body, edits) == body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(POOL),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*PARTS, "signatures", "hash"]), inner),
    max_leaves=12,
)


@QUICK
@given(JSON, st.sampled_from(ALL_PINS))
def test_any_json_in_place_of_an_envelope(anything: Any, pins: VerificationPins) -> None:
    verifier = REMEMBERING[pins]
    for call in (verifier.verify, verifier.verify_signatures, verifier.verify_rules):
        try:
            partial(call, anything)()
        except CustodyVerificationError as refusal:
            json.dumps(str(refusal))
