"""Whitelist files in JSON and CSV, their encoding, their place, and rows that do not come from a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_custody.client import WhitelistFileError, WhitelistRequest
from airflow_custody.client.whitelist.files import reading
from airflow_custody.client.whitelist.files.reading import (
    WhitelistFile,
    parse_whitelist,
    read_whitelist_file,
    read_whitelist_rows,
)

NO_ADDRESSES = "there are no addresses"
GOOD = '{"label": "a", "address": "0xab", "blockchain": "ETH"}'
COLUMNS = "label,address,blockchain,linked_wallet_ids,memo\n"
HEAD = "version: 1\naddresses:\n"
GOOD_FILES = {
    "yaml": f'{HEAD}- label: a\n  address: "0xab"\n  blockchain: ETH\n',
    "json": f'{{"version": 1, "addresses": [\n\n{GOOD}]}}',
    "csv": "label,address,blockchain\n\na,0xab,ETH\n",
}


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


def with_fields(fields: str) -> str:
    return f'{{"version": 1, "addresses": [{GOOD}, {GOOD.replace("0xab", "y")[:-1]}, {fields}}}]}}'


def with_keys(keys: str) -> str:
    return f'{{{keys}, "addresses": [{GOOD}]}}'


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        *((text, [NO_ADDRESSES]) for text in ("", "null", '{"version": 1, "addresses": null}')),
        ("[]", ["the file must be a mapping with the keys version and addresses, not a list"]),
        (with_keys('"version": 1.0'), ["version: is another value: it must be the number 1"]),
        (with_keys('"$schema": 7, "version": 1'), ["$schema: must be text, not 7"]),
        (with_keys('"version": 1, "version": 1'), ["version: is given twice"]),
        (
            with_keys('"version": 1, "defaults": {"memo": 7, "label": "x", "network": " ", "nwork": 1}'),
            [
                "defaults: 'nwork' is unknown; did you mean network?",
                "defaults: label: cannot have a default",
                'defaults: memo: 7 is a number: quote it, as in "7"',
                "defaults: network: is empty",
            ],
        ),
        (
            '{"version": 1, "addresses": [1, null, "a", [], true]}',
            [f"row {n}: a row must be a mapping of fields, not " for n in range(1, 6)],
        ),
        (f'{{"version": 1, "addresses": [{GOOD}, {GOOD}]}}', ["row 2: address: the same destination as in row 1"]),
        (with_fields('"memo": "a", "memo": "a"'), ["row 2: memo: is given twice"]),
        (with_fields('"memo": true'), ['row 2: memo: true is a boolean: quote it, as in "true"']),
        (with_fields('"memo": NaN'), ["row 2: memo: NaN is not JSON"]),
        (with_fields('"memo": "\\ud800"'), ["row 2: memo: contains a control or invisible character"]),
        (with_fields('"exchange_account_id": 1e2'), ["row 2: exchange_account_id: 1e2 is a number"]),
        (with_fields(f'"exchange_account_id": {"9" * 5000}'), ["row 2: exchange_account_id: 9999999"]),
        ('{"version": 1,\n "addresses": [}', ["line 2, column 16: not JSON: "]),
        ('{"a":' * 100_000, ["the file is nested too deeply"]),
    ],
)
def test_faults_in_json(text: str, faults: list[str]) -> None:
    check_faults(text, "json", faults)


# --- CSV ---------------------------------------------------------------------------------------------------


def test_csv() -> None:
    text = f'{COLUMNS}"Z, ""A""",x,ETH,1;02,\n\nb,y,BTC,,0013\n'
    first, second = parse(text, "csv").rows
    assert first.request == WhitelistRequest(
        label='Z, "A"', address="x", blockchain="ETH", linked_wallet_ids=["1", "02"]
    )
    assert second.request == WhitelistRequest(label="b", address="y", blockchain="BTC", memo="0013")
    assert first.where == "line 2"
    assert second.where == "line 4"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("label|address|blockchain\na|b|c\n", "line 1: the header's separator is |: use commas, semicolons or tabs"),
        ("sep=;\nlabel;address;blockchain\na;b;c\n", "line 1: sep=; is an instruction for Excel, not the header"),
        ('\n"sep=,"\nlabel,address,blockchain\na,b,c\n', 'line 2: "sep=," is an instruction for Excel'),
    ],
)
def test_a_separator_that_is_not_read_is_named(text: str, fault: str) -> None:
    check_faults(text, "csv", [fault])


@pytest.mark.parametrize(("separator", "joined"), [(",", ";"), (";", ","), ("\t", ";")])
def test_csv_as_spreadsheets_save_it(separator: str, joined: str) -> None:
    """A byte order mark, another separator, names in any case, empty columns and rows, and a column of notes."""
    header = ["", "Label", "ADDRESS ", " Blockchain", "", "Linked_Wallet_IDs", "Memo", " Notes", "", ""]
    sheet = [
        [""] * 10,
        header,
        ["", "Zürich; HQ, 1", "x", "ETH", " ", joined.join(["1", "02"]), "", "nan; by A, B\nor C", "", ""],
        [""] * 10,
        ["", "b", "y", "BTC", "", "7", "0013", "", "", ""],
    ]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows(sheet)
    first, second = parse(b"\xef\xbb\xbf" + text.getvalue().encode(), "csv").rows
    assert first.request == WhitelistRequest(
        label="Zürich; HQ, 1", address="x", blockchain="ETH", linked_wallet_ids=["1", "02"]
    )
    assert second.request == WhitelistRequest(
        label="b", address="y", blockchain="BTC", linked_wallet_ids=["7"], memo="0013"
    )
    # The notes have two lines.
    assert first.where == "line 3"
    assert second.where == "line 6"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        *((text, [NO_ADDRESSES]) for text in ("", "\n\n", ",,,\n", COLUMNS, f"{COLUMNS},,,,\n")),
        ("\nlabel;address,blockchain\na;b;c\n", [
            "line 2: the header has commas and semicolons: use only one of these separators in the whole file",
        ]),
        # On some chains, a memo is called comment or note.
        ("label,Adress,,label,comment,Note\n1,2,3,4,5,6\n", [
            "line 1: 'adress' is unknown; did you mean address?", "line 1: 'comment' is unknown; known names: label",
            "line 1: 'note' is unknown; did you mean notes?", "line 1: label: is given twice",
        ]),
        ("label,,address,blockchain,,\na,,b,ETH,,\nc,x,d,ETH,,\ne,,f,ETH,, y\ng,,h,ETH\n", [
            "line 3: cell 2 of the row is not empty, but the header has no name for this column",
            "line 4: cell 6 of the row is not empty",
            "line 5: the row has 4 cells, but the header has 6",
        ]),
        # Lists joined by a character that separates columns in other files.
        (COLUMNS.replace(",", ";") + 'a;b;ETH;"1;2";\na;b;ETH;1;2;\n', [
            "line 2: linked_wallet_ids: '1;2' contains ';': in this file, separate ids by ','",
            "line 3: the row has 6 cells, but the header has 5",
        ]),
        # A row that ends before the memo may have been cut off. In a list without quotes, the second id would become
        # the memo.
        (f"{COLUMNS}a,b\na,b,c,1,m,n\n,,,,\n,,ETH,,\na,b,ETH,1,2,\n", [
            "line 2: the row has 2 cells, but the header has 5", "line 3: the row has 6 cells, but the header has 5",
            "line 5: label: is missing", "line 5: address: is missing",
            "line 6: the row has 6 cells, but the header has 5",
        ]),
        (f'{COLUMNS}"mul\nti",x,ETH,,\na,y,,1;;2,\nb, z,ETH,1; 2,m \n', [
            "line 2: label: contains a control or invisible character",
            "line 4: linked_wallet_ids[1]: is empty", "line 4: blockchain and currency are missing",
            "line 5: address: begins or ends with white space",
            "line 5: linked_wallet_ids[1]: begins or ends with white space",
            "line 5: memo: begins or ends with white space",
        ]),
        (f'{COLUMNS}a,b,ETH,"12,15",\n', [
            "line 2: linked_wallet_ids: '12,15' contains ',': in this file, separate ids by ';'",
        ]),
        (f"{COLUMNS}a,b,ETH,,\nc,b,eth,,\n", ["line 3: address: the same destination as in line 2"]),
        (f'{COLUMNS}a, b,ETH,,\n"c"d,b,ETH,,\ne, f,ETH,,\n', [
            "line 2: address: begins", "line 3: the row that begins here is not CSV: ',' expected after '\"'; the rest "
            "of the file was not read",
        ]),
        (f"{COLUMNS}{'a' * 200_000},b,ETH,,\n", ["line 2: the row that begins here is not CSV: field larger than"]),
    ],
)  # fmt: skip
def test_faults_in_csv(text: str, faults: list[str]) -> None:
    check_faults(text, "csv", faults)


# --- bytes and files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["yaml", "json", "csv"])
def test_faults_of_bytes_and_characters(format: str) -> None:
    good = GOOD_FILES[format].encode()
    # A byte order mark, as Excel's "CSV UTF-8" writes it, is accepted once, and only at the beginning.
    assert parse(b"\xef\xbb\xbf" + good, format).rows == parse(good, format).rows
    check_faults(b"\xef\xbb\xbf" * 2 + good, format, ["line 1, column 1: U+FEFF is not text"])
    what = "is not text: save the file as UTF-8, or correct it"
    for character in "\0\x85\u2028\ufffe":
        bad = good.replace(b"0xab", character.encode())
        line = bad.split(b"\n")[2 if format != "yaml" else 3].decode()
        place = f"line {bad.split(character.encode())[0].count(10) + 1}, column {line.index(character) + 1}"
        check_faults(bad, format, [f"{place}: U+{ord(character):04X} {what}"])
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        where = "the file is in UTF-16 (Excel's 'Unicode Text') or UTF-32: save it as UTF-8"
        check_faults(good.decode().encode(encoding), format, [where])
    latin = (GOOD_FILES["yaml"] + GOOD_FILES["yaml"].removeprefix(HEAD)).replace("label: a", "label: ü")
    check_faults(latin.encode("latin-1"), "yaml", [f"line {line}, column 10: the byte 0xFC" for line in (3, 6)])


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json", "csv", "YAML"])
def test_the_format_is_that_of_the_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"list.{suffix}"
    path.write_text(GOOD_FILES.get(suffix, GOOD_FILES["yaml"]))
    found = read_whitelist_file(path, check_addresses=False)
    assert found.name == str(path)
    assert len(found.rows) == 1


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.yaml").mkdir()
    (tmp_path / "d.yaml").symlink_to(tmp_path / "d.yaml")
    (tmp_path / "e.yaml").write_text(GOOD_FILES["yaml"])
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", len(GOOD_FILES["yaml"]))
    assert read_whitelist_file("e.yaml", check_addresses=False).rows
    (tmp_path / "e.yaml").write_text(GOOD_FILES["yaml"] + "\n")
    suffixes = "the file's name must end in .yaml, .yml, .json, .csv"
    for name, why in (
        ("a.yaml", f"{tmp_path}/a.yaml: No such file or directory"),
        ("b.yaml", f"{tmp_path}/b.yaml: Is a directory"),
        ("d.yaml", f"{tmp_path}/d.yaml: Too many levels of symbolic links"),
        ("e.yaml", f"the file is larger than {len(GOOD_FILES['yaml'])} bytes: split it"),
        ("f\0.yaml", f"{tmp_path}/f .yaml: embedded null byte"),
        *((name, suffixes) for name in ("list.txt", "list", "", "yaml")),
    ):
        with pytest.raises(WhitelistFileError) as caught:
            read_whitelist_file(name)
        assert caught.value.faults == (why,)


# --- rows that are not in a file ---------------------------------------------------------------------------

ROW: dict[str, Any] = {"label": "a", "address": "0xab", "blockchain": "ETH"}
OTHER: dict[str, Any] = {"label": "b", "address": "0xcd", "currency": "BTC", "linked_wallet_ids": [12, "0013"]}


def read(rows: Any, **arguments: Any) -> WhitelistFile:
    return read_whitelist_rows(rows, check_addresses=False, **arguments)


def faults_of(rows: Any, **arguments: Any) -> list[str]:
    with pytest.raises(WhitelistFileError) as caught:
        read(rows, **arguments)
    return list(caught.value.faults)


class Lazy(Sequence[Any]):
    """A sequence that is fetched by slices, like Airflow's XCom of a mapped task."""

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
    # The requested content is the same, however it was written.
    same = [dict(reversed(ROW.items())), {**OTHER, "linked_wallet_ids": ("12", "0013")}]
    assert read(same).sha256 == found.sha256 != read([ROW]).sha256


ONLY = "a row must contain only texts, whole numbers, and lists of texts or whole numbers: "


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"chain": "ETH"}, "'chain' is unknown; did you mean blockchain?"),
        ({"destination_tag": "1"}, "'destination_tag' is unknown; did you mean memo?"),
        ({1: "ETH"}, "'1' is unknown; known names: label, address"),
        # Values that may name another destination.
        ({"address": "0xcd", "currency": "BTC", "memmo": "1", "blockchain": "BTC"}, "'memmo' is unknown; did you mean"),
        ({"memo": None}, "memo: is None: leave it out, or write omit_if_none=('memo',)"),
        ({"memo": "None"}, "memo: is None: leave it out"),
        ({"linked_wallet_ids": ["1", None]}, "linked_wallet_ids[1]: has no value"),
        ({"memo": 7.0}, 'memo: 7.0 is a number: quote it, as in "7.0"'),
        ({"memo": float("nan")}, "memo: NaN is not JSON: leave it out"),
        (
            {"memo": "nan"},
            "memo: nan is another program's word for a missing value: leave it out; if the value is correct, write it",
        ),
        (
            {"memo": "12345.0"},
            "memo: 12345.0 is a whole number with a decimal point: correct it in its source; if the value is correct",
        ),
        ({"linked_wallet_ids": [["nan"]]}, "linked_wallet_ids[0]: must not be a list"),
        ({"memo": {"a": "b"}}, "memo: must not be a mapping"),
        ({"exchange_account_id": -1}, "exchange_account_id: must be an id"),
        ({"exchange_account_id": 10**5000}, ONLY),
        ({"memo": datetime(2026, 1, 1, tzinfo=timezone.utc)}, ONLY),
        ({"currency": "BTC"}, "blockchain is 'ETH' and currency is 'BTC': both name the chain, so they must be equal"),
    ],
)
def test_a_fault_names_the_row_and_nothing_else_is_said(change: dict[Any, Any], fault: str) -> None:
    (found,) = faults_of([OTHER, {**ROW, **change}])
    assert found.startswith(f"row 2: {fault}")


@pytest.mark.parametrize("none", [None, "null"])
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
        ([], "there are no rows. An empty list is refused"),
        ([None], "row 1: a row must be a mapping of fields, not an empty value"),
        ([[ROW]], "row 1: a row must be a mapping of fields, not a list"),
        ([ROW, ROW], "row 2: address: the same destination as in row 1: remove one of the two"),
        (ROW, "must be a list of rows, not a mapping"),
        (None, "must be a list of rows, not None"),
        (b"[]", "must be a list of rows, not a value of type bytes"),
        ("", "must be a list of rows, not ''"),
        (str([ROW]), "line 1, column 3: not JSON: Expecting property name enclosed in double quotes: pass rows="),
    ],
    ids=str,
)
def test_anything_else_is_refused(rows: Any, fault: str) -> None:
    assert faults_of(rows)[0].startswith(fault)
