"""Values that a spreadsheet, a data frame or a database has garbled are refused in CSV and in rows; not in quotes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client import WhitelistFileError
from airflow_custody.client.whitelist.files.formats import garbled_fault
from airflow_custody.client.whitelist.files.reading import parse_whitelist, read_whitelist_rows

GOOD = {"label": "a", "address": "0xab", "blockchain": "ETH"}
OPTIONAL = ("network", "memo", "address_type", "contract_type", "customer_id", "exchange_account_id")
LISTS = ("linked_wallet_ids", "linked_internal_address_ids")
IDS = ("memo", "customer_id", "exchange_account_id", "visibility_group_id")

MISSING = "is another program's word for a missing value: leave it out"
NULL_WORDS = (
    "NaN",
    "-nan",
    "NULL",
    "none",
    "n.a.",
    "<NA>",
    "NaT",
    "nil",
    r"\N",
    "(null)",
    "undefined",
    "1.#IND",
    "-inf",
)
ERROR = "is an error value of a spreadsheet"
ERROR_WORDS = ("#N/A", "#REF!", "#NAME?", "#¡VALOR!", "#ЗНАЧ!", "######", "Err:502", "Loading...")
EXPONENT = "is a number in exponent notation"
POINT = "is a whole number with a decimal point"
DATE = "is a date into which software has converted another value"
DATES = (
    *("12-Mar", "Jan-26", "1/2/2026", "02. Jan", "2-Jan-26", "Jan 2, 2026", "2026-01-02T03:04:05Z"),
    *("2026-01-02 00:00 UTC", "1/2/2026 12:00:00 AM", "02.01.2026", "12-Mär", "févr.-26", "1月2日"),
)
TRUTH = "is a truth value into which software has converted another value"
#: Values that are refused in every field, and the error.
ANYWHERE = [
    *((word, MISSING) for word in NULL_WORDS),
    *((word, ERROR) for word in ERROR_WORDS),
    *((text, EXPONENT) for text in ("1.23457E+11", "1,5E+3")),
    ('="0013"', "begins with =, which is not part of the value in spreadsheets"),
]
#: Values that are refused in memos and ids.
IN_IDS = [
    *((text, POINT) for text in ("12345.0", "12345.", "12345,0")),
    *((text, EXPONENT) for text in ("1e5", "1.5e-07")),
    *((text, "is a number with thousands separators") for text in ("12,345", "1.234.567")),
    *((text, DATE) for text in DATES),
    *((text, TRUTH) for text in ("TRUE", "False", "WAHR")),
    ("b'0013'", "is Python's notation for bytes"),
    ("'0013", "begins with ', which is not part of the value in spreadsheets"),
]


@settings(max_examples=100, deadline=None)
@given(
    st.datetimes(min_value=datetime(1000, 1, 1)),
    st.sampled_from(
        [
            *("%d-%b", "%b-%y", "%m/%d/%y", "%d. %b", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y"),
            *("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S.%f+01:00", "%d/%m/%Y %I:%M %p"),
        ]
    ),
)
def test_a_date_in_any_format_is_refused(moment: datetime, format: str) -> None:
    assert garbled_fault("memo", moment.strftime(format), "correct it").startswith(f"{moment.strftime(format)} {DATE}")


@given(st.from_regex(r"[0-9]{1,20}|[A-Z]{4}[0-9]{4,12}[A-Z]", fullmatch=True))
def test_a_number_or_a_code_is_not_refused(memo: str) -> None:
    assert garbled_fault("memo", memo, "correct it") == ""


LOST = "S\N{REPLACEMENT CHARACTER}o"


@pytest.mark.parametrize("name", ["label", "memo", LISTS[0]])
def test_a_lost_character_is_refused_wherever_it_comes_from(name: str) -> None:
    row: dict[str, Any] = {**GOOD, name: [LOST] if name in LISTS else LOST}
    in_csv, in_rows = faults_of_each(row)
    assert in_csv.startswith("line 2, column ")
    assert "U+FFFD is not text: save the file as UTF-8, or correct it" in in_csv
    assert "contains U+FFFD" in in_rows or "only ASCII characters" in in_rows
    # JSON escapes the character, so the fault is only found after parsing.
    with pytest.raises(WhitelistFileError, match=name):
        parse_whitelist(json.dumps({"version": 1, "addresses": [row]}).encode(), "json", check_addresses=False)


def faults_of_each(row: Mapping[str, object]) -> list[str]:
    """Return the faults of a row in CSV, where lists are joined, and in a list of rows."""
    cells = [";".join(value) if isinstance(value, list) else str(value) for value in row.values()]
    quoted = ",".join('"' + each.replace('"', '""') + '"' for each in cells)
    with pytest.raises(WhitelistFileError) as caught:
        parse_whitelist(f"{','.join(row)}\n{quoted}\n".encode(), "csv", check_addresses=False)
    in_csv = caught.value.faults
    with pytest.raises(WhitelistFileError) as caught:
        read_whitelist_rows([row], check_addresses=False)
    return [*in_csv, *caught.value.faults]


def check_in_quotes(row: Mapping[str, object]) -> None:
    """Check that a row in a JSON file and in YAML is read unchanged."""
    text = json.dumps({"version": 1, "addresses": [row]})
    for format in ("json", "yaml"):
        (found,) = parse_whitelist(text.encode(), format, check_addresses=False).rows
        assert found.request.model_dump(exclude_none=True) == row


MEANT = "; if the value is correct, write it in quotes in a YAML or JSON file"


@pytest.mark.parametrize(("text", "what"), ANYWHERE, ids=[each for each, _ in ANYWHERE])
def test_garbled_in_each_field(text: str, what: str) -> None:
    names = ["label", *OPTIONAL] + (["address", "blockchain"] if text.isascii() else [])
    for name in names:
        row = {**GOOD, name: text}
        in_csv, in_rows = faults_of_each(row)
        assert in_csv.startswith(f"line 2: {name}: {text} {what}")
        assert in_csv.endswith(MEANT)
        # A None that a template has rendered has its own fault.
        if text in ("None", "null"):
            assert in_rows.startswith(f"row 1: {name}: is None")
        else:
            assert in_rows.startswith(f"row 1: {name}: {text} {what}")
            assert in_rows.endswith(MEANT)
        if not (name == "address" and " " in text) and (name != "network" or text.isascii()):
            check_in_quotes(row)


@pytest.mark.parametrize(("text", "what"), IN_IDS, ids=[each for each, _ in IN_IDS])
def test_garbled_in_memos_and_ids(text: str, what: str) -> None:
    for name in IDS:
        in_csv, in_rows = faults_of_each({**GOOD, name: text})
        assert in_csv.startswith(f"line 2: {name}: {text} {what}: correct it, and format its column as text")
        assert in_rows.startswith(f"row 1: {name}: {text} {what}: correct it in its source")
        check_in_quotes({**GOOD, name: text})
    # A label may be any text.
    (found,) = read_whitelist_rows([{**GOOD, "label": text}], check_addresses=False).rows
    assert found.request.label == text


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("text", ["nan", "12.0"])
def test_garbled_in_a_list(name: str, text: str) -> None:
    in_csv, in_rows = faults_of_each({**GOOD, name: ["7", text]})
    assert in_csv.startswith(f"line 2: {name}[1]: {text} ")
    assert in_rows.startswith(f"row 1: {name}[1]: {text} ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("memo", text) for text in ("0013", "12.5", "nano", "No. 7", "1 2", "deadbeef")),
        *(("memo", text) for text in ("Maria-12", "1/2", "12:30", "1.2.3.4", "mar12a", "12-2026")),
        *(("label", text) for text in ("'s-Hertogenbosch", "NA 1", "# 1", "1.0")),
        ("blockchain", "NIL"),
        ("address", "0.0.12345"),
        ("network", "1.0"),
    ],
)
def test_values_that_a_person_may_have_meant_are_accepted(name: str, text: str) -> None:
    (found,) = read_whitelist_rows([{**GOOD, name: text}], check_addresses=False).rows
    assert getattr(found.request, name) == text
