"""Rules that a malicious service sends: rows 2 to 5 of the attack list. What is lawful is accepted."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from whitelist_forge import (
    CONTAINER_SHA256,
    DEFAULT_RULE,
    ETH_PATHS,
    ETH_RULE,
    GROUPS,
    RULES,
    TEXT_A,
    TIMESTAMP,
    UNKNOWN,
    USERS,
    b64,
    container,
    der,
    envelope,
    field,
    fingerprint,
    group,
    packed,
    path,
    pem,
    rule,
    rules_signatures,
    sign,
    sign_der,
    superadmin_entry,
    twin,
    user,
    user_id,
)
from whitelist_verdicts import PINS, SUPERADMINS, accept, refuse, refused, signers

from airflow_custody.client.errors import CustodyConfigurationError, CustodyVerificationError
from airflow_custody.client.verification import signed_rules
from airflow_custody.client.verification.verifier import VerificationPins, Verifier

BOTH = ("alice", "bob")
DEMO = container()


def signed_a(**changes: Any) -> dict[str, Any]:
    """Return address A, signed by alice and bob."""
    return envelope(TEXT_A, *BOTH, **changes)


def entry(name: str, **changes: Any) -> bytes:
    """Return a super-administrator's signature of the worked example's rules."""
    return superadmin_entry(name, DEMO, **changes)


def test_the_rules_are_those_of_the_worked_example() -> None:
    result = accept(signed_a())
    assert result.rules.sha256 == CONTAINER_SHA256 == hashlib.sha256(DEMO).hexdigest()
    assert result.rules.timestamp == TIMESTAMP
    assert sorted(result.rules.signed_by) == sorted(map(fingerprint, ("admin1", "admin2")))
    assert signers(result) == set(BOTH)


# Row 2: its own rules

MALLORY = container(users=(user("mallory"),), groups=(group("ops", "mallory"),), rules=(rule("", path(("ops", 1))),))
OWN_SUPERADMINS = container(users=(*USERS, *(user(name, roles=field(3, packed([3]))) for name in ("mallory", "eve"))))


@pytest.mark.parametrize(
    "superadmins",
    [
        pytest.param(("mallory", "eve"), id="own keys"),
        pytest.param(("alice", "bob"), id="users of the rules"),
        pytest.param(("admin1", "mallory"), id="one pinned key and its own"),
        pytest.param((), id="nobody"),
        pytest.param(
            (superadmin_entry("mallory", DEMO, label=user_id("admin1")), entry("admin2")), id="labelled as another"
        ),
        pytest.param((entry("admin1", signature=sign("admin1", MALLORY)), entry("admin2")), id="of other rules"),
        pytest.param((entry("admin1", signature=sign("admin1", b64(DEMO).encode())), entry("admin2")), id="of base64"),
        pytest.param(
            (entry("admin1", signature=sign("admin1", hashlib.sha256(DEMO).digest())), entry("admin2")),
            id="of the hash",
        ),
    ],
)
def test_row_2_rules_that_the_pinned_keys_have_not_signed(superadmins: tuple[str | bytes, ...]) -> None:
    refuse(signed_a(superadmins=superadmins))


def test_row_2_keys_offered_beside_the_rules() -> None:
    refuse(envelope(TEXT_A, "mallory", rules=MALLORY, superadmins=("mallory", "eve")))
    refuse(signed_a(rules=OWN_SUPERADMINS, superadmins=("mallory", "eve")))
    offered = [{"userID": user_id(name), "publicKey": pem(name)} for name in ("mallory", "eve")]
    refuse(signed_a(superadmins=("mallory", "eve"), publicKeys=offered, superadminKeys=offered))
    accept(signed_a(rules=OWN_SUPERADMINS))


# Row 3: one super-administrator several times


@pytest.mark.parametrize(
    "superadmins",
    [
        pytest.param(("admin1",) * 3, id="three times"),
        pytest.param(
            tuple(entry("admin1", label=user_id(name)) for name in ("admin1", "admin2", "admin3")), id="three names"
        ),
        pytest.param(("admin1", entry("admin1", signature=twin(sign("admin1", DEMO)))), id="twin"),
        pytest.param(
            (
                entry("admin1", signature=twin(sign("admin1", DEMO)), label=user_id("admin2")),
                "admin1",
                entry("admin1", label=""),
            ),
            id="twin under another name",
        ),
    ],
)
def test_row_3_one_superadmin_counts_once(superadmins: tuple[str | bytes, ...]) -> None:
    refuse(signed_a(superadmins=superadmins))
    accept(signed_a(superadmins=(*superadmins, "admin2")))


def test_row_3_one_superadmin_signs_twice_with_other_numbers() -> None:
    first = sign("admin1", DEMO)
    sign_der.cache_clear()
    assert sign("admin1", DEMO) != first
    refuse(signed_a(superadmins=(entry("admin1", signature=first), "admin1")))


@pytest.mark.parametrize(
    ("minimum", "superadmins", "enough"),
    [
        (1, ("admin2",), True),
        (2, ("admin3", "admin1"), True),
        (2, ("mallory", "admin2", b"", field(2, b"short"), "admin1"), True),
        (2, ("admin1", entry("admin2", label="")), True),
        (2, (entry("admin1") + UNKNOWN, entry("admin2") + field(3, "comment")), True),
        (2, (entry("admin1", signature=twin(sign("admin1", DEMO))), "admin2"), True),
        (3, ("admin3", "admin1"), False),
        (3, ("admin3", "admin1", "admin1"), False),
        (3, ("admin3", "admin1", "admin2"), True),
    ],
)
def test_row_3_distinct_pinned_keys_count(minimum: int, superadmins: tuple[str | bytes, ...], enough: bool) -> None:
    pins = VerificationPins([pem(name) for name in ("admin1", "admin2", "admin3")], minimum)
    (accept if enough else refuse)(signed_a(superadmins=superadmins), pins)


@pytest.mark.parametrize("minimum", [0, -1, 3, 2**32 + 1, True, "2", 2.0, None])
def test_a_minimum_that_is_none(minimum: Any) -> None:
    with pytest.raises(CustodyConfigurationError):
        VerificationPins(SUPERADMINS, minimum)


@pytest.mark.parametrize("minimum", [1, 2])
def test_pins_of_one_key_twice(minimum: int) -> None:
    for keys in ([SUPERADMINS[0]] * 2, [SUPERADMINS[0] * 2], [SUPERADMINS[0], SUPERADMINS[0].replace("\n", "\r\n")]):
        with pytest.raises(CustodyConfigurationError):
            VerificationPins(keys, minimum)


# Row 4: older rules, and another tenant's


@pytest.mark.parametrize(
    ("timestamp", "floor", "fresh"),
    [
        (TIMESTAMP, TIMESTAMP, True),
        (TIMESTAMP, TIMESTAMP + 1, False),
        (TIMESTAMP, TIMESTAMP - 1, True),
        (0, TIMESTAMP, False),
        (None, TIMESTAMP, False),
        (None, None, True),
        (0, None, True),
        (2**64 - 1, None, True),
    ],
)
def test_row_4_rules_that_are_too_old(timestamp: int | None, floor: int | None, fresh: bool) -> None:
    pins = VerificationPins(SUPERADMINS, 2, rules_not_before=floor)
    (accept if fresh else refuse)(signed_a(rules=container(timestamp=timestamp)), pins)


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (TIMESTAMP + 300, None),
        (TIMESTAMP + 301, "2026-01-01T00:05:01Z"),
        (TIMESTAMP * 1000, r"1767225600000 \(Unix time\)"),
        (2**63, r"9223372036854775808 \(Unix time\)"),
    ],
    ids=["the clocks differ by minutes", "well beyond now", "milliseconds", "2^63"],
)
def test_row_4_rules_of_the_future_do_not_pass_a_floor(
    timestamp: int, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_rules, "time", SimpleNamespace(time=lambda: float(TIMESTAMP)))
    given, pins = signed_a(rules=container(timestamp=timestamp)), VerificationPins(SUPERADMINS, 2)
    # Without a floor, their date says nothing.
    accept(given, pins)
    pins = VerificationPins(SUPERADMINS, 2, rules_not_before=TIMESTAMP)
    if shown is None:
        accept(given, pins)
        return
    with pytest.raises(CustodyVerificationError, match=f"its rules are of {shown}, which is in the future"):
        Verifier(pins).verify(given)


def test_row_4_rules_of_another_tenant() -> None:
    refuse(signed_a(), VerificationPins([pem("admin3"), pem("admin4")], 1))


def test_row_4_rules_that_are_verified_do_not_vouch_for_others() -> None:
    verifier = Verifier(PINS)
    good = signed_a()
    verifier.verify(good)
    refused(lambda: verifier.verify(good | {"rulesContainer": b64(MALLORY)}))
    refused(lambda: verifier.verify(good | {"rulesSignatures": ""}))
    refused(lambda: verifier.verify(good | {"rulesSignatures": rules_signatures(DEMO, "admin1")}))
    refused(lambda: verifier.verify(good | {"rulesContainer": None, "rulesContainerHash": CONTAINER_SHA256}))
    refused(lambda: verifier.verify(envelope(TEXT_A, "mallory", rules=MALLORY, superadmins=("mallory",))))
    # And rules that failed do not stand in the way of good ones.
    verifier.verify(good)


# Row 5: bytes and base64

BYTES: dict[str, Callable[[bytes], bytes]] = {
    "first bit flipped": lambda body: bytes([body[0] ^ 1]) + body[1:],
    "last bit flipped": lambda body: body[:-1] + bytes([body[-1] ^ 1]),
    "timestamp cut": lambda body: body[:-6],
    "last byte cut": lambda body: body[:-1],
    "first byte cut": lambda body: body[1:],
    "zero appended": lambda body: body + b"\0",
    "unknown field appended": lambda body: body + UNKNOWN,
    "rule appended": lambda body: body + field(6, rule("ETH", path(("ops", 1)))),
    "twice": lambda body: body * 2,
    "threshold lowered": lambda body: body.replace(b"\x10\x02", b"\x10\x01", 1),
    "empty": lambda body: b"",
}


@pytest.mark.parametrize("change", BYTES.values(), ids=BYTES)
def test_row_5_changed_rules(change: Callable[[bytes], bytes]) -> None:
    assert change(DEMO) != DEMO
    refuse(signed_a() | {"rulesContainer": b64(change(DEMO))})


BASE64: dict[str, Callable[[str], Any]] = {
    "line end": lambda text: text + "\n",
    "lines": lambda text: "\n".join((text[:76], text[76:])),
    "space": lambda text: " " + text,
    "foreign character": lambda text: text[:8] + "$" + text[8:],
    "foreign letter": lambda text: text[:8] + "é" + text[8:],
    "surrogate": lambda text: text + "\ud800",
    "NUL": lambda text: text + "\0",
    "more padding": lambda text: text + "=",
    "four more": lambda text: text + "====",
    "padding inside": lambda text: text[:4] + "====" + text[4:],
    "in base64 again": lambda text: b64(text.encode()),
    "in hex": lambda text: base64.b64decode(text).hex(),
    "data URL": lambda text: "data:;base64," + text,
    "number": lambda text: 5,
    "list": lambda text: [text],
    "dict": lambda text: {"value": text},
    "true": lambda text: True,
    "none": lambda text: None,
    "empty": lambda text: "",
}


@pytest.mark.parametrize("change", BASE64.values(), ids=BASE64)
@pytest.mark.parametrize("key", ["rulesContainer", "rulesSignatures"])
def test_row_5_base64(key: str, change: Callable[[str], Any]) -> None:
    good = signed_a()
    accept(good)
    refuse(good | {key: change(good[key])})


@pytest.mark.parametrize("extra", [b"", b"\x7a\x00", b"\x7a\x01a"])
def test_row_5_padding_and_the_bits_before_it(extra: bytes) -> None:
    # Three lengths, so that one has no padding, one has one character, and one has two.
    good = signed_a(rules=container(extra=extra))
    accept(good)
    text: str = good["rulesContainer"]
    stripped = text.rstrip("=")
    for bent in (stripped, stripped[:-1], stripped + "A" + "=" * (len(text) - len(stripped))):
        if bent != text:
            refuse(good | {"rulesContainer": bent})
    if stripped != text:
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        last = alphabet[alphabet.index(stripped[-1]) + 1]
        bent = stripped[:-1] + last + text[len(stripped) :]
        assert base64.b64decode(bent) == base64.b64decode(text)
        refuse(good | {"rulesContainer": bent})


def test_row_5_url_safe_base64() -> None:
    good = signed_a(rules=container(extra=field(98, b"\xff\xef\xbe" * 3)))
    accept(good)
    text = good["rulesContainer"]
    bent = text.replace("+", "-").replace("/", "_")
    assert bent != text
    refuse(good | {"rulesContainer": bent})


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(sign_der("admin1", DEMO), id="DER"),
        pytest.param(sign("admin1", DEMO)[:63], id="63 bytes"),
        pytest.param(sign("admin1", DEMO) + b"\0", id="65 bytes"),
        pytest.param(b"\0" + sign("admin1", DEMO), id="65 bytes, zero first"),
        pytest.param(sign("admin1", DEMO) * 2, id="128 bytes"),
        pytest.param(sign("admin1", DEMO)[::-1], id="reversed"),
        pytest.param(b"", id="empty"),
        pytest.param(b64(sign("admin1", DEMO)).encode(), id="base64"),
        pytest.param(sign("admin1", DEMO).hex().encode(), id="hex"),
    ],
)
def test_row_5_signatures_of_another_form(signature: bytes) -> None:
    refuse(signed_a(superadmins=(entry("admin1", signature=signature), "admin2")))


def test_row_5_a_container_that_is_json() -> None:
    body = b'{"users":[],"groups":[],"addressWhitelistingRules":[]}'
    refuse(signed_a(rules=body))
    refuse(signed_a(rules=b"{}"))
    refuse(signed_a(rules=b""))


def test_row_5_an_empty_list_of_rules_for_all() -> None:
    refuse(signed_a(rules=container(rules=())))
    refuse(signed_a(rules=container(users=(), groups=())))


# What is lawful


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(container(extra=UNKNOWN), id="unknown fields"),
        pytest.param(container(users=[user(name, extra=UNKNOWN) for name in ("alice", "bob", "carol")]), id="of users"),
        pytest.param(container(groups=(group("ops", *BOTH, *BOTH, extra=UNKNOWN), GROUPS[1])), id="repeated ids"),
        pytest.param(container(groups=(*GROUPS, group("empty"), group("ghosts", "nobody"))), id="other empty groups"),
        pytest.param(
            container(users=[user(n, roles=field(3, 0) + field(3, 11)) for n in ("alice", "bob")]), id="unpacked roles"
        ),
        pytest.param(
            container(users=[user(n, roles=field(3, 0) + field(3, packed([11, 99]))) for n in BOTH]), id="mixed roles"
        ),
        pytest.param(container(users=[user(n, roles=b"") for n in BOTH]), id="no roles"),
        pytest.param(container(users=[user(n, key=pem(n).rstrip("\n")) for n in BOTH]), id="no last line end"),
        pytest.param(container(users=(*USERS, user("dave", key="junk"), user("erin", key=""))), id="others' bad keys"),
        pytest.param(container(rules=(*RULES, rule("XLM"), rule("XLM"))), id="two rules elsewhere"),
        pytest.param(container(rules=(rule("ETH", *ETH_PATHS, extra=UNKNOWN), DEFAULT_RULE)), id="of rules"),
        pytest.param(container(rules=(DEFAULT_RULE, ETH_RULE)), id="default first"),
        pytest.param(container(timestamp=None), id="no timestamp"),
        pytest.param(
            container(extra=field(3, 9) + field(4, 9) + field(5, b"\xff") + field(7, b"\xff")), id="other subjects"
        ),
        pytest.param(container(extra=field(9, field(1, "k") + field(2, b"\xff"))), id="properties"),
        pytest.param(container(extra=field(8, "ab") + field(12, "e") + field(12, "f") + field(13, 1)), id="the rest"),
        pytest.param(field(10, TIMESTAMP) + container(timestamp=None), id="other order"),
    ],
)
def test_odd_but_lawful_rules(rules: bytes) -> None:
    assert signers(accept(signed_a(rules=rules))) == set(BOTH)
    refuse(envelope(TEXT_A, "alice", rules=rules))


def test_rules_as_the_service_shows_them_alone() -> None:
    def shown(*names: str) -> dict[str, Any]:
        entries = [{"userId": user_id(name), "signature": b64(sign(name, DEMO))} for name in names]
        return {"rulesContainer": b64(DEMO), "rulesSignatures": entries}

    verifier = Verifier(PINS)
    for names in ((), ("admin1",), ("admin1", "admin1"), ("alice", "bob")):
        refused(lambda names=names: verifier.verify_rules(shown(*names)))  # type: ignore[misc]
    result = verifier.verify_rules(shown("mallory", "admin2", "admin1") | {"locked": False})
    assert (result.sha256, result.timestamp) == (CONTAINER_SHA256, TIMESTAMP)
    bent: Any
    for bent in (None, 5, "", {}, [None], [5], [{}], [{"signature": None}], [{"signature": [1]}], [[[]]]):
        refused(lambda bent=bent: verifier.verify_rules(shown() | {"rulesSignatures": bent}))  # type: ignore[misc]
    assert der("admin1").hex() not in refused(lambda: verifier.verify_rules({}))
