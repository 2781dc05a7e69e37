"""
Write the verification cases: ``PYTHONPATH=tests .venv/bin/python -m verification_cases.make``.

A case is an envelope, the pins of whoever verifies it, and the verdict; docs/verification-cases.md describes the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from support.keys import attacks
from support.keys.envelopes import (
    ANY,
    DEFAULT_RULE,
    ETH_PATHS,
    GROUPS,
    INTERNAL_ADDRESS,
    INTERNAL_WALLET,
    LINKED_ADDRESS,
    ORDER,
    PINNED,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    TEXT_X,
    TIMESTAMP,
    UNKNOWN,
    USERS,
    WALLET,
    b64,
    compact,
    container,
    der,
    envelope,
    field,
    group,
    hash_of,
    line,
    message_of,
    packed,
    path,
    pem,
    private_key,
    rule,
    rules_signatures,
    sign,
    superadmin_entry,
    tag,
    text_of,
    twin,
    user,
    user_entry,
    user_id,
    varint,
    wallet_cell,
    with_text,
)

FOLDER = Path(__file__).parent
Envelope = dict[str, Any]


class Pinned(NamedTuple):
    """An envelope with pins of its own."""

    envelope: Envelope
    pins: dict[str, Any]
    #: The legacy form that was signed.
    signed: str = ""


#: The variants of a case, by what is special about each.
Variants = Mapping[str, Envelope | Pinned]


def pinned(envelope: Envelope, **pins: Any) -> Pinned:
    """Return an envelope with pins."""
    return Pinned(envelope, pins)


def legacy(received: str, signed: str, *signings: Any) -> Pinned:
    """Return a text beside signatures over a legacy form of it, with pins that allow it. Default: those of all."""
    all_users = (user_entry(name, hash_of(signed)) for name in ("alice", "bob", "carol"))
    return Pinned(envelope(received, *(signings or all_users)), {"allow_legacy_signatures": True}, signed)


def legacy_under(rules: bytes, *signings: Any) -> Pinned:
    """Return text C beside signatures over it or its legacy form, under these rules."""
    return Pinned(envelope(TEXT_C, *signings, rules=rules), {"allow_legacy_signatures": True}, TEXT_CS)


def linked(*links: Any, **changes: Any) -> str:
    """Return a text with linked addresses."""
    return text_of(linkedInternalAddresses=list(links), **changes)


def by_all(text: str, **changes: Any) -> Envelope:
    """Return a text that all users have signed."""
    return envelope(text, "alice", "bob", "carol", **changes)


def signed_a(*superadmins: str | bytes, rules: bytes | None = None) -> Envelope:
    """Return address A, signed by alice and bob."""
    return envelope(TEXT_A, "alice", "bob", rules=rules, superadmins=superadmins or ("admin1", "admin2"))


def under(*rules: bytes, text: str = "", names: str = "alice bob", groups: Any = (), **changes: Any) -> Envelope:
    """Return a text that users have signed, under these rules for addresses."""
    made = container(rules=rules, groups=groups or GROUPS)
    return envelope(text or TEXT_A, *names.split(), rules=made, **changes)


def by_line(*lines: bytes, names: str = "alice", text: str = "") -> Envelope:
    """Return address B, or another text, under rules with these lines for ETH."""
    return under(rule("ETH", *ETH_PATHS, lines=lines), text=text or TEXT_B, names=names)


def cells(*made: bytes) -> Envelope:
    """Return address B under rules with a line of these cells, for which one of ops is enough."""
    return by_line(line("", ONE_OF_OPS, cells=made))


def with_alice(*entries: Any, rules: bytes | None = None) -> Envelope:
    """Return address A with alice's signature and others."""
    return envelope(TEXT_A, "alice", *entries, rules=rules)


def beside_bob(signature: bytes | str, rules: bytes | None = None) -> Envelope:
    """Return address A with bob's signature, and this one as alice's; a text is in base64 already."""
    text = b64(signature) if isinstance(signature, bytes) else signature
    entry = {"signature": {"userId": user_id("alice"), "signature": text}, "hashes": [A]}
    return envelope(TEXT_A, entry, "bob", rules=rules)


GOOD = signed_a()
A, B, C, CS = map(hash_of, (TEXT_A, TEXT_B, TEXT_C, TEXT_CS))
OPS, BOARD, ONE_OF_OPS = path(("ops", 2)), path(("board", 1)), path(("ops", 1))
LINK = {"id": "12", "address": LINKED_ADDRESS}
LEGACY = {"allow_legacy_signatures": True}


def metadata(**changes: Any) -> Envelope:
    """Return address A with other metadata."""
    return GOOD | {"metadata": GOOD["metadata"] | changes}


# The worked example, in its own bytes: its signatures were made with random numbers, so they cannot be made again.


def recorded(name: str, signature: str, *hashes: str) -> Envelope:
    """Return a signature of the worked example, which is in base64."""
    return {
        "signature": {"userId": user_id(name), "signature": signature, "comment": "ok"},
        "hashes": [*hashes],
    }


def worked(text: str, *entries: Envelope, **changes: Any) -> Envelope:
    """Return an envelope of the worked example."""
    return {
        "id": "7",
        "blockchain": "ETH",
        "network": "mainnet",
        "metadata": {"hash": hash_of(text), "payloadAsString": text, "payload": {}},
        "signedAddress": {"payload": "", "signatures": [*entries]},
        "rulesContainer": b64(DEMO),
        "rulesSignatures": RECORDED_RULES_SIGNATURES,
        **changes,
    }


DEMO = container()
RECORDED_RULES_SIGNATURES = (
    "ClcKE2FkbWluMUBleGFtcGxlLnRlc3QSQODvftwewvjeOUYzV9cTnYIaANzqTqlSSxQvz98BbZ9VEk5b4JfXdJ8244b6Uf33PCLH"
    "wNXP4DwP9yHt6+TXqKQKVwoTYWRtaW4yQGV4YW1wbGUudGVzdBJAxUUcQFxsNiUjRoo/hCGWywu3LYvddmtvuzY5FP5m4SF2IrAP"
    "nTkxUZxi2Iopz8oevELUaPEuwZii8DRuYs+Lfg=="
)
ALICE_AB = "W9alMYcSQ7MtBM5O7WKVn+/NjXu72mxDmhSO2E9t+U2mKCZXZRoz1YwlEyN0pbIxLTybpcVhHbBD7AQYodI8yQ=="
BOB_A = "0jRrFuW0F2qOxBJ/ioVwNeGXvWkVH6Qw3GlOs2hzL9Qc/py1MzLr6y6Fs/K3aan9F3Lht9FqmOqLrnaH/J9hHQ=="
CAROL_CS = "hI+exrBjTkLjM4wTzCnB/vnS7vtAqsS7DDiTthuQjU3jrtv1aXXMqbxhDLCni9fzqtnWms/zLja3MvCwIo4XbQ=="
RECORDED_ALICE = recorded("alice", ALICE_AB, A, B)
RECORDED_BOB = recorded("bob", BOB_A, A)
RECORDED_CAROL = recorded("carol", CAROL_CS, CS)
WORKED_A = worked(TEXT_A, RECORDED_ALICE, RECORDED_BOB)
WITH_LABEL = ',"label":"x"}'
INVENTED = TEXT_CS[:-1] + ',"contractType":"ERC20"}'


# What a malicious service does


def attacked(names: Iterable[str], network: str = "") -> dict[str, Envelope]:
    """Return what attacks make of an envelope."""
    keys = {user_id(name): private_key(name) for name in ("alice", "bob")}
    keys |= {f"superadmin-{number}": private_key(f"admin{number}") for number in (1, 2)}
    means = attacks.Means(keys, [envelope(TEXT_B, "alice", id="3712")], TIMESTAMP)
    lawful, made = envelope(text_of(network=network, memo="42"), "alice", "bob"), {}
    for name in names:
        with suppress(attacks.Unsuitable):
            made[name] = attacks.change(name, lawful, means)
    return made


ATTACKED = attacked(attacks.STEP_OF) | attacked(attacks.STEP_OF, network="mainnet")
NOT_VISIBLE = attacked(attacks.NOT_VISIBLE)

# What the rest is made of

ALICE = user_entry("alice", A)
BY_ALICE = sign("alice", message_of([A]))
R, S = BY_ALICE[:32], BY_ALICE[32:]
SIGNED = b64(BY_ALICE)
ADMIN = sign("admin1", DEMO)
#: Another signature of admin1 over the same bytes, with another nonce.
AGAIN = bytes.fromhex(
    "5b5941f0584b05fb33d720e8ed8bb6cd659dc3b6f189b6036b8ed40f652497f2"
    "9dc46c77dfa4dbf17390bfd3f6a246e8b090263b8c7ca20977417e5d5f54c7c6"
)
MEMO, WITH_WALLET, OLD_A = text_of(memo="x"), text_of(linkedWallets=[WALLET]), text_of(without=["contractType"])
OLD_WALLET = text_of(linkedWallets=[WALLET], without=["contractType"])
XLM = text_of(currency="XLM")
NO_PATH = text_of(linkedWallets=[{"id": 7, "name": "no path"}])
WALLET_8 = {"id": 8, "name": "cold", "path": "demo/8"}
OTHER_KEYS = dict.fromkeys(("tnParticipantID", "contractType", "customerId"), "x")
OTHER_KEYS |= {"network": "mainnet", "exchangeAccountId": "7"}
DEEP = "[" * 15 + "]" * 15
MANY_LINK = LINK | {f"k{number}": "" for number in range(189)}
LINKED = linked(LINK)
LINKS = [LINK, {"id": "13", "address": "0xB"}]
FURTHER_IN = [linked(LINK | {"more": more}) for more in ({"id": 1, "label": "x"}, {"id": 1})]
LABELLED = [link | {"label": "x"} for link in LINKS]
LABELLED_TEXT, LABELLED_OLD = linked(*LABELLED), linked(*LABELLED, without=["contractType"])
LINKS_ONLY, LINKS_OLD = linked(*LINKS), linked(*LINKS, without=["contractType"])
THREE = {"superadmin_keys": [*PINNED, pem("admin3")]}
BASE64, SIGNATURES = GOOD["rulesContainer"], GOOD["rulesSignatures"]
SAFE = signed_a(rules=container(extra=field(98, b"\xff\xef\xbe" * 3)))
assert BASE64.endswith("g==")
DATED = {timestamp: signed_a(rules=container(timestamp=timestamp)) for timestamp in (None, 2**63)}
MAINNET, TESTNET = rule("ETH", OPS, network="mainnet"), rule("ETH", ONE_OF_OPS, network="testnet")
ANY_ON_MAINNET = rule("", OPS, network="mainnet")
ON_MAINNET, ON_TESTNET = text_of(network="mainnet"), text_of(network="testnet")
FEW = under(MAINNET, TESTNET, names="alice", network="testnet")
PARTS = rule("ETH", path(("ops", 2), ("board", 1)), path(("dave", 1), ("ops", 1)))
WITH_DAVE = (*GROUPS, group("dave", "dave"))
ODD_GROUPS = (*GROUPS, group("empty"), group("ghosts", "nobody"))
ODD_RULES = container(
    users=[user(name, extra=UNKNOWN) for name in ("alice", "bob")],
    groups=[group("ops", "alice", "bob", "alice", extra=UNKNOWN)],
    rules=[rule("ETH", OPS, extra=UNKNOWN)],
    extra=UNKNOWN,
)
UNPACKED = field(3, 0) + field(3, packed([11, 300]))
STRONG, WEAK = line("demo/7", path(("ops", 2), ("board", 1))), line("demo/7", ONE_OF_OPS)
ANN = (*USERS, user("ann", key=pem("alice").rstrip()))
ANN_IN_OPS = container(users=ANN, groups=(group("ops", "alice", "ann", "bob"), GROUPS[1]))
SHARED = container(
    users=ANN,
    groups=(group("ops", "alice"), group("board", "ann", "carol")),
    rules=(rule("ETH", path(("ops", 1), ("board", 2))),),
)
FORGED_C = user_entry("carol", C, signature=bytes(64))
AS_ANN = user_entry("alice", A, label=user_id("ann"))
AS_ANN_CS = user_entry("alice", CS, label=user_id("ann"))
WITH_STRANGERS = container(users=(*USERS, user("dave")), groups=(group("ops", "alice", "bob", "ghost"), GROUPS[1]))
NUMBERED = container(
    users=[field(1, "1") + field(2, pem("alice"))],
    groups=[field(1, "ops") + field(2, "1")],
    rules=[rule("ETH", ONE_OF_OPS)],
)
MANY = [user_entry(name, A, B, C) for name in ("alice", "bob")]
JUNK: list[Any] = [
    *(None, 5, "", [], {}),
    *({"signature": None, "hashes": [A]}, {"signature": {}, "hashes": [A]}),
    {"signature": {"userId": None, "signature": SIGNED}, "hashes": [A]},
    {"signature": {"userId": user_id("alice"), "signature": None}, "hashes": [A]},
    {"signature": {"userId": user_id("alice"), "signature": "\u00e9" * 88}, "hashes": [A]},
    {"signature": {"userId": user_id("alice")}, "hashes": [A]},
    user_entry("mallory", A, label=user_id("alice")),
    *({**ALICE, "hashes": hashes} for hashes in (None, A, 5, {A: A}, [A, None], [A, 5], [[A]], [A, "\u00e9" * 64])),
]
K1 = private_key("alice", ec.SECP256K1)
POINT = der("alice")[-65:]
COMPRESSED = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
COMPRESSED += bytes([2 + POINT[-1] % 2]) + POINT[1:33]
BAD_KEYS = {
    "compressed": pem(COMPRESSED),
    "hybrid": pem(der("alice")[:26] + bytes([6 + POINT[-1] % 2]) + POINT[1:]),
    "with a byte more": pem(der("alice") + b"\0"),
    "twice": pem("alice") * 2,
    "of 1001 characters": pem("alice") + "#" * 823,
    "empty": "",
}


def with_key(key: str) -> bytes:
    """Return rules in which alice has another key."""
    return container(users=[user("alice", key=key), *USERS[1:]])


REFUSED: dict[attacks.Step, dict[str, Variants]] = {
    "text": {
        "Worked example": {
            "8 C with a label appended": pinned(worked(TEXT_C[:-1] + WITH_LABEL, RECORDED_CAROL), **LEGACY),
            "13 A with a label appended": worked(TEXT_A[:-1] + WITH_LABEL, RECORDED_ALICE, RECORDED_BOB),
            "14 a memo made to vanish": pinned(worked(TEXT_X, RECORDED_CAROL), **LEGACY),
        },
        "No hash of the text": {
            "in capitals": metadata(hash=A.upper()),
            "a number": metadata(hash=5),
            "an object for the text": metadata(payloadAsString=json.loads(TEXT_A)),
            "no metadata": GOOD | {"metadata": None},
            "a legacy form's": pinned(metadata(hash=hash_of(OLD_A)), **LEGACY),
        },
        "A key twice, though signed": {
            "escaped": by_all(TEXT_A.replace("}", ',"\\u0061ddress":"0xdead"}')),
            "with a letter that folds to s": by_all(TEXT_A.replace("}", ',"addre\u017f\u017f":"0xdead"}')),
            "an unknown key": by_all(TEXT_A.replace("}", ',"more":1,"more":1}')),
            "an unknown key in another case": by_all(TEXT_A.replace("}", ',"more":1,"More":1}')),
            "in a link in another case": by_all(WITH_WALLET.replace('"name"', '"Path":"demo/8","name"')),
            "a known key in another case alone": by_all(TEXT_A.replace("}", ',"Network":"testnet"}')),
        },
        "JSON of two meanings, though signed": {
            "half of a surrogate pair": by_all(MEMO.replace('"x"', '"\\ud800"')),
            "not a number": by_all(MEMO.replace('"x"', "NaN")),
            "a number with a fraction": by_all(WITH_WALLET.replace(":7,", ":7.0,")),
            "a number of 5000 digits": by_all(WITH_WALLET.replace(":7,", f":{'7' * 5000},")),
            "two texts": by_all(TEXT_A + TEXT_A),
            "a list": by_all(f"[{TEXT_A}]"),
            "seventeen levels": by_all(TEXT_A.replace("}", f',"more":[{DEEP}]}}')),
            "very deep": by_all(TEXT_A.replace("[]", "[" * 3000 + "]" * 3000)),
            "201 keys": by_all(linked(MANY_LINK | {"more": ""})),
        },
        "No address, though signed": {
            "without a memo": by_all(text_of(without=["memo"])),
            "without links": by_all(text_of(without=["linkedInternalAddresses"])),
            "an empty currency": by_all(text_of(currency=""), blockchain=""),
            "an empty address": by_all(text_of(address="")),
            "a number for the memo": by_all(text_of(memo=5)),
            "a word for the exchange account": by_all(text_of(exchangeAccountId="x")),
            "a number for the id of a linked address": by_all(linked({"id": 12})),
            "true for the id of a linked wallet": by_all(text_of(linkedWallets=[WALLET | {"id": True}])),
            "null for the path of a linked wallet": by_all(text_of(linkedWallets=[WALLET | {"path": None}])),
        },
    },
    "rules": {
        "Worked example": {
            "10 admin1 twice": WORKED_A | {"rulesSignatures": rules_signatures(DEMO, "admin1", "admin1")},
            "12 rules cut": WORKED_A | {"rulesContainer": b64(DEMO[:-6])},
            "16 users for administrators": WORKED_A | {"rulesSignatures": rules_signatures(DEMO, "alice", "bob")},
        },
        "A pin shows older rules": {
            "of last year": pinned(NOT_VISIBLE["older rules"], rules_not_before=TIMESTAMP),
            "by a second": pinned(GOOD, rules_not_before=TIMESTAMP + 1),
            "without a date": pinned(DATED[None], rules_not_before=TIMESTAMP),
            "of the far future": pinned(DATED[2**63], rules_not_before=TIMESTAMP),
        },
        "Too few pinned keys": {
            "by one and a stranger": signed_a("admin1", "mallory"),
            "by nobody": envelope(TEXT_A, "alice", "bob", superadmins=()),
            "again with another nonce": signed_a("admin1", superadmin_entry("admin1", DEMO, signature=AGAIN)),
            "with zeros": signed_a(superadmin_entry("admin1", DEMO, signature=bytes(64)), "admin2"),
            "a threshold lowered": GOOD | {"rulesContainer": b64(DEMO.replace(b"\x10\x02", b"\x10\x01", 1))},
            "by a stranger, and one must": pinned(signed_a("mallory"), superadmin_minimum=1),
            "by two of three, and all must": pinned(GOOD, **THREE, superadmin_minimum=3),
        },
        "Base64 is strict": {
            "a line end": GOOD | {"rulesContainer": BASE64 + "\n"},
            "the URL alphabet": SAFE | {"rulesContainer": SAFE["rulesContainer"].replace("+", "-").replace("/", "_")},
            "no padding": GOOD | {"rulesContainer": BASE64.rstrip("=")},
            "other bits before the padding": GOOD | {"rulesContainer": BASE64.replace("g==", "h==")},
            "lines in the signatures": GOOD | {"rulesSignatures": SIGNATURES[:76] + "\n" + SIGNATURES[76:]},
            "a letter that is not ASCII": GOOD | {"rulesSignatures": "\u00e9" + SIGNATURES[1:]},
        },
        "No rules": {
            "a number": GOOD | {"rulesContainer": 5},
            "empty": GOOD | {"rulesContainer": ""},
            "no signatures": GOOD | {"rulesSignatures": ""},
            "named only": GOOD | {"rulesContainer": None, "rulesContainerHash": "x"},
            "signatures that are no message": GOOD | {"rulesSignatures": b64(b"\x0a\x09")},
            "33 signatures": signed_a(*[b""] * 31, "admin1", "admin2"),
        },
        "Rules of two meanings, though signed": {
            "a user twice": signed_a(rules=container(users=(*USERS, user("alice", key="")))),
            "a group twice": signed_a(rules=container(groups=(*GROUPS, group("ops", "carol")))),
            "a date twice": signed_a(rules=container(extra=field(10, 1))),
            "a threshold of 33 bits": under(rule("ETH", path(("ops", 2**32 + 1)))),
            "a negative threshold": under(rule("ETH", path(("ops", -1)))),
            "a later cell that is no message": cells(wallet_cell("demo/7"), b"\xff"),
            "a payload that ends too late": cells(field(1, INTERNAL_WALLET) + field(2, b"\x0a\x7f")),
            "a type of 33 bits": cells(field(1, 2**32 + 1) + field(2, field(1, "demo/7"))),
        },
    },
    "chain": {
        "Worked example": {"9 B on another chain": worked(TEXT_B, RECORDED_ALICE, blockchain="XLM")},
        "The envelope shows the chain that is signed": {
            "not at all": GOOD | {"blockchain": None},
            "with a sign that folds to k": by_all(text_of(currency="OKB"), blockchain="O\u212aB"),
        },
    },
    "rule": {
        "A pin shows another network": {
            "swapped": pinned(NOT_VISIBLE["swapped network"], networks=["mainnet"]),
            "not shown": pinned(under(MAINNET, TESTNET, network=None), networks=["mainnet"]),
            "signed": pinned(under(MAINNET, TESTNET, text=ON_TESTNET, network=None), networks=["mainnet"]),
        },
        "The network that is shown contradicts": {
            "in another case and with a space": under(MAINNET, TESTNET, text=ON_MAINNET, network="Mainnet "),
            "as a number": under(MAINNET, TESTNET, network=5),
        },
        "No rule": {
            "at all": under(),
            "for the chain": under(rule("BTC", OPS), rule("eth", OPS)),
            "for the chain, shown without network": under(
                TESTNET, rule("BTC", OPS), network=None, text=XLM, blockchain="XLM"
            ),
            "for the network": under(TESTNET, text=ON_MAINNET),
            "for the network in its signed case": under(MAINNET, TESTNET, text=text_of(network="Mainnet")),
            "for the chain in its signed case": under(rule("ETH", OPS), text=text_of(currency="eth")),
            "for the network that is shown": under(MAINNET, network="testnet"),
            "but a default for another network": under(rule("", OPS, network="testnet"), text=ON_MAINNET),
            "but one that is nearly for any": under(rule("Any ", OPS), rule("*", OPS)),
        },
        "Two rules": {
            "for the chain": under(rule("ETH", OPS), rule("ETH", OPS, network="Any")),
            "for any": under(rule("", OPS), rule("any", OPS)),
            "for any, one of them on the network": under(rule("", OPS), ANY_ON_MAINNET, text=ON_MAINNET),
            "for the network": under(MAINNET, MAINNET, rule("ETH", OPS), text=ON_MAINNET),
            "for another network that is possible": under(rule("ETH", OPS), TESTNET, TESTNET),
        },
    },
    "signatures": {
        "Worked example": {
            "2 A by alice": worked(TEXT_A, RECORDED_ALICE),
            "3 A by alice twice": worked(TEXT_A, RECORDED_ALICE, RECORDED_ALICE),
            "5 A by alice, once as bob": worked(TEXT_A, RECORDED_ALICE, recorded("bob", ALICE_AB, A, B)),
            "6 C by carol": worked(TEXT_C, RECORDED_CAROL),
            "11 A with hashes swapped": worked(TEXT_A, recorded("alice", ALICE_AB, B, A), RECORDED_BOB),
        },
        "The text is signed as it is written": {
            "a space more": with_text(GOOD, TEXT_A.replace(":", ": ")),
            "keys in another order": with_text(GOOD, compact(dict(reversed(json.loads(TEXT_A).items())))),
        },
        "Not a legacy form": {
            "a renamed label": legacy(TEXT_C, TEXT_C.replace("renamed later", "before")),
            "a quote in a label": legacy(linked(LINK | {"label": 'a"b'}), LINKED),
            "a label of a wallet": legacy(text_of(linkedWallets=[WALLET | {"label": "x"}]), WITH_WALLET),
            "a label that is not last": legacy(linked({"label": "x", **LINK}), LINKED),
            "a label further in": legacy(
                linked(LINK | {"more": {"id": 1, "label": "x"}}), linked(LINK | {"more": {"id": 1}})
            ),
            "the first key": legacy(TEXT_CS.replace("{", '{"contractType":"x",', 1), TEXT_CS),
            "inside of a value": legacy(text_of(memo=',"contractType":"'), TEXT_A),
            "the old text under the new one's signatures": legacy(TEXT_CS, TEXT_C),
        },
        "Some signed before an upgrade, and some after it": {
            "legacy forms off": envelope(TEXT_C, user_entry("alice", C), user_entry("bob", CS)),
            "one user, once for each form": legacy(TEXT_C, TEXT_CS, user_entry("alice", C), user_entry("alice", CS)),
            "two users with one key": legacy_under(ANN_IN_OPS, user_entry("alice", C), AS_ANN_CS),
            "over a form that is none": legacy(
                TEXT_C, TEXT_CS, user_entry("alice", C), user_entry("bob", hash_of(TEXT_C.replace("later", "before")))
            ),
            "one of them not valid": legacy(
                TEXT_C, TEXT_CS, user_entry("alice", C), user_entry("bob", CS, signature=bytes(64))
            ),
        },
        "The rule of each possible network must be met": {
            "only the shown one's": FEW,
            "only the shown one's, and both are pinned": pinned(FEW, networks=["testnet", "mainnet"]),
            "only the shown one's, not the default": under(TESTNET, rule("", BOARD), names="alice", network="testnet"),
            "only the default": under(MAINNET, rule("", ONE_OF_OPS), names="alice", network="other"),
            "the signed one's is not": under(MAINNET, TESTNET, text=ON_MAINNET, names="alice"),
        },
        "Nothing passes by being empty": {
            "no path": under(rule("ETH"), names="alice bob carol"),
            "a path without groups": under(rule("ETH", path()), names="alice bob carol"),
            "an unknown group": under(rule("ETH", path(("ops", 1), ("unknown", 1)))),
            "an unknown group with a threshold of 0": under(rule("ETH", path(("ops", 1), ("unknown", 0)))),
            "a group without users": under(rule("ETH", path(("empty", 1))), groups=ODD_GROUPS),
            "a group without users and with a threshold of 0": under(
                rule("ETH", path(("empty", 0))), groups=ODD_GROUPS
            ),
            "a threshold of 0": under(rule("ETH", path(("ops", 0)))),
            "a threshold of 0 beside one that is reached": under(
                rule("ETH", path(("ops", 1), ("board", 0))), names="alice carol"
            ),
            "a threshold of 0 in one of the rules of two networks": under(
                MAINNET, rule("ETH", path(("ops", 0)), network="testnet")
            ),
            "a threshold of 0 in a line": by_line(line("demo/7", path(("ops", 0))), names="alice bob carol"),
            "more than the group has": under(rule("ETH", path(("ops", 3)))),
            "2^31": under(rule("ETH", path(("ops", 2**31)))),
            "a line without paths": by_line(line("demo/7"), names="alice bob carol"),
        },
        "All groups of one path are needed": {
            "one is missing": under(PARTS, groups=WITH_DAVE),
            "a half of each path": under(PARTS, groups=WITH_DAVE, names="alice carol"),
            "a group twice": under(rule("ETH", path(("ops", 1), ("ops", 2))), names="alice"),
        },
        "The line for the one linked wallet decides": {
            "a stronger one": by_line(STRONG, names="alice bob"),
            "and not the rule": by_line(WEAK, names="carol"),
            "the first for it": by_line(STRONG, WEAK),
        },
        "No line is for these links": {
            "two wallets": by_line(WEAK, text=text_of(linkedWallets=[WALLET, WALLET_8])),
            "a wallet and an address": by_line(WEAK, text=linked(LINK, linkedWallets=[WALLET])),
            "another wallet": by_line(WEAK, text=text_of(linkedWallets=[WALLET_8])),
            "a path in another case": by_line(WEAK, text=text_of(linkedWallets=[WALLET | {"path": "Demo/7"}])),
            "no path, and the line's is empty": by_line(line("", ONE_OF_OPS), text=NO_PATH),
        },
        "The line is not for a wallet": {
            "no cell": cells(),
            "any first": cells(field(1, ANY), wallet_cell("demo/7")),
            "an address": cells(field(1, INTERNAL_ADDRESS) + field(2, field(1, "demo/7"))),
            "an unknown type": cells(field(1, 17) + field(2, field(1, "demo/7"))),
        },
        "One user counts once": {
            "with the other s": with_alice(user_entry("alice", A, signature=twin(BY_ALICE))),
            "over other lists": with_alice(user_entry("alice", A, B), user_entry("alice", B, A)),
            "in capitals": with_alice(user_entry("alice", A, label=user_id("alice").upper())),
        },
        "Two users with one key count once": {
            "in a group": with_alice(AS_ANN, rules=ANN_IN_OPS),
            "in the group that needs two": with_alice(AS_ANN, rules=SHARED),
        },
        "The whole list of hashes is signed": {
            name: envelope(TEXT_A, user_entry("alice", *shown, signed=signed), "bob")
            for name, (shown, signed) in {
                "one removed": ((A, B), (A, B, C)),
                "one put in another's place": ((B, A), (B, C)),
                "reversed": ((A, B, C), (C, B, A)),
                "doubled": ((A, A), (A,)),
                "two as one text": ((f'{B}","{C}', A), (B, C, A)),
                "not lower case": ((A, B.upper()), (A, B.upper())),
                "not 64 characters": ((A, B[:-1]), (A, B[:-1])),
                "digits that are not ASCII": ((A, "\u0661" * 64), (A, "\u0661" * 64)),
            }.items()
        },
        "The message is the list as compact JSON": {
            "with spaces": beside_bob(sign("alice", f'[ "{A}" ]'.encode())),
            "the hash alone": beside_bob(sign("alice", A.encode())),
        },
        "No user of the group": {
            "outside of the group": with_alice(user_entry("dave", A), rules=WITH_STRANGERS),
            "in the group, but no user": with_alice(user_entry("ghost", A), rules=WITH_STRANGERS),
            "bob, as a stranger": with_alice(user_entry("bob", A, label=user_id("mallory"))),
            "bob without a name": with_alice(user_entry("bob", A, label="")),
            "true for the name 1": envelope(TEXT_A, user_entry("alice", A, label=True), rules=NUMBERED),
        },
        "Not a signature of 64 bytes": {
            "zeros": beside_bob(bytes(64)),
            "s is the order": beside_bob(R + ORDER.to_bytes(32, "big")),
            "r and s swapped": beside_bob(S + R),
            "63 bytes": beside_bob(BY_ALICE[:-1]),
            "65 bytes": beside_bob(BY_ALICE + b"\0"),
            "without padding": beside_bob(SIGNED[:-2]),
            "with a line end": beside_bob(SIGNED + "\n"),
            "with other bits before the padding": beside_bob(SIGNED[:-3] + chr(ord(SIGNED[-3]) + 1) + "=="),
        },
        "A key in one encoding, on P-256": {
            "on secp256k1": beside_bob(sign(K1, message_of([A])), with_key(pem(der(K1)))),
            **{name: beside_bob(BY_ALICE, with_key(key)) for name, key in BAD_KEYS.items()},
        },
        "No signatures that count": {
            "junk of all kinds": envelope(TEXT_A, *JUNK, "bob"),
            "201 signatures": envelope(TEXT_A, *[None] * 199, "alice", "bob"),
            "one signature over many texts, and not this one": envelope(TEXT_CS, *MANY),
            "nothing signed": GOOD | {"signedAddress": None},
            "no list": GOOD | {"signedAddress": {"signatures": None}},
            "an object for the list": GOOD | {"signedAddress": {"signatures": {}}},
        },
    },
}

VERIFIED: dict[str, Variants] = {
    "Worked example": {
        "1 A by alice and bob": WORKED_A,
        "4 B by alice, by a line": worked(TEXT_B, RECORDED_ALICE),
        "7 C by carol, legacy": Pinned(worked(TEXT_C, RECORDED_CAROL), LEGACY, TEXT_CS),
        "15 an invented contract type": Pinned(worked(INVENTED, RECORDED_CAROL), LEGACY, TEXT_CS),
    },
    "The envelope differs in case only": {
        "chain": GOOD | {"blockchain": "eth"},
        "network": under(MAINNET, TESTNET, text=ON_MAINNET, network="MAINNet"),
        "network that no rule names in this case": under(
            MAINNET, rule("ETH", ONE_OF_OPS, network="Mainnet"), text=ON_MAINNET, network="Mainnet"
        ),
    },
    "Some signed before an upgrade, and some after it": {
        "contract type and labels": legacy(TEXT_C, TEXT_CS, user_entry("alice", C), user_entry("bob", CS)),
        "contract type, with labels that all have signed": legacy(
            LABELLED_TEXT,
            LABELLED_OLD,
            user_entry("alice", hash_of(LABELLED_TEXT)),
            user_entry("bob", hash_of(LABELLED_OLD)),
        ),
        "two different old forms": legacy(
            LABELLED_TEXT, LINKS_OLD, user_entry("alice", hash_of(LABELLED_OLD)), user_entry("bob", hash_of(LINKS_ONLY))
        ),
        "of two groups, one each": legacy_under(
            container(rules=[rule("ETH", path(("ops", 1), ("board", 1)))]),
            user_entry("alice", C),
            user_entry("carol", CS),
        ),
        "enough signed after it, so all fields count": Pinned(
            envelope(TEXT_C, "alice", "bob", user_entry("carol", CS)), LEGACY
        ),
    },
    "Not signed, so not read": attacked(attacks.NOT_READ),
    "No signature can show it": NOT_VISIBLE,
    "Another address than you asked for": attacked(attacks.COMPARED),
    "Signed, however odd": {
        "letters of many scripts": by_all(text_of(label="\u00e9\u4e2d\U0001f600")),
        "a surrogate pair and escapes": by_all(MEMO.replace('"x"', '"\\ud83d\\ude00 \\u003c\\u0026"')),
        "a memo that looks like a key": by_all(text_of(memo=',"contractType":"x"')),
        "a memo that looks deep": by_all(text_of(memo="[" * 20)),
        "all keys": by_all(linked(*LABELLED, **OTHER_KEYS)),
        "no contract type": pinned(by_all(OLD_A), **LEGACY),
        "a wallet without path": by_all(NO_PATH),
        "sixteen levels": by_all(TEXT_A.replace("}", f',"more":{DEEP}}}')),
        "200 keys": by_all(linked(MANY_LINK)),
    },
    "Signed before the text had it": {
        "contract type": legacy(TEXT_A, OLD_A),
        "contract type and labels": legacy(TEXT_C, TEXT_CS),
        "labels": legacy(linked(*LABELLED), linked(*LINKS)),
        "one label": legacy(linked(LABELLED[0], LINKS[1]), linked(*LINKS)),
        "contract type beside signed labels": legacy(linked(*LABELLED), linked(*LABELLED, without=["contractType"])),
        "contract type in the middle": legacy(TEXT_CS.replace(',"memo"', ',"contractType":"x","memo"'), TEXT_CS),
        "by a line of the signed text": legacy(WITH_WALLET, OLD_WALLET, user_entry("alice", hash_of(OLD_WALLET))),
        "with junk over the new text": legacy(TEXT_C, TEXT_CS, FORGED_C, user_entry("carol", CS)),
        "together with the new text by some": legacy(
            TEXT_C, TEXT_CS, user_entry("alice", CS, C), user_entry("bob", CS)
        ),
    },
    "Rules signed by two of three pinned keys": {
        "among strangers and junk": pinned(signed_a("mallory", "admin2", b"", field(2, b"short"), "admin3"), **THREE),
        "under any name, with a comment": signed_a(
            superadmin_entry("admin1", DEMO, label=""), superadmin_entry("admin2", DEMO) + field(3, "yes") + UNKNOWN
        ),
        "once with the other s": signed_a(superadmin_entry("admin1", DEMO, signature=twin(ADMIN)), "admin2"),
        "one, and one must": pinned(signed_a("admin2"), superadmin_minimum=1),
        "32 signatures": signed_a(*[b""] * 30, "admin1", "admin2"),
    },
    "The date of the rules": {
        "as is pinned": pinned(GOOD, rules_not_before=TIMESTAMP),
        "none, and none is pinned": DATED[None],
        "of the far future, and none is pinned": DATED[2**63],
    },
    "Odd, but lawful rules": {
        "unknown fields": signed_a(rules=ODD_RULES),
        "other groups empty": under(rule("ETH", OPS), groups=ODD_GROUPS),
        "roles not packed, a key without its last line end": signed_a(
            rules=container(users=[user("alice", key=pem("alice").rstrip(), roles=UNPACKED), user("bob", roles=b"")])
        ),
        "and a label that names others": GOOD | {"rulesContainerHash": "x"},
        "rules for other things": signed_a(rules=container(extra=field(5, b"\xff") + field(7, b"\xff") + field(3, 9))),
        "another order": signed_a(rules=field(10, TIMESTAMP) + container(timestamp=None)),
        "a negative type of a later cell": cells(wallet_cell("demo/7"), tag(1, 0) + varint(-1)),
    },
    "The rule": {
        "of each network": under(MAINNET, TESTNET),
        "of each network that is pinned": pinned(under(MAINNET, TESTNET), networks=["testnet", "mainnet"]),
        "of the one network that is pinned": pinned(FEW, networks=["testnet"]),
        "of the signed network": under(MAINNET, TESTNET, text=ON_TESTNET, names="alice", network="testnet"),
        "of the signed network that is not shown": under(MAINNET, TESTNET, text=ON_TESTNET, network=None),
        "that is most exact": under(rule("", BOARD), rule("ETH", BOARD), MAINNET, TESTNET, text=ON_MAINNET),
        "of the chain before the default": under(rule("", BOARD), rule("ETH", OPS), TESTNET, text=ON_MAINNET),
        "for any chain": under(rule("aNY", OPS, network="any"), TESTNET, rule("eth", BOARD), text=ON_MAINNET),
        "for any chain on the network": under(ANY_ON_MAINNET, text=ON_MAINNET),
        "that wins, where others are there twice": under(rule("", BOARD), rule("", BOARD), MAINNET, text=ON_MAINNET),
    },
    "A path is complete": {
        "of two, the first": under(PARTS, groups=WITH_DAVE, names="alice bob carol"),
        "of two, the other": under(rule("ETH", path(("unknown", 1)), OPS)),
        "beside one with a threshold of 0": under(rule("ETH", path(("ops", 0)), OPS, path(("board", 0)))),
        "one person in two groups": under(DEFAULT_RULE, names="alice", groups=(GROUPS[0], group("board", "alice"))),
    },
    "The line for the one linked wallet decides": {
        "a stronger one": by_line(STRONG, names="alice bob carol"),
        "the first for it": by_line(line("demo/8", OPS), WEAK, STRONG),
        "none for two wallets": by_line(WEAK, text=text_of(linkedWallets=[WALLET, WALLET_8]), names="alice bob"),
    },
    "Signatures": {
        "of two users with one key, and bob": with_alice(AS_ANN, "bob", rules=ANN_IN_OPS),
        "of one key in each of two groups": with_alice(AS_ANN, "carol", rules=SHARED),
        "over many texts": envelope(TEXT_A, *MANY),
        "of a user whose id is shown as a number": envelope(TEXT_A, user_entry("alice", A, label=1), rules=NUMBERED),
        "with the other s": with_alice(user_entry("bob", A, signature=twin(sign("bob", message_of([A]))))),
        "among junk of all kinds": envelope(TEXT_A, *JUNK, "alice", *JUNK, "bob"),
        "200 of them": envelope(TEXT_A, *[None] * 198, "alice", "bob"),
        "with a key of 1000 characters": beside_bob(BY_ALICE, with_key(pem("alice") + "#" * 822)),
        "without alice, whose key is bad": envelope(TEXT_A, "alice", "carol", rules=with_key("")),
    },
}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the cases, by the names of their files."""
    for name, made in ATTACKED.items():
        step = attacks.STEP_OF[name]
        yield case(step, "A malicious service", name, made, {"verdict": "refused", "step": step})
    for step, groups in REFUSED.items():
        for why, variants in groups.items():
            for name, given in variants.items():
                yield case(step, why, name, given, {"verdict": "refused", "step": step})
    for why, variants in VERIFIED.items():
        for name, given in variants.items():
            yield case("verified", why, name, given, {"verdict": "verified"})


def case(folder: str, why: str, name: str, given: Envelope | Pinned, verdict: dict[str, Any]) -> tuple[str, Any]:
    """Return the name of a file, and what is in it."""
    made = given if isinstance(given, Pinned) else Pinned(given, {})
    if folder == "verified":
        signed = made.signed or made.envelope["metadata"]["payloadAsString"]
        verdict |= {"fields": json.loads(signed), "legacy": bool(made.signed)}
    pins = {"superadmin_keys": PINNED, "superadmin_minimum": 2, "networks": None}
    pins |= {"allow_legacy_signatures": False, "rules_not_before": None} | made.pins
    slug = re.sub("[^a-z0-9]+", "-", f"{why} {name}".lower()).strip("-")
    return f"{folder}/{slug}", {"reason": f"{why}: {name}", **verdict, "pins": pins, "envelope": made.envelope}


def files() -> dict[str, str]:
    """Return the text of each file, by its name."""
    return {f"{name}.json": json.dumps(found, indent=1) + "\n" for name, found in cases()}


def main() -> None:
    """Write the files, and delete those that are no case."""
    for each in FOLDER.glob("*/*.json"):
        each.unlink()
    for name, text in files().items():
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
