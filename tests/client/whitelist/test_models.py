"""Requested contents, ids, and reported requests: each is accepted unchanged, or refused by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.whitelist.encodings import x_address
from support.whitelist.whitelist_plans import XRP

from airflow_custody.client import (
    CustodyRequestError,
    CustodyResponseError,
    WhitelistEnvelope,
    WhitelistFileError,
    WhitelistRequest,
)
from airflow_custody.client.text import has_unprintable
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.signed_text import MAX_PAYLOAD_BYTES
from airflow_custody.client.whitelist.envelopes import user_ids
from airflow_custody.client.whitelist.files.reading import parse_whitelist
from airflow_custody.client.whitelist.ids import check_request_id, check_request_ids

REQUIRED: dict[str, Any] = {"label": "l", "address": "a", "blockchain": "ETH"}


@given(st.text())
def test_an_address_is_sent_unchanged_or_refused(address: str) -> None:
    if not address or has_unprintable(address) or any(map(str.isspace, address)):
        with pytest.raises(CustodyRequestError, match="address"):
            WhitelistRequest(label="a", address=address, blockchain="ETH")
    else:
        assert WhitelistRequest(label="a", address=address, blockchain="ETH").to_wire()["address"] == address


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\xa0", "\u200b", "\ufeff"])
def test_only_an_address_has_nothing_blank_in_it(blank: str) -> None:
    for chain in ("ETH", "a chain that is not known"):
        with pytest.raises(CustodyRequestError, match=r"address contains (white space|a control or invisible)"):
            WhitelistRequest(label="a", address=f"0x5aAe{blank}E7Ef", blockchain=chain)
    for name in ("label", "memo", "network"):
        assert WhitelistRequest(**{**REQUIRED, name: "a b"}).model_dump()[name] == "a b"


X_12 = x_address(tag=12)
#: Memos on XRP, and why each is refused; empty if it is accepted.
XRP_MEMOS = [
    (XRP, "0", ""),
    (XRP, "4294967295", ""),
    (X_12, "12", ""),
    (x_address(), "99", ""),
    (X_12, "99", "memo '99' is not the tag 12 that the X-address contains"),
    (X_12, "0", "memo '0' is not the tag 12"),
    (x_address(tag=0), "12", "memo '12' is not the tag 0"),
    *(
        (XRP, memo, f"memo '{memo}' is not a destination tag of XRP")
        for memo in ("4294967296", "012", "-1", "1.0", "a")
    ),
    (X_12, "١٢", "is not a destination tag of XRP"),
]


@pytest.mark.parametrize(("address", "memo", "fault"), XRP_MEMOS)
def test_a_memo_of_xrp_is_the_only_tag(address: str, memo: str, fault: str) -> None:
    fields: dict[str, Any] = {"label": "l", "address": address, "blockchain": "Ripple", "memo": memo}
    # A default is checked in each row, because the row has the address.
    other = {**fields, "address": "rDsbeomae4FXwgQTJp9Rs64Qg9vDiTCdBv", "memo": "7"}
    defaulted = {name: value for name, value in fields.items() if name != "memo"}
    files = [
        json.dumps({"version": 1, "defaults": defaults, "addresses": [row, other]}).encode()
        for defaults, row in (({}, fields), ({"memo": memo}, defaulted))
    ]
    if not fault:
        # The values are sent as they were given.
        sent = WhitelistRequest(**fields).to_wire()
        assert (sent["address"], sent["memo"]) == (address, memo)
        for file in files:
            assert [each.request.memo for each in parse_whitelist(file, "json").rows] == [memo, "7"]
        return
    with pytest.raises(CustodyRequestError, match=f"nothing is sent: .*{fault}"):
        WhitelistRequest(**fields)
    for file in files:
        with pytest.raises(WhitelistFileError, match=f"row 1: .*{fault}"):
            parse_whitelist(file, "json")
    # Other chains have other memos.
    assert WhitelistRequest(label="l", address="a", blockchain="XLM", memo="012").memo == "012"


@pytest.mark.parametrize("name", ["label", "memo", "network", "customer_id", "exchange_account_id"])
@pytest.mark.parametrize("value", [" Supplier", "Supplier\xa0"])
def test_blanks_around_a_value_are_refused(name: str, value: str) -> None:
    with pytest.raises(CustodyRequestError, match=f"{name} begins or ends with white space: remove it"):
        WhitelistRequest(**{**REQUIRED, name: value})


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner), st.sets(st.text()), st.tuples(inner)),
    max_leaves=5,
)


@given(st.sampled_from(list(WhitelistRequest.model_fields)), JSON)
def test_any_value_is_carried_as_it_is_or_refused(name: str, value: Any) -> None:
    wire_name = str(WhitelistRequest.model_fields[name].alias)
    try:
        wire = WhitelistRequest(**{"label": "l", "address": "a", "currency": "b", name: value}).to_wire()
    except CustodyRequestError:
        return
    if value is None:
        assert wire_name not in wire
    elif isinstance(value, (list, tuple)):
        assert wire[wire_name] == [str(each) for each in value]
        assert all(type(each) in (str, int) for each in value)
    else:
        assert wire[wire_name] == str(value)
        assert type(value) is str or (type(value) is int and name == "exchange_account_id")


HIDDEN = "contains a control or invisible character"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        *(({name: None}, f"{name} is missing") for name in ("label", "address")),
        *(({"memo": value}, "memo must be text") for value in (b"ETH", 1.5, True, ["a"], {"a": 1}, object(), 10**5000)),
        ({"memo": 0x10}, r"memo must be text, not the int 16.*render_template_as_native_obj.*tojson"),
        ({"exchange_account_id": 1.5}, "exchange_account_id must be text or a whole number"),
        *(({"linked_wallet_ids": value}, "linked_wallet_ids must be a list") for value in ("1", 5, {"1": 1}, {"1"})),
        *(
            ({"linked_internal_address_ids": ["7", value]}, r"linked_internal_address_ids\[1\]")
            for value in (None, "", " 1", 1.0, True, -1, 2**63, ["1"])
        ),
        # Only a label may have an emoji that says so.
        *(({"label": each}, HIDDEN) for each in ("1\ufe0f\u20e3", "❤\u200d🔥")),
        *(({name: "12+\ufe0f34"}, f"{name} {HIDDEN}") for name in ("label", "memo")),
        *(({name: "❤\ufe0f"}, f"{name} {HIDDEN}") for name in ("address", "blockchain", "memo", "customer_id")),
    ],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(CustodyRequestError, match=fault):
        WhitelistRequest(**REQUIRED | fields)


def test_a_copy_has_its_own_chain() -> None:
    request = WhitelistRequest(label="Cold", address="0xabc", blockchain="ETH")
    assert [request.chain, request.model_copy(update={"blockchain": "DOT"}).chain] == ["ETH", "DOT"]
    assert request.model_copy() == request


def test_only_given_fields_are_sent() -> None:
    request = WhitelistRequest(**REQUIRED, exchange_account_id=7, linked_wallet_ids=(i for i in [12, "0x7"]))  # type: ignore[arg-type]
    expected = {"exchangeAccountId": "7", "linkedWalletIds": ["12", "0x7"]}
    assert request.to_wire() == {**REQUIRED, **expected}
    assert WhitelistRequest(**REQUIRED | {"label": "Fast ⚡️ ⭐️"}).label == "Fast ⚡️ ⭐️"


# --- ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [1.0, -1, "-1", "+1", "1_0", "٣", "²", "1.0", "9" * 5000, 2**63, True, None, [1]])
def test_a_malformed_id_is_refused(bad: Any) -> None:
    with pytest.raises(CustodyRequestError, match="whole number"):
        check_request_id(bad)
    with pytest.raises(CustodyRequestError, match=r"request_ids\[1\] must be a whole number"):
        check_request_ids(["1", bad])


class LazySequence(Sequence[Any]):
    """A list that fetches its items only when they are used, like Airflow's list of a mapped task."""

    def __init__(self, items: list[str]) -> None:
        self._items = items
        self.fetched = 0

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, key: Any) -> Any:
        self.fetched += 1
        return self._items[key]


def test_a_batch_of_ids() -> None:
    # A single id is not a list of digits.
    assert check_request_ids("3711") == check_request_ids(3711) == ["3711"]
    assert check_request_ids(["12", "7", 12, 7], merge=True) == ["7", "12"]
    assert check_request_ids((), may_be_empty=True) == []
    lazy = LazySequence([str(each) for each in range(5000)])
    assert check_request_ids(lazy, limit=None) == list(lazy._items)
    assert lazy.fetched == 1
    for odd, why in (
        (["9", "7", "12", 7, 9, 7], "the id 7, 9 is repeated"),
        (["1", "01"], "the id 1 is repeated"),
        ([], "request_ids is an empty list"),
        (range(101), "a batch holds at most 100"),
        *((each, "must be one id or a list") for each in (None, 1.5, {}, {"1": 1}, b"12", object())),
    ):
        with pytest.raises(CustodyRequestError, match=f"{why}.*; nothing is sent"):
            check_request_ids(odd)


# --- envelopes ---------------------------------------------------------------------------------------------

DATE = "2026-01-02T03:04:05Z"
LATER = "2026-01-03T03:04:05.000000001Z"
ZERO = "0001-01-01T00:00:00Z"


def trail(date: Any, user: str = "7") -> dict[str, Any]:
    return {"userId": user, "externalUserId": f"{user}@example.test", "date": date}


@pytest.mark.parametrize(
    ("trails", "date", "user"),
    [
        ([trail(DATE)], DATE, "7"),
        ([trail(LATER, "8"), trail(DATE)], DATE, "7"),
        (None, None, None),
        # A date that no request can have is not known, and so the first entry is not, either.
        *(([trail(date)], None, "7") for date in (ZERO, "2008-12-31T23:59:59Z", None, "yesterday")),
        ([trail(ZERO), trail(DATE, "8")], None, None),
        ([trail(DATE), trail(DATE, "8")], DATE, None),
        ([{"date": DATE}], DATE, None),
    ],
)
def test_the_creator_is_that_of_the_earliest_entry(trails: Any, date: str | None, user: str | None) -> None:
    envelope = WhitelistEnvelope({"id": "1", "trails": trails})
    assert envelope.created_at == parse_timestamp(date)
    assert envelope.created_by == (user_ids(user, f"{user}@example.test") if user else frozenset())
    # A number is not an external id.
    assert not envelope.created_by & user_ids(f"{user}@example.test", user)


@pytest.mark.parametrize(
    "text",
    [None, "{", json.dumps({"label": "a" * MAX_PAYLOAD_BYTES}), '{"label":"a","label":"b"}', '{"memo":"\ud800"}'],
    ids=lambda text: ascii(text)[:30],
)
def test_a_payload_that_cannot_be_verified_is_refused(text: str | None) -> None:
    right = hashlib.sha256((text or "").encode("utf-8", "surrogatepass")).hexdigest()
    for payload, hash_ in (
        (text, right),
        ("{}", None),
        ("{}", "0" * 64),
        ("{}", hashlib.sha256(b"{}").hexdigest().upper()),
    ):
        with pytest.raises(CustodyResponseError, match="cannot be verified"):
            WhitelistEnvelope({"id": "1", "metadata": {"payloadAsString": payload, "hash": hash_}}).payload()
