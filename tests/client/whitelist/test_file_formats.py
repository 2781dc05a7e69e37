"""Whitelist files in JSON and CSV, their bytes, and where they lie."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_custody.client import WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist import file
from airflow_custody.client.whitelist.file import WhitelistFile, parse_whitelist, read_whitelist_file

HEAD = "version: 1\naddresses:\n"
ROW = '- label: a\n  address: "0xab"\n  blockchain: ETH\n'
NO_ADDRESSES = "there are no addresses"
#: Of a JSON file: defaults, and a row.
BAD_DEFAULTS = '{"memo": 7, "label": "x", "network": " ", "nwork": 1}'
GOOD = '{"label": "a", "address": "0xab", "blockchain": "ETH"}'


def parse(text: str | bytes, format: str) -> WhitelistFile:
    data = text.encode() if isinstance(text, str) else text
    return parse_whitelist(data, format, check_addresses=False)


def check_faults(text: str | bytes, format: str, expected: list[str]) -> None:
    """Check how each of a file's faults begins."""
    with pytest.raises(WhitelistFileError) as caught:
        parse(text, format)
    found = caught.value.faults
    assert [each[: len(fault)] for each, fault in zip(found, expected, strict=False)] == expected
    assert len(found) == len(expected)


# --- JSON --------------------------------------------------------------------------------------------------


def test_json() -> None:
    rows = [
        {"label": "ä", "address": "x", "memo": "007", "linked_wallet_ids": [1, "02"]},
        {"label": "b", "address": "y"},
    ]
    first, second = parse(json.dumps({"addresses": rows, "version": 1, "defaults": {"blockchain": "ETH"}}), "json").rows
    assert first.request == WhitelistRequest(
        label="ä", address="x", blockchain="ETH", memo="007", linked_wallet_ids=["1", "02"]
    )
    assert (second.request.chain, first.where, second.where) == ("ETH", "row 1", "row 2")


def with_fields(fields: str) -> str:
    return f'{{"version": 1, "addresses": [{GOOD}, {GOOD.replace("0xab", "y")[:-1]}, {fields}}}]}}'


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", [NO_ADDRESSES]),
        ("[]", ["the file must be a mapping with the keys version and addresses, not a list"]),
        ("null", [NO_ADDRESSES]),
        ("{}", ["version: is missing: it must be the number 1", NO_ADDRESSES]),
        ('{"version": 1, "addresses": []}', [NO_ADDRESSES]),
        ('{"version": 1, "addresses": null}', [NO_ADDRESSES]),
        (f'{{"version": 1.0, "addresses": [{GOOD}]}}', ["version: is another value: it must be the number 1"]),
        (f'{{"version": "1", "addresses": [{GOOD}]}}', ["version: is '1': it must be the number 1"]),
        (f'{{"version": true, "addresses": [{GOOD}]}}', ["version: is True: it must be the number 1"]),
        (f'{{"$schema": 7, "version": 1, "addresses": [{GOOD}]}}', ["$schema: must be text, not 7"]),
        (f'{{"$schema": null, "version": 1, "addresses": [{GOOD}]}}', ["$schema: must be text, not an empty value"]),
        (f'{{"version": 1, "version": 1, "addresses": [{GOOD}]}}', ["version: is given twice"]),
        (f'{{"version": 1, "defaults": {{}}, "defaults": {{}}, "addresses": [{GOOD}]}}', ["defaults: is given twice"]),
        ('{"version": 1, "addresses": [1, null, "a", [], true]}', [
            f"row {n}: a row must be a mapping of fields, not " for n in range(1, 6)
        ]),
        (f'{{"version": 1, "addresses": [{GOOD}, {GOOD}]}}', ["row 2: address: the same destination as in row 1"]),
        (with_fields('"memo": "a", "memo": "a"'), ["row 2: memo: is given twice"]),
        (with_fields('"memo": 7'), ['row 2: memo: 7 is a number: quote it: "7"']),
        (with_fields('"memo": true'), ['row 2: memo: true is a boolean: quote it: "true"']),
        (with_fields('"memo": null'), ["row 2: memo: has no value: leave it out"]),
        (with_fields('"memo": NaN'), ["row 2: memo: NaN is not JSON"]),
        (with_fields('"memo": -Infinity'), ["row 2: memo: -Infinity is not JSON"]),
        (with_fields('"memo": "\\ud800"'), ["row 2: memo: contains a control or invisible character"]),
        (with_fields('"memo": {"a": [[1]]}'), ["row 2: memo: must not be a mapping"]),
        (with_fields('"exchange_account_id": -0'), ["row 2: exchange_account_id: -0 is a number"]),
        (with_fields('"exchange_account_id": 1e2'), ["row 2: exchange_account_id: 1e2 is a number"]),
        (with_fields('"exchange_account_id": 9223372036854775808'), ["row 2: exchange_account_id: must be an id"]),
        (with_fields(f'"exchange_account_id": {"9" * 5000}'), ["row 2: exchange_account_id: 9999999"]),
        (with_fields('"linked_wallet_ids": "1"'), ["row 2: linked_wallet_ids: must be a list of ids, not '1'"]),
        (with_fields('"linked_wallet_ids": null'), ["row 2: linked_wallet_ids: has no value: leave it out"]),
        (with_fields('"linked_wallet_ids": [1.0, -1, null, " 1", {}]'), [
            'row 2: linked_wallet_ids[0]: 1.0 is a number: quote it: "1.0"',
            "row 2: linked_wallet_ids[2]: has no value: leave it out",
            "row 2: linked_wallet_ids[3]: begins or ends with white space",
            "row 2: linked_wallet_ids[4]: must not be a mapping",
            "row 2: linked_wallet_ids[1]: must be an id, not the int -1",
        ]),
        (with_fields('"linkedWalletIds": ["1"]'), [
            "row 2: 'linkedWalletIds' is unknown; do you mean linked_wallet_ids?",
        ]),
        (f'{{"version": 1, "addresses": [{GOOD}], "defaults": {BAD_DEFAULTS}}}', [
            "defaults: 'nwork' is unknown; do you mean network?", "defaults: label: is of one address only",
            'defaults: memo: 7 is a number: quote it: "7"', "defaults: network: is empty",
        ]),
        ('{"version": 1, , "addresses": []}', ["line 1, column 16: not JSON: "]),
        (with_fields('"linked_wallet_ids": [1, "2 3", " 4", "5;6"]'), [
            "row 2: linked_wallet_ids[1]: '2 3' has a comma, a semicolon or white space in it: it must be one id",
            "row 2: linked_wallet_ids[2]: begins or ends with white space",
            "row 2: linked_wallet_ids[3]: '5;6' has a comma",
        ]),
        ('{"version": 1,\n "addresses": [}', ["line 2, column 16: not JSON: "]),
        ('{"version": 1, "addresses": [', ["line 1, column 30: not JSON: "]),
        ('{"version": 1} {}', ["line 1, column 16: not JSON: Extra data"]),
        ("[" * 100_000, ["the file is nested too deeply"]),
        ('{"a":' * 100_000, ["the file is nested too deeply"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_json(text: str, faults: list[str]) -> None:
    check_faults(text, "json", faults)


# --- CSV ---------------------------------------------------------------------------------------------------

COLUMNS = "label,address,blockchain,linked_wallet_ids,memo\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv(end: str) -> None:
    text = f'{COLUMNS}"Z, ""A""",x,ETH,1;02,\n\nb,y,BTC,,0013\n'.replace("\n", end)
    first, second = parse(text, "csv").rows
    assert first.request == WhitelistRequest(
        label='Z, "A"', address="x", blockchain="ETH", linked_wallet_ids=["1", "02"]
    )
    assert second.request == WhitelistRequest(label="b", address="y", blockchain="BTC", memo="0013")
    assert (first.where, second.where) == ("line 2", "line 4")


SHEET_HEADER = "Label|ADDRESS |Blockchain|Address Type|linked-wallet-ids|linkedInternalAddressIds|Memo| Notes|"
SHEET_ROW = "Zürich, HQ|x|ETH|exchange|{}|{}||asked for by A; B|"


@pytest.mark.parametrize(
    ("separator", "wallets", "addresses"), [(",", ["1", "02"], ["3"]), (";", None, None), ("\t", ["1", "02"], ["3"])]
)
def test_csv_as_spreadsheets_save_it(separator: str, wallets: list[str] | None, addresses: list[str] | None) -> None:
    """A byte order mark, their separator, names as people write them, empty columns and rows, a column of notes."""
    empty = "|" * 8
    sheet = io.StringIO(newline="")
    row = SHEET_ROW.format(*(";".join(each or ()) for each in (wallets, addresses)))
    lines = (empty, SHEET_HEADER, row, empty, "b|y|BTC||||0013||", empty, "||")
    csv.writer(sheet, delimiter=separator).writerows(line.split("|") for line in lines)
    rows = parse(b"\xef\xbb\xbf" + sheet.getvalue().encode(), "csv").rows
    assert [each.request for each in rows] == [
        WhitelistRequest(
            label="Zürich, HQ",
            address="x",
            blockchain="ETH",
            address_type="exchange",
            linked_wallet_ids=wallets,
            linked_internal_address_ids=addresses,
        ),
        WhitelistRequest(label="b", address="y", blockchain="BTC", memo="0013"),
    ]
    assert [each.where for each in rows] == ["line 3", "line 5"]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", [NO_ADDRESSES]),
        ("\n\n", [NO_ADDRESSES]),
        (COLUMNS, [NO_ADDRESSES]),
        ("label;address,blockchain\na;b;c\n", [
            "line 1: the header has commas and semicolons: separate its names by one of them, here and in each row",
        ]),
        ("\n\nlabel;address\tblockchain\n", ["line 3: the header has semicolons and tabs: "]),
        ("label|address\na|b\n", [
            "line 1: 'label|address' is unknown", "line 1: label: the header has no such column",
            "line 1: address: the header has no such column",
            "line 1: blockchain or currency: the header has no such column",
        ]),
        ("label;address;blockchain\na,b,ETH\nc;d;ETH;1\n", [
            "line 2: has 1 cell, and the header has 3", "line 3: has 4 cells, and the header has 3",
        ]),
        # Of some chains, a comment or a note is what others call a memo.
        ("label,address,blockchain,comment,Note,Remarks\na,b,ETH,1,,\n", [
            "line 1: 'comment' is unknown; known are label, address", "line 1: 'Note' is unknown; do you mean notes?",
            "line 1: 'Remarks' is unknown; ",
        ]),
        ("label,adress,' network,,label,Labels\n1,2,3,4,5,6\n", [
            "line 1: 'adress' is unknown; do you mean address?",
            'line 1: "\' network" is unknown; do you mean network?',
            "line 1: 'Labels' is unknown; do you mean label?",
            "line 1: label: is given twice",
            "line 1: address: the header has no such column",
            "line 1: blockchain or currency: the header has no such column",
        ]),
        (f"{COLUMNS}a,b\na,b,c,1,m,n\n,,,,\n,,ETH,,\n", [
            "line 2: has 2 cells, and the header has 5", "line 3: has 6 cells, and the header has 5",
            "line 5: label: is missing", "line 5: address: is missing",
        ]),
        # A row that ends before the memo may have been cut off.
        ("label,address,blockchain,memo,notes,\na,b,ETH\nc,d,ETH,,,7\ne,f,ETH,\n", [
            "line 2: has 3 cells, and the header has 6",
            "line 3: its cell 6 is not empty, and the header has no name for it",
            "line 4: has 4 cells, and the header has 6",
        ]),
        # A list without quotes: its second id would be the memo.
        (f"{COLUMNS}a,b,ETH,1,2,\n", ["line 2: has 6 cells, and the header has 5"]),
        (f'{COLUMNS.replace(",", ";")}a;b;ETH;1;2\nc;d;ETH;"1;2";\ne;f;ETH;1;2;\ng;h;ETH;;7\n', [
            "line 2: linked_wallet_ids: lists are joined by ';', which separates the columns here: separate",
            "line 3: linked_wallet_ids: lists are joined by ';'", "line 4: has 6 cells, and the header has 5",
        ]),
        ('label,address,blockchain,notes\na,b,ETH,"x\nc,d,ETH,"\ne,f,ETH,"x,y"\n', [
            "line 2: notes: has a line break in it: a quote that was left open hides",
        ]),
        (f"{COLUMNS},,,,\n", [NO_ADDRESSES]),
        (f'{COLUMNS}"mul\nti",x,ETH,,\na,y,,1;;2,\nb, z,ETH,1; 2,m \n', [
            "line 2: label: contains a control or invisible character",
            "line 4: linked_wallet_ids[1]: is empty", "line 4: neither blockchain nor currency is given",
            "line 5: address: begins or ends with white space",
            "line 5: linked_wallet_ids[1]: begins or ends with white space",
            "line 5: memo: begins or ends with white space",
        ]),
        (f'{COLUMNS}a,b,ETH,"12,15",\na,c,ETH,1;2 3,\na,d,ETH,1;1.234,"1,234,567.0"\n', [
            "line 2: linked_wallet_ids[0]: 12,15 has a dot or a comma in it: it must be one id",
            "line 3: linked_wallet_ids[1]: '2 3' has a comma, a semicolon or white space in it: it must be one id",
            "line 4: linked_wallet_ids[1]: 1.234 has a dot or a comma in it",
        ]),
        ("label,address,blockchain,exchange_account_id\na,b,ETH,1.234\n", [
            "line 2: exchange_account_id: 1.234 has a dot or a comma in it",
        ]),
        *((f"{COLUMNS}a,b,ETH,1;{word},\nc,d,ETH,,{word}\n", [
            f"line {n}: {name}: {word} is what a spreadsheet writes in place of a value"
            for n, name in ((2, "linked_wallet_ids[1]"), (3, "memo"))
        ]) for word in ("#N/A", "#NAME?", "#REF!", "#VALUE!", "#DIV/0!", "#NULL!", "#NUM!", "#", "######")),
        (f"{COLUMNS}#REF!,#N/A,###,1;2E+17,see #7\n", [
            "line 2: label: #REF! is", "line 2: address: #N/A is", "line 2: blockchain: ### is",
            "line 2: linked_wallet_ids[1]: 2E+17 is a number that a spreadsheet has rounded",
        ]),
        (f"{COLUMNS}a,b,ETH,,1.23457E+11\na,c,ETH,,\"1,2E+17\"\n", [
            f"line {n}: memo: {number} is a number that a spreadsheet has rounded: format its column as text"
            for n, number in ((2, "1.23457E+11"), (3, "1,2E+17"))
        ]),
        (f"{COLUMNS}a,b,ETH,,\nc,b,eth,,\n", ["line 3: address: the same destination as in line 2"]),
        (f'{COLUMNS}a,b,ETH,,"x\n\n', ["line 2: the row that begins here is not CSV: "]),
        (f'{COLUMNS}a,b,ETH,,\n"c"d,b,ETH,,\n', ["line 3: the row that begins here is not CSV: "]),
        ('"label', ["line 1: the row that begins here is not CSV: "]),
        (f"{COLUMNS}{'a' * 200_000},b,ETH,,\n", ["line 2: the row that begins here is not CSV: field larger than"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_csv(text: str, faults: list[str]) -> None:
    check_faults(text, "csv", faults)


def test_after_a_quoting_fault_nothing_more_is_read_and_it_says_so() -> None:
    with pytest.raises(WhitelistFileError) as raised:
        file.parse_whitelist(f'{COLUMNS}a, b,ETH,,\n"c"d,b,ETH,,\ne, f,ETH,,\n'.encode(), "csv")
    assert [each.partition(":")[0] for each in raised.value.faults] == ["line 2", "line 3"]
    assert raised.value.faults[1].endswith("; the rest of the file was not read")


# --- bytes -------------------------------------------------------------------------------------------------


GOOD_FILES = {
    "yaml": HEAD + ROW,
    "json": f'{{"version": 1, "addresses": [\n\n{GOOD}]}}',
    "csv": "label,address,blockchain\n\na,0xab,ETH\n",
}


@pytest.mark.parametrize("format", file.FORMATS)
def test_what_is_wrong_with_bytes_and_characters(format: str) -> None:
    good = GOOD_FILES[format].encode()
    assert len(parse(good, format).rows) == 1
    # A byte order mark, which Excel's "CSV UTF-8" always has; one, and at the beginning.
    assert parse(b"\xef\xbb\xbf" + good, format).rows == parse(good, format).rows
    check_faults(b"\xef\xbb\xbf" * 2 + good, format, ["line 1, column 1: U+FEFF is not text"])
    what = "is not text: remove it, or save the file as UTF-8"
    for character in "\0\a\x7f\x85\u2028\ufeff\ufffe":
        bad = good.replace(b"0xab", character.encode())
        line = bad.split(b"\n")[2 if format != "yaml" else 3].decode()
        place = f"line {bad.split(character.encode())[0].count(10) + 1}, column {line.index(character) + 1}"
        check_faults(bad, format, [f"{place}: U+{ord(character):04X} {what}"])
    check_faults(good.replace(b"0xab", b"\xfc"), format, ["line"])
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        with pytest.raises(WhitelistFileError, match=what):
            parse(good.decode().encode(encoding), format)


BLANK = "begins or ends with white space: remove it"


@pytest.mark.parametrize("value", [" a", "a ", "\ta"])
@pytest.mark.parametrize("name", ["label", "address", "blockchain", "memo"])
def test_a_blank_at_an_end_is_a_fault_in_each_format(name: str, value: str) -> None:
    row = {"label": "l", "address": "b", "blockchain": "ETH", "memo": "m", name: value}
    texts = {
        "yaml": f"{HEAD}- {json.dumps(row)}",
        "json": json.dumps({"version": 1, "addresses": [row]}),
        "csv": f"{','.join(row)}\n{','.join(row.values())}\n",
    }
    for format, text in texts.items():
        place = {"yaml": "line 3", "json": "row 1", "csv": "line 2"}[format]
        check_faults(text, format, [f"{place}: {name}: {BLANK}"])


def test_a_fault_in_each_line_of_another_encoding() -> None:
    text = HEAD + "".join(ROW.replace("label: a", "label: ü").replace("0xab", str(n)) for n in range(3))
    check_faults(text.encode("latin-1"), "yaml", [f"line {3 + 3 * n}, column 10: the byte 0xFC" for n in range(3)])


def test_a_format_that_is_unknown() -> None:
    check_faults("", "xml", ["the format must be one of yaml, json, csv, not 'xml'"])


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(HEAD + ROW)
    monkeypatch.setattr(file, "MAX_FILE_BYTES", len(HEAD + ROW))
    assert read_whitelist_file(path, check_addresses=False).rows
    path.write_text(HEAD + ROW + "\n")
    with pytest.raises(WhitelistFileError, match=r"the file is larger than \d+ bytes: split it"):
        read_whitelist_file(path, check_addresses=False)


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json", "csv", "YAML"])
def test_the_format_is_that_of_the_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"list.{suffix}"
    path.write_text(GOOD_FILES.get(suffix, GOOD_FILES["yaml"]))
    found = read_whitelist_file(path, check_addresses=False)
    assert (found.name, len(found.rows)) == (str(path), 1)


def unreadable(path: Any) -> str:
    with pytest.raises(WhitelistFileError) as caught:
        read_whitelist_file(path)
    assert len(caught.value.faults) == 1
    return caught.value.faults[0]


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unreadable("a.yaml") == f"{tmp_path}/a.yaml: there is no such file"
    (tmp_path / "b.yaml").mkdir()
    assert unreadable("b.yaml") == f"{tmp_path}/b.yaml: it is no file"
    os.mkfifo(tmp_path / "c.yaml")
    assert unreadable(tmp_path / "c.yaml") == f"{tmp_path}/c.yaml: it is no file"
    (tmp_path / "d.yaml").symlink_to(tmp_path / "d.yaml")
    assert unreadable("d.yaml") == f"{tmp_path}/d.yaml: Too many levels of symbolic links"
    assert unreadable("e\0.yaml").endswith("embedded null byte")
    names = "the file's name must end in .yaml, .yml, .json, .csv"
    assert [unreadable(name) for name in ("list.txt", "list", "", "yaml")] == [names] * 4


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert unreadable(tmp_path / "a.csv") == f"{tmp_path}/a.csv: Permission denied"
