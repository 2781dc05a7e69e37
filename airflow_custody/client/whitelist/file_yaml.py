"""YAML of a whitelist file: read event by event, so that each value is known as it is written, with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.file_rows import Rows
from airflow_custody.client.whitelist.file_schema import FIELDS, VERSION
from airflow_custody.client.whitelist.file_tree import (
    BOOLEAN,
    MERGE,
    NUMBER,
    REPORTED,
    Other,
    Pair,
    Pairs,
    Tree,
    TreeReader,
)
from airflow_custody.client.whitelist.models import WhitelistRequest

# libyaml is twenty times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: A file needs five levels.
MAX_DEPTH = 10
_TAG = "tag:yaml.org,2002:"
_KINDS = {"null": "", "bool": BOOLEAN, "int": NUMBER, "float": NUMBER, "timestamp": "a date"}
# YAML 1.2 reads these as numbers, too; PyYAML follows 1.1.
_NUMBER_1_2 = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PLAIN = re.compile(r"\w[\w ./@-]*\w")


def kind_of(text: str) -> str | None:
    """
    Return what YAML, 1.1 or 1.2, makes of a text without quotes.

    :param text: the text.
    :return: ``a number``, ``a date``, ...; empty if it is nothing, and None if it stays text.
    """
    for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ()):
        if pattern.match(text):
            return _KINDS.get(tag.removeprefix(_TAG), "a special word")
    return NUMBER if _NUMBER_1_2.fullmatch(text) else None


def read_yaml(text: str, rows: Rows) -> None:
    """
    Read a file.

    :param text: its text.
    :param rows: takes its rows and its faults.
    """
    tree = _Composer(text, rows).compose()
    if tree is None:
        rows.no_rows()
    else:
        TreeReader(rows, key="{name}:", reads="YAML reads {source} as {kind}").read(tree)


class _Broken(Exception):
    """Raised when the rest of a file cannot be read; that has been noted."""


class _Composer:
    """Builds the tree of a file. What was complete before a syntax error is kept."""

    def __init__(self, text: str, rows: Rows) -> None:
        self._loader = _LOADER(text)
        self._text = text
        self._rows = rows
        self._lines: list[int] = []
        self._root: Any = None

    def compose(self) -> Tree | None:
        """Return the tree; None if there is no document."""
        try:
            self._next()
            event = self._next()
            if isinstance(event, yaml.StreamEndEvent):
                return None
            event = self._next()
            if isinstance(event, yaml.MappingStartEvent):
                self._refuse_properties(event)
                self._root = Pairs([])
                self._mapping(self._root.items, 1, is_top=True)
            else:
                self._root = self._value(event, 1)
            self._next()
            event = self._next()
            if not isinstance(event, yaml.StreamEndEvent):
                self._fault(event, "a second document begins; a file holds one")
        except _Broken:
            return Tree(self._root, self._lines, complete=False)
        finally:
            self._loader.dispose()
        return Tree(self._root, self._lines, complete=True)

    def _next(self) -> Any:
        try:
            return self._loader.get_event()
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # The last two: PyYAML's own scanner, of an escape for no character and of a very long version.
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            texts = [getattr(error, "context", None), getattr(error, "problem", None) or error]
            words = f"not YAML: {', '.join(sanitize(each) for each in texts if each)}"
            if mark is None:
                self._rows.fault(0, words)
            else:
                cure = _cure(self._text, mark.index)
                self._rows.fault_at(mark.line + 1, f"{cure} ({words})" if cure else words, mark.column + 1)
        raise _Broken

    def _fault(self, event: Any, text: str) -> None:
        self._rows.fault(event.start_mark.line + 1, text)

    def _refuse_properties(self, event: Any) -> bool:
        """Note an anchor or a tag; tell whether there is a tag, which may change the value."""
        if event.anchor is not None:
            self._fault(
                event, f"the anchor &{sanitize(event.anchor, 60)} is not allowed: use defaults, or write it out"
            )
        if event.tag is not None:
            tag = sanitize(event.tag.replace(_TAG, "!!"), 60)
            self._fault(event, f"the tag {tag} is not allowed: quote what is meant as text")
        return event.tag is not None

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is yaml.AliasEvent:
            self._fault(event, f"the alias *{sanitize(event.anchor, 60)} is not allowed: use defaults, or write it out")
            return REPORTED
        is_refused = (event.anchor is not None or event.tag is not None) and self._refuse_properties(event)
        if depth > MAX_DEPTH:
            self._fault(event, f"this is nested more than {MAX_DEPTH} levels deep; the rest is not read")
            raise _Broken
        value: Any
        if kind is yaml.ScalarEvent:
            text = event.value
            value = text
            # Plain: without quotes.
            if event.implicit[0] and (found := kind_of(text)) is not None:
                value = Other(text, found)
        elif kind is yaml.SequenceStartEvent:
            value = []
            self._list(value, depth + 1)
        else:
            value = Pairs([])
            self._mapping(value.items, depth + 1)
        return REPORTED if is_refused else value

    def _list(self, items: list[Any], depth: int, lines: list[int] | None = None) -> None:
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._value(event, depth))
            if lines is not None:
                lines.append(event.start_mark.line + 1)

    def _mapping(self, pairs: list[Pair], depth: int, *, is_top: bool = False) -> None:
        while type(key := self._next()) is not yaml.MappingEndEvent:
            line = key.start_mark.line + 1
            is_scalar = type(key) is yaml.ScalarEvent
            name = key.value if is_scalar else ""
            if not is_scalar or key.anchor is not None or key.tag is not None:
                before = self._value(key, depth)
                if not is_scalar and before is not REPORTED:
                    self._fault(key, "a key must be the name of a field")
            event = self._next()
            if is_top and name == "addresses" and type(event) is yaml.SequenceStartEvent:
                # There before its rows are: they are kept if the file breaks off.
                rows: list[Any] = []
                is_first = all(each.key != name for each in pairs)
                self._refuse_properties(event)
                pairs.append(Pair(name, rows, line))
                self._list(rows, depth + 1, self._lines if is_first else None)
                continue
            value = self._value(event, depth)
            if is_scalar and name == MERGE and key.implicit[0]:
                self._fault(key, "the merge key << is not allowed: use defaults, or write it out")
                value = REPORTED
            if is_scalar:
                pairs.append(Pair(name, value, line))


def _cure(text: str, index: int) -> str:
    """Return what to do about a syntax error at a character; empty if that is not known."""
    before = text[:index].rpartition("\n")[2]
    if text[index : index + 1] == "\t":
        return "a tab stands where YAML allows only spaces: replace it with spaces"
    if text[index : index + 1] != ":":
        return ""
    if ": " in before:
        return 'a text with a colon and a space in it must be quoted, like label: "A: B"'
    return "this key does not begin in the column of the row's other keys: indent it as they are"


# --- writing -----------------------------------------------------------------------------------------------


def dump_whitelist(requests: Iterable[WhitelistRequest], *, comments: Mapping[int, str] | None = None) -> str:
    """
    Return the text of a file in YAML.

    Reading it back gives the same requests, if there are any, their destinations are different, and no id in a list has
    a comma, a semicolon or white space in it. It has no ``defaults``; text that YAML would not read as text is quoted.

    :param requests: the rows.
    :param comments: comments by the index of the row above which they stand, from 0; each becomes one line.
    :return: the text; its fields are in the order of :class:`WhitelistRequest`.
    """
    parts = [f"version: {VERSION}\n"]
    for index, request in enumerate(requests):
        parts.append("" if index else "addresses:\n")
        if comment := sanitize((comments or {}).get(index, ""), 1000):
            parts.append(f"# {comment}\n")
        start = "- "
        for name in FIELDS:
            if (value := getattr(request, name)) is not None:
                text = f"[{', '.join(map(_scalar, value))}]" if isinstance(value, list) else _scalar(value)
                parts.append(f"{start}{name}: {text}\n")
                start = "  "
    return "".join(parts) if len(parts) > 1 else f"{parts[0]}addresses: []\n"


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and kind_of(text) is None:
        return text
    return json.dumps(text, ensure_ascii=False)
