"""All that commands print: data to standard output, messages to standard error."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime, timezone
from typing import Any, TextIO

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import count, escape, sanitize
from airflow_custody.client.text_table import format_table

_MAX_MESSAGE = _MAX_SHOWN = 4000
_ALARMING = re.compile(r"\b(WRONG|NOT READ|NOT HEALTHY|UNVERIFIED|unverified|UNUSABLE|ABSENT|failed)\b")
_SIGNED = re.compile(r"^  ([-+~!]) .*$", re.MULTILINE)
_COLOURS = {"-": "31", "+": "32", "~": "33", "!": "1;31"}


class Output:
    """
    Where a command prints its data, and as what.

    :param form: ``json``, or one for people.
    :param stream: where it is printed.
    """

    def __init__(self, form: str, stream: TextIO) -> None:
        self.form = form
        self._stream = stream
        self._in_colour = stream.isatty() and "NO_COLOR" not in os.environ
        if isinstance(stream, io.TextIOWrapper):
            # A file with other characters in it would be another file.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    def data(self, data: Any, view: Any = None) -> None:
        """
        Print data.

        :param data: plain JSON data and times, for programs. It is printed in ASCII, what is not is escaped.
        :param view: what people see of it: a text is a line, a dict one for each key, a list of dicts a table; what is
            empty is left out. Default: all of it.
        """
        if self.form == "json":
            self.text(json.dumps(data, indent=2, allow_nan=False, default=datetime.isoformat))
            return
        text = "\n".join(_lines(data if view is None else view))
        self.text(_ALARMING.sub("\033[1;31m\\g<0>\033[0m", text) if self._in_colour else text)

    def signed(self, text: str) -> None:
        """Print a text whose lines may have a sign in the third column: such a line has the sign's colour."""
        in_colour = _SIGNED.sub(lambda line: f"\033[{_COLOURS[line[1]]}m{line[0]}\033[0m", text)
        self.text(in_colour if self._in_colour else text)

    def text(self, text: str) -> None:
        """Print a text as it is, with one line break at its end, and what is still held back; an empty one is none."""
        text = text.rstrip("\n")
        try:
            self._stream.write(text and f"{text}\n")
            self._stream.flush()
        except OSError as error:
            # All that is still printed goes nowhere: Python would complain of it when it ends.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
            # A reader may go, as ``head`` does.
            if not isinstance(error, BrokenPipeError):
                raise not_writable(error.strerror) from None


def _lines(view: Any) -> Iterator[str]:
    if isinstance(view, Mapping):
        for name, value in view.items():
            if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
                yield from [f"{_shown(name)}:", *(f"  {line}" for line in _lines(value))] if value else ()
            elif value not in (None, ""):
                yield f"{_shown(name)}: {_shown(value)}"
    elif isinstance(view, str):
        yield from [_shown(view)] if view else ()
    elif view and all(isinstance(each, Mapping) for each in view):
        yield from _table(view)
    else:
        for each in view:
            yield from _lines(each)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    header = [name.replace("_", " ").upper() for name in columns]
    cells = [[_shown(row[name]) for name in columns] for row in rows]
    return format_table(header, cells).split("\n")


def _shown(value: object) -> str:
    """Return a value on one line; line breaks, terminal escapes and invisible characters as ``\\uXXXX``."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, datetime):
        return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    shown = escape(text[:_MAX_SHOWN])
    return shown if len(text) <= _MAX_SHOWN else f"{shown}… ({count(len(text), 'character')})"


def not_writable(why: str | None) -> CustodyError:
    """Return the error of a standard output that cannot be written."""
    return CustodyError(f"standard output cannot be written: {why}")


def message(text: object) -> None:
    """Print a message on standard error, on one line."""
    line = text.shorten() if isinstance(text, CustodyError) else sanitize(text, _MAX_MESSAGE)
    # Without a file, print would take standard output.
    print(f"custody: {line}", file=sys.stderr or io.StringIO())


@contextmanager
def keep_clean(stream: TextIO) -> Iterator[None]:
    """
    Have everything but a command's data go to standard error: Airflow logs to standard output.

    Of this package's log, only warnings are printed: a command reports the rest itself.
    """
    moved: list[logging.StreamHandler[Any]] = []
    own = logging.getLogger("airflow_custody")
    level = own.level
    own.setLevel(logging.WARNING)
    # Handlers that look for standard output each time find the other stream from here on.
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
    """Return a text for people, with the first 16 digits of each SHA-256: JSON has all 64."""
    return _HASH.sub(r"\1…", text)
