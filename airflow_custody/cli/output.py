"""
Print data to standard output, and messages to standard error. No other module prints.

On a terminal, lines and tables fit the terminal's width, and states are coloured.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal, TextIO

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import ascii_lower, count, escape, sanitize

_MAX_MESSAGE = 4000
_MIN_WIDTH = 40
_SIGN = re.compile(r"  ([-+~!]) ")
_SIGN_COLOURS = {"-": "31", "+": "32", "~": "33", "!": "1;31"}

Level = Literal["good", "warning", "bad"]

_MAX_SHOWN = 4000
_COLOURS: dict[Level, str] = {"good": "32", "warning": "33", "bad": "1;31"}
# "approved" is left out of the good words, because only signatures prove that a request was approved.
_WORDS: dict[Level, str] = {
    "good": "ok, success, holds, yes, verified, enabled",
    "warning": "unknown, cannot tell, pending, unsigned, no signatures yet, disabled, cooldown, rejected",
    "bad": "failed, failure, does not hold, unverified, not verified, absent, unreadable",
}
_LEVELS: dict[str, Level] = {word: level for level, words in _WORDS.items() for word in words.split(", ")}
# Number of spaces between columns, and minimum width of a last column whose text is wrapped.
_GAP, _NARROWEST_TEXT = 2, 30


@dataclass(frozen=True)
class Mark:
    """
    A text with one coloured word.

    :param word: the word, such as the name of a state.
    :param level: the word's level, which determines its colour; None: no colour.
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

        :param view: a text is one line, a dict has a line for each key, and a list of dicts is a table. If a table is
            too wide, each of its rows becomes a block: a line for each cell, with the name of its column.
        """
        if isinstance(view, (str, Mark)):
            if str(view):
                yield from self._line(_as_mark(view))
        elif isinstance(view, Mapping):
            for name, value in view.items():
                yield from self._pair(_as_text(name), value)
        elif view and all(isinstance(each, Mapping) for each in view):
            yield from self._table(view)
        else:
            for each in view:
                yield from self.lines(each)

    def _line(self, mark: Mark) -> Iterator[str]:
        first, *others = split(str(mark), self._width, hanging="  ")
        end = len(mark.before) + len(mark.word)
        # If a line break falls into the coloured part, leave out the colour.
        is_whole = first[:end] == mark.before + mark.word
        yield f"{mark.before}{self._paint(mark.word, mark)}{first[end:]}" if is_whole else first
        yield from others

    def _pair(self, name: str, value: Any) -> Iterator[str]:
        if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
            if value:
                yield f"{name}:"
                yield from self._indented(value)
        elif value is not None and str(value):
            mark = _as_mark(value)
            yield from self._line(replace(mark, before=f"{name}: {mark.before}"))

    def _indented(self, view: Any) -> Iterator[str]:
        inner = Layout(self._width and self._width - 2, in_colour=self._in_colour)
        return (f"  {line}" for line in inner.lines(view))

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        names = {name: name.replace("_", " ") for name in rows[0] if any(row[name] for row in rows)}
        if not names:
            return
        heads = [Mark(title.upper()) for title in names.values()]
        table = [heads, *([_as_mark(row[name]) for name in names] for row in rows)]
        *widths, widest = (max(len(str(each)) for each in column) for column in zip(*table, strict=True))
        indent = sum(widths) + _GAP * len(widths)
        room = None if self._width is None else self._width - indent
        longest = max(len(word) for row in table for word in str(row[-1]).split())
        if room is None or room >= max(min(widest, _NARROWEST_TEXT), longest):
            yield from self._columns(table, widths, room)
            return
        first, *others = names
        for row in rows:
            yield from self._line(_as_mark(row[first]))
            yield from self._indented({names[name]: row[name] for name in others})

    def _columns(self, table: Sequence[Sequence[Mark]], widths: Sequence[int], room: int | None) -> Iterator[str]:
        """
        Yield the lines of a table.

        :param table: the table's rows of cells, beginning with the titles.
        :param widths: the widths of all columns except the last one.
        :param room: the width of the last column, in which texts are wrapped. None: texts are not wrapped.
        """
        indent = sum(widths) + _GAP * len(widths)
        for *cells, cell in table:
            columns = [
                self._paint(str(each), each) + " " * (width - len(str(each)))
                for each, width in zip(cells, widths, strict=True)
            ]
            first, *wrapped = split(str(cell), room)
            yield (" " * _GAP).join([*columns, self._paint(first, cell)]).rstrip()
            yield from (" " * indent + self._paint(each, cell) for each in wrapped)

    def _paint(self, text: str, mark: Mark) -> str:
        return paint(text, _COLOURS[mark.level]) if self._in_colour and mark.level and text else text


def paint(text: str, colour: str) -> str:
    """
    Return a text in colour.

    :param text: the text.
    :param colour: the colour, as the number of a terminal's escape sequence.
    """
    return f"\033[{colour}m{text}\033[0m"


def split(text: str, width: int | None, *, hanging: str = "") -> list[str]:
    """
    Split a line between words. A word that is too long stays whole, because it may be an address.

    :param text: the line.
    :param width: maximum number of columns. None: the line is not split.
    :param hanging: white space at the beginning of all lines after the first one.
    """
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


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


class Output:
    """
    Prints a command's data.

    :param form: ``json``, or a form for people.
    :param stream: the stream to print to. On a terminal, lines fit its width, and states are coloured.
    """

    def __init__(self, form: str, stream: TextIO) -> None:
        self.form = form
        self._stream = stream
        is_terminal = stream.isatty()
        # According to no-color.org, an empty variable counts as not set.
        self._in_colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        # The variable COLUMNS takes precedence over the width of the terminal.
        self._width = max(_MIN_WIDTH, shutil.get_terminal_size().columns) if is_terminal else None
        if isinstance(stream, io.TextIOWrapper):
            # Always write UTF-8, because the data must not depend on the locale.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    def data(self, data: Any, view: Any = None) -> None:
        """
        Print data as JSON if the form is ``json``, and otherwise as lines for people.

        :param data: plain JSON data and times, for programs. It is printed in ASCII; other characters are escaped.
        :param view: the same data for people, in the form that :meth:`Layout.lines` reads. Default: all of the data.
        """
        if self.form == "json":
            self.text(json.dumps(data, indent=2, allow_nan=False, default=datetime.isoformat))
            return
        layout = Layout(self._width, in_colour=self._in_colour)
        self.text("\n".join(layout.lines(data if view is None else view)))

    def signed(self, text: str) -> None:
        """Print a plan. On a terminal, a line with a sign in its third column has the sign's colour."""
        lines = [part for line in text.split("\n") for part in self._signed_line(line)]
        self.text("\n".join(lines))

    def _signed_line(self, line: str) -> list[str]:
        parts = split(line, self._width, hanging=" " * 8)
        sign = _SIGN.match(line)
        return [paint(part, _SIGN_COLOURS[sign[1]]) for part in parts] if sign and self._in_colour else parts

    def text(self, text: str) -> None:
        """Print a text as it is, with one line break at its end, and flush the stream. An empty text only flushes."""
        text = text.rstrip("\n")
        try:
            self._stream.write(text and f"{text}\n")
            self._stream.flush()
        except OSError as error:
            _discard(self._stream)
            # Do not report that the reader has closed the pipe, as ``head`` does.
            if not isinstance(error, BrokenPipeError):
                raise not_writable(error.strerror) from None


def not_writable(why: str | None) -> CustodyError:
    """Return the error for a standard output that cannot be written."""
    return CustodyError(f"standard output cannot be written: {why}")


def message(text: object) -> None:
    """Print a message on standard error, on one line. Data and exit code do not depend on whether this succeeds."""
    line = text.shorten() if isinstance(text, CustodyError) else sanitize(text, _MAX_MESSAGE)
    # Use another stream if standard error is closed, because with ``file=None``, print would use standard output.
    stream = sys.stderr or io.StringIO()
    try:
        print(f"custody: {line}", file=stream, flush=True)
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Discard all data of a stream that cannot be written. Otherwise, Python would exit with an error of its own."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def keep_clean(stream: TextIO) -> Iterator[None]:
    """
    Send everything but a command's data to standard error, because Airflow logs to standard output.

    Of this package's own log, only warnings and errors are shown, because commands report everything else themselves.

    :param stream: standard output.
    """
    moved: list[logging.StreamHandler[Any]] = []
    own = logging.getLogger("airflow_custody")
    level = own.level
    own.setLevel(logging.WARNING)
    # Log handlers that look up standard output for each entry find standard error in its place from here on.
    with redirect_stdout(sys.stderr):
        for name in ("", *logging.root.manager.loggerDict):
            for handler in logging.getLogger(name).handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(sys.stderr)
                    moved.append(handler)
        try:
            yield
        finally:
            own.setLevel(level)
            for handler in moved:
                handler.setStream(stream)


_HASH = re.compile(r"\b([0-9a-f]{16})[0-9a-f]{48}\b")


def shorten_hashes(text: str) -> str:
    """Shorten each SHA-256 in a text to 16 digits, for people."""
    return _HASH.sub(r"\1…", text)
