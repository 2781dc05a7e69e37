"""The text of a whitelist file that is written, and the JSON Schema of one that is read."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client import CustodyRequestError, WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist import file_yaml
from airflow_custody.client.whitelist.file import dump_whitelist, parse_whitelist, whitelist_schema
from airflow_custody.client.whitelist.file_schema import FIELDS, id_fields, list_fields


def test_dump() -> None:
    requests = [
        WhitelistRequest(
            memo="007",
            label="Müller & Co",
            address="0xab",
            blockchain="ETH",
            linked_wallet_ids=["12", "ab"],
            network="no",
        ),
        WhitelistRequest(label="b: c # d", address="x-y", currency="BTC"),
    ]
    assert dump_whitelist(requests, comments={1: "approved\n- label: evil", 7: "nowhere"}) == (
        "version: 1\n"
        "addresses:\n"
        '- label: "Müller & Co"\n'
        '  address: "0xab"\n'
        "  blockchain: ETH\n"
        '  linked_wallet_ids: ["12", ab]\n'
        '  network: "no"\n'
        '  memo: "007"\n'
        "# approved - label: evil\n"
        '- label: "b: c # d"\n'
        "  address: x-y\n"
        "  currency: BTC\n"
    )


def test_an_empty_list_is_written_and_not_read() -> None:
    text = dump_whitelist([])
    assert yaml.safe_load(text) == {"version": 1, "addresses": []}
    with pytest.raises(WhitelistFileError, match="there are no addresses"):
        parse_whitelist(text.encode(), "yaml")


#: What YAML reads as something else, or in two ways.
TRICKY = [
    "yes",
    "No",
    "on",
    "null",
    "~",
    "007",
    "0x1F",
    "0o17",
    "1_000",
    "1e5",
    "1.5",
    ".inf",
    "2026-01-02",
    "1:30",
    "=",
]
TRICKY += [
    "<<",
    "a: b",
    "a #b",
    "- a",
    "&a",
    "*a",
    "!a",
    "'",
    '"',
    "\\n",
    "a,b",
    "[",
    "{",
    "%",
    "@",
    "`",
    "|",
    ">",
    "?",
    "y",
]
TEXT = st.sampled_from(TRICKY) | st.text(min_size=1) | st.from_regex(r"[0-9a-fxoEe+.:_-]{1,9}", fullmatch=True)

IDS = TEXT.map(lambda text: re.sub(r"[\s,;]", "-", text))


def _number(identifier: str) -> str:
    return identifier.lstrip("0") if identifier.isascii() and identifier.isdigit() else identifier


@st.composite
def requests(draw: Any) -> WhitelistRequest | None:
    fields = {name: draw(TEXT) for name in FIELDS if name not in list_fields() and draw(st.booleans())}
    fields |= {
        name: draw(st.lists(IDS, min_size=1, max_size=3, unique_by=_number))
        for name in list_fields()
        if draw(st.booleans())
    }
    fields |= {name: draw(TEXT) for name in ("label", "address", "blockchain")}
    for name in {"address", "blockchain", "network"} & {*fields}:
        # A file with other letters there is refused.
        fields[name] = ascii(fields[name])
    fields.pop("currency", None)
    try:
        return WhitelistRequest(**fields)
    except CustodyRequestError:
        return None


@pytest.mark.parametrize("loader", [file_yaml._LOADER, yaml.SafeLoader], ids=["libyaml", "python"])
def test_what_is_written_is_read(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_yaml, "_LOADER", loader)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(requests()), st.text())
    def check(drawn: list[WhitelistRequest | None], comment: str) -> None:
        # One for each destination.
        given = {each.address.lower(): each for each in drawn if each is not None}.values()
        if given:
            text = dump_whitelist(given, comments={0: comment})
            found = parse_whitelist(text.encode(), "yaml", check_addresses=False)
            assert [each.request for each in found.rows] == list(given)

    check()


@pytest.mark.parametrize("text", TRICKY)
def test_no_other_reader_takes_text_for_something_else(text: str) -> None:
    written = dump_whitelist([WhitelistRequest(label=text, address=text, blockchain="ETH")])
    assert f"address: {json.dumps(text)}\n" in written


# --- schema ------------------------------------------------------------------------------------------------

ROW = {"label": "a", "address": "0xab", "blockchain": "ETH"}


BAD_FIELDS: list[dict[str, Any]] = [
    {"linkedWalletIds": ["1"]},
    {"address": " x"},
    {"address": "x "},
    {"label": ""},
    {"memo": " "},
    {"memo": 7},
    {"memo": None},
    {"memo": ["a"]},
    {"network": True},
    {"linked_wallet_ids": "1"},
    {"linked_wallet_ids": []},
    {"linked_wallet_ids": [1.5]},
    {"linked_wallet_ids": [""]},
    {"linked_wallet_ids": ["1,2"]},
    {"linked_internal_address_ids": ["1", "2;3"]},
    {"linked_wallet_ids": ["1 2"]},
    {"exchange_account_id": -1},
    {"exchange_account_id": 2**63},
]


def is_valid(document: Any) -> bool:
    schema = whitelist_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return bool(jsonschema.Draft202012Validator(schema).is_valid(document))


def is_read(document: Any) -> bool:
    try:
        return bool(parse_whitelist(json.dumps(document).encode(), "json", check_addresses=False).rows)
    except WhitelistFileError:
        return False


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"version": 1, "addresses": [ROW]}, True),
        ({"version": 1, "defaults": {}, "addresses": [ROW]}, True),
        ({"version": 1, "defaults": {"blockchain": "ETH"}, "addresses": [{"label": "a", "address": "b"}]}, True),
        ({"version": 1, "defaults": {"currency": "ETH"}, "addresses": [{"label": "a", "address": "b"}]}, True),
        ({"version": 1, "defaults": {"memo": "x"}, "addresses": [{"label": "a", "address": "b"}]}, False),
        ({"version": 1, "addresses": [{"label": "a", "address": "b"}]}, False),
        ({"version": 1, "addresses": [{**ROW, "exchange_account_id": 7, "linked_wallet_ids": [1, "2"]}]}, True),
        ({"version": 1, "addresses": [{**ROW, "label": " a b "}]}, True),
        ({"version": 1, "addresses": []}, False),
        ({"version": 1}, False),
        ({"addresses": [ROW]}, False),
        ({"version": 2, "addresses": [ROW]}, False),
        ({"version": "1", "addresses": [ROW]}, False),
        ({"version": 1, "addresses": [ROW], "more": 1}, False),
        ({"version": 1, "defaults": {"label": "a"}, "addresses": [ROW]}, False),
        ({"version": 1, "defaults": None, "addresses": [ROW]}, False),
        ({"version": 1, "addresses": [{"address": "b", "blockchain": "ETH"}]}, False),
        *(({"version": 1, "addresses": [{**ROW, **fields}]}, False) for fields in BAD_FIELDS),
    ],
)  # fmt: skip
def test_the_schema_and_the_reader_agree(document: Any, expected: bool) -> None:
    assert (is_valid(document), is_read(document)) == (expected, expected)


def test_the_schema_describes_every_field() -> None:
    schema = whitelist_schema()
    row = schema["properties"]["addresses"]["items"]["properties"]
    assert tuple(row) == FIELDS
    assert set(schema["properties"]["defaults"]["properties"]) == set(FIELDS) - {"label", "address"}
    for field in (*row.values(), *schema["properties"].values()):
        assert field["description"].endswith(".")
        assert "`" not in field["description"]
    assert row["blockchain"]["description"] == "Symbol of the chain (ETH)."
    assert "null" not in json.dumps(schema)


def test_what_kind_a_field_is() -> None:
    lists = {name for name in FIELDS if name.startswith("linked_")}
    assert list_fields() == lists
    assert id_fields() == {*lists, "exchange_account_id"}
