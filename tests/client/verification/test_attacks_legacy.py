"""Keys twice, and what old texts lacked: row 11 of the attack list, and legacy hashes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from whitelist_forge import (
    ADDRESS,
    LINKED_ADDRESS,
    TEXT_A,
    TEXT_B,
    TEXT_C,
    TEXT_CS,
    WALLET,
    envelope,
    hash_of,
    retext,
    signing,
    text_of,
)
from whitelist_verdicts import LEGACY, PINS, accept, bounded, plain, refuse, refused

from airflow_custody.client.verification.verifier import Verifier

BOTH = ("alice", "bob")
SIGNED_A = envelope(TEXT_A, *BOTH)


def old(received: str, signed: str, *names: str) -> dict[str, Any]:
    """Return an envelope with a text beside signatures of another one: two of ``ops`` and one of the board's."""
    return envelope(received, *(signing(name, hash_of(signed)) for name in names or (*BOTH, "carol")))


# Row 11: keys twice. None of these is a text that the service would write: whoever signs one is not helped.

TWICE = (
    TEXT_A.replace("}", ',"more":1,"more":1}'),
    TEXT_A.replace("}", ',"more":1,"More":1}'),
    TEXT_A.replace("}", ',"label":"x"}'),
    TEXT_A.replace("{", '{"address":"0xdead",'),
    TEXT_A.replace("}", f',"address":"{ADDRESS}"}}'),
    TEXT_A.replace("{", '{"Address":"0xdead",'),
    TEXT_A.replace("}", ',"ADDRESS":"0xdead"}'),
    TEXT_A.replace("}", ',"Memo":""}'),
    TEXT_A.replace("}", ',"\\u0061ddress":"0xdead"}'),
    TEXT_A.replace("}", ',"addre\u017f\u017f":"0xdead"}'),
    text_of(linkedWallets=[WALLET]).replace('"name"', '"id":8,"name"'),
    text_of(linkedWallets=[WALLET]).replace('"name"', '"Path":"demo/8","name"'),
    text_of(linkedInternalAddresses=[{"id": "1", "address": "0xA", "label": ""}]).replace(
        '"id":"1"', '"id":"1","ID":""'
    ),
)


@pytest.mark.parametrize("text", TWICE, ids=range(len(TWICE)))
def test_row_11_a_key_twice(text: str) -> None:
    for pins in (PINS, LEGACY):
        refuse(envelope(text, *BOTH, "carol"), pins)
        refuse(retext(SIGNED_A, text), pins)


LABEL = ',"label":"x"}'


def example_14() -> str:
    """Return the text of the worked example in which the memo disappears."""
    injected = ',"contractType":"\\",","contractType":"\\"memo","contractType":"\\":","contractType":"\\"4242"'
    return TEXT_CS.replace(',"memo":"4242"', injected)


def test_row_11_the_worked_examples_injections() -> None:
    # To JSON, three strings swallow the memo; taking out what the expression finds restores the signed text.
    text = example_14()
    assert text.replace(',"contractType":"\\"', "") == TEXT_CS
    for pins in (PINS, LEGACY):
        refuse(old(text, TEXT_CS), pins)


@pytest.mark.parametrize("key", ["currency", "addressType", "address", "memo", "label", "customerId"])
@pytest.mark.parametrize("value", ["\\", "", "x"])
def test_row_11_injections_around_each_key(key: str, value: str) -> None:
    injected = f',"contractType":"{value}"'
    at = TEXT_CS.index(f'"{key}"')
    for end in (at, at + 1, at + 2, TEXT_CS.index(":", at), TEXT_CS.index(":", at) + 2):
        for again in (at, end, TEXT_CS.index('"linked'), len(TEXT_CS) - 1):
            first, second = sorted((end, again))
            text = TEXT_CS[:first] + injected + TEXT_CS[first:second] + injected + TEXT_CS[second:]
            refuse(old(text, TEXT_CS), LEGACY)


@pytest.mark.parametrize("signed", [TEXT_A, TEXT_C, TEXT_CS, TEXT_B])
def test_row_11_a_label_behind_all(signed: str) -> None:
    refuse(old(signed[:-1] + LABEL, signed))
    refuse(old(signed[:-1] + LABEL, signed), LEGACY)


LINK = {"id": "12", "address": LINKED_ADDRESS}
LINKS = [LINK, {"id": "13", "address": "0xB"}]
LABELLED = [link | {"label": f"label {link['id']}"} for link in LINKS]
UNSIGNED_LABEL = ("linkedInternalAddresses.label",)


@pytest.mark.parametrize(
    ("received", "signed", "omitted"),
    [
        pytest.param(TEXT_C, TEXT_CS, ("contractType", *UNSIGNED_LABEL), id="before both"),
        pytest.param(text_of(), text_of(without=["contractType"]), ("contractType",), id="before contract types"),
        pytest.param(
            text_of(contractType="ERC20", linkedWallets=[WALLET]),
            text_of(linkedWallets=[WALLET], without=["contractType"]),
            ("contractType",),
            id="with a wallet",
        ),
        pytest.param(
            text_of(linkedInternalAddresses=LABELLED),
            text_of(linkedInternalAddresses=LINKS),
            UNSIGNED_LABEL,
            id="before labels",
        ),
        pytest.param(
            text_of(linkedInternalAddresses=[LABELLED[0], LINKS[1]]),
            text_of(linkedInternalAddresses=LINKS),
            UNSIGNED_LABEL,
            id="one label",
        ),
        pytest.param(
            text_of(linkedInternalAddresses=LABELLED, contractType="x"),
            text_of(linkedInternalAddresses=LABELLED, without=["contractType"]),
            ("contractType",),
            id="labels are signed",
        ),
        pytest.param(TEXT_CS[:-1] + ',"contractType":"ERC20"}', TEXT_CS, ("contractType",), id="invented"),
        pytest.param(
            TEXT_CS.replace(',"memo"', ',"contractType":"ERC20","memo"'), TEXT_CS, ("contractType",), id="elsewhere"
        ),
    ],
)
def test_legacy_forms(received: str, signed: str, omitted: tuple[str, ...]) -> None:
    result = accept(old(received, signed), LEGACY)
    assert result.legacy
    assert result.hash == hash_of(signed)
    assert plain(result.fields) == json.loads(signed)
    assert set(result.omitted) == set(omitted)
    refuse(old(received, signed))
    refuse(old(received, signed, "mallory"), LEGACY)
    # Nothing of it counts as the received text's: its hash must be that text's.
    given = old(received, signed)
    given["metadata"]["hash"] = hash_of(signed)
    refuse(given, LEGACY)
    pending = Verifier(LEGACY).verify_signatures(old(received, signed, "alice"))
    assert len(pending.user_ids) == 1
    refused(lambda: Verifier(PINS).verify_signatures(old(received, signed, "alice")))


def test_a_signed_text_is_no_legacy_form_where_these_are_allowed() -> None:
    for text in (TEXT_A, TEXT_C, TEXT_CS):
        result = accept(envelope(text, *BOTH), LEGACY)
        assert (result.legacy, result.omitted, plain(result.fields)) == (False, (), json.loads(text))


@pytest.mark.parametrize(
    ("received", "signed"),
    [
        pytest.param(TEXT_C, TEXT_C.replace(',"label":"renamed later"', ',"label":"before"'), id="renamed"),
        pytest.param(
            text_of(linkedInternalAddresses=[LINK | {"label": 'a"b'}]),
            text_of(linkedInternalAddresses=[LINK]),
            id="escaped quote in a label",
        ),
        pytest.param(
            text_of(linkedWallets=[WALLET | {"label": "x"}]), text_of(linkedWallets=[WALLET]), id="label of a wallet"
        ),
        pytest.param(
            text_of(linkedWallets=[WALLET | {"contractType": "x"}]),
            text_of(linkedWallets=[WALLET]),
            id="contract type of a wallet",
        ),
        pytest.param(
            text_of(linkedInternalAddresses=[LINK | {"contractType": "x"}]),
            text_of(linkedInternalAddresses=[LINK]),
            id="contract type of a linked address",
        ),
        pytest.param(
            text_of(linkedInternalAddresses=[LINK | {"more": {"id": 1, "label": "x"}}]),
            text_of(linkedInternalAddresses=[LINK | {"more": {"id": 1}}]),
            id="label further in",
        ),
        pytest.param(
            text_of(without=["label"])[:-1] + LABEL, text_of(without=["label"]), id="label of the address itself"
        ),
        pytest.param(TEXT_CS.replace("{", '{"contractType":"x",', 1), TEXT_CS, id="first key"),
        pytest.param(TEXT_CS[:-1] + ',"contract\\u0054ype":"x"}', TEXT_CS, id="escaped key"),
        pytest.param(TEXT_CS[:-1] + ',"ContractType":"x"}', TEXT_CS, id="in capitals"),
        pytest.param(TEXT_CS[:-1] + ',"contractType": "x"}', TEXT_CS, id="with a space"),
        pytest.param(
            text_of(linkedInternalAddresses=[{"id": "12", "label": "x", "address": LINKED_ADDRESS}]),
            text_of(linkedInternalAddresses=[LINK]),
            id="a label that is not the last key",
        ),
        pytest.param(TEXT_CS[:-1] + ',"contractType":null}', TEXT_CS, id="null"),
        pytest.param(TEXT_CS[:-1] + ',"contractType":"x","contractType":"x"}', TEXT_CS, id="twice"),
        pytest.param(TEXT_CS[:-1] + ',"contractType":"x"' * 500 + "}", TEXT_CS, id="many times"),
        pytest.param(TEXT_CS[:-1] + ',"contractType":"x"', TEXT_CS[:-1], id="no JSON"),
        pytest.param(TEXT_CS + ',"contractType":"x"', TEXT_CS, id="behind the end"),
        pytest.param(text_of(memo=',"contractType":"x"').replace('\\"', '"'), text_of(memo=""), id="inside of a value"),
        pytest.param(TEXT_C.replace(',"memo":"4242"', ""), TEXT_CS, id="another key left out"),
        pytest.param(TEXT_CS, TEXT_C, id="the new text's signatures on the old text"),
    ],
)
def test_what_is_no_legacy_form(received: str, signed: str) -> None:
    for pins in (PINS, LEGACY):
        refuse(old(received, signed), pins)


def test_a_line_is_chosen_by_the_text_that_was_signed() -> None:
    signed = text_of(linkedWallets=[WALLET], without=["contractType"])
    received = text_of(linkedWallets=[WALLET], contractType="ERC20")
    (applied,) = accept(old(received, signed, "alice"), LEGACY).applied
    assert applied.wallet_path == "demo/7"


@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_row_17_legacy_forms_of_long_texts_take_bounded_time(size: int) -> None:
    for filling in (',"contractType":"', ',"label":"', ',"label":"x"', ',"contractType":"\\"', "\\", ",", "[", "{"):
        text = TEXT_CS[:-1] + filling * (size // len(filling)) + "}"
        with bounded():
            refuse(old(text, TEXT_CS), LEGACY)
