"""If the reader of rules accepts a message, Google's protobuf reads it in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.keys.envelopes import (
    ETH_PATHS,
    GROUPS,
    INTERNAL_WALLET,
    RULES,
    UNKNOWN,
    USERS,
    container,
    field,
    group,
    line,
    packed,
    path,
    pem,
    rule,
    superadmin_entry,
    tag,
    user,
    user_id,
    varint,
    wallet_cell,
)

from airflow_custody.client.verification.keys import PublicKey, read_public_keys
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rules_container import RulesContainer, read_container, read_signatures

descriptor_pb2, descriptor_pool, message, message_factory = (
    pytest.importorskip(f"google.protobuf.{name}")
    for name in ("descriptor_pb2", "descriptor_pool", "message", "message_factory")
)

_TYPES = {"string": 9, "bytes": 12, "uint32": 13, "uint64": 4, "message": 11, "enum": 14}

#: As published: number, name and type of each field; ``*`` if it is repeated.
PUBLISHED = {
    "UserSignatures": "1 signatures UserSignature*",
    "UserSignature": "1 userId string, 2 signature bytes, 3 comment string",
    "RulesContainer": "1 users User*, 2 groups Group*, 3 minimumDistinctUserSignatures uint32, "
    "4 minimumDistinctGroupSignatures uint32, 6 addressWhitelistingRules AddressWhitelistingRules*, "
    "8 enforcedRulesHash string, 10 timestamp uint64, 11 minimumCommitmentSignatures uint32, "
    "12 engineIdentities string*, 13 hsmSlotId uint32",
    "User": "1 id string, 2 publicKey string, 3 roles enum*",
    "Group": "1 id string, 2 userIds string*",
    "AddressWhitelistingRules": "1 currency string, 2 parallelThresholds SequentialThresholds*, 4 network string, "
    "5 lines Line*",
    "Line": "1 cells bytes*, 2 parallelThresholds SequentialThresholds*",
    "SequentialThresholds": "1 thresholds GroupThreshold*",
    "GroupThreshold": "1 groupId string, 2 minimumSignatures uint32",
    "RuleSource": "1 type enum, 2 payload bytes",
    "InternalWallet": "1 path string",
}


def build() -> dict[str, Any]:
    """Return the messages' classes by name."""
    file = descriptor_pb2.FileDescriptorProto(name="rules.proto", package="forge", syntax="proto3")
    numbers = file.enum_type.add(name="Number")
    numbers.value.add(name="ZERO", number=0)
    for message_name, fields in PUBLISHED.items():
        made = file.message_type.add(name=message_name)
        for each in fields.split(", "):
            number, name, kind = each.split()
            one = made.field.add(name=name, number=int(number), label=3 if kind.endswith("*") else 1)
            kind = kind.rstrip("*")
            one.type = _TYPES.get(kind, _TYPES["message"])
            if kind == "enum" or kind not in _TYPES:
                one.type_name = f".forge.{'Number' if kind == 'enum' else kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"forge.{name}")) for name in PUBLISHED}


CLASSES = build()


def parse(name: str, body: bytes) -> Any:
    """Return a message as protobuf reads it."""
    return CLASSES[name].FromString(body)


def paths_of(parallel: Iterable[Any]) -> list[list[tuple[str, int]]]:
    """Return paths as pairs, without the paths that cannot be completed."""
    found = [[(one.groupId, one.minimumSignatures) for one in each.thresholds] for each in parallel]
    return [each for each in found if each and all(minimum for _, minimum in each)]


def wallet_of(cells: Iterable[bytes]) -> str:
    """Return the path of the wallet that a line is for."""
    sources = [parse("RuleSource", cell) for cell in cells]
    if not sources or sources[0].type != INTERNAL_WALLET:
        return ""
    wallet_path: str = parse("InternalWallet", sources[0].payload).path
    return wallet_path


def name_of(name: str) -> str:
    """Return a rule's currency or network; empty: all."""
    return "" if name.lower() == "any" and name.isascii() else name


def key_of(text: str) -> PublicKey | None:
    """Return a user's key; None if it cannot be used."""
    try:
        (key,) = read_public_keys(text)
    except ValueError:
        return None
    return key if len(text) <= 1000 else None


def expected(body: bytes) -> dict[str, Any]:
    """Return what protobuf reads of rules."""
    read = parse("RulesContainer", body)
    return {
        "timestamp": read.timestamp,
        "users": {one.id: key_of(one.publicKey) for one in read.users},
        "groups": {one.id: set(one.userIds) for one in read.groups},
        "rules": [
            (
                *(name_of(one.currency), name_of(one.network), paths_of(one.parallelThresholds)),
                [(wallet_of(each.cells), paths_of(each.parallelThresholds)) for each in one.lines],
            )
            for one in read.addressWhitelistingRules
        ],
    }


def reported(read: RulesContainer) -> dict[str, Any]:
    """Return what our reader reads of rules, in the same form."""

    def pairs(paths: Iterable[Any]) -> list[list[tuple[str, int]]]:
        return [[(one.group_id, one.minimum) for one in each] for each in paths]

    return {
        "timestamp": read.timestamp,
        "users": dict(read.users),
        "groups": {key: set(ids) for key, ids in read.groups.items()},
        "rules": [
            (
                *(one.currency, one.network, pairs(one.paths)),
                [(each.wallet_path, pairs(each.paths)) for each in one.lines],
            )
            for one in read.rules
        ],
    }


def compare(body: bytes) -> bool:
    """Compare both readings of rules, and return whether ours accepts them."""
    try:
        ours = read_container(body)
    except RefusalError:
        return False
    assert reported(ours) == expected(body)
    return True


NEGATIVE = tag(1, 0) + varint(-1)
MANY_LINES = [
    line("demo/7", *ETH_PATHS),
    line("", path(), cells=[field(1, 3), wallet_cell("x"), NEGATIVE, field(1, 2**31 - 1)]),
    line("demo/8"),
]
RICH = container(
    users=[
        *USERS,
        user("dave", key=pem("dave").rstrip(), roles=field(3, 5) + field(3, packed([1, 300])), extra=UNKNOWN),
    ],
    groups=[*GROUPS, group("all", "alice", "bob", "carol", "alice", extra=UNKNOWN)],
    rules=[*RULES, rule("BTC", *ETH_PATHS, network="testnet", lines=MANY_LINES, extra=UNKNOWN), rule("ANY"), b""],
    extra=UNKNOWN + field(3, 1) + field(8, "é") + field(12, "e") * 2 + field(13, 2**32 - 1),
)

QUICK = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    "body",
    [
        *(container(), RICH, UNKNOWN + RICH, b"", container(timestamp=2**64 - 1), container(timestamp=None)),
        container(extra=tag(2**29 - 1, 0) + b"\0"),
    ],
    ids=["usual", "rich", "unknown fields first", "empty", "the last date", "no date", "the last number of a field"],
)
def test_rules_that_both_read(body: bytes) -> None:
    assert compare(body)
    classes = CLASSES["RulesContainer"]
    # Protobuf's own writer, too: unknown fields go last, and numbers are packed.
    assert compare(classes.FromString(body).SerializeToString())


def cell(kind: bytes, payload: bytes = field(1, "demo/7")) -> bytes:
    """Return rules with a cell of a type."""
    return container(rules=[rule("", lines=[line("", cells=[kind + field(2, payload)])])])


STRICT = {
    "a number twice": container(extra=field(10, 1)),
    **{f"field {number} twice": container(extra=field(number, 1) * 2) for number in (3, 4, 11, 13)},
    "a text twice": container(users=[field(1, "x") + user("alice")]),
    "a message that is a number": container(extra=field(1, 5)),
    "properties of rules that are a number": container(extra=field(9, 5)),
    "properties of a user that are a number": container(users=[user("alice", extra=field(4, 5))]),
    "properties of a group that are a number": container(groups=[group("ops", extra=field(3, 5))]),
    "properties of a rule that are a number": container(rules=[rule("", extra=field(3, 5))]),
    "a text with a surrogate": container(users=[field(1, "\ud800".encode("utf-8", "surrogatepass"))]),
    "a minimum of 33 bits": container(rules=[rule("", path(("ops", 2**32 + 1)))]),
    "a type of 33 bits": cell(field(1, 2**32 + INTERNAL_WALLET)),
    "an address of another type": cell(field(1, 2), field(1, 5)),
    "an address's path of another type": cell(field(1, 2), field(2, 5)),
    "an exchange's label of another type": cell(field(1, 4), field(1, 5)),
    "an external address of another type": cell(field(1, 5), field(1, 5)),
    "an external address's memo of another type": cell(field(1, 5), field(2, 5)),
    "beyond the end of a user": field(1, b"\x0a\x05"),
}


@pytest.mark.parametrize("body", STRICT.values(), ids=STRICT)
def test_rules_with_two_readings_are_refused(body: bytes) -> None:
    assert not compare(body)


PIECES = [
    *(b"", b"\0", b"\xff", b"\x80", UNKNOWN, field(1, ""), field(2, ""), field(5, ""), field(10, 1), field(2, 2)),
    *(USERS[0], field(1, USERS[0]), field(2, GROUPS[1]), field(6, RULES[0]), path(("ops", 1)), field(1, "Any")),
    *(field(1, wallet_cell("demo/9")), tag(3, 2), tag(1, 0), field(4, "testnet"), field(1, 2**32 + 1)),
]
EDITS = st.lists(
    st.tuples(st.integers(0, len(RICH)), st.integers(0, 30), st.sampled_from(PIECES) | st.binary(max_size=3)),
    max_size=4,
)


@QUICK
@given(st.sampled_from([container(), RICH]), EDITS)
@example(container(), [])
def test_mutated_rules(body: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    for start, length, new in edits:
        body = body[:start] + new + body[start + length :]
    compare(body)


TEXTS = st.sampled_from(["", "ETH", "any", "ANY", "ops", "demo/7", "é"]) | st.text(max_size=4)
# Rules in which all is as it should be, but for what the values are.
THRESHOLDS = st.lists(st.tuples(TEXTS, st.integers(0, 2**32 - 1)), max_size=3).map(lambda some: path(*some))
CELLS = st.builds(
    lambda kind, wallet: (field(1, kind) if kind else b"") + field(2, field(1, wallet) if kind in (1, 4) else b""),
    st.integers(0, 6) | st.just(2**64 - 1),
    TEXTS,
)
LINES = st.builds(
    lambda cells, paths: line("", *paths, cells=cells), st.lists(CELLS, max_size=3), st.lists(THRESHOLDS, max_size=2)
)
WELL_MADE = st.builds(
    lambda currency, paths, network, lines: rule(currency, *paths, network=network, lines=lines),
    *(TEXTS, st.lists(THRESHOLDS, max_size=3), TEXTS, st.lists(LINES, max_size=3)),
)


@QUICK
@given(
    st.lists(WELL_MADE, max_size=3),
    st.lists(
        st.builds(lambda key, ids: field(1, key) + b"".join(field(2, one) for one in ids), TEXTS, st.lists(TEXTS))
    ),
    st.integers(0, 2**64 - 1),
)
def test_well_made_rules_are_read(rules: list[bytes], groups: list[bytes], timestamp: int) -> None:
    ids = [parse("Group", one).id for one in groups]
    body = container(rules=rules, groups=groups, timestamp=timestamp)
    assert compare(body) == (len(set(ids)) == len(ids))


# Signatures of rules

SIGNATURES = b"".join(
    field(1, superadmin_entry(name, b"rules") + field(3, "yes")) for name in ("admin1", "admin2", "admin3")
)


def compare_signatures(body: bytes) -> bool:
    """Compare both readings of signatures, and return whether ours accepts them."""
    try:
        ours = read_signatures(body)
    except RefusalError:
        return False
    assert list(ours) == [one.signature for one in parse("UserSignatures", body).signatures]
    return True


@QUICK
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9), st.binary(max_size=4)), max_size=3))
def test_signatures(edits: list[tuple[int, int, bytes]]) -> None:
    for body in (b"", SIGNATURES, SIGNATURES + UNKNOWN, field(1, b""), field(1, field(1, user_id("admin1")))):
        assert compare_signatures(body)
        for start, length, new in edits:
            body = body[:start] + new + body[start + length :]
        compare_signatures(body)
