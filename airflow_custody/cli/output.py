"""Prints data to standard output, and messages to standard error."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from typing import Any, TextIO

from airflow_custody.cli.layout import Layout, paint, split
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import sanitize

_MAX_MESSAGE = 4000
_MIN_WIDTH = 40
_SIGN = re.compile(r"  ([-+~!]) ")
_COLOURS = {"-": "31", "+": "32", "~": "33", "!": "1;31"}


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
        # The rule of no-color.org: an empty variable counts as not set.
        self._in_colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        # The variable COLUMNS takes precedence over the width of the terminal.
        self._width = max(_MIN_WIDTH, shutil.get_terminal_size().columns) if is_terminal else None
        if isinstance(stream, io.TextIOWrapper):
            # The data must not depend on the locale.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    def data(self, data: Any, view: Any = None) -> None:
        """
        Print data: as JSON in the form ``json``, otherwise as lines for people.

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
        return [paint(part, _COLOURS[sign[1]]) for part in parts] if sign and self._in_colour else parts

    def text(self, text: str) -> None:
        """Print a text as it is, with one line break at its end, and flush the stream. An empty text only flushes."""
        text = text.rstrip("\n")
        try:
            self._stream.write(text and f"{text}\n")
            self._stream.flush()
        except OSError as error:
            _discard(self._stream)
            # The reader may have closed the pipe, like ``head``.
            if not isinstance(error, BrokenPipeError):
                raise not_writable(error.strerror) from None


def not_writable(why: str | None) -> CustodyError:
    """Return the error for a standard output that cannot be written."""
    return CustodyError(f"standard output cannot be written: {why}")


def message(text: object) -> None:
    """Print a message on standard error, on one line. Data and exit code do not depend on whether this succeeds."""
    line = text.shorten() if isinstance(text, CustodyError) else sanitize(text, _MAX_MESSAGE)
    # With ``file=None``, print would write to standard output.
    stream = sys.stderr or io.StringIO()
    try:
        print(f"custody: {line}", file=stream, flush=True)
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Discard what a stream buffers and is sent. Otherwise Python reports its error again, and exits with 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def keep_clean(stream: TextIO) -> Iterator[None]:
    """
    Send everything but a command's data to standard error, because Airflow logs to standard output.

    This package's own log shows warnings only: a command reports the rest itself.

    :param stream: standard output.
    """
    moved: list[logging.StreamHandler[Any]] = []
    own = logging.getLogger("airflow_custody")
    level = own.level
    own.setLevel(logging.WARNING)
    # Handlers that look up standard output for each entry find standard error from here on.
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
