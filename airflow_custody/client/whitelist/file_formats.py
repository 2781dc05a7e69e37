"""The formats of a whitelist file: each reader returns plain values, with their lines where those are known."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import yaml

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.text import ascii_lower, count, sanitize
from airflow_custody.client.whitelist.models import WhitelistRequest

#: The version of the form.
VERSION = 1
#: The names of a row's fields, in the order of a request.
FIELDS = tuple(WhitelistRequest.model_fields)
#: The fields that are lists.
LISTS = ("linked_internal_address_ids", "linked_wallet_ids")
#: The fields whose value, or whose members, may be whole numbers.
IDS = (*LISTS, "exchange_account_id")
#: Fields that belong to one address only, and so cannot be defaults.
NOT_DEFAULTS = ("label", "address")
#: Maximum number of characters of a value in a fault.
MAX_VALUE = 100

# --- values ------------------------------------------------------------------------------------------------


class Fields(dict[str, Any]):
    """
    A mapping, as it stands in a file.

    :param items: its keys with their values and lines, in its order. The first of a repeated key counts.
    """

    def __init__(self, items: Iterable[tuple[str, Any, int]]) -> None:
        super().__init__()
        #: The line of each key; 0 if lines are not known.
        self.lines: dict[str, int] = {}
        #: Keys that are there already, with their lines.
        self.repeated: list[tuple[str, int]] = []
        for key, value, line in items:
            if key in self:
                self.repeated.append((key, line))
            else:
                self[key] = value
                self.lines[key] = line


class Items(list[Any]):
    """A list whose items have lines."""

    def __init__(self, items: Iterable[tuple[Any, int]]) -> None:
        super().__init__()
        #: The line of each item.
        self.lines: list[int] = []
        for value, line in items:
            self.append(value)
            self.lines.append(line)


class Faults:
    """
    A collector of the faults of a file.

    :param unit: unit of the places: ``line`` or ``row``.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._faults: list[tuple[int, str]] = []

    @property
    def faults(self) -> tuple[str, ...]:
        """All faults, in the file's order."""
        return tuple(text for _, text in sorted(self._faults, key=lambda each: each[0]))

    def fault(self, place: int, text: str, name: str = "") -> None:
        """
        Note a fault.

        :param place: a line or a row; 0 for the whole file, or if the text names the place.
        :param text: the fault.
        :param name: the field that has it.
        """
        where = f"{self._unit} {place}" if place else ""
        self._faults.append((place, ": ".join(filter(None, (where, name, text)))))

    def fault_at(self, line: int, text: str, column: int) -> None:
        """Note a fault in the text of the file by its line, whatever the unit of the places is."""
        self._faults.append((line if self._unit == "line" else 0, f"line {line}, column {column}: {text}"))

    def check_keys(self, fields: Fields, known: tuple[str, ...], place: int, prefix: str = "") -> bool:
        """
        Note the keys of a mapping that are unknown or repeated.

        :param fields: the mapping.
        :param known: the keys that are known.
        :param place: its line or row.
        :param prefix: beginning of its faults.
        :return: whether there are none. Where there is one, what seems to be missing may be under it.
        """
        for key, line in fields.lines.items():
            if key not in known:
                self.fault(line or place, f"{prefix}{_unknown_name(key, known)}")
        for key, line in fields.repeated:
            first = fields.lines[key]
            text = f"is given twice, first in line {first}" if first != line else "is given twice"
            self.fault(line or place, text, f"{prefix}{sanitize(key, MAX_VALUE)}")
        return not fields.repeated and all(key in known for key in fields)


# What others call a field.
_OTHER_NAMES = {"coin": "blockchain", "name": "label", "tag": "memo", "destination_tag": "memo"}


@lru_cache(maxsize=1024)
def _unknown_name(name: str, known: tuple[str, ...]) -> str:
    """Describe an unknown name, with a suggestion of the one that may be meant."""
    folded = ascii_lower(name[:MAX_VALUE])
    near = get_close_matches(_OTHER_NAMES.get(folded, folded), known, n=1)
    hint = f"do you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{sanitize(repr(name[:MAX_VALUE]), MAX_VALUE)} is unknown; {hint}"


@dataclass(frozen=True)
class Misread:
    """
    A value that the format reads as something other than the written text.

    :param fault: description of the misreading, with the spelling to use instead.
    """

    fault: str


_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


def _number(source: str, text: str) -> int | Misread:
    """Return a number that is written in its one canonical form, as it may be an id."""
    is_id = len(source) <= len(str(MAX_ID)) and _WHOLE_NUMBER.fullmatch(source)
    return int(source) if is_id else _misread(source, text)


def _misread(source: str, text: str) -> Misread:
    shown = sanitize(source, MAX_VALUE)
    return Misread(f"{text.format(shown)}: quote it: {json.dumps(shown, ensure_ascii=False)}")


# --- YAML --------------------------------------------------------------------------------------------------

# libyaml is many times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NUMBER = "a number"
_KINDS = {"str": "text", "null": "", "bool": "a boolean", "int": _NUMBER, "float": _NUMBER, "timestamp": "a date"}
# YAML 1.2 reads these as numbers, too; PyYAML follows 1.1.
_NUMBER_1_2 = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def read_yaml(text: str, faults: Faults) -> Any:
    """
    Return the contents of a YAML file; None if it is empty or cannot be read.

    :param text: its text.
    :param faults: takes the faults.
    """
    try:
        root = yaml.compose(text, Loader=_LOADER)
        contents = None if root is None else _read_node(root, faults, set())
        return None if faults.faults else contents
    except RecursionError:
        faults.fault(0, "the file is nested too deeply")
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's own scanner, for an invalid escape and for a very long version.
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        texts = [getattr(error, "context", None), getattr(error, "problem", None) or error]
        words = f"not YAML: {', '.join(sanitize(each) for each in texts if each)}"
        if mark is None:
            faults.fault(0, words)
        else:
            faults.fault_at(mark.line + 1, words, mark.column + 1)
    return None


def _read_node(node: yaml.Node, faults: Faults, seen: set[int]) -> Any:
    """Return the value of a node; note one that stands in several places, by an alias."""
    if id(node) in seen:
        faults.fault(_line(node), "this has an alias, which is not allowed: use defaults, or write it out")
        return None
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return Items((_read_node(each, faults, seen), _line(each)) for each in node.value)
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            _read_node(key, faults, seen)
        return Fields(
            (key.value if isinstance(key, yaml.ScalarNode) else "[...]", _read_node(value, faults, seen), _line(key))
            for key, value in node.value
        )
    return _read_scalar(node)


def _read_scalar(node: Any) -> Any:
    text: str = node.value
    kind = _KINDS.get(node.tag.removeprefix(_TAG), "a special word")
    if kind == "text" and not node.style and _NUMBER_1_2.fullmatch(text):
        kind = _NUMBER
    if kind in ("text", ""):
        return text if kind else None
    return (_number if kind == _NUMBER else _misread)(text, f"YAML reads {{}} as {kind}")


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


# --- JSON --------------------------------------------------------------------------------------------------


def read_json(text: str, faults: Faults) -> Any:
    """
    Return the contents of a JSON file, without lines, which the parser does not know; None if it is empty or cannot be
    read.

    :param text: its text.
    :param faults: takes the faults.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: Fields((key, value, 0) for key, value in pairs),
            # As they are written: 1.0 is not 1, and Python refuses to read very long ones.
            parse_int=lambda source: _number(source, "{} is a number"),
            parse_float=lambda source: _misread(source, "{} is a number"),
            parse_constant=lambda name: _misread(name, "{} is not JSON"),
        )
    except json.JSONDecodeError as error:
        if text.strip():
            faults.fault_at(error.lineno, f"not JSON: {sanitize(error.msg)}", error.colno)
    except RecursionError:
        faults.fault(0, "the file is nested too deeply")
    return None


# --- CSV ---------------------------------------------------------------------------------------------------

#: The separator of a list's members in its cell.
SEPARATOR = ";"
# What spreadsheets leave in place of a value: a long number rounded, an error's word, or a column that is too narrow.
_NO_VALUE = re.compile(r"[0-9]([.,][0-9]+)?E\+[0-9]+|#+|#[A-Z0-9/]+[!?]?")


def read_csv(text: str, faults: Faults) -> Any:
    """
    Return the contents of a CSV file: a header of field names, and a row for each address; None if it has no rows.

    Rows in which all cells are empty are left out. Each other row has as many cells as the header: in one that has more
    or fewer, a value may stand under the name of another.

    :param text: its text.
    :param faults: takes the faults.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    records, line = [], 1
    try:
        for cells in reader:
            if any(cells):
                records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        faults.fault(line, f"the row that begins here is not CSV: {sanitize(error)}; the rest of the file was not read")
    if not records:
        return None
    (line, header), *records = records
    if re.search("[;\t]", header[0]):
        faults.fault(line, "the columns must be separated by commas")
        return None
    if not faults.check_keys(Fields((name, None, line) for name in header), FIELDS, line):
        return None
    items = []
    for place, cells in records:
        if len(cells) != len(header):
            faults.fault(place, f"has {count(len(cells), 'cell')}, and the header has {len(header)}")
        else:
            named = zip(header, cells, strict=True)
            items.append((Fields((name, _cell(name, cell), place) for name, cell in named if cell), place))
    return Fields([("version", VERSION, line), ("addresses", Items(items), line)]) if items else None


def _cell(name: str, cell: str) -> Any:
    """Return a cell's text, or the members of its list, unless a spreadsheet has put something else in its place."""
    how = "what a spreadsheet writes in place of a value: correct it, and format its column as text"
    found = [
        Misread(f"{sanitize(each, MAX_VALUE)} is {how}") if _NO_VALUE.fullmatch(each) else each
        for each in (cell.split(SEPARATOR) if name in LISTS else [cell])
    ]
    return found if name in LISTS else found[0]
