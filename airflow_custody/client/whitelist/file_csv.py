"""CSV of a whitelist file: a header of field names, and a row for each address."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from airflow_custody.client.text import count, sanitize
from airflow_custody.client.whitelist.file_rows import MAX_VALUE, Fields, Rows, unknown_name
from airflow_custody.client.whitelist.file_schema import FIELDS, NOT_DEFAULTS, list_fields

#: What separates the members of a list in its cell.
SEPARATOR = ";"
# What spreadsheets make of long numbers.
_ROUNDED = re.compile(r"[0-9]([.,][0-9]+)?E\+[0-9]+")
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def read_csv(text: str, rows: Rows) -> None:
    """
    Read a file.

    :param text: its text.
    :param rows: takes its rows and its faults.
    """
    _Reader(text, rows).read()


class _Reader:
    def __init__(self, text: str, rows: Rows) -> None:
        self._text = text
        self._rows = rows
        self._lists = list_fields()

    def read(self) -> None:
        records = self._records()
        line, header = next(records, (0, None))
        if header is None:
            if self._complete:
                self._rows.no_rows()
            return
        if not self._has_commas(line, header):
            return
        columns = self._columns(line, header)
        missing = {name for name in NOT_DEFAULTS if name not in columns}
        for name in sorted(missing, key=FIELDS.index):
            self._rows.fault(line, "the header has no such column", name)
        if "blockchain" not in columns and "currency" not in columns:
            self._rows.fault(line, "the header has neither a column blockchain nor currency: one must name the chain")
            missing.add("blockchain")
        is_empty = True
        for line, cells in records:
            is_empty = False
            if len(cells) != len(columns):
                self._rows.fault(line, f"has {count(len(cells), 'cell')}, and the header has {len(columns)}")
            elif not any(cells):
                self._rows.fault(line, "all cells are empty: remove the row")
            else:
                self._row(line, columns, cells, missing)
        if is_empty and self._complete:
            self._rows.no_rows()

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each record with its first line; blank lines are left out."""
        reader = csv.reader(io.StringIO(self._text, newline=""), strict=True)
        self._complete, line = False, 1
        try:
            for cells in reader:
                if cells:
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            self._rows.fault(
                line, f"the row that begins here is not CSV: {sanitize(error)}; the rest of the file was not read"
            )
        else:
            self._complete = True

    def _has_commas(self, line: int, header: list[str]) -> bool:
        for separator, name in _OTHER_SEPARATORS.items():
            if len(header) == 1 and separator in header[0]:
                self._rows.fault(line, f"the columns are separated by {name}: save the file with commas")
                return False
        return True

    def _columns(self, line: int, header: list[str]) -> list[str | None]:
        """Return the field of each column; None for one that has been reported."""
        columns: list[str | None] = []
        seen: set[str] = set()
        for number, name in enumerate(header, 1):
            fault = ""
            if name in seen:
                fault = f"column {number}: {name}: is given twice"
            elif not name:
                fault = f"column {number} has no name"
            elif name not in FIELDS:
                fault = f"column {number}: {unknown_name(name)}"
            if fault:
                self._rows.fault(line, fault)
            else:
                seen.add(name)
            columns.append(None if fault else name)
        return columns

    def _row(self, line: int, columns: list[str | None], cells: list[str], missing: set[str]) -> None:
        row = Fields(spoiled=set(missing))
        for name, cell in zip(columns, cells, strict=True):
            if name is None or not cell:
                continue
            if cell != cell.strip():
                self._rows.fault(line, "begins or ends with white space: remove it, it is not removed for you", name)
                row.spoiled.add(name)
            elif _ROUNDED.fullmatch(cell):
                shown = sanitize(cell, MAX_VALUE)
                text = f"{shown} is a number that a spreadsheet has rounded: format its column as text"
                self._rows.fault(line, text, name)
                row.spoiled.add(name)
            row.values[name] = cell.split(SEPARATOR) if name in self._lists else cell
        self._rows.add(line, row)
