"""The formats of a whitelist file: each reader returns plain values, with their lines where those are known."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
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
#: The one column of a CSV file that is ignored. A ``comment`` or a ``note`` would be a memo on some chains.
NOTES = "notes"
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
        :return: whether all keys are known. Where one is not, what seems to be missing may be under it.
        """
        for key, line in fields.lines.items():
            if key not in known:
                self.fault(line or place, f"{prefix}{_unknown_name(key, known)}")
        for key, line in fields.repeated:
            first = fields.lines[key]
            text = f"is given twice, first in line {first}" if first != line else "is given twice"
            self.fault(line or place, text, f"{prefix}{sanitize(key, MAX_VALUE)}")
        return all(key in known for key in fields)


# What others call a field.
_OTHER_NAMES = {"coin": "blockchain", "name": "label", "tag": "memo", "destination_tag": "memo"}


@lru_cache(maxsize=1024)
def _unknown_name(name: str, known: tuple[str, ...]) -> str:
    """Describe an unknown name, with a suggestion of the one that may be meant."""
    folded = _folded(name[:MAX_VALUE])
    near = get_close_matches(_OTHER_NAMES.get(folded, folded), known, n=1)
    hint = f"do you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{sanitize(repr(name[:MAX_VALUE]), MAX_VALUE)} is unknown; {hint}"


def _folded(name: str) -> str:
    """Return a name as the fields are written: ``Address Type`` as ``address_type``."""
    return re.sub(r"[\s-]+", "_", ascii_lower(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())))


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
#: A file needs five levels.
MAX_DEPTH = 10
_TAG = "tag:yaml.org,2002:"
_NUMBER = "a number"
_KINDS = {"null": "", "bool": "a boolean", "int": _NUMBER, "float": _NUMBER, "timestamp": "a date"}
# YAML 1.2 reads these as numbers, too; PyYAML follows 1.1.
_NUMBER_1_2 = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def kind_of(text: str) -> str | None:
    """
    Return the kind of value that YAML, 1.1 or 1.2, reads from a text without quotes.

    :param text: the text.
    :return: ``a number``, ``a date``, ...; empty if it is nothing, and None if it stays text.
    """
    for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ()):
        if pattern.match(text):
            return _KINDS.get(tag.removeprefix(_TAG), "a special word")
    return _NUMBER if _NUMBER_1_2.fullmatch(text) else None


def read_yaml(text: str, faults: Faults) -> Any:
    """
    Return the contents of a YAML file; None if it is empty or cannot be read.

    It is built from the parser's events, which know the lines: nodes take twice the time and the memory.

    :param text: its text.
    :param faults: takes the faults.
    """
    found: list[tuple[int, str]] = []
    try:
        # A bound method of the loader's: yaml.parse checks twice for each event.
        root = _read_document(_LOADER(text).get_event, found)
    except RecursionError:
        root = None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's own scanner, for an invalid escape and for a very long version.
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        texts = [getattr(error, "context", None), getattr(error, "problem", None) or error]
        words = f"not YAML: {', '.join(sanitize(each) for each in texts if each)}"
        if mark is None:
            faults.fault(0, words)
        else:
            cure = _cure(text, mark.index)
            faults.fault_at(mark.line + 1, f"{cure} ({words})" if cure else words, mark.column + 1)
        return None
    for line, fault in found:
        faults.fault(line, fault)
    return None if found else root


def _read_document(get_event: Callable[[], Any], found: list[tuple[int, str]]) -> Any:
    """Return the contents of the one document of a stream."""
    get_event()
    if isinstance(start := get_event(), yaml.StreamEndEvent):
        return None
    root = _read_value(get_event(), get_event, found, 0)
    get_event()
    if not isinstance(event := get_event(), yaml.StreamEndEvent):
        raise yaml.composer.ComposerError(
            "expected a single document in the stream",
            start.start_mark,
            "but found another document",
            event.start_mark,
        )
    return root


def _read_value(event: Any, get_event: Callable[[], Any], found: list[tuple[int, str]], depth: int) -> Any:
    """Return the value that begins with an event; note what could merge values, or hide some."""
    kind = type(event)
    if event.anchor is not None:
        name = f"alias *{event.anchor}" if kind is yaml.AliasEvent else f"anchor &{event.anchor}"
        found.append((_line(event), f"the {sanitize(name, 60)} is not allowed: use defaults, or write it out"))
    if kind is yaml.AliasEvent:
        return None
    if event.tag is not None:
        tag = sanitize(event.tag.replace(_TAG, "!!"), 60)
        found.append((_line(event), f"the tag {tag} is not allowed: quote what is meant as text"))
    if kind is yaml.ScalarEvent:
        return event.value if event.style else _plain(event.value)
    if depth == MAX_DEPTH:
        found.append((_line(event), f"this is nested more than {MAX_DEPTH} levels deep"))
        raise RecursionError
    items: list[Any] = []
    while type(item := get_event()) not in _ENDS:
        value = _read_value(item, get_event, found, depth + 1)
        if kind is yaml.SequenceStartEvent:
            items.append((value, _line(item)))
        else:
            key = item.value if type(item) is yaml.ScalarEvent else "[...]"
            items.append((key, _read_value(get_event(), get_event, found, depth + 1), _line(item)))
    return Items(items) if kind is yaml.SequenceStartEvent else Fields(items)


_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def _plain(text: str) -> Any:
    """Return the value of a text without quotes."""
    kind = kind_of(text)
    if kind is None:
        return text
    if not kind:
        return None
    return (_number if kind == _NUMBER else _misread)(text, f"YAML reads {{}} as {kind}")


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _cure(text: str, index: int) -> str:
    """Return advice about a syntax error at a character; empty if there is none."""
    before = text[:index].rpartition("\n")[2]
    if text[index : index + 1] == "\t":
        return "a tab stands where YAML allows only spaces: replace it with spaces"
    if text[index : index + 1] != ":":
        return ""
    if ": " in before:
        return 'a text with a colon and a space in it must be quoted, like label: "A: B"'
    return "this key does not begin in the column of the row's other keys: indent it as they are"


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
_ROUNDED = re.compile(r"[0-9]([.,][0-9]+)?E\+[0-9]+")
_UNSHOWN = re.compile(r"#+|#[A-Z0-9/]+[!?]?")
_COLUMN_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_CURE = "separate the columns with commas or tabs, or use YAML"


def read_csv(text: str, faults: Faults) -> Any:
    """
    Return the contents of a CSV file: a header of field names, and a row for each address; None if it has no rows.

    It may be as spreadsheets save it: columns separated by what the header has, names in any case and with blanks,
    rows and columns in which all cells are empty, a column of notes. Each row has as many cells as the header: in one
    that has more or fewer, a value may stand under the name of another.

    :param text: its text.
    :param faults: takes the faults.
    """
    head, line = next(((each, n) for n, each in enumerate(text.split("\n"), 1) if each.strip()), ("", 1))
    separators = [each for each in _COLUMN_SEPARATORS if each in head] or [","]
    if len(separators) > 1:
        names = " and ".join(_COLUMN_SEPARATORS[each] for each in separators)
        faults.fault(line, f"the header has {names}: separate its names by one of them, here and in each row")
        return None
    records = _records(text, separators[0], faults)
    if not records:
        return None
    (line, header), *records = records
    header = [known if (known := _folded(name)) in (*FIELDS, NOTES) else name for name in header]
    columns = Fields((name, index, line) for index, name in enumerate(header) if name.strip())
    faults.check_keys(columns, (*FIELDS, NOTES), line)
    missing = [name for name in NOT_DEFAULTS if name not in columns]
    missing += [] if "blockchain" in columns or "currency" in columns else ["blockchain or currency"]
    for name in missing:
        faults.fault(line, "the header has no such column", name)
    if missing:
        return None
    items = []
    for place, cells in records:
        if len(cells) != len(header):
            faults.fault(place, f"has {count(len(cells), 'cell')}, and the header has {len(header)}")
            continue
        unnamed = [index for index, name in enumerate(header) if cells[index] and not name.strip()]
        lists = [name for name in LISTS if name in columns and cells[columns[name]]]
        if unnamed:
            faults.fault(place, f"its cell {unnamed[0] + 1} is not empty, and the header has no name for it")
        elif lists and separators[0] == SEPARATOR:
            # 1;2 without quotes is two cells, and the second may look like the memo.
            faults.fault(
                place, f"lists are joined by '{SEPARATOR}', which separates the columns here: {_CURE}", lists[0]
            )
        elif NOTES in columns and "\n" in cells[columns[NOTES]]:
            faults.fault(place, "has a line break in it: a quote that was left open hides the rows after it", NOTES)
        else:
            given = {name: cells[index] for name, index in columns.items() if name in FIELDS and cells[index]}
            items.append((Fields((name, _cell(name, cell), place) for name, cell in given.items()), place))
    return Fields([("version", VERSION, line), ("addresses", Items(items), line)]) if items else None


def _records(text: str, separator: str, faults: Faults) -> list[tuple[int, list[str]]]:
    """Return each record with its first line, without those in which all cells are empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records, line = [], 1
    try:
        for cells in reader:
            if any(cells):
                records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        faults.fault(line, f"the row that begins here is not CSV: {sanitize(error)}; the rest of the file was not read")
    return records


def _cell(name: str, cell: str) -> Any:
    return [_text(name, each) for each in cell.split(SEPARATOR)] if name in LISTS else _text(name, cell)


def _text(name: str, text: str) -> str | Misread:
    """Return a cell's text, or a member of its list, unless a spreadsheet has put something else in its place."""
    if _ROUNDED.fullmatch(text):
        fault = "is a number that a spreadsheet has rounded: format its column as text"
    elif _UNSHOWN.fullmatch(text):
        fault = "is what a spreadsheet writes in place of a value: correct it, or use YAML if it is meant"
    elif name in IDS and re.search("[.,]", text):
        fault = "has a dot or a comma in it: it must be one id; format its column as text"
    else:
        return text
    return Misread(f"{sanitize(text, MAX_VALUE)} {fault}")
