"""Whitelist files in YAML, and what is true of all formats."""

from __future__ import annotations

import hashlib
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client import CustodyError, CustodyRequestError, WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist import file_formats
from airflow_custody.client.whitelist.file import FORMATS, WhitelistFile, parse_whitelist

HEAD = "version: 1\naddresses:\n"
JOINED = "has a comma, a semicolon or white space in it: it must be one id"
QUOTE_IT = 'a text with a colon and a space in it must be quoted, like label: "A: B"'
NO_TABS = "a tab stands where YAML allows only spaces: replace it with spaces"
ROW = '- label: a\n  address: "0xab"\n  blockchain: ETH\n'


def parse(text: str | bytes, format: str = "yaml") -> WhitelistFile:
    data = text.encode() if isinstance(text, str) else text
    return parse_whitelist(data, format, name=f"list.{format}", check_addresses=False)


def faults_of(text: str | bytes, format: str = "yaml") -> list[str]:
    with pytest.raises(WhitelistFileError) as caught:
        parse(text, format)
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
    assert (first.where, second.where) == ("line 7", "line 10")
    windows = parse(text.replace("\n", "\r\n"))
    assert windows.rows == (first, second)
    assert windows.name == "list.yaml"
    assert windows.sha256 == hashlib.sha256(text.replace("\n", "\r\n").encode()).hexdigest()


def test_defaults_may_stand_below_the_rows() -> None:
    (row,) = parse("addresses:\n- {label: a, address: b}\ndefaults: {currency: BTC}\nversion: 1\n").rows
    assert (row.request.currency, row.where) == ("BTC", "line 2")


NO_ADDRESSES = "there are no addresses"
#: What follows the fields of a good row, and what is said of it; the first line is the sixth of the file.
FIELDS_AND_FAULTS = [
    # Types.
    ("memo: 007", 'line 6: memo: YAML reads 007 as a number: quote it: "007"'),
    ("memo: 08", 'line 6: memo: YAML reads 08 as a number: quote it: "08"'),
    ("memo: 7", 'line 6: memo: 7 is a number: quote it: "7"'),
    ("memo: 1e5", 'line 6: memo: YAML reads 1e5 as a number: quote it: "1e5"'),
    ("memo: 0o17", 'line 6: memo: YAML reads 0o17 as a number: quote it: "0o17"'),
    ("memo: 1:30", 'line 6: memo: YAML reads 1:30 as a number: quote it: "1:30"'),
    ("memo: .inf", 'line 6: memo: YAML reads .inf as a number: quote it: ".inf"'),
    ("network: no", 'line 6: network: YAML reads no as a boolean: quote it: "no"'),
    ("network: true", 'line 6: network: YAML reads true as a boolean: quote it: "true"'),
    ("memo: 2026-01-02", 'line 6: memo: YAML reads 2026-01-02 as a date: quote it: "2026-01-02"'),
    ("memo: =", 'line 6: memo: YAML reads = as a special word: quote it: "="'),
    ("memo:", "line 6: memo: has no value: leave it out"),
    ("memo: ~", "line 6: memo: has no value: leave it out"),
    ("memo: [a]", "line 6: memo: must not be a list"),
    ("memo: {a: b}", "line 6: memo: must not be a mapping"),
    # Ids.
    ("exchange_account_id: 0013", 'line 6: exchange_account_id: YAML reads 0013 as a number: quote it: "0013"'),
    ("exchange_account_id: 1_000", 'line 6: exchange_account_id: YAML reads 1_000 as a number: quote it: "1_000"'),
    ("exchange_account_id: +7", 'line 6: exchange_account_id: YAML reads +7 as a number: quote it: "+7"'),
    ("exchange_account_id: 1.0", 'line 6: exchange_account_id: YAML reads 1.0 as a number: quote it: "1.0"'),
    ("exchange_account_id: -5", "line 6: exchange_account_id: must be an id, not the int -5"),
    (
        "exchange_account_id: 9223372036854775808",
        "line 6: exchange_account_id: must be an id, not the int 9223372036854775808",
    ),
    (f"exchange_account_id: {'9' * 5000}", "line 6: exchange_account_id: YAML reads 999"),
    ("customer_id: 12", 'line 6: customer_id: 12 is a number: quote it: "12"'),
    # Lists.
    ("linked_wallet_ids: 5", "line 6: linked_wallet_ids: must be a list of ids, not the int 5"),
    ("linked_wallet_ids: abc", "line 6: linked_wallet_ids: must be a list of ids, not 'abc'"),
    ("linked_wallet_ids: {a: b}", "line 6: linked_wallet_ids: must not be a mapping"),
    ("linked_wallet_ids: []", "line 6: linked_wallet_ids: is an empty list; leave it out if no restriction is meant"),
    ("linked_wallet_ids:", "line 6: linked_wallet_ids: has no value: leave it out"),
    ("linked_wallet_ids: [1, 0o17]", 'line 6: linked_wallet_ids[1]: YAML reads 0o17 as a number: quote it: "0o17"'),
    ("linked_wallet_ids: [~]", "line 6: linked_wallet_ids[0]: has no value: leave it out"),
    ("linked_wallet_ids: [[1]]", "line 6: linked_wallet_ids[0]: must not be a list"),
    ("linked_wallet_ids: ['']", "line 6: linked_wallet_ids[0]: is empty"),
    ("linked_wallet_ids: [' 1']", "line 6: linked_wallet_ids[0]: begins or ends with white space"),
    ('linked_wallet_ids: ["12,15"]', f"line 6: linked_wallet_ids[0]: '12,15' {JOINED}"),
    ("linked_internal_address_ids: [7, 1;2]", f"line 6: linked_internal_address_ids[1]: '1;2' {JOINED}"),
    ("linked_wallet_ids: [05]", 'line 6: linked_wallet_ids[0]: YAML reads 05 as a number: quote it: "05"'),
    ("linked_wallet_ids: [12 15]", f"line 6: linked_wallet_ids[0]: '12 15' {JOINED}"),
    # Text.
    ("network: ' main'", "line 6: network: begins or ends with white space: remove it"),
    ("memo: ''", "line 6: memo: is empty"),
    ('memo: "a\\u200b"', "line 6: memo: contains a control or invisible character"),
    ("memo: |\n    text", "line 6: memo: begins or ends with white space: remove it"),
    ("currency: BTC", "line 3: blockchain is 'ETH' and currency is 'BTC': they name the same thing and must be equal"),
    # Keys.
    ("linkedWalletIds: [1]", "line 6: 'linkedWalletIds' is unknown; do you mean linked_wallet_ids?"),
    ("visibilityGroupID: a", "line 6: 'visibilityGroupID' is unknown; do you mean visibility_group_id?"),
    ("Network: a", "line 6: 'Network' is unknown; do you mean network?"),
    ("' network': a", "line 6: ' network' is unknown; do you mean network?"),
    ("xyz: a", "line 6: 'xyz' is unknown; known are label, address, blockchain"),
    ("memo: a\n  memo: a", "line 7: memo: is given twice, first in line 6"),
    ("[a]: b", "line 6: '[...]' is unknown; known are label, address"),
    # What other values are built from.
    ("memo: &x a", "line 6: the anchor &x is not allowed"),
    ("memo: *x", "line 6: the alias *x is not allowed"),
    ("<<: {memo: a}", "line 6: '<<' is unknown; known are label, address"),
    ("memo: !!str 007", "line 6: the tag !!str is not allowed: quote what is meant as text"),
    ("memo: !<tag:example.com,2026:x> 007", "line 6: the tag tag:example.com,2026:x is not allowed"),
    # Syntax.
    ("memo: 'a", "line 7, column 1: not YAML: while scanning a quoted scalar, found unexpected end of stream"),
    ("memo: a: b", f"line 6, column 10: {QUOTE_IT} (not YAML: mapping values are not allowed"),
    ("memo: 'a': b", f"line 6, column 12: {QUOTE_IT} (not YAML: mapping values are not allowed"),
    ("memo: a\n    network: b", "line 7, column 12: this key does not begin in the column of the row's other keys: "),
    ("\tmemo: a", f"line 6, column 3: {NO_TABS} (not YAML: "),
    ("memo: @a", "line 6, column 9: not YAML: while scanning for the next token"),
    ('memo: "\\U00110000"', "not YAML"),
    (f"memo: {'[' * 9000}", "line 6: this is nested more than 10 levels deep"),
]


@pytest.mark.parametrize(("field", "fault"), FIELDS_AND_FAULTS, ids=[each[:40] for each, _ in FIELDS_AND_FAULTS])
def test_what_is_wrong_in_a_row(field: str, fault: str) -> None:
    text = f"{HEAD}{ROW}  {field}\n"
    found = faults_of(text)
    if fault == "not YAML":
        # The two parsers find different words for it, and one of them no place.
        assert len(found) == 1
        assert fault in found[0]
    else:
        assert [each[: len(fault)] for each in found] == [fault]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", [NO_ADDRESSES]),
        (" \n\n", [NO_ADDRESSES]),
        ("# nothing\n", [NO_ADDRESSES]),
        ("---\n", [NO_ADDRESSES]),
        ("[a]", ["the file must be a mapping with the keys version and addresses, not a list"]),
        ("hello", ["the file must be a mapping with the keys version and addresses, not 'hello'"]),
        ("version: 1", [NO_ADDRESSES]),
        (HEAD, [f"line 2: {NO_ADDRESSES}"]),
        ("version: 1\naddresses: []", [f"line 2: {NO_ADDRESSES}"]),
        ("version: 1\naddresses: abc", ["line 2: addresses: must be a list of rows, not 'abc'"]),
        ("version: 1\naddresses: {a: b}", ["line 2: addresses: must be a list of rows, not a mapping"]),
        ("version: 1\naddresses: !x []", ["line 2: the tag !x is not allowed"]),
        (f"addresses:\n{ROW}", ["version: is missing: it must be the number 1"]),
        (f"version: 2\naddresses:\n{ROW}", ["line 1: version: is 2: it must be the number 1"]),
        (f"version: '1'\naddresses:\n{ROW}", ["line 1: version: is '1': it must be the number 1"]),
        (f"version: 1.0\naddresses:\n{ROW}", ["line 1: version: is another value: it must be"]),
        (f"version: true\naddresses:\n{ROW}", ["line 1: version: is another value: it must be"]),
        (f"version:\naddresses:\n{ROW}", ["line 1: version: is an empty value: it must be"]),
        (f"{HEAD}{ROW}version: 1", ["line 6: version: is given twice, first in line 1"]),
        (f"{HEAD}{ROW}addresses:\n{ROW}", ["line 6: addresses: is given twice, first in line 2"]),
        (f"{HEAD}{ROW}adresses: []", ["line 6: 'adresses' is unknown; do you mean addresses?"]),
        (f"<<: {{}}\n{HEAD}{ROW}", ["line 1: '<<' is unknown"]),
        (f"{HEAD}- a\n- [b]\n-\n", [f"line {3 + n}: a row must be a mapping of fields, not " for n in range(3)]),
        (f"{HEAD}- &a {{label: a, address: b}}\n- *a\n", [
            "line 3: the anchor &a is not allowed", "line 4: the alias *a is not allowed",
        ]),
        (f"{HEAD}- {{address: b, memo: 1}}\n", [
            "line 3: memo: 1 is a number", "line 3: label: is missing", "line 3: neither blockchain nor currency",
        ]),
        (f"{HEAD}- label: x\n  address: 0x12\n  blockchain: ETH\n", ['line 4: address: YAML reads 0x12 as a number']),
        (f"{HEAD}{ROW}---\n{ROW}", ["line 6, column 1: not YAML: expected a single document in the stream"]),
        (f"{HEAD}{ROW}  memo: 1\n- label: a\n  x: 'y", ["line 8, column 8: not YAML"]),
        ("version: 1\ndefaults: {a", ["line 3, column 1: not YAML"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file(text: str, faults: list[str]) -> None:
    found = faults_of(text)
    assert [each[: len(fault)] for each, fault in zip(found, faults, strict=False)] == faults
    assert len(found) == len(faults)


@pytest.mark.parametrize(
    ("defaults", "faults"),
    [
        ("", ["line 1: defaults: must be a mapping of fields, not an empty value"]),
        ("[]", ["line 1: defaults: must be a mapping of fields, not a list"]),
        ("{label: x}", ["line 1: label: is of one address only: give it in the row"]),
        ("{address: 0x1}", ["line 1: address: is of one address only"]),
        ("{memo: 1, network: ' '}", ["line 1: memo: 1 is a number", "line 1: network: is empty"]),
        ("{memo: a, memo: b, foo: 1}", ["line 1: 'foo' is unknown", "line 1: memo: is given twice"]),
        ("{blockchain: ETH, currency: BTC}", ["line 1: blockchain is 'ETH' and currency is 'BTC'"]),
        ("{linked_wallet_ids: [1, ' 2']}", ["line 1: linked_wallet_ids[1]: begins or ends with white space"]),
        ("{linked_wallet_ids: ['1,2', 3]}", [f"line 1: linked_wallet_ids[0]: '1,2' {JOINED}"]),
        ("{}\ndefaults: {}", ["line 2: defaults: is given twice, first in line 1"]),
    ],
)
def test_what_is_wrong_in_defaults_is_said_once(defaults: str, faults: list[str]) -> None:
    found = faults_of(f"defaults: {defaults}\n{HEAD}{ROW}{ROW.replace('0xab', 'z')}")
    assert [each[: len(fault)] for each, fault in zip(found, faults, strict=False)] == faults
    assert len(found) == len(faults)


def test_a_row_is_not_blamed_for_a_default() -> None:
    assert faults_of("defaults: {blockchain: 1}\n" + HEAD + "- {label: a, address: b}\n- {label: a, address: b}\n") == [
        'line 1: blockchain: 1 is a number: quote it: "1"'
    ]


SAME = "address: the same destination as in line 3: remove one of them"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("a, blockchain: ETH", "a, blockchain: eth", True),
        ("a, blockchain: ETH", "a, currency: ETH", True),
        ("xy, blockchain: ETH", "xY, blockchain: ETH", False),
        ("a, blockchain: Polygon", "a, blockchain: MATIC", True),
        ("a, blockchain: POL", "a, currency: matic", True),
        ("a, blockchain: ETH, network: main", "a, blockchain: Ethereum, network: livenet", True),
        ("a, blockchain: ETH, network: main", "a, blockchain: ETH, network: testnet", False),
        ("0.0.123, blockchain: HBAR", "0.0.123-vfmkw, blockchain: Hedera", True),
        ("a, blockchain: ETH", "a, blockchain: BTC", False),
        ("a, blockchain: ETH, memo: x", "a, blockchain: ETH, memo: y", False),
        ("a, blockchain: ETH, memo: x", "a, blockchain: ETH", False),
        ("a, blockchain: ETH, network: main", "a, blockchain: ETH, network: Main", True),
        ("a, blockchain: ETH, network: main", "a, blockchain: ETH", False),
        ('"0xab", blockchain: ETH', '"0xAB", blockchain: ETH', True),
        ("bc1qw508d6qe, blockchain: BTC", "BC1QW508D6QE, blockchain: BTC", True),
    ],
)
def test_a_destination_stands_there_once(first: str, second: str, is_same: bool) -> None:
    text = f"{HEAD}- {{label: a, address: {first}}}\n- {{label: b, address: {second}}}\n"
    if is_same:
        assert faults_of(text) == [f"line 4: {SAME}"]
    else:
        assert len(parse(text).rows) == 2


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (
            "address: a, blockchain: \u0415TH",
            "blockchain: its character 1 is U+0415 CYRILLIC CAPITAL LETTER IE, which may look like another one: ",
        ),
        (
            "address: a\uff10, blockchain: ETH",
            "address: its character 2 is U+FF10 FULLWIDTH DIGIT ZERO, which may look like another one: ",
        ),
        (
            "address: a, currency: \u4eba",
            "currency: its character 1 is U+4EBA CJK UNIFIED IDEOGRAPH-4EBA, which may look like another one: ",
        ),
        (
            "address: a, blockchain: ETH, network: m\u0430in",
            "network: its character 2 is U+0430 CYRILLIC SMALL LETTER A, which may look like another one: ",
        ),
        (
            "address: a, blockchain: ETH, linked_wallet_ids: ['7', '8', '007']",
            "linked_wallet_ids: 7 is there more than once: remove what is too much",
        ),
        (
            "address: a, blockchain: ETH, memo: x\u3164",
            "memo: contains a control or invisible character",
        ),
    ],
)
def test_what_cannot_be_seen_is_said(row: str, fault: str) -> None:
    (found,) = faults_of(f"{HEAD}- {{label: é, {row}}}\n")
    assert found.startswith(f"line 3: {fault}")


def test_everything_is_said_at_once_and_in_order() -> None:
    bad = ROW.replace("ETH", "1")
    found = faults_of(f"version: 2\nfoo: 1\naddresses:\n{bad}{ROW}{ROW}{bad.replace('label', 'lable')}- x\n")
    assert [each.partition(":")[0] for each in found] == [f"line {n}" for n in (1, 2, 6, 11, 13, 15, 16)]


def test_the_text_of_an_error_is_bounded_and_its_faults_are_not() -> None:
    with pytest.raises(WhitelistFileError) as caught:
        parse(HEAD + "- {}\n" * 200)
    error = caught.value
    assert isinstance(error, CustodyRequestError)
    assert not error.retryable
    assert len(error.faults) == 600
    lines = str(error).splitlines()
    assert lines[0] == f"list.yaml: 600 faults; nothing was sent: {error.faults[0]}"
    assert lines[1:20] == list(error.faults[1:20])
    assert lines[20:] == ["... and 580 more [custody/file-wrong]"]
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.faults) == (str(error), error.faults)
    assert isinstance(CustodyError.from_json(error.to_json()), WhitelistFileError)


def test_one_fault_is_one_line_whatever_is_in_the_file() -> None:
    evil = '"a\\nline 1: all is well\\e[2J' + "x" * 5000 + '"'
    for fault in faults_of(f"{HEAD}- {evil}: 1\n  address: b\n{evil}: 2\n"):
        assert len(fault.splitlines()) == 1
        assert len(fault) < 500
        assert fault.isprintable()


def test_each_address_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_address(address: str, chain: str, network: str | None = None) -> Any:
        verdict = {"bad": "invalid", "odd": "unchecked"}.get(address, "valid")
        return SimpleNamespace(verdict=verdict, reason=f"wrong checksum on {network}")

    monkeypatch.setattr("airflow_custody.client.whitelist.addresses.check_address", check_address)
    text = (
        f"{HEAD}- {{label: 1x, address: bad, currency: ETH, memo: 7}}\n- {{label: b, address: odd, blockchain: BTC}}\n"
    )
    assert len(parse(text.replace("7", "x")).rows) == 2
    with pytest.raises(WhitelistFileError) as caught:
        parse_whitelist(text.encode(), "yaml")
    assert caught.value.faults == (
        'line 3: memo: 7 is a number: quote it: "7"',
        "line 3: address: 'bad' is not a valid ETH address: wrong checksum on None",
    )
    assert str(caught.value).startswith("the whitelist file: 2 faults; nothing was sent: line 3")


def test_many_rows_are_read() -> None:
    rows = (f'- {{label: "{n}", address: a{n}, linked_wallet_ids: [{n}]}}' for n in range(20_000))
    found = parse("version: 1\ndefaults: {blockchain: ETH}\naddresses:\n" + "\n".join(rows)).rows
    assert len(found) == 20_000
    assert (found[-1].where, found[-1].request.linked_wallet_ids) == ("line 20003", ["19999"])


@given(st.sampled_from(FORMATS), st.binary() | st.text().map(lambda text: (HEAD + text).encode("utf-8", "replace")))
def test_any_bytes_are_read_or_refused(format: str, data: bytes) -> None:
    try:
        count = len(parse(data, format).rows)
    except WhitelistFileError as error:
        count = len(error.faults)
    assert count


PIECES = [
    "version: 1\n", "addresses:\n", "- ", "  ", "label: ", "a", "0x1\n", "\n", "[", "]", "{", "}", "&a ", "*a", "!!x ",
    "defaults: ", "blockchain: E\n", ", ", "<<: ", "'", '"', "? ", "--- ", "...\n", "%YAML 1.1\n", "# ", "\t", "| ",
]  # fmt: skip


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_both_parsers_of_yaml_agree(text: str) -> None:
    found = []
    for loader in (file_formats._LOADER, yaml.SafeLoader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_formats, "_LOADER", loader)
            try:
                found.append(parse(text).rows)
            except WhitelistFileError:
                found.append(())
    assert found[0] == found[1]
