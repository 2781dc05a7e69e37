"""Lines and tables for people. On a terminal they fit its width, and states are coloured."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal

from airflow_custody.client.text import ascii_lower, count, escape

Level = Literal["good", "warning", "bad"]

_MAX_SHOWN = 4000
_COLOURS: dict[Level, str] = {"good": "32", "warning": "33", "bad": "1;31"}
# A request that the service reports as approved is not green: only signatures prove it.
_WORDS: dict[Level, str] = {
    "good": "ok, holds, yes, verified, enabled",
    "warning": "unknown, cannot tell, pending, unsigned, disabled, cooldown, rejected",
    "bad": "failed, does not hold, unverified, absent, unreadable",
}
_LEVELS: dict[str, Level] = {word: level for level, words in _WORDS.items() for word in words.split(", ")}
# Columns are separated by two spaces. A column that has a text of more than 60 characters is at least 30 wide.
_GAP = 2
_LONG_TEXT, _NARROWEST_TEXT = 60, 30


@dataclass(frozen=True)
class Mark:
    """
    A text with one coloured word.

    :param word: the word, such as the name of a state.
    :param level: its level, which determines the colour; None: no colour.
    :param before: the text before the word.
    :param rest: the text after the word.
    """

    word: str
    level: Level | None = None
    before: str = ""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.before}{self.word}{self.rest}"


def as_state(word: str, before: str = "", rest: str = "") -> Mark:
    """
    Return a text with the word for a state in its usual colour.

    :param word: the word. Words that are not known have no colour.
    :param before: the text before the word.
    :param rest: the text after the word.
    """
    return Mark(word, _LEVELS.get(ascii_lower(word)), before, rest)


# The words in capitals at the beginning of a line about a problem, such as WRONG or NOT HEALTHY.
_ALARM = re.compile("[A-Z ]+(?=: )")


def as_line(text: str) -> Mark:
    """
    Return a line, with words in capitals at its beginning in colour.

    For example, ``WRONG`` is red, and ``NOTE`` is yellow.

    :param text: the line.
    """
    word = found[0] if (found := _ALARM.match(text)) else ""
    return Mark(word, "warning" if word == "NOTE" else "bad", rest=text[len(word) :])


class Layout:
    """
    Turns values into lines.

    :param width: maximum number of columns. Longer lines are wrapped between words, so ids and addresses stay whole.
        None: lines are never wrapped.
    :param in_colour: whether states are coloured.
    """

    def __init__(self, width: int | None = None, *, in_colour: bool = False) -> None:
        self._width = width
        self._in_colour = in_colour

    def lines(self, view: Any) -> Iterator[str]:
        """
        Yield the lines of a view. Empty values are left out.

        :param view: a text is one line, a dict has a line for each key, and a list of dicts is a table.
        """
        if isinstance(view, (str, Mark)):
            if str(view):
                yield from self._wrap(_as_mark(view), hanging="  ")
        elif isinstance(view, Mapping):
            for name, value in view.items():
                yield from self._pair(_as_text(name), value)
        elif view and all(isinstance(each, Mapping) for each in view):
            yield from self._table(view)
        else:
            for each in view:
                yield from self.lines(each)

    def _inner(self) -> Layout:
        """Return the layout of indented lines."""
        return Layout(self._width and self._width - 2, in_colour=self._in_colour)

    def _pair(self, name: str, value: Any) -> Iterator[str]:
        if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
            if value:
                yield f"{name}:"
                yield from (f"  {line}" for line in self._inner().lines(value))
        elif value not in (None, ""):
            mark = _as_mark(value)
            yield from self._wrap(replace(mark, before=f"{name}: {mark.before}"), hanging="  ")

    # --- tables ---

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        names = [name for name in rows[0] if any(row[name] for row in rows)]
        header = [Mark(name.replace("_", " ").upper()) for name in names]
        cells = [[_as_mark(row[name]) for name in names] for row in rows]
        widths = self._column_widths([header, *cells])
        if widths is None:
            for row in cells:
                yield from self._block([name.replace("_", " ") for name in names], row)
            return
        for line in (header, *cells):
            yield from self._row(line, widths)

    def _column_widths(self, table: Sequence[Sequence[Mark]]) -> list[int] | None:
        """Return the widths of the columns; None if the table cannot be made narrow enough."""
        columns = [list(map(str, column)) for column in zip(*table, strict=True)]
        widths = [max(map(len, column)) for column in columns]
        if self._width is None:
            return widths
        least = [_least_width(column) for column in columns]
        excess = sum(widths) + _GAP * (len(widths) - 1) - self._width
        for _ in range(excess):
            # Take one character from the widest column that can be wrapped.
            room, index = max((width if width > least[i] else 0, i) for i, width in enumerate(widths))
            if not room:
                return None
            widths[index] -= 1
        return widths

    def _row(self, cells: Sequence[Mark], widths: Sequence[int]) -> Iterator[str]:
        wrapped = [split(str(cell), width) for cell, width in zip(cells, widths, strict=True)]
        # If all values of a table are empty, it has no columns.
        for number in range(max(map(len, wrapped), default=0)):
            parts = [lines[number] if number < len(lines) else "" for lines in wrapped]
            painted = [
                self._paint(part, cell) + " " * (width - len(part))
                for part, cell, width in zip(parts, cells, widths, strict=True)
            ]
            yield (" " * _GAP).join(painted).rstrip()

    def _block(self, names: Sequence[str], cells: Sequence[Mark]) -> Iterator[str]:
        """Yield a row that is too wide for a table: each cell on a line of its own, with its column's name."""
        first, *others = cells
        yield self._paint(str(first), first)
        inner = self._inner()
        for name, cell in zip(names[1:], others, strict=True):
            if str(cell):
                pair = replace(cell, before=f"{name}: {cell.before}")
                yield from (f"  {line}" for line in inner._wrap(pair, hanging="  "))

    # --- lines ---

    def _wrap(self, mark: Mark, *, hanging: str) -> Iterator[str]:
        first, *others = split(str(mark), self._width, hanging)
        yield self._paint_in(first, mark)
        yield from others

    def _paint_in(self, line: str, mark: Mark) -> str:
        """Paint the word for a state in a line. A word that was wrapped is not painted."""
        end = len(mark.before) + len(mark.word)
        if line[:end] != mark.before + mark.word:
            return line
        return mark.before + self._paint(mark.word, mark) + line[end:]

    def _paint(self, text: str, mark: Mark) -> str:
        if not (self._in_colour and mark.level and text):
            return text
        return paint(text, _COLOURS[mark.level])


def paint(text: str, colour: str) -> str:
    """
    Return a text in colour.

    :param text: the text.
    :param colour: the colour, as the number of a terminal's escape sequence.
    """
    return f"\033[{colour}m{text}\033[0m"


def split(text: str, width: int | None, hanging: str = "") -> list[str]:
    """
    Split a line between words. A word that is too long stays whole: it may be an address.

    :param text: the line.
    :param width: maximum number of columns. None: the line is not split.
    :param hanging: white space at the beginning of the second line and those after it.
    """
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def _least_width(column: Iterable[str]) -> int:
    """Return the smallest width at which a column can be read, with no word broken."""
    column = list(column)
    longest_word = max(len(word) for text in column for word in text.split() or [""])
    longest_text = max(map(len, column))
    return max(longest_word, _NARROWEST_TEXT) if longest_text > _LONG_TEXT else longest_word


def _as_mark(value: object) -> Mark:
    """Return a value in printable characters, on one line."""
    if not isinstance(value, Mark):
        return Mark(_as_text(value))
    return replace(value, word=_as_text(value.word), before=escape(value.before), rest=_as_text(value.rest))


def _as_text(value: object) -> str:
    """Return a value on one line, with unprintable characters as ``\\uXXXX``."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, datetime):
        return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    shown = escape(text[:_MAX_SHOWN])
    return shown if len(text) <= _MAX_SHOWN else f"{shown}… ({count(len(text), 'character')})"
