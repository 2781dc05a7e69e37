"""The text of a whitelist file that is written, and the JSON Schema of one that is read."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client import CustodyRequestError, WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist import file_formats
from airflow_custody.client.whitelist.file import parse_whitelist
from airflow_custody.client.whitelist.file_formats import FIELDS, LISTS
from airflow_custody.client.whitelist.file_writing import dump_whitelist, whitelist_schema


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
TEXT = (
    st.sampled_from(TRICKY)
    | st.text(min_size=1).map(str.strip)
    | st.from_regex(r"[0-9a-fxoEe+.:_-]{1,9}", fullmatch=True)
)

IDS = TEXT.map(lambda text: re.sub(r"[\s,;]", "-", text))


def _number(identifier: str) -> str:
    return identifier.lstrip("0") if identifier.isascii() and identifier.isdigit() else identifier


@st.composite
def requests(draw: Any) -> WhitelistRequest | None:
    fields = {name: draw(TEXT) for name in FIELDS if name not in LISTS and draw(st.booleans())}
    fields |= {
        name: draw(st.lists(IDS, min_size=1, max_size=3, unique_by=_number)) for name in LISTS if draw(st.booleans())
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


def each_once(drawn: list[WhitelistRequest | None]) -> list[WhitelistRequest]:
    """Return one request for each destination."""
    return list({each.address.lower(): each for each in drawn if each is not None}.values())


@pytest.mark.parametrize("loader", [file_formats._LOADER, yaml.SafeLoader], ids=["libyaml", "python"])
def test_what_is_written_is_read(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_formats, "_LOADER", loader)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(requests(), min_size=1).map(each_once).filter(bool), st.text())
    def check(given: list[WhitelistRequest], comment: str) -> None:
        text = dump_whitelist(given, comments={0: comment})
        found = parse_whitelist(text.encode(), "yaml", check_addresses=False)
        assert [each.request for each in found.rows] == given

    check()


def fit_for_csv(request: WhitelistRequest | None) -> WhitelistRequest | None:
    """Return a request unless it has what a spreadsheet writes in place of a value, or an id that may be a fraction."""
    row = {} if request is None else request.model_dump(exclude_none=True)
    ids = [*(each for name in LISTS for each in row.get(name, ())), row.get("exchange_account_id", "")]
    others = [each for each in row.values() if isinstance(each, str)]
    is_fit = not re.search("[.,]", "".join(ids)) and not any("E+" in each or each[:1] == "#" for each in ids + others)
    return request if is_fit else None


@settings(max_examples=100, deadline=None)
@given(st.lists(requests().map(fit_for_csv), min_size=1).map(each_once).filter(bool))
def test_rows_are_the_same_in_each_format(given: list[WhitelistRequest]) -> None:
    rows = [each.model_dump(exclude_none=True) for each in given]
    sheet = io.StringIO(newline="")
    writer = csv.writer(sheet)
    writer.writerow(FIELDS)
    writer.writerows(
        [";".join(v) if isinstance(v := row.get(name, ""), list) else v for name in FIELDS] for row in rows
    )
    texts = {"json": json.dumps({"version": 1, "addresses": rows}), "csv": sheet.getvalue()}
    for format, text in texts.items():
        found = parse_whitelist(text.encode(), format, check_addresses=False)
        assert [each.request for each in found.rows] == given


KEYS = st.sampled_from(["version", "defaults", "addresses", "label", "memo", "linked_wallet_ids", "x"])


@given(st.lists(KEYS, min_size=1), st.lists(KEYS), st.lists(KEYS), KEYS)
def test_no_key_is_there_twice(top: list[str], defaults: list[str], row: list[str], key: str) -> None:
    """Whatever else there is, a repeated key is a fault, at each level of YAML and JSON."""
    places = {
        "top": list(dict.fromkeys(top)),
        "defaults": list(dict.fromkeys(defaults)),
        "row": list(dict.fromkeys(row)),
    }
    for place, keys in places.items():
        levels = {**places, place: [*(each for each in keys if each != key), key, key]}
        inner = {name: ", ".join(f'"{each}": "v"' for each in levels[name]) for name in ("defaults", "row")}
        values = {"version": "1", "defaults": f"{{{inner['defaults']}}}", "addresses": f"[{{{inner['row']}}}]"}
        rest = [each for each in values if each not in levels["top"]]
        text = ", ".join(f'"{each}": {values.get(each, 1)}' for each in [*levels["top"], *rest])
        for format in ("yaml", "json"):
            with pytest.raises(WhitelistFileError) as caught:
                parse_whitelist(f"{{{text}}}".encode(), format, check_addresses=False)
            assert any(f"{key}: is given twice" in each for each in caught.value.faults)


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
    {"label": " a b"},
    {"memo": "a "},
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
        ({"$schema": "./whitelist-schema.json", "version": 1, "addresses": [ROW]}, True),
        ({"$schema": 1, "version": 1, "addresses": [ROW]}, False),
        ({"$schema": None, "version": 1, "addresses": [ROW]}, False),
        ({"version": 1, "addresses": [{**ROW, "$schema": "x"}]}, False),
        ({"version": 1, "defaults": {"blockchain": "ETH"}, "addresses": [{"label": "a", "address": "b"}]}, True),
        ({"version": 1, "defaults": {"currency": "ETH"}, "addresses": [{"label": "a", "address": "b"}]}, True),
        ({"version": 1, "defaults": {"memo": "x"}, "addresses": [{"label": "a", "address": "b"}]}, False),
        ({"version": 1, "addresses": [{"label": "a", "address": "b"}]}, False),
        ({"version": 1, "addresses": [{**ROW, "exchange_account_id": 7, "linked_wallet_ids": [1, "2"]}]}, True),
        ({"version": 1, "addresses": [{**ROW, "label": "a b"}]}, True),
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
