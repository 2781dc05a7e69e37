"""
The formats of a whitelist file.

Each reader returns plain values, with their line numbers if the parser reports them.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any

import yaml

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.text import ascii_lower, count, sanitize
from airflow_custody.client.whitelist.models import LISTS, WhitelistRequest

#: Version of the file format.
VERSION = 1
#: The names of a row's fields, in the order of a request.
FIELDS = tuple(WhitelistRequest.model_fields)
#: Fields whose value or members may be whole numbers.
IDS = (*LISTS, "exchange_account_id")
#: Fields that cannot have a default, because they belong to one address.
NOT_DEFAULTS = ("label", "address")
#: Maximum length in characters of a value in a fault.
MAX_VALUE = 100
#: Number of faults after which reading stops, because a file with so many faults is usually not a whitelist.
MAX_FAULTS = 500

# --- values ------------------------------------------------------------------------------------------------


class Fields(dict[str, Any]):
    """
    A mapping in a file.

    :param items: the mapping's keys with their values and line numbers, in the file's order. For a repeated key, the
        first value is used.
    """

    def __init__(self, items: Iterable[tuple[str, Any, int]]) -> None:
        super().__init__()
        #: The line number of each key; 0 if unknown.
        self.lines: dict[str, int] = {}
        #: Repeated keys, with their line numbers.
        self.repeated: list[tuple[str, int]] = []
        for key, value, line in items:
            if key in self:
                self.repeated.append((key, line))
            else:
                self[key] = value
                self.lines[key] = line


class Items(list[Any]):
    """A list with the line number of each item."""

    def __init__(self, items: Iterable[tuple[Any, int]]) -> None:
        super().__init__()
        #: The line number of each item.
        self.lines: list[int] = []
        for value, line in items:
            self.append(value)
            self.lines.append(line)


class TooManyFaultsError(Exception):
    """Raised when the maximum number of faults is reached, to stop reading."""


class Faults:
    """
    A collector of the faults of a file.

    It raises :class:`TooManyFaultsError` when it has :data:`MAX_FAULTS` faults.

    :param unit: the unit in which places are counted: ``line`` or ``row``.
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
        Add a fault.

        :param place: the line or row; 0: the fault is about the whole file, or its text already names the place.
        :param text: the fault.
        :param name: the field with the fault. Default empty: the fault is not about a field.
        """
        where = f"{self._unit} {place}" if place else ""
        self._note(place, ": ".join(filter(None, (where, name, text))))

    def fault_at(self, line: int, text: str, column: int) -> None:
        """
        Add a fault at a line and column.

        The text always names the line, even if the places of other faults are rows.
        """
        self._note(line if self._unit == "line" else 0, f"line {line}, column {column}: {text}")

    def _note(self, place: int, text: str) -> None:
        self._faults.append((place, text))
        if len(self._faults) >= MAX_FAULTS:
            raise TooManyFaultsError

    def check_keys(self, fields: Fields, known: tuple[str, ...], place: int, prefix: str = "") -> bool:
        """
        Add a fault for each unknown or repeated key of a mapping.

        :param fields: the mapping.
        :param known: the known keys.
        :param place: the mapping's line or row.
        :param prefix: beginning of each fault. Default empty.
        :return: whether all keys are known and unique. If not, a field that seems to be missing may only have a
            misspelled key.
        """
        for key, line in fields.lines.items():
            if key not in known:
                self.fault(line or place, f"{prefix}{_unknown_name(key, known)}")
        for key, line in fields.repeated:
            first = fields.lines[key]
            text = f"is given twice, first in line {first}" if first != line else "is given twice"
            self.fault(line or place, text, f"{prefix}{sanitize(key, MAX_VALUE)}")
        return not fields.repeated and all(key in known for key in fields)


# Names that other software uses for fields.
_OTHER_NAMES = {"coin": "blockchain", "name": "label", "tag": "memo", "destination_tag": "memo"}


@lru_cache(maxsize=1024)
def _unknown_name(name: str, known: tuple[str, ...]) -> str:
    """Describe an unknown name, and suggest a similar known name."""
    folded = ascii_lower(name[:MAX_VALUE])
    near = get_close_matches(_OTHER_NAMES.get(folded, folded), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known names: {', '.join(known)}"
    return f"{sanitize(repr(name[:MAX_VALUE]), MAX_VALUE)} is unknown; {hint}"


@dataclass(frozen=True)
class Misread:
    """
    A value that is not what its author wrote, because the file's format reads the text differently, or because software
    has garbled it.

    :param fault: a description of the fault, with the spelling to use instead.
    """

    fault: str


_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


def _number(source: str, text: str) -> int | Misread:
    """
    Return a number; a :class:`Misread` if the number has several spellings, such as 01 or 1.0.

    The number may be an id, of which the exact spelling matters.
    """
    is_id = len(source) <= len(str(MAX_ID)) and _WHOLE_NUMBER.fullmatch(source)
    return int(source) if is_id else _misread(source, text)


def _misread(source: str, text: str, advice: str = "quote it") -> Misread:
    shown = sanitize(source, MAX_VALUE)
    return Misread(f"{text.format(shown)}: {advice}, as in {json.dumps(shown, ensure_ascii=False)}")


# --- YAML --------------------------------------------------------------------------------------------------

# Prefer libyaml, because it is many times faster than the pure Python loader.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_NUMBER = "a number"
_KINDS = {
    "tag:yaml.org,2002:str": "text",
    "tag:yaml.org,2002:null": "",
    "tag:yaml.org,2002:bool": "a boolean",
    "tag:yaml.org,2002:int": _NUMBER,
    "tag:yaml.org,2002:float": _NUMBER,
    "tag:yaml.org,2002:timestamp": "a date",
}
# Texts that are numbers in YAML 1.2, but not in YAML 1.1, which PyYAML implements.
_NUMBER_1_2 = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def read_yaml(text: str, faults: Faults) -> Any:
    """
    Return the contents of a YAML file; None if the file is empty or unreadable.

    :param text: the file's text.
    :param faults: collects the faults.
    """
    try:
        return _read_document(yaml.parse(text, Loader=_LOADER))
    except RecursionError:
        faults.fault(0, "the file is nested too deeply")
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's scanner raises ValueError or OverflowError for an invalid escape, or for a very long version number
        # in a `%YAML` directive.
        _note_syntax_error(error, text, faults)
    return None


def _note_syntax_error(error: Exception, text: str, faults: Faults) -> None:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    texts = [getattr(error, "context", None), getattr(error, "problem", None) or error]
    words = f"not YAML: {', '.join(sanitize(each) for each in texts if each)}"
    if mark is None:
        faults.fault(0, words)
        return
    if _has_tab_before(text, mark.line):
        words = f"indent with spaces, not tabs ({words})"
    faults.fault_at(mark.line + 1, words, mark.column + 1)


def _has_tab_before(text: str, index: int) -> bool:
    """Tell whether a line, counted from 0, is indented with a tab."""
    line = next(islice(io.StringIO(text), index, None), "")
    return re.match(r"[ -]*\t", line) is not None


# Read events one by one, because building a tree of nodes for a large file takes much time and memory.
def _read_document(events: Iterator[Any]) -> Any:
    """Return the value of the only YAML document in a file; None if the file has none."""
    contents = None
    # A stream has a start event, its documents, and an end event. Each document also has a start and an end event.
    next(events)
    if not isinstance(next(events), yaml.StreamEndEvent):
        contents = _read_value(next(events), events)
        next(events)
        event = next(events)
        if not isinstance(event, yaml.StreamEndEvent):
            problem = "expected a single document in the stream, but found another document"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
    return contents


def _read_value(event: Any, events: Iterator[Any]) -> Any:
    """Return the value that begins with this event."""
    if isinstance(event, yaml.ScalarEvent):
        return _read_scalar(event)
    if isinstance(event, yaml.SequenceStartEvent):
        return Items(_read_items(events))
    if isinstance(event, yaml.MappingStartEvent):
        return Fields(_read_pairs(events))
    return Misread(f"*{sanitize(event.anchor, MAX_VALUE)} is an alias, which is not allowed: repeat the value")


def _read_items(events: Iterator[Any]) -> Iterator[tuple[Any, int]]:
    """Yield the items of a list, with their line numbers."""
    while not isinstance(item := next(events), yaml.SequenceEndEvent):
        yield _read_value(item, events), _line(item)


def _read_pairs(events: Iterator[Any]) -> Iterator[tuple[str, Any, int]]:
    """Yield the keys of a mapping, with their values and line numbers."""
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        if isinstance(key, yaml.ScalarEvent):
            name = key.value
        else:
            _read_value(key, events)
            name = "[...]"
        yield name, _read_value(next(events), events), _line(key)


def _read_scalar(event: Any) -> Any:
    text: str = event.value
    tag = event.tag if event.tag not in (None, "!") else _RESOLVER.resolve(yaml.ScalarNode, text, event.implicit)
    kind = _KINDS.get(tag, "a special word")
    if kind == "text" and event.style:
        return text
    if kind == "text" and _NUMBER_1_2.fullmatch(text):
        kind = _NUMBER
    if kind == "text" and is_null_word(text):
        return _misread(text, "{} is another program's word for a missing value", "leave it out, or quote it")
    if kind in ("text", ""):
        return text if kind else None
    return (_number if kind == _NUMBER else _misread)(text, f"YAML reads {{}} as {kind}")


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


# --- JSON --------------------------------------------------------------------------------------------------


def read_json(text: str, faults: Faults) -> Any:
    """
    Return the contents of a JSON file; None if the file is empty or unreadable.

    The values have no line numbers, because Python's parser does not report them.

    :param text: the file's text.
    :param faults: collects the faults.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: Fields((key, value, 0) for key, value in pairs),
            # Take numbers as they are written, because 1.0 and 1 are different ids, and Python refuses very long
            # numbers.
            parse_int=lambda source: _number(source, "{} is a number"),
            parse_float=lambda source: _misread(source, "{} is a number"),
            parse_constant=lambda name: Misread(f"{name} is not JSON: leave it out"),
        )
    except json.JSONDecodeError as error:
        if text.strip():
            faults.fault_at(error.lineno, f"not JSON: {sanitize(error.msg)}", error.colno)
    except RecursionError:
        faults.fault(0, "the file is nested too deeply")
    return None


# --- CSV ---------------------------------------------------------------------------------------------------

#: Name of a column that is ignored, for the user's own notes. Columns named ``comment`` or ``note`` are refused,
#: because some chains use these words for a memo.
NOTES = "notes"
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_CORRECT = "correct it, and format its column as text"


def read_csv(text: str, faults: Faults) -> Any:
    """
    Return the contents of a CSV file; None if the file has no rows.

    The file has a header of field names, and a row for each address. It may look like the files that spreadsheets save:
    with commas, semicolons or tabs as separators, names in any case and with blanks around them, empty rows and
    columns, and a column of notes. Each row must have as many cells as the header, because otherwise a value may be in
    the wrong column.

    :param text: the file's text.
    :param faults: collects the faults.
    """
    separator = _separator(text, faults)
    if not separator:
        return None
    records = _records(text, separator, faults)
    line, header = next(records, (0, []))
    names = [ascii_lower(each.strip()) for each in header]
    named = Fields((name, None, line) for name in names if name)
    if not faults.check_keys(named, (*FIELDS, NOTES), line):
        return None
    joined = "," if separator == ";" else ";"
    items = []
    for place, cells in records:
        if fault := _cells_fault(names, cells):
            faults.fault(place, fault)
        else:
            items.append((_fields(names, cells, place, joined), place))
    return Fields([("version", VERSION, line), ("addresses", Items(items), line)]) if items else None


def _cells_fault(names: Sequence[str], cells: Sequence[str]) -> str:
    """Return why a row does not fit the header; empty if it fits."""
    if len(cells) != len(names):
        return f"the row has {count(len(cells), 'cell')}, but the header has {len(names)}"
    for number, (name, cell) in enumerate(zip(names, cells, strict=True), 1):
        if cell.strip() and not name:
            return f"cell {number} of the row is not empty, but the header has no name for this column"
    return ""


def _separator(text: str, faults: Faults) -> str:
    """Return the header's separator; empty if the header has a fault, which is then added to ``faults``."""
    # Skip empty rows before the header.
    found = re.search(r'^.*[^,;"\s].*$', text, re.MULTILINE)
    header = found[0] if found else ""
    line = text.count("\n", 0, found.start() if found else 0) + 1
    if re.match(r'"?sep=', header, re.IGNORECASE):
        faults.fault(line, f"{sanitize(header, 20)} is an instruction for Excel, not the header: remove this line")
        return ""
    separators = [each for each in _SEPARATORS if each in header]
    if not separators and "|" in header:
        faults.fault(line, "the header's separator is |: use commas, semicolons or tabs in the whole file")
        return ""
    if len(separators) <= 1:
        return "".join(separators) or ","
    names = " and ".join(_SEPARATORS[each] for each in separators)
    faults.fault(line, f"the header has {names}: use only one of these separators in the whole file")
    return ""


def _records(text: str, separator: str, faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not empty, with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        faults.fault(line, f"the row that begins here is not CSV: {sanitize(error)}; the rest of the file was not read")


def _fields(names: Sequence[str], cells: Sequence[str], line: int, joined: str) -> Fields:
    """Return the fields of a row, without empty cells."""
    pairs = [(name, cell) for name, cell in zip(names, cells, strict=True) if cell and name in FIELDS]
    return Fields((name, _cell(name, cell, joined), line) for name, cell in pairs)


def _cell(name: str, cell: str, joined: str) -> Any:
    """Return a cell's text or list, in which a :class:`Misread` replaces garbled text."""
    if name not in LISTS:
        return as_meant(name, cell, _CORRECT)
    other = ";" if joined == "," else ","
    if other in cell:
        return Misread(
            f"{sanitize(repr(cell), MAX_VALUE)} contains '{other}': in this file, separate ids by '{joined}'"
        )
    return [as_meant(name, each, _CORRECT) for each in cell.split(joined)]


# --- garbled values ----------------------------------------------------------------------------------------

# Spreadsheets, data frames and databases may write a word for a missing value, change the spelling of a whole number,
# or turn a text into a date or a truth value. Requesting such a garbled value could lose funds, because a memo may
# select the account. Garbled values are refused in CSV files, in rows without a file, and in YAML files unless they are
# quoted, because values in these places may come from such software.

#: The fields that identify accounts and objects. Their exact spelling matters, even if they look like numbers or dates.
IDS_AND_MEMO = (*LISTS, "memo", "customer_id", "exchange_account_id", "visibility_group_id")

# Words that software writes for a missing value. NIL in capitals is left out, because it is the symbol of a chain.
_NULL_WORDS = re.compile(
    r"(?i:[+-]?nan|nat|n/?a|n\.a\.|null|none|undefined|<(?:na|n/a|nan|nat|null|none|undefined|unset)>"
    r"|[(\[](?:null|none|nan|nil|blank|empty)[)\]]|-?1\.#(?:ind|qnan)|[+-]?inf(?:inity)?|\\n)|nil|<nil>"
)
# Error values of Excel and LibreOffice in several languages, the signs that spreadsheets show in columns that are too
# narrow, and the word that Google Sheets displays while it computes.
_ERROR_WORDS = re.compile(r"#+|#[¡¿]?[^\Wa-z]+(?:/[^\Wa-z]+)*[!?]?|#N/A N/A|Err:[0-9]+|Loading\.\.\.")
# The months' names and abbreviations in the languages in which spreadsheets are common.
_MONTH = (
    "jan|january|feb|february|mar|march|apr|april|may|jun|june|jul|july|aug|august|sep|sept|september|oct|october|nov|"
    "november|dec|december|"
    "januar|jän|jänner|februar|mär|märz|mrz|mai|juni|juli|okt|oktober|dez|dezember|"
    "janv|janvier|févr|février|mars|avr|avril|juin|juil|juillet|août|septembre|octobre|novembre|déc|décembre|"
    "ene|enero|febrero|marzo|abr|abril|mayo|junio|julio|ago|agosto|septiembre|octubre|noviembre|dic|diciembre|"
    "gen|gennaio|febbraio|mag|maggio|giu|giugno|lug|luglio|set|settembre|ott|ottobre|dicembre|"
    "janeiro|fev|fevereiro|março|maio|junho|julho|setembro|out|outubro|novembro|dezembro|"
    "januari|februari|maart|mrt|mei|augustus"
)
_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp][Mm])?(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?"
_DATE = (
    # 2026-01-02; 1/2/2026, 01.02.26; 12-Mar, 02. Jan 2026; Jan-26, Jan 2, 2026; 1月2日.
    r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}"
    r"|[0-9]{1,2}(?P<mark>[-/.])[0-9]{1,2}(?P=mark)(?:[0-9]{2}|[0-9]{4})"
    rf"|[0-9]{{1,2}}\.?[-/. ]?(?i:{_MONTH})\.?(?:[-/., ]{{1,2}}[0-9]{{2,4}})?"
    rf"|(?i:{_MONTH})\.?[-/. ][0-9]{{1,4}}(?:,? [0-9]{{4}})?"
    r"|(?:[0-9]{4}年)?[0-9]{1,2}月(?:[0-9]{1,2}日)?"
)
_ROUNDED = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE]\+[0-9]+")
_WRITTEN_AS = (
    (re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE][+-]?[0-9]+"), "is a number in exponent notation"),
    (re.compile(r"[+-]?[0-9]+[.,]0*"), "is a whole number with a decimal point"),
    (
        re.compile(r"[+-]?[0-9]{1,3}(?:[.,'’ \u00a0\u202f][0-9]{3})+(?:[.,]0*)?"),
        "is a number with thousands separators",
    ),
    (re.compile(rf"(?:{_DATE})(?:[ T]{_TIME})?"), "is a date into which software has converted another value"),
    (
        re.compile(r"(?i:true|false|wahr|falsch|vrai|faux|verdadero|falso|vero|verdadeiro|waar|onwaar)"),
        "is a truth value into which software has converted another value",
    ),
    (re.compile(r"b'.*'|b\".*\"", re.DOTALL), "is Python's notation for bytes"),
)
_MEANT = "if the value is correct, write it in quotes in a YAML or JSON file"


def as_meant(name: str, text: str, correct: str) -> str | Misread:
    """
    Return a text, or a :class:`Misread` if it is garbled.

    This function has the same parameters as :func:`garbled_fault`.
    """
    fault = garbled_fault(name, text, correct)
    return Misread(fault) if fault else text


def is_null_word(text: str) -> bool:
    """Tell whether software writes this text for a missing value."""
    return _NULL_WORDS.fullmatch(text) is not None


def garbled_fault(name: str, text: str, correct: str) -> str:
    """
    Return why a text is probably garbled; empty if it is not.

    :param name: the field.
    :param text: the field's text, or a member of its list.
    :param correct: advice on how to correct the value at its source.
    """
    if is_null_word(text.strip()):
        return f"{sanitize(text, MAX_VALUE)} is another program's word for a missing value: leave it out; {_MEANT}"
    what = _garbled(name, text)
    return f"{sanitize(text, MAX_VALUE)} {what}: {correct}; {_MEANT}" if what else ""


def _garbled(name: str, text: str) -> str:
    if _ERROR_WORDS.fullmatch(text):
        return "is an error value of a spreadsheet"
    if _ROUNDED.fullmatch(text):
        return "is a number in exponent notation"
    # A label may begin with an apostrophe, because some people's names do.
    if text.startswith("=") or (text.startswith("'") and name != "label"):
        return f"begins with {text[0]}, which is not part of the value in spreadsheets"
    if name in LISTS and text[:1] in ("[", "(", "{"):
        return "is a program's notation for a list"
    if name not in IDS_AND_MEMO:
        return ""
    return next((what for pattern, what in _WRITTEN_AS if pattern.fullmatch(text)), "")
