"""Rows of a whitelist that are not in a file: as strict as those of a JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_custody.client import WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist.file import WhitelistFile, parse_whitelist, read_whitelist_rows

ROW: dict[str, Any] = {"label": "a", "address": "0xab", "blockchain": "ETH"}
OTHER: dict[str, Any] = {"label": "b", "address": "0xcd", "currency": "BTC", "linked_wallet_ids": [12, "0013"]}


def read(rows: Any, **arguments: Any) -> WhitelistFile:
    return read_whitelist_rows(rows, check_addresses=False, **arguments)


def faults_of(rows: Any, **arguments: Any) -> list[str]:
    with pytest.raises(WhitelistFileError) as caught:
        read(rows, **arguments)
    return list(caught.value.faults)


class Lazy(Sequence[Any]):
    """A sequence that is fetched by a slice, as Airflow's of a mapped task's XCom is."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        assert index == slice(None)
        return self.items[index]


@pytest.mark.parametrize("form", [list, tuple, Lazy, json.dumps])
def test_rows_are_read_in_each_form(form: Any) -> None:
    found = read(form([ROW, OTHER]))
    assert [each.request for each in found.rows] == [
        WhitelistRequest(label="a", address="0xab", blockchain="ETH"),
        WhitelistRequest(label="b", address="0xcd", currency="BTC", linked_wallet_ids=["12", "0013"]),
    ]
    assert [each.where for each in found.rows] == ["row 1", "row 2"]
    # What is asked for, however it was written.
    same = [dict(reversed(ROW.items())), {**OTHER, "linked_wallet_ids": ("12", "0013")}]
    assert read(same).sha256 == found.sha256 != read([ROW]).sha256


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"blokchain": "ETH"}, "'blokchain' is unknown; do you mean blockchain?"),
        ({"chain": "ETH"}, "'chain' is unknown; do you mean blockchain?"),
        ({"coin": "ETH"}, "'coin' is unknown; do you mean blockchain?"),
        ({"block_chain": "ETH"}, "'block_chain' is unknown; do you mean blockchain?"),
        ({"destination_tag": "1"}, "'destination_tag' is unknown; do you mean memo?"),
        ({1: "ETH"}, "'1' is unknown; known are label, address"),
        ({"memo": None}, "memo: is None: leave it out, or write omit_if_none=('memo',)"),
        ({"memo": "None"}, "memo: is None: leave it out"),
        ({"label": None}, "label: is None"),
        ({"blockchain": None, "currency": "ETH"}, "blockchain: is None: leave it out"),
        ({"linked_wallet_ids": ["1", None]}, "linked_wallet_ids[1]: has no value"),
        ({"linked_wallet_ids": ["1", "null"]}, "linked_wallet_ids[1]: has no value"),
        ({"memo": 7}, 'memo: 7 is a number: quote it: "7"'),
        ({"memo": 7.0}, 'memo: 7.0 is a number: quote it: "7.0"'),
        ({"memo": float("nan")}, "memo: NaN is not JSON"),
        ({"memo": True}, "memo: true is a boolean"),
        ({"memo": {"a": "b"}}, "memo: must not be a mapping"),
        ({"exchange_account_id": -1}, "exchange_account_id: must be an id"),
        ({"exchange_account_id": 10**5000}, "a row must have text, whole numbers and lists of these only: "),
        (
            {"memo": datetime(2026, 1, 1, tzinfo=timezone.utc)},
            "a row must have text, whole numbers and lists of these only: ",
        ),
        ({"memo": {"a"}}, "a row must have text, whole numbers and lists of these only: "),
        ({"currency": "BTC"}, "blockchain is 'ETH' and currency is 'BTC': they name the same thing and must be equal"),
    ],
)
def test_a_fault_names_the_row_and_nothing_else_is_said(change: dict[Any, Any], fault: str) -> None:
    (found,) = faults_of([OTHER, {**ROW, **change}])
    assert found.startswith(f"row 2: {fault}")


def test_under_an_unknown_key_may_be_what_seems_to_be_missing() -> None:
    assert faults_of([{"label": "a", "adress": "0xab", "chain": "ETH"}]) == [
        "row 1: 'adress' is unknown; do you mean address?",
        "row 1: 'chain' is unknown; do you mean blockchain?",
    ]
    # Also what makes another destination of it.
    assert faults_of([ROW, {**ROW, "memmo": "m"}]) == ["row 2: 'memmo' is unknown; do you mean memo?"]
    assert faults_of([ROW, ROW]) == ["row 2: address: the same destination as in row 1: remove one of them"]
    top = b"version: 1\n%s\n"
    for text, fault in [
        (b"adresses: [{label: a}]", "line 2: 'adresses' is unknown; do you mean addresses?"),
        (b"defaults: {chain: ETH}\naddresses: [{label: a, address: b}]", "line 2: 'chain' is unknown"),
    ]:
        with pytest.raises(WhitelistFileError) as caught:
            parse_whitelist(top % text, "yaml")
        assert [each.startswith(fault) for each in caught.value.faults] == [True]


@pytest.mark.parametrize("none", [None, "None", "null"])
@pytest.mark.parametrize("form", [list, json.dumps])
def test_a_none_that_may_be_left_out_is(form: Any, none: Any) -> None:
    rows = form([{**ROW, "memo": none}, {**OTHER, "memo": "m"}])
    assert [each.request.memo for each in read(rows, omit_if_none=("memo",)).rows] == [None, "m"]
    assert faults_of(form([{**ROW, "memo": none, "network": none}]), omit_if_none=("memo",)) == [
        "row 1: network: is None: leave it out, or write omit_if_none=('network',)"
    ]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([], "there are no rows; an empty list is refused"),
        ("[]", "there are no rows; an empty list is refused"),
        ([None], "row 1: a row must be a mapping of fields, not an empty value"),
        (["a"], "row 1: a row must be a mapping of fields, not 'a'"),
        ([[ROW]], "row 1: a row must be a mapping of fields, not a list"),
        (ROW, "must be a list of rows, not a mapping"),
        (json.dumps(ROW), "must be a list of rows, not a mapping"),
        (None, "must be a list of rows, not None"),
        ({1, 2}, "must be a list of rows, not a value of type set"),
        (b"[]", "must be a list of rows, not a value of type bytes"),
        ("", "must be a list of rows, not ''"),
        (str([ROW]), "line 1, column 3: not JSON"),
        ('[{"label": "a", "label": "b"}]', "row 1: label: is given twice"),
    ],
    ids=str,
)
def test_anything_else_is_refused(rows: Any, fault: str) -> None:
    assert faults_of(rows)[0].startswith(fault)


def test_text_that_is_not_json_says_how_to_give_rows() -> None:
    (fault,) = faults_of(str([ROW]))
    assert fault.endswith("write rows=upstream.output, or end the template with '| tojson'")
