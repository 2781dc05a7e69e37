"""Whitelist files in YAML, and rules that apply to all formats."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyError, CustodyRequestError, WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist.files.reading import WhitelistFile, parse_whitelist

HEAD = "version: 1\naddresses:\n"
ROW = '- label: a\n  address: "0xab"\n  blockchain: ETH\n'


def parse(text: str | bytes, format: str = "yaml") -> WhitelistFile:
    data = text.encode() if isinstance(text, str) else text
    return parse_whitelist(data, format, name=f"list.{format}", check_addresses=False)


def faults_of(text: str) -> list[str]:
    with pytest.raises(WhitelistFileError) as caught:
        parse(text)
    return list(caught.value.faults)


def test_a_file_with_everything() -> None:
    text = """\
# Who we pay.
version: 1
defaults:
  blockchain: ETH          # of nearly all
  linked_wallet_ids: [12, "0013"]
addresses:
  - label: Zürich – 東京 🏦
    address: "0xAb"
    memo: "007"
  - {label: b, address: cd, blockchain: BTC, linked_wallet_ids: [7], exchange_account_id: 9223372036854775807}
"""
    first, second = parse(text).rows
    assert first.request == WhitelistRequest(
        label="Zürich – 東京 🏦", address="0xAb", blockchain="ETH", linked_wallet_ids=["12", "0013"], memo="007"
    )
    assert second.request == WhitelistRequest(
        label="b", address="cd", blockchain="BTC", linked_wallet_ids=["7"], exchange_account_id="9223372036854775807"
    )
    assert first.where == "line 7"
    assert second.where == "line 10"
    windows = parse(text.replace("\n", "\r\n"))
    assert windows.rows == (first, second)
    assert windows.sha256 == hashlib.sha256(text.replace("\n", "\r\n").encode()).hexdigest()
    (row,) = parse("addresses:\n- {label: a, address: b}\ndefaults: {currency: BTC}\nversion: 1\n").rows
    assert row.request.currency == "BTC"
    assert row.where == "line 2"


JOINED = "is not a single id: ids have no comma, semicolon, point or white space"
MISREAD = {
    **dict.fromkeys(("007", "1e5", "0o17", "1:30", ".inf"), "a number"),
    "no": "a boolean",
    "2026-01-02": "a date",
    "=": "a special word",
}
#: The text after the fields of a good row, which is the sixth line of the file, and the resulting error.
FIELDS_AND_FAULTS = [
    # Types.
    *(
        (f"memo: {text}", f'memo: YAML reads {text} as {kind}: quote it, as in "{text}"')
        for text, kind in MISREAD.items()
    ),
    ("memo: 7", 'memo: 7 is a number: quote it, as in "7"'),
    ("memo: ~", "memo: has no value: leave the field out"),
    ("memo: nan", "memo: nan is another program's word for a missing value: leave it out, or quote it"),
    ("memo: [a]", "memo: must not be a list"),
    # Ids.
    *(
        (
            f"exchange_account_id: {text}",
            f'exchange_account_id: YAML reads {text} as a number: quote it, as in "{text}"',
        )
        for text in ("0013", "1.0")
    ),
    *(
        (f"exchange_account_id: {number}", f"exchange_account_id: must be an id, not the int {number}")
        for number in (-5, 2**63)
    ),
    (f"exchange_account_id: {'9' * 5000}", "exchange_account_id: YAML reads 999"),
    # Lists.
    ("linked_wallet_ids: {a: b}", "linked_wallet_ids: must not be a mapping"),
    ("linked_wallet_ids: []", "linked_wallet_ids: is an empty list; leave the field out if there is no restriction"),
    ("linked_wallet_ids: [1, 0o17]", 'linked_wallet_ids[1]: YAML reads 0o17 as a number: quote it, as in "0o17"'),
    ("linked_wallet_ids: [~]", "linked_wallet_ids[0]: has no value: leave the field out"),
    ('linked_wallet_ids: ["12,15"]', f"linked_wallet_ids[0]: '12,15' {JOINED}"),
    # Text.
    ("network: ' main'", "network: begins or ends with white space: remove it"),
    ("memo: ''", "memo: is empty"),
    ('memo: "a\\u200b"', "memo: contains a control or invisible character"),
    ("network: m\u0430in", "network: contains U+0430 CYRILLIC SMALL LETTER A, which may look like another"),
    ("currency: BTC", "line 3: blockchain is 'ETH' and currency is 'BTC': both name the chain, so they must be equal"),
    # Keys.
    ("linkedWalletIds: [1]", "'linkedWalletIds' is unknown; did you mean linked_wallet_ids?"),
    ("memo: a\n  memo: a", "line 7: memo: is given twice, first in line 6"),
    ("[a]: b", "'[...]' is unknown; known names: label, address"),
    # YAML that builds a value from other values.
    ("memo: &x a\n  network: *x", "line 7: network: *x is an alias, which is not allowed"),
    ("memo: *x", "memo: *x is an alias, which is not allowed"),
    ("<<: {memo: a}", "'<<' is unknown; known names: label, address"),
    ("memo: !!int '7'", "memo: 7 is a number: quote it"),
    ("memo: !x 'a'", 'memo: YAML reads a as a special word: quote it, as in "a"'),
    # Syntax.
    ("memo: 'a", "line 7, column 1: not YAML: while scanning a quoted scalar, found unexpected end of stream"),
    ("memo: a: b", "line 6, column 10: not YAML: mapping values are not allowed in this context"),
]


@pytest.mark.parametrize(("field", "fault"), FIELDS_AND_FAULTS, ids=[each[:40] for each, _ in FIELDS_AND_FAULTS])
def test_faults_in_a_row(field: str, fault: str) -> None:
    (found,) = faults_of(f"{HEAD}{ROW}  {field}\n")
    assert found.startswith(fault if fault.startswith("line ") else f"line 6: {fault}")


def test_where_the_parsers_of_yaml_name_no_place_it_is_not_yaml_all_the_same() -> None:
    for value in ('"\\U00110000"', "[" * 9000, "[" * 900 + "]" * 900):
        assert len(faults_of(f"{HEAD}{ROW}  memo: {value}\n")) == 1


NO_ADDRESSES = "there are no addresses"
ONE = "- {label: a, address: b"


def with_defaults(defaults: str) -> str:
    return f"defaults: {defaults}\n{HEAD}{ROW}{ROW.replace('0xab', 'z')}"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        *((text, [NO_ADDRESSES]) for text in ("", "# nothing\n", "version: 1")),
        *((text, [f"line 2: {NO_ADDRESSES}"]) for text in (HEAD, "version: 1\naddresses: []")),
        ("[a]", ["the file must be a mapping with the keys version and addresses, not a list"]),
        ("version: 1\naddresses: abc", ["line 2: addresses: must be a list of rows, not 'abc'"]),
        (f"addresses:\n{ROW}", ["version: is missing: it must be the number 1"]),
        *(
            (f"version: {version}\naddresses:\n{ROW}", [f"line 1: version: is {shown}: it must be the number 1"])
            for version, shown in (("2", "2"), ("'1'", "'1'"), ("true", "another value"))
        ),
        (f"{HEAD}{ROW}addresses:\n{ROW}", ["line 6: addresses: is given twice, first in line 2"]),
        (f"{HEAD}- a\n- [b]\n-\n", [f"line {3 + n}: a row must be a mapping of fields, not " for n in range(3)]),
        (
            f"{HEAD}- &a {{}}\n- *a\n",
            [
                "line 3: label: is missing",
                "line 3: address: is missing",
                "line 3: blockchain and",
                "line 4: *a is an alias",
            ],
        ),
        *(
            (f"{HEAD}{ONE.replace(' b', address)}, {chain}}}\n", [f"line 3: {name}: contains U+{code}"])
            for address, chain, name, code in (
                (" b", "blockchain: \u0415TH", "blockchain", "0415 CYRILLIC"),
                (" a\uff10", "blockchain: ETH", "address", "FF10 FULLWIDTH"),
            )
        ),
        # A file names each destination only once, in any spelling. A different memo means a different destination.
        (
            f"{HEAD}{ROW}{ROW.replace('0xab', '0xAB')}{ROW}  memo: m\n",
            ["line 7: address: the same destination as in line 4: remove one of the two"],
        ),
        (f"{HEAD}{ROW}---\n{ROW}", ["line 6, column 1: not YAML: expected a single document in the stream"]),
        # A fault in the defaults is reported once.
        (with_defaults(""), ["line 1: defaults: must be a mapping of fields, not an empty value"]),
        (with_defaults("{label: x}"), ["line 1: label: cannot have a default: give it in each row"]),
        (with_defaults("{memo: a, memo: b, foo: 1}"), ["line 1: 'foo' is unknown", "line 1: memo: is given twice"]),
        (with_defaults("{linked_wallet_ids: [1, ' 2']}"), ["line 1: linked_wallet_ids[1]: begins or ends with white"]),
        (f"defaults: {{blockchain: 1}}\n{HEAD}{ONE}}}\n{ONE}}}\n", ["line 1: blockchain: 1 is a number: quote it"]),
        # All faults are reported at once, in the order of the file.
        (
            f"version: 2\nfoo: 1\naddresses:\n{ROW.replace('ETH', '1')}{ROW}{ROW}- {{lable: a}}\n- x\n",
            [f"line {line}: " for line in (1, 2, 6, 11, 13, 14)],
        ),
        # The field that seems to be missing may be under the unknown key, so it is not reported.
        ("version: 1\nadresses: [{label: a}]", ["line 2: 'adresses' is unknown; did you mean addresses?"]),
        (f"version: 1\ndefaults: {{chain: ETH}}\naddresses:\n{ONE}}}", ["line 2: 'chain' is unknown"]),
    ],
)
def test_faults_in_a_file(text: str, faults: list[str]) -> None:
    found = faults_of(text)
    assert [each[: len(fault)] for each, fault in zip(found, faults, strict=True)] == faults


def test_the_text_of_an_error_is_bounded() -> None:
    with pytest.raises(WhitelistFileError) as caught:
        parse(HEAD + "- {}\n" * 100)
    error = caught.value
    assert isinstance(error, CustodyRequestError)
    assert not error.retryable
    assert len(error.faults) == 300
    lines = str(error).splitlines()
    assert lines[0] == f"list.yaml: 300 faults; nothing is sent: {error.faults[0]}"
    assert lines[1:] == [*error.faults[1:20], "... and 280 more", "[custody/file-wrong]"]
    assert isinstance(CustodyError.from_json(error.to_json()), WhitelistFileError)
    # Each fault is described on one line, whatever the file contains.
    evil = '"a\\nline 1: all is well\\e[2J' + "x" * 5000 + '"'
    for fault in faults_of(f"{HEAD}- {evil}: 1\n  address: b\n{evil}: 2\n"):
        assert fault.isprintable()
        assert len(fault) < 500


MANY = 2000
#: Files with a fault in each of many places; the last fault that is found, and how many places there are until then.
FULL_OF_FAULTS: list[tuple[str, str, str]] = [
    ("yaml", HEAD + "- a\n" * MANY, "line 502: a row must be a mapping"),
    ("yaml", f"{HEAD}- {{{', '.join(f'k{each}: 1' for each in range(MANY))}}}\n", "line 3: 'k499' is unknown"),
    ("yaml", f"{HEAD}- {{linked_wallet_ids: [{'~, ' * MANY}1]}}\n", "line 3: linked_wallet_ids[499]: has no value"),
    ("json", '{"version": 1, "addresses": [' + "1, " * MANY + "1]}", "row 500: a row must be a mapping"),
    ("csv", "label,address,blockchain\n" + "a\n" * MANY, "line 501: the row has 1 cell, but the header has 3"),
    ("csv", "label,address,blockchain\n" + "a,b,c\n" * MANY, "line 502: address: the same destination as in line 2"),
]


@pytest.mark.parametrize(("format", "text", "last"), FULL_OF_FAULTS)
def test_reading_stops_after_some_hundred_faults(format: str, text: str, last: str) -> None:
    with pytest.raises(WhitelistFileError) as caught:
        parse(text, format)
    assert len(caught.value.faults) == 500
    assert caught.value.faults[-1].startswith(last)
    assert f"list.{format}: 500 faults (reading stopped: there may be more); nothing is sent" in str(caught.value)


@pytest.mark.parametrize("text", ["- label: a\n\taddress: b\n", "\t- label: a\n", "- label: a\n  \taddress: b\n"])
def test_a_tab_before_a_key(text: str) -> None:
    (found,) = faults_of(f"{HEAD}{text}")
    assert re.match(r"line [34], column \d+: indent with spaces, not tabs \(not YAML: ", found)


def test_an_address_that_yaml_folds_has_white_space_in_it() -> None:
    (found,) = faults_of(f"{HEAD}- label: a\n  blockchain: ANY\n  address: 0x5aAe\n    E7Ef\n")
    assert found.startswith("line 5: address: contains white space, but addresses never do")


def test_each_address_is_checked() -> None:
    text = (
        f"{HEAD}- {{label: 1x, address: '0x', currency: ETH, memo: 7}}\n- {{label: b, address: odd, blockchain: X}}\n"
    )
    assert len(parse(text.replace("7", "x")).rows) == 2
    with pytest.raises(WhitelistFileError) as caught:
        parse_whitelist(text.encode(), "yaml")
    memo, address = caught.value.faults
    assert memo == 'line 3: memo: 7 is a number: quote it, as in "7"'
    assert address.startswith("line 3: address: '0x' is not a valid ETH address: ")
    assert str(caught.value).startswith("the whitelist file: 2 faults; nothing is sent: line 3")


@given(
    st.sampled_from(["yaml", "json", "csv"]),
    st.binary() | st.text().map(lambda text: (HEAD + text).encode("utf-8", "replace")),
)
def test_any_bytes_are_read_or_refused(format: str, data: bytes) -> None:
    try:
        count = len(parse(data, format).rows)
    except WhitelistFileError as error:
        count = len(error.faults)
    assert count
