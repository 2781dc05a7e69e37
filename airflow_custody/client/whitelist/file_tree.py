"""YAML and JSON: what both parsers read is one tree, and one function knows the form of a file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.file_rows import MAX_VALUE, Fields, Rows, unknown_name
from airflow_custody.client.whitelist.file_schema import FIELDS, VERSION, id_fields, list_fields

_TOP = ("version", "defaults", "addresses")
#: Kinds of values.
NUMBER, BOOLEAN, NOT_JSON = "a number", "a boolean", "not JSON"
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


class Pair(NamedTuple):
    """A key, its value and its line; 0 if no lines are known."""

    key: str
    value: Any
    line: int


@dataclass(frozen=True)
class Pairs:
    """A mapping: its pairs as they stand in the file."""

    items: list[Pair]


@dataclass(frozen=True)
class Other:
    """
    A value that is neither text nor a list or a mapping.

    :param source: its text, as it stands in the file.
    :param kind: what it is: ``a number``, ``a date``, ...; empty if it is nothing, like null.
    """

    source: str
    kind: str


@dataclass(frozen=True)
class Reported:
    """A value that has been reported already."""


REPORTED = Reported()
#: The key that merges other mappings into one, in YAML; its value has been reported.
MERGE = "<<"


class Tree(NamedTuple):
    """
    What a parser read.

    :param root: the whole: text, :class:`Other`, a list, or :class:`Pairs`.
    :param lines: the line of each item in ``addresses``; empty if no lines are known.
    :param complete: whether the file was read to its end.
    """

    root: Any
    lines: list[int]
    complete: bool


class TreeReader:
    """
    Reads the tree of a file.

    :param rows: takes the rows and the faults.
    :param key: how a key is written, like ``{name}:``.
    :param reads: what the parser does to a value, like ``YAML reads {source} as {kind}``.
    """

    def __init__(self, rows: Rows, *, key: str, reads: str) -> None:
        self._rows = rows
        self._key = key
        self._reads = reads
        self._lists = list_fields()
        self._ids = id_fields()

    def read(self, tree: Tree) -> None:
        """Hand all rows over, and note all faults."""
        fault = self._rows.fault
        if not isinstance(tree.root, Pairs):
            if tree.complete:
                fault(0, f"the file must be a mapping with the keys version and addresses, not {_kind(tree.root)}")
            return
        top: dict[str, Pair] = {}
        for pair in tree.root.items:
            if pair.key == MERGE and pair.value is REPORTED:
                continue
            if pair.key not in _TOP:
                fault(pair.line, unknown_name(pair.key, _TOP))
            elif pair.key in top:
                fault(pair.line, _again(top[pair.key].line), pair.key)
            else:
                top[pair.key] = pair
        self._read_version(top.get("version"), tree.complete)
        if "defaults" in top:
            self._read_defaults(top["defaults"])
        if "addresses" in top:
            self._read_addresses(top["addresses"], tree)
        elif tree.complete:
            self._rows.no_rows()

    def _read_version(self, pair: Pair | None, complete: bool) -> None:
        write = f"{self._key.format(name='version')} {VERSION}"
        if pair is None:
            if complete:
                self._rows.fault(0, f"is missing: write {write} at the top", "version")
        elif pair.value is not REPORTED and pair.value != Other(str(VERSION), NUMBER):
            source = pair.value.source if isinstance(pair.value, Other) else ""
            shown = _cut(source) or _kind(pair.value)
            self._rows.fault(pair.line, f"must be the number {VERSION}, not {shown}: write {write}", "version")

    def _read_defaults(self, pair: Pair) -> None:
        if isinstance(pair.value, Pairs):
            prefix = "" if pair.line else "defaults: "
            self._rows.set_defaults(self._fields(pair.value, pair.line, prefix), pair.line)
        elif pair.value is not REPORTED:
            what = _NO_VALUE if _is_nothing(pair.value) else f"must be a mapping of fields, not {_kind(pair.value)}"
            self._rows.fault(pair.line, what, "defaults")

    def _read_addresses(self, pair: Pair, tree: Tree) -> None:
        items = pair.value
        if _is_nothing(items) or items == []:
            if tree.complete:
                self._rows.no_rows(pair.line)
        elif isinstance(items, list):
            # From the end, so that the memory of each is free for its request.
            items.reverse()
            number = 0
            while items:
                item, number = items.pop(), number + 1
                place = tree.lines[number - 1] if tree.lines else number
                if isinstance(item, Pairs):
                    self._rows.add(place, self._fields(item, place))
                elif item is not REPORTED:
                    self._rows.fault(place, f"a row must be a mapping of fields, not {_kind(item)}")
        elif items is not REPORTED:
            self._rows.fault(pair.line, f"must be a list of rows, not {_kind(items)}", "addresses")

    def _fields(self, pairs: Pairs, place: int, prefix: str = "") -> Fields:
        """Return the fields of a mapping; what is wrong with their form is noted."""
        fields, is_merged = Fields(), False
        for key, value, line in pairs.items:
            faults: list[tuple[str, str]] = []
            if key == MERGE and value is REPORTED:
                is_merged = True
            elif key not in _FIELDS:
                faults.append(("", unknown_name(key)))
            elif key in fields.lines:
                faults.append((key, _again(fields.lines[key])))
            else:
                fields.lines[key] = line
                # Nearly every value is of this kind.
                is_text = type(value) is str and key not in self._lists
                fields.values[key] = value if is_text else self._value(key, value, faults)
                if fields.values[key] is None:
                    fields.spoiled.add(key)
            for name, text in faults:
                self._rows.fault(line or place, prefix + ": ".join(filter(None, (name, text))))
        if is_merged:
            # Nobody knows what else it has.
            fields.spoiled.update(_FIELDS.difference(fields.lines))
        return fields

    def _value(self, name: str, value: Any, faults: list[tuple[str, str]]) -> Any:
        """Return the value of a field, or None; what is wrong with it joins the faults."""
        if name not in self._lists or _is_nothing(value) or value is REPORTED:
            return self._scalar(name, name, value, faults)
        if isinstance(value, list):
            found = [self._scalar(name, f"{name}[{index}]", each, faults) for index, each in enumerate(value)]
            # Something stands for what has been reported: the other members are still checked.
            return ["x" if each is None else each for each in found]
        like = value.source if isinstance(value, Other) else value if isinstance(value, str) else "..."
        faults.append((name, f"must be a list, like [{_quote(like)}], not {_kind(value)}"))
        return None

    def _scalar(self, name: str, place: str, value: Any, faults: list[tuple[str, str]]) -> Any:
        if isinstance(value, str):
            return value
        if value is REPORTED:
            return None
        if not isinstance(value, Other):
            faults.append((place, f"must be text, not {_kind(value)}"))
            return None
        source = _cut(value.source)
        write = _quote(source) if place != name else f"{self._key.format(name=name)} {_quote(source)}"
        if not value.kind:
            leave = "leave the key out" if place == name else "remove the item"
            is_word = source and (place != name or name not in self._lists)
            faults.append((place, f"has no value: {leave}" + (f", or quote it: {write}" if is_word else "")))
        elif value.kind == NOT_JSON:
            faults.append((place, f"{source} is {NOT_JSON}"))
        elif value.kind != NUMBER or name not in self._ids or not _WHOLE_NUMBER.fullmatch(value.source):
            faults.append((place, f"{self._reads.format(source=source, kind=value.kind)}: quote it: {write}"))
        elif len(value.source) > len(str(MAX_ID)) + 1:
            faults.append((place, f"{source} is no id: the largest is {MAX_ID}"))
        else:
            return int(value.source)
        return None


_FIELDS = frozenset(FIELDS)
_NO_VALUE = "has no value: leave the key out"


def _is_nothing(value: Any) -> bool:
    return isinstance(value, Other) and not value.kind


def _again(line: int) -> str:
    return f"is given twice, first in line {line}" if line else "is given twice"


def _quote(text: str) -> str:
    return json.dumps(_cut(text), ensure_ascii=False)


def _cut(text: str) -> str:
    return sanitize(text, MAX_VALUE)


def _kind(value: Any) -> str:
    if isinstance(value, Pairs):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Other):
        return value.kind or "an empty value"
    return f"the text {_cut(value)!r}"
