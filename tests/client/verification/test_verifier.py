"""What a verifier does beside the worked example: pending requests, rules alone, dates, and what it remembers."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from worked_example import (
    ALICE,
    BY_ALICE,
    BY_BOB,
    BY_CAROL,
    CONTAINER,
    HASH_A,
    HASH_B,
    HASH_CS,
    PINS,
    SIGNATURES,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    entry,
    envelope,
    sign,
    signed_entry,
)

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.keys import PublicKey
from airflow_custody.client.verification.signature_count import MAX_ENTRIES, MAX_HASHES
from airflow_custody.client.verification.verifier import (
    RequestSignatures,
    VerificationPins,
    Verifier,
    verify_envelope,
)

LEGACY = dataclasses.replace(PINS, allow_legacy_signatures=True)
DATA = base64.b64decode(CONTAINER)
GOOD = envelope(TEXT_A, BY_ALICE, BY_BOB)
NO_RULES: dict[str, Any] = {"rulesContainer": None, "rulesSignatures": None}


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(CustodyVerificationError) as error:
        work()
    assert len(str(error.value)) < 420
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return str(error.value)


# --- signatures that count ---------------------------------------------------------------------------------


def test_either_path_is_enough() -> None:
    found = verify_envelope(envelope(TEXT_A, signed_entry("carol", HASH_A)), PINS)
    assert [group.group_id for group in found.applied[0].path] == ["board"]


@pytest.mark.parametrize(
    "junk",
    [
        None,
        5,
        {},
        {"signature": None, "hashes": None},
        {"signature": {"userId": None, "signature": ALICE}, "hashes": [HASH_A]},
        {"signature": {"userId": "alice@example.test", "signature": 5}, "hashes": [HASH_A]},
        {"signature": {"userId": "alice@example.test", "signature": ALICE}, "hashes": "x"},
        entry("alice", ALICE, HASH_A),
        entry("alice", ALICE, HASH_A, 5),  # type: ignore[arg-type]
        entry("alice", ALICE, HASH_A, "\ud800" * 64),
        entry("alice", ALICE[:-2], HASH_A),
        entry("alice", ALICE.replace("+", "-"), HASH_A),
        entry("alice", base64.b64encode(bytes(64)).decode(), HASH_A),
        entry("bob", ALICE, HASH_A, HASH_B),
        entry("nobody", ALICE, HASH_A, HASH_B),
        entry("alice", ALICE, *[HASH_A] * (MAX_HASHES + 1)),
    ],
)
def test_junk_does_not_prevent_what_is_valid(junk: Any) -> None:
    verifier = Verifier(PINS)
    found = verifier.verify(envelope(TEXT_A, junk, BY_ALICE, BY_BOB))
    assert set(found.user_ids) == {"alice@example.test", "bob@example.test"}
    assert "too few valid signatures" in refused(lambda: verifier.verify(envelope(TEXT_A, junk, BY_ALICE)))
    assert "its signature 1 of 3" in refused(
        lambda: verifier.verify_signatures(envelope(TEXT_A, junk, BY_ALICE, BY_BOB))
    )


def test_junk_over_the_received_hash_does_not_prevent_a_legacy_form() -> None:
    shown = envelope(TEXT_C, BY_CAROL)
    junk = entry("alice", ALICE, shown["metadata"]["hash"])
    assert verify_envelope(envelope(TEXT_C, junk, BY_CAROL), LEGACY).hash == HASH_CS


def test_too_many_signatures() -> None:
    shown = envelope(TEXT_A, *[BY_ALICE] * (MAX_ENTRIES + 1))
    assert "more than 200 signatures" in refused(lambda: verify_envelope(shown, PINS))


# --- what is not a dict, a text, a list --------------------------------------------------------------------

PLACES = [
    ("blockchain",),
    ("network",),
    ("metadata",),
    ("metadata", "hash"),
    ("metadata", "payloadAsString"),
    ("signedAddress",),
    ("signedAddress", "signatures"),
    ("signedAddress", "signatures", 0),
    ("signedAddress", "signatures", 0, "hashes"),
    ("signedAddress", "signatures", 0, "hashes", 0),
    ("signedAddress", "signatures", 0, "signature"),
    ("signedAddress", "signatures", 0, "signature", "userId"),
    ("signedAddress", "signatures", 0, "signature", "signature"),
    ("rulesContainer",),
    ("rulesSignatures",),
]


@pytest.mark.parametrize("value", [5, True, 1.5, "", "x", [], {}, [None], {"a": 1}, "\ud800", "\u00e9"], ids=repr)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_wrong_types(place: tuple[Any, ...], value: Any) -> None:
    shown = json.loads(json.dumps(GOOD))
    target = shown
    for each in place[:-1]:
        target = target[each]
    target[place[-1]] = value
    if place == ("network",) and isinstance(value, str):
        return  # nothing that is signed contradicts it
    verifier = Verifier(PINS)
    refused(lambda: verifier.verify(shown))
    with contextlib.suppress(CustodyVerificationError):
        verifier.verify_signatures(shown)


@pytest.mark.parametrize("shown", [None, 5, "x", [], {}, [GOOD]])
def test_no_envelope(shown: Any) -> None:
    verifier = Verifier(PINS)
    for work in (verifier.verify, verifier.verify_signatures, verifier.verify_rules):
        assert "not verified" in refused(lambda work=work: work(shown))  # type: ignore[misc]


@pytest.mark.parametrize("id_", [None, 5, [], ["x" * 100_000], "x" * 100_000, "\ud800"])
def test_any_id(id_: Any) -> None:
    refused(lambda: verify_envelope(envelope(TEXT_A, BY_ALICE, id=id_), PINS))
    assert verify_envelope({**GOOD, "id": id_}, PINS)


# --- pending requests --------------------------------------------------------------------------------------


def test_a_request_without_signatures_and_rules() -> None:
    found = Verifier(PINS).verify_signatures(envelope(TEXT_A, **NO_RULES))
    assert found == RequestSignatures(HASH_A, None)


def test_a_request_with_some_signatures() -> None:
    found = Verifier(PINS).verify_signatures(envelope(TEXT_A, BY_ALICE, BY_ALICE))
    assert found.user_ids == ("alice@example.test",)
    assert found.rules is not None
    assert found.rules.signed_by == PINS.fingerprints


def test_a_request_with_rules_and_without_signatures() -> None:
    verifier = Verifier(PINS)
    assert verifier.verify_signatures(envelope(TEXT_A)).user_ids == ()
    why = refused(lambda: verifier.verify_signatures(envelope(TEXT_A, rulesSignatures=None)))
    assert "signatures of its rules, are missing" in why
    why = refused(lambda: verifier.verify_signatures(envelope(TEXT_A, **NO_RULES, rulesContainerHash="x")))
    assert "does not have the rules that it names" in why


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (envelope(TEXT_A, BY_ALICE, **NO_RULES), "signatures of its rules, are missing"),
        (envelope(TEXT_A, blockchain="XLM", **NO_RULES), "the service shows 'XLM'"),
        (envelope(TEXT_B, BY_ALICE, BY_BOB), "its signature 2 of 2 is not valid: it covers another text"),
        (envelope(TEXT_A, entry("bob", ALICE, HASH_A, HASH_B)), "it is not one of 'bob@example.test'"),
        (envelope(TEXT_A, entry("eve", ALICE, HASH_A)), "'eve@example.test' is no user of its rules"),
        (envelope(TEXT_A, entry("alice", "AA==", HASH_A)), "it is not 64 bytes in base64"),
        (envelope(TEXT_C, BY_CAROL), "it covers another text"),
    ],
)
def test_pending_requests_that_are_refused(shown: dict[str, Any], why: str) -> None:
    assert why in refused(lambda: Verifier(PINS).verify_signatures(shown))


def test_a_legacy_form_of_a_pending_request() -> None:
    assert Verifier(LEGACY).verify_signatures(envelope(TEXT_C, BY_CAROL)).user_ids == ("carol@example.test",)


# --- networks ----------------------------------------------------------------------------------------------


def test_pinned_networks() -> None:
    pins = dataclasses.replace(PINS, networks=["mainnet"])
    assert verify_envelope(GOOD, pins)
    assert "its network 'testnet' is not pinned" in refused(
        lambda: verify_envelope({**GOOD, "network": "testnet"}, pins)
    )
    assert "does not show its network" in refused(lambda: verify_envelope({**GOOD, "network": None}, pins))


# --- rules -------------------------------------------------------------------------------------------------


def shown_rules(*signatures: object, data: bytes = DATA) -> dict[str, Any]:
    return {
        "rulesContainer": base64.b64encode(data).decode(),
        "rulesSignatures": [{"userId": "x", "signature": each} for each in signatures],
    }


ADMINS = [base64.b64encode(sign(name, DATA)).decode() for name in ("admin1", "admin2")]


def test_rules_alone() -> None:
    found = Verifier(PINS).verify_rules(shown_rules(None, 5, "x", *ADMINS))
    assert found.timestamp == 1767225600
    assert found.signed_by == PINS.fingerprints
    one = VerificationPins(PINS.superadmin_keys, 1)
    assert Verifier(one).verify_rules(shown_rules(ADMINS[1])).signed_by == PINS.fingerprints[1:]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (shown_rules(ADMINS[0], ADMINS[0]), "signed by 1 of the 2 pinned keys"),
        (shown_rules(), "signed by 0 of the 2 pinned keys"),
        (shown_rules(*ADMINS, data=DATA + b"\0"), "signed by 0 of the 2 pinned keys"),
        (shown_rules(*ADMINS * 17), "more than 32 signatures"),
        (shown_rules(*ADMINS) | {"rulesSignatures": SIGNATURES}, "signatures are missing"),
        (shown_rules(*ADMINS) | {"rulesContainer": CONTAINER[:-1]}, "are not base64"),
        (shown_rules(*ADMINS) | {"rulesContainer": "A" * 6_000_000}, "are larger than"),
        (shown_rules(*ADMINS) | {"rulesContainer": None}, "are missing"),
    ],
)
def test_rules_that_are_refused(rules: dict[str, Any], why: str) -> None:
    assert why in refused(lambda: Verifier(PINS).verify_rules(rules))


def test_rules_that_are_signed_and_cannot_be_read() -> None:
    data = DATA + b"\x50\x00"
    rules = shown_rules(*(base64.b64encode(sign(name, data)).decode() for name in ("admin1", "admin2")), data=data)
    assert "its rules cannot be read: its field timestamp comes twice" in refused(
        lambda: Verifier(PINS).verify_rules(rules)
    )


@pytest.mark.parametrize("signatures", ["AA==", "CgQSAgE=", "A" * 100_000, "Cgk="])
def test_signatures_of_rules_that_cannot_be_used(signatures: str) -> None:
    refused(lambda: verify_envelope({**GOOD, "rulesSignatures": signatures}, PINS))


def test_rules_of_a_date() -> None:
    assert verify_envelope(GOOD, dataclasses.replace(PINS, rules_not_before=1767225600))
    later = dataclasses.replace(PINS, rules_not_before=1767225601)
    why = refused(lambda: verify_envelope(GOOD, later))
    assert "its rules are of 2026-01-01T00:00:00Z, and none before 2026-01-01T00:00:01Z count" in why
    data = DATA[:-6]
    rules = shown_rules(*(base64.b64encode(sign(name, data)).decode() for name in ("admin1", "admin2")), data=data)
    assert "its rules are without a date" in refused(lambda: Verifier(later).verify_rules(rules))
    assert Verifier(PINS).verify_rules(rules).timestamp == 0


# --- what is remembered ------------------------------------------------------------------------------------


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The signatures that were verified."""
    found: list[bytes] = []
    verifies = PublicKey.verifies_digest

    def spy(self: PublicKey, signature: bytes, digest: bytes) -> bool:
        found.append(self.point + digest + signature)
        return verifies(self, signature, digest)

    monkeypatch.setattr(PublicKey, "verifies_digest", spy)
    return found


def test_nothing_is_verified_twice(verified: list[bytes]) -> None:
    verifier = Verifier(PINS)
    for _ in range(3):
        verifier.verify(GOOD)
        verifier.verify(envelope(TEXT_B, BY_ALICE))
        refused(lambda: verifier.verify(envelope(TEXT_A, BY_ALICE, entry("bob", ALICE, HASH_A, HASH_B))))
        refused(lambda: verifier.verify({**GOOD, "rulesSignatures": "AA=="}))
        verifier.verify_rules(shown_rules(*ADMINS))
    assert len(verified) == len(set(verified))


def test_only_what_is_needed_is_verified(verified: list[bytes]) -> None:
    verify_envelope(envelope(TEXT_A, *[signed_entry("carol", HASH_A)] * 5, BY_ALICE, BY_BOB), PINS)
    assert len(verified) == 6  # three for the rules, one for each user


def test_rules_that_failed_stay_so_and_others_are_not_affected() -> None:
    verifier = Verifier(PINS)
    for _ in range(2):
        refused(lambda: verifier.verify({**GOOD, "rulesSignatures": "CgQSAgEB"}))
        assert verifier.verify(GOOD)


def test_little_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_custody.client.verification.verifier.MAX_SIGNATURES", 2)
    verifier = Verifier(PINS)
    for number in range(5):
        refused(lambda number=number: verifier.verify({**GOOD, "rulesSignatures": "CgQSAgEB" * number}))  # type: ignore[misc]
        assert verifier.verify(GOOD)
    assert (verifier._verifies.cache_info().currsize, verifier._signed_rules.cache_info().currsize) == (2, 1)


def test_several_threads() -> None:
    verifier, found = Verifier(PINS), []
    threads = [threading.Thread(target=lambda: found.append(verifier.verify(GOOD))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [verify_envelope(GOOD, PINS)] * 8


def test_as_json() -> None:
    found = json.loads(json.dumps(verify_envelope(GOOD, PINS).to_json()))
    assert found["fields"]["label"] == "demo A"
    assert found["rules"]["signed_by"] == list(PINS.fingerprints)
    assert found["user_ids"] == ["alice@example.test", "bob@example.test"]
    assert found["applied"][0]["path"][0] == {
        "group_id": "ops",
        "minimum": 2,
        "user_ids": ["alice@example.test", "bob@example.test"],
    }
