"""The text that is signed: one way to read it, and its legacy forms."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worked_example import HASH_CS, TEXT_A, TEXT_B, TEXT_C, TEXT_CS, TEXT_X

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_text import (
    MAX_PAYLOAD_BYTES,
    SignedText,
    legacy_forms,
    read_object,
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
DEEP = json.loads("[" * 40 + "]" * 40)


def compact(**fields: Any) -> str:
    rest = {name: BASE[name] for name in BASE if name not in fields}
    return json.dumps({**rest, **fields}, separators=(",", ":"))


def read(text: str) -> SignedText:
    return read_signed_text(text, hash_of(text))


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


@pytest.mark.parametrize("text", [TEXT_A, TEXT_B, TEXT_C, TEXT_CS])
def test_read(text: str) -> None:
    assert read(text).fields == json.loads(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "is not a JSON object"),
        ("null", "is not a JSON object"),
        ("{", "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        ("{} {}", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "is not the text of an address: currency: Field required"),
        (compact(currency=""), "not the text of an address: currency: String should have at least 1"),
        (compact(address=None), "address: Input should be a valid string"),
        (compact(currency=5), "currency: Input should be a valid string"),
        (compact(network=None), "network: Input should be a valid string"),
        (compact(memo=5), "memo: Input should be a valid string"),
        (compact(exchangeAccountId=7), "exchangeAccountId: Input should be a valid string"),
        (compact(exchangeAccountId="x"), "exchangeAccountId: String should match"),
        (compact(linkedInternalAddresses=None), "linkedInternalAddresses: Input should be a valid list"),
        (compact(linkedInternalAddresses={}), "linkedInternalAddresses: Input should be a valid list"),
        (compact(linkedInternalAddresses=[{"id": 12}]), "linkedInternalAddresses.0.id: Input should be a valid string"),
        (compact(linkedInternalAddresses=[{"address": "a"}]), "linkedInternalAddresses.0.id: Field required"),
        (compact(linkedWallets=[{"id": "7"}]), "linkedWallets.0.id: Input should be a valid integer"),
        (compact(linkedWallets=[{"id": True}]), "linkedWallets.0.id: Input should be a valid integer"),
        (compact(linkedWallets=[{"id": 7, "path": 5}]), "linkedWallets.0.path: Input should be a valid string"),
        (compact(linkedWallets=["7"]), "linkedWallets.0: Input should be a valid dictionary"),
        (compact(linkedWallets=[{"id": 7.0}]), "has a number that is not whole"),
        (compact(new=1.5), "has a number that is not whole"),
        (compact(new=1).replace(":1}", ":1e999}"), "has a number that is not whole"),
        (compact(new=1).replace(":1}", ":NaN}"), "has a number that is not whole"),
        (compact(new=1).replace(":1}", ":" + "9" * 5000 + "}"), "is not JSON"),
        (compact(memo="\ud800"), "half of a surrogate pair"),
        (compact(new=[{"\udfff": 1}]), "half of a surrogate pair"),
        (compact(memo="x").replace('"x"', '"\ud800"'), "is not Unicode text"),
        (compact(memo="x" * MAX_PAYLOAD_BYTES), "is larger than"),
        (compact(new=DEEP), "is nested too deeply"),
        (compact(linkedWallets=[{"id": 7, "new": DEEP}]), "is nested too deeply"),
        (compact(Address="b"), "which differ in case"),
        (compact(Network="b"), "the key network in another case"),
        (compact(new=1, New=2), "which differ in case"),
        (compact(a={"b": 1, "B": 2}), "which differ in case"),
        (compact(memo="a").replace("}", ',"memo":"a"}'), "has the key memo twice"),
        (TEXT_X, "has the key contractType twice"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        read(text)


@pytest.mark.parametrize("name", BASE)
def test_a_key_that_is_always_there_is_missing(name: str) -> None:
    fields = {key: BASE[key] for key in BASE if key != name}
    text = json.dumps({**fields, "contractType": "", "linkedWallets": [], "network": "x"}, separators=(",", ":"))
    with pytest.raises(RefusalError, match=f"^is not the text of an address: {name}: Field required$"):
        read(text)
    # Whoever looks at it may see it all the same: it has its hash.
    assert name not in read_object(text, hash_of(text))


def test_an_old_text_has_all_that_old_texts_have() -> None:
    assert read(compact()).fields == BASE


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"new": DEEP}),
        '{"a":' * 200 + "[]" + "}" * 200,
        '{"a":' * 960 + "1" + "}" * 960,
        json.dumps({"a": [DEEP] * 20}),
    ],
)
def test_what_is_deep_is_not_read_by_anybody(text: str) -> None:
    with pytest.raises(RefusalError, match=r"is nested too deeply|is not JSON"):
        read_object(text, hash_of(text))


@pytest.mark.parametrize("depth", [1, 13, 14, 15])
def test_one_limit_for_both(depth: int) -> None:
    text = compact(new=json.loads("[" * depth + "0" + "]" * depth))
    results = []
    for reader in (read_signed_text, read_object):
        try:
            reader(text, hash_of(text))
            results.append("read")
        except RefusalError as error:
            results.append(str(error))
    assert results == (["read"] * 2 if depth <= 14 else ["is nested too deeply"] * 2)


def test_many_values_are_not_deep() -> None:
    text = compact(linkedInternalAddresses=[{"id": str(n), "address": "a"} for n in range(100)])
    assert len(read_object(text, hash_of(text))["linkedInternalAddresses"]) == 100
    assert read_object('{"a":"[[[[[[[[[[[[[[[[[[[["}', hash_of('{"a":"[[[[[[[[[[[[[[[[[[[["}'))


def test_another_hash() -> None:
    with pytest.raises(RefusalError, match="does not have the hash"):
        read_signed_text(TEXT_A, HASH_CS)
    with pytest.raises(RefusalError, match="does not have the hash"):
        read_signed_text(TEXT_A, hashlib.sha256(TEXT_A.encode()).hexdigest().upper())


def test_what_is_escaped_is_read() -> None:
    assert read(compact(memo="\U0001f600\u003c\u00e9")).fields["memo"] == "\U0001f600<\u00e9"


def legacy(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.hash, each.omitted) for each in legacy_forms(text, read(text))]


def test_legacy_forms() -> None:
    contract = TEXT_C.replace(',"contractType":""', "")
    label = TEXT_C.replace(',"label":"renamed later"', "")
    assert legacy(TEXT_C) == [
        (hashlib.sha256(contract.encode()).hexdigest(), ("contractType",)),
        (hashlib.sha256(label.encode()).hexdigest(), ("linkedInternalAddresses.label",)),
        (HASH_CS, ("contractType", "linkedInternalAddresses.label")),
    ]
    assert legacy(TEXT_CS) == []


@pytest.mark.parametrize(
    "text",
    [
        # The expression sees the end of a value, JSON does not.
        compact(contractType='"', memo="x"),
        compact(memo=',"contractType":"', label="x"),
        compact(contractType='",', memo=""),
        # A key at another place, or another kind of link.
        compact(new={"a": 1, "contractType": ""}),
        compact(linkedWallets=[{"id": 7, "label": "x"}]),
        compact(label="x"),
        compact(linkedInternalAddresses=[{"id": "1", "label": 'a"b'}]),
        # Not all of them.
        compact(linkedInternalAddresses=[{"id": "1", "label": "a"}, {"id": "2", "label": "a", "address": "x"}]),
    ],
)
def test_changes_that_remove_something_else(text: str) -> None:
    assert legacy(text) == []


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
