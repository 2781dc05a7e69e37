"""The text that is signed: one way to read it, and its legacy forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.keys.envelopes import TEXT_C, TEXT_CS, hash_of

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_text import (
    SignedText,
    legacy_forms,
    read_json_object,
    read_signed_text,
)

BASE: dict[str, Any] = {
    "currency": "ETH",
    "addressType": "individual",
    "address": "0xA1",
    "memo": "",
    "label": "",
    "customerId": "",
    "exchangeAccountId": "",
    "linkedInternalAddresses": [],
}


def compact(**fields: Any) -> str:
    rest = {name: BASE[name] for name in BASE if name not in fields}
    return json.dumps({**rest, **fields}, separators=(",", ":"))


def read(text: str) -> SignedText:
    return read_signed_text(text, hash_of(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (compact(memo="x").replace('"x"', '"\ud800"'), "is not Unicode text"),
        (compact(memo="x" * (1024 * 1024 - len(compact()) + 1)), "is larger than"),
        (compact(network=None), "^does not describe a whitelisted address: network: Input should be a valid string$"),
        (compact(linkedWallets=["7"]), "linkedWallets.0: Input should be a valid dictionary"),
        (compact(linkedInternalAddresses={}), "linkedInternalAddresses: Input should be a valid list"),
    ],
    ids=lambda value: value[-40:],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        read(text)


@pytest.mark.parametrize("name", BASE)
def test_a_key_that_is_always_there_is_missing(name: str) -> None:
    fields = {key: BASE[key] for key in BASE if key != name}
    text = json.dumps({**fields, "contractType": "", "linkedWallets": [], "network": "x"}, separators=(",", ":"))
    with pytest.raises(RefusalError, match=f"^does not describe a whitelisted address: {name}: Field required$"):
        read(text)
    # A reader can still see the text, because it has its hash.
    assert name not in read_json_object(text, hash_of(text))


def test_an_old_text_has_all_that_old_texts_have() -> None:
    assert read(compact()).fields == BASE
    assert read(compact(memo="x" * (1024 * 1024 - len(compact())))).fields["customerId"] == ""


@pytest.mark.parametrize("depth", [1, 13, 14, 15])
def test_one_limit_for_all_readers(depth: int) -> None:
    text = compact(new=json.loads("[" * depth + "0" + "]" * depth))
    results = []
    for reader in (read_signed_text, read_json_object):
        try:
            reader(text, hash_of(text))
            results.append("read")
        except RefusalError as error:
            results.append(str(error))
    assert results == (["read"] * 2 if depth <= 14 else ["is nested too deeply"] * 2)


def legacy(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.hash, each.omitted) for each in legacy_forms(text, read(text))]


@pytest.mark.parametrize(("number", "is_read"), [(199, True), (200, True), (201, False)])
@pytest.mark.parametrize("in_link", [0, 1, 100])
def test_a_text_has_so_many_keys_and_no_more(number: int, is_read: bool, in_link: int) -> None:
    own = {f"k{each}": "" for each in range(number - len(BASE) - in_link)}
    # The same keys of each link count once.
    link = {f"l{each}": "" for each in range(in_link)}
    text = compact(**own, linkedInternalAddresses=[link, link])
    if is_read:
        assert read_json_object(text, hash_of(text))
    else:
        with pytest.raises(RefusalError, match="has more than 200 keys"):
            read_json_object(text, hash_of(text))


def test_legacy_forms() -> None:
    contract = TEXT_C.replace(',"contractType":""', "")
    label = TEXT_C.replace(',"label":"renamed later"', "")
    assert legacy(TEXT_C) == [
        (hash_of(contract), ("contractType",)),
        (hash_of(label), ("linkedInternalAddresses.label",)),
        (hash_of(TEXT_CS), ("contractType", "linkedInternalAddresses.label")),
    ]
    assert legacy(TEXT_CS) == []


NAMES = st.sampled_from(["memo", "label", "contractType", "customerId", "new", "linkedInternalAddresses"])
VALUES = st.text(alphabet='ab"\\,:{}[]', max_size=30) | st.sampled_from(
    [',"contractType":"', ',"label":"x"}', '"}', "\\"]
)
LINKS = st.lists(
    st.fixed_dictionaries({"id": st.just("1"), "address": VALUES}, optional={"label": VALUES, "other": VALUES}),
    max_size=2,
)


@given(st.dictionaries(NAMES, VALUES, max_size=6), LINKS)
def test_a_legacy_form_lacks_these_keys_and_nothing_else(fields: dict[str, Any], links: list[dict[str, str]]) -> None:
    text = compact(**{**fields, "linkedInternalAddresses": links})
    received = read(text)
    for form in legacy_forms(text, received):
        back = dict(form.fields)
        if "contractType" in form.omitted:
            back["contractType"] = received.fields["contractType"]
        if "linkedInternalAddresses.label" in form.omitted:
            assert all("label" not in link for link in back["linkedInternalAddresses"])
            back["linkedInternalAddresses"] = received.fields["linkedInternalAddresses"]
        assert form.omitted
        assert back == received.fields


@given(st.text(alphabet='{}[]",:\\u0d8ae1 ', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except RefusalError:
        return
