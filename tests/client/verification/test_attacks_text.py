"""Texts that a malicious service shows: rows 1, 13, 14, 17 and 18 of the attack list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from whitelist_forge import (
    ADDRESS,
    LINKED_ADDRESS,
    TEXT_A,
    TEXT_B,
    WALLET,
    compact,
    envelope,
    hash_of,
    retext,
    text_of,
)
from whitelist_verdicts import LEGACY, PINS, accept, bounded, plain, refuse, refused, signers

from airflow_custody.client.verification.verifier import VerificationPins, Verifier

BOTH = ("alice", "bob")
SIGNED_A = envelope(TEXT_A, *BOTH)


def test_fields_are_those_of_the_signed_text() -> None:
    assert plain(accept(SIGNED_A).fields) == json.loads(TEXT_A)
    assert plain(accept(envelope(TEXT_B, "alice")).fields) == json.loads(TEXT_B)
    assert accept(SIGNED_A).omitted == ()


# Row 1: another text

CHANGED = (
    TEXT_A.replace("A1", "A2"),
    TEXT_A.replace("demo A", "demo B"),
    TEXT_A.replace('"memo":""', '"memo":"1"'),
    TEXT_A.replace("ETH", "BTC"),
    TEXT_A.replace(":", ": "),
    TEXT_A + "\n",
    TEXT_A + "\0",
    "\ufeff" + TEXT_A,
    TEXT_A[:-1],
    TEXT_A.replace("demo A", "demo\u00a0A"),
    TEXT_A.replace("demo A", "d\u0435mo A"),
    TEXT_A.replace("demo", "\\u0064emo"),
    compact(dict(reversed(json.loads(TEXT_A).items()))),
    TEXT_B,
)


@pytest.mark.parametrize("text", CHANGED, ids=range(len(CHANGED)))
def test_row_1_another_text_with_or_without_its_hash(text: str) -> None:
    refuse(retext(SIGNED_A, text))
    refuse(SIGNED_A | {"metadata": SIGNED_A["metadata"] | {"payloadAsString": text}})
    refuse(retext(SIGNED_A, text), LEGACY)


@pytest.mark.parametrize(
    "metadata",
    [
        {"hash": hash_of(TEXT_A).upper()},
        {"hash": f"{hash_of(TEXT_A)} "},
        {"hash": f"0x{hash_of(TEXT_A)}"},
        {"hash": hash_of(TEXT_A)[:-1]},
        {"hash": hash_of(TEXT_B)},
        {"hash": ""},
        {"hash": None},
        {"hash": int(hash_of(TEXT_A), 16)},
        {"hash": [hash_of(TEXT_A)]},
        {"payloadAsString": None},
        {"payloadAsString": json.loads(TEXT_A)},
        {"payloadAsString": TEXT_A.encode()},
        {"payloadAsString": [TEXT_A]},
        {"payloadAsString": "", "hash": ""},
        {"payloadAsString": "", "hash": hash_of("")},
    ],
    ids=str,
)
def test_row_1_text_and_hash_must_be_there_and_agree(metadata: dict[str, Any]) -> None:
    refuse(SIGNED_A | {"metadata": SIGNED_A["metadata"] | metadata})


@pytest.mark.parametrize("metadata", [None, [], "", 5, {}])
def test_row_1_no_metadata(metadata: Any) -> None:
    refuse(SIGNED_A | {"metadata": metadata})


@pytest.mark.parametrize("payload", [json.loads(TEXT_B), {"address": "0xdead"}, [], "text", 5])
def test_row_1_the_decoded_payloads_are_not_read(payload: Any) -> None:
    shown = SIGNED_A["signedAddress"] | {"payload": payload}
    given = SIGNED_A | {"metadata": SIGNED_A["metadata"] | {"payload": payload}, "signedAddress": shown}
    assert plain(accept(given).fields) == json.loads(TEXT_A)


def test_rows_13_and_14_what_no_signature_covers_is_not_reported() -> None:
    given = SIGNED_A | {"id": "5", "status": "deleted", "action": "delete", "label": "another", "address": "0xdead"}
    result = accept(given)
    assert plain(result.fields) == json.loads(TEXT_A)
    assert not {"5", "deleted", "delete", "another", "0xdead"} & set(json.dumps(result.to_json()).split('"'))


LINK = {"id": "12", "address": LINKED_ADDRESS}
LINKS = [LINK, {"id": "13", "address": "0xB"}]


# Row 17: texts that break readers, though users signed them

BREAKING = (
    text_of(label="\ud800"),
    text_of(label="x").replace('"x"', '"\\ud800"'),
    text_of(label="x").replace('"x"', '"\\udc00\\ud800"'),
    text_of(label="x").replace('"x"', '"\\x"'),
    text_of(label="x").replace('"x"', '"\n"'),
    text_of(label="x").replace('"x"', "NaN"),
    text_of(label="x").replace('"x"', "-Infinity"),
    text_of(label="x").replace('"x"', "'x'"),
    TEXT_A + TEXT_A,
    TEXT_A + "x",
    TEXT_A.replace("}", ",}"),
    TEXT_A.replace("[]", "[" * 100_000 + "]" * 100_000),
    TEXT_A.replace("[]", '[{"a":' * 50_000),
    TEXT_A.replace("}", ',"more":' + "[" * 100_000 + "]" * 100_000 + "}"),
    text_of(linkedWallets=[WALLET]).replace(":7,", f":{'7' * 5000},"),
    text_of(linkedWallets=[WALLET]).replace(":7,", ":7e999,"),
    text_of(linkedWallets=[WALLET]).replace(":7,", ":7.0,"),
    text_of(linkedWallets=[WALLET]).replace(":7,", ":true,"),
    text_of(linkedWallets=[WALLET]).replace(":7,", ':"7",'),
    text_of(linkedInternalAddresses=[LINK | {"id": 12}]),
    text_of(linkedInternalAddresses=LINK),
    text_of(linkedInternalAddresses=[None]),
    text_of(linkedInternalAddresses=["0xA"]),
    text_of(linkedInternalAddresses="[]"),
    text_of(linkedWallets=WALLET),
    text_of(linkedWallets=[WALLET | {"path": 7}]),
    text_of(linkedWallets=[WALLET | {"path": None}]),
    text_of(linkedWallets=["demo/7"]),
    text_of(linkedWallets=[[WALLET]]),
    text_of(memo=5),
    text_of(label=["demo A"]),
    text_of(network=5),
    text_of(network=["mainnet"]),
)


@pytest.mark.parametrize("text", BREAKING, ids=range(len(BREAKING)))
def test_row_17_texts_that_are_no_texts(text: str) -> None:
    with bounded():
        for pins in (PINS, LEGACY):
            refuse(envelope(text, *BOTH, "carol"), pins)
            refused(lambda pins=pins: Verifier(pins).verify_signatures(envelope(text, "alice")))  # type: ignore[misc]


@pytest.mark.parametrize("given", [None, 5, "", "envelope", [], [SIGNED_A], {}, {"result": SIGNED_A}, True])
def test_row_17_no_envelope(given: Any) -> None:
    refuse(given)
    refused(lambda: Verifier(PINS).verify_signatures(given))


@pytest.mark.parametrize(
    "signed_address",
    [None, 5, "", [], {}, {"signatures": None}, {"signatures": {}}, {"signatures": "x"}, {"signatures": 5}],
)
def test_row_17_no_signatures(signed_address: Any) -> None:
    refuse(SIGNED_A | {"signedAddress": signed_address})


# Row 18: signed, but no address

OTHERS = (
    "{}",
    "[]",
    "null",
    '"text"',
    "5",
    f"[{TEXT_A}]",
    text_of(without=["currency"]),
    text_of(without=["address"]),
    text_of(currency=None),
    text_of(currency=5),
    text_of(currency=["ETH"]),
    text_of(address=None),
    text_of(address=[ADDRESS]),
    text_of(address={"address": ADDRESS}),
    compact({"blockchain": "ETH", "name": "USD", "symbol": "USD", "contractAddress": ADDRESS}),
    compact({"id": 1, "amount": "1", "currency": "ETH", "destination": ADDRESS}),
    text_of(without=["linkedInternalAddresses"]).replace('"address"', '"destination"'),
    # With both, and still of another kind.
    compact({"address": ADDRESS, "currency": "ETH"}),
    compact(
        {"type": "transfer_request", "currency": "ETH", "address": ADDRESS, "amount": "5", "memo": "", "label": ""}
    ),
    *(text_of(without=[name]) for name in ("addressType", "memo", "label", "customerId", "exchangeAccountId")),
    text_of(without=["linkedInternalAddresses"]),
)


@pytest.mark.parametrize("text", [*OTHERS, TEXT_A.replace(ADDRESS, ""), TEXT_A.replace("ETH", "")])
def test_row_18_a_signed_text_that_is_no_address(text: str) -> None:
    for pins in (PINS, LEGACY, VerificationPins(PINS.superadmin_keys, 1)):
        for blockchain in ("ETH", "", None):
            refuse(envelope(text, *BOTH, "carol", blockchain=blockchain), pins)


def test_texts_that_are_odd_but_signed() -> None:
    for text in (
        text_of(label="\u00e9\u4e2d\U0001f600"),
        text_of(label="x").replace('"x"', '"\\ud83d\\ude00 \\u003c\\u0026\\u003e"'),
        text_of(memo=',"contractType":"x"'),
        text_of(tnParticipantID="tn-1", contractType="ERC20", exchangeAccountId="7", customerId="c"),
        text_of(without=["contractType"]),
        text_of(linkedInternalAddresses=LINKS),
        text_of(linkedWallets=[{"id": 7, "name": "no path"}]),
    ):
        result = accept(envelope(text, *BOTH), LEGACY)
        assert plain(result.fields) == json.loads(text)
        assert signers(result) == set(BOTH)
