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
from airflow_custody.client.whitelist.files.formats import FIELDS
from airflow_custody.client.whitelist.files.reading import parse_whitelist
from airflow_custody.client.whitelist.files.writing import dump_whitelist, whitelist_schema
from airflow_custody.client.whitelist.models import LISTS


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
        '  blockchain: "ETH"\n'
        '  linked_wallet_ids: ["12", "ab"]\n'
        '  network: "no"\n'
        '  memo: "007"\n'
        "# approved - label: evil\n"
        '- label: "b: c # d"\n'
        '  address: "x-y"\n'
        '  currency: "BTC"\n'
    )


def test_an_empty_list_is_written_and_not_read() -> None:
    text = dump_whitelist([])
    assert yaml.safe_load(text) == {"version": 1, "addresses": []}
    with pytest.raises(WhitelistFileError, match="there are no addresses"):
        parse_whitelist(text.encode(), "yaml")


#: Texts that YAML reads as another type, or in two ways.
TRICKY = (
    """yes No on y null ~ 007 0x1F 0o17 1_000 1e5 1.5 .inf 2026-01-02 1:30 = << &a *a !a ' " \\n a,b [ { % @ ` | > ?"""
)
TRICKY_TEXTS = [*TRICKY.split(), "a: b", "a #b", "- a"]
TEXT = (
    st.sampled_from(TRICKY_TEXTS)
    | st.text(min_size=1).map(str.strip)
    | st.from_regex(r"[0-9a-fxoEe+.:_-]{1,9}", fullmatch=True)
)

IDS = TEXT.map(lambda text: re.sub(r"[\s,;.]", "-", text))


@st.composite
def requests(draw: Any) -> WhitelistRequest | None:
    fields = {name: draw(TEXT) for name in FIELDS if name not in LISTS and draw(st.booleans())}
    fields |= {name: draw(st.lists(IDS, min_size=1, max_size=3)) for name in LISTS if draw(st.booleans())}
    fields |= {name: draw(TEXT) for name in ("label", "address", "blockchain")}
    for name in {"address", "blockchain", "network"} & {*fields}:
        # A file with other letters there is refused.
        fields[name] = ascii(fields[name])
    fields.pop("currency", None)
    try:
        return WhitelistRequest(**fields)
    except CustodyRequestError:
        return None


def each_once(drawn: list[WhitelistRequest | None]) -> list[WhitelistRequest]:
    """Return one request for each destination."""
    return list({each.address.lower(): each for each in drawn if each is not None}.values())


@settings(max_examples=100, deadline=None)
@given(st.lists(requests(), min_size=1).map(each_once).filter(bool), st.text())
def test_a_written_file_is_read_as_it_was(given: list[WhitelistRequest], comment: str) -> None:
    text = dump_whitelist(given, comments={0: comment})
    found = parse_whitelist(text.encode(), "yaml", check_addresses=False)
    assert [each.request for each in found.rows] == given


# --- schema ------------------------------------------------------------------------------------------------

ROW = {"label": "a", "address": "0xab", "blockchain": "ETH"}
TWO = {"label": "a", "address": "b"}
BAD_FIELDS: list[dict[str, Any]] = [
    {"linkedWalletIds": ["1"]},
    {"address": "x "},
    {"address": "x y"},
    {"label": ""},
    {"label": " a b"},
    *({"memo": value} for value in ("a ", 7, None, ["a"])),
    {"network": True},
    *({"linked_wallet_ids": value} for value in ("1", [], [1.5], ["1,2"])),
    *({"exchange_account_id": value} for value in (-1, 2**63)),
]
GOOD_DOCUMENTS: list[dict[str, Any]] = [
    {},
    {"$schema": "./whitelist-schema.json"},
    *({"defaults": {name: "ETH"}, "addresses": [TWO]} for name in ("blockchain", "currency")),
    {"addresses": [{**ROW, "exchange_account_id": 7, "linked_wallet_ids": [1, "2"]}]},
]
BAD_DOCUMENTS: list[dict[str, Any]] = [
    {"$schema": 1},
    *({"version": value} for value in (2, "1", None)),
    *({"defaults": value} for value in (None, {"label": "a"})),
    {"defaults": {"memo": "x"}, "addresses": [TWO]},
    *({"addresses": value} for value in ([], None, [TWO], [{"address": "b", "blockchain": "ETH"}])),
    {"more": 1},
    *({"addresses": [{**ROW, **fields}]} for fields in BAD_FIELDS),
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
    ("changes", "expected"),
    [*((each, True) for each in GOOD_DOCUMENTS), *((each, False) for each in BAD_DOCUMENTS)],
)
def test_the_schema_and_the_reader_agree(changes: dict[str, Any], expected: bool) -> None:
    document = {"version": 1, "addresses": [ROW], **changes}
    assert is_valid(document) == expected
    assert is_read(document) == expected


def test_the_schema_describes_every_field() -> None:
    schema = whitelist_schema()
    row = schema["properties"]["addresses"]["items"]["properties"]
    assert tuple(row) == FIELDS
    assert set(schema["properties"]["defaults"]["properties"]) == set(FIELDS) - {"label", "address"}
    assert all(field["description"] for field in (*row.values(), *schema["properties"].values()))
