"""The demos' output: wrapped to the terminal's width, and coloured if the terminal supports it."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from _environment import relative_path

from airflow_custody.cli.output import Layout

# The width if there is no terminal, and the maximum, because longer lines are hard to read.
WIDTH, MAX_WIDTH = 100, 120
# A terminal with fewer columns has no room for times and subjects beside the text.
_NARROW = 90
# The width of the subjects: the longest one is the task wait_until_effective. The text begins after time and subject.
_SUBJECT = 20
_COLUMN = _SUBJECT + 11
_COLOURS = {"bold": "1", "red": "31", "green": "32", "cyan": "36"}


class DemoError(Exception):
    """Raised when the demo did not go as expected."""


class Style:
    """
    Width and colours of the output.

    :param width: characters in a line.
    :param colour: whether to use colours.
    """

    def __init__(self, width: int, *, colour: bool) -> None:
        self.width = width
        self._colour = colour

    @classmethod
    def of(cls, descriptor: int, environment: Mapping[str, str]) -> Style:
        """Return the style for a file descriptor and its environment."""
        terminal = os.isatty(descriptor)
        columns = environment.get("COLUMNS", "")
        if columns.isdecimal() and int(columns) > 0:
            width = int(columns)
        else:
            width = _terminal_width(descriptor) if terminal else WIDTH
        colour = terminal and not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
        return cls(min(width, MAX_WIDTH), colour=colour)

    def paint(self, text: str, colour: str) -> str:
        """Return a text in a colour."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colour and text else text

    def wrap(self, text: str, *, first: str = "", indent: str = "") -> list[str]:
        """
        Wrap a text into lines. Words are never cut, however long.

        :param first: prefix of the first line.
        :param indent: prefix of the other lines.
        """
        wrapped = textwrap.wrap(
            text,
            self.width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return wrapped or [first.rstrip()]

    def step(self, seconds: float, subject: str, *texts: str) -> list[str]:
        """Return the lines of a step: time and subject, with the texts beside or below them."""
        is_wide = self.width >= _NARROW
        start = f"{seconds:5.1f} s  {subject:<{_SUBJECT if is_wide else 0}}  "
        indent = " " * (_COLUMN if is_wide else 4)
        lines = self.wrap(texts[0], first=start, indent=indent)
        colour = "red" if texts[0].startswith("fails") else "bold" if subject.startswith("RUN") else "cyan"
        lines[0] = lines[0].replace(subject, self.paint(subject, colour), 1)
        for text in texts[1:]:
            lines += self.wrap(text, first=indent, indent=indent)
        return lines

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
        """Return the lines of a table, or of a list if the table is too wide."""
        rows = list(rows)
        indent = " " * 4
        table = [dict(zip(columns, row, strict=True)) for row in rows]
        lines = [f"{indent}{line}".rstrip() for line in Layout().lines(table)]
        if max(map(len, lines), default=0) <= self.width:
            return lines
        lines = []
        for row in rows:
            text = "  ".join(filter(None, row))
            lines += self.wrap(re.sub(r" {3,}", "  ", text), first=indent, indent=f"{indent}  ")
        return lines

    def paragraphs(self, text: str) -> list[str]:
        """Wrap paragraphs and lists. Lines that begin with four spaces are not changed."""
        lines: list[str] = []
        # The current paragraph, with the prefixes of its first and its other lines.
        words, first, indent = "", "", ""

        def finish() -> None:
            nonlocal words
            lines.extend(self.wrap(words, first=first, indent=indent) if words else [])
            words = ""

        for line in text.strip("\n").splitlines():
            if not line or line.startswith("    "):
                finish()
                lines.append(line)
                continue
            if line.startswith("- ") or not words:
                finish()
                first = line[:2] if line.startswith(("- ", "  ")) else ""
                indent = " " * len(first)
                line = line[len(first) :]
            words = f"{words} {line.strip()}".strip()
        finish()
        return lines


class Output:
    """
    The demo's output on the terminal.

    :param log: the file to which everything is written that this process prints otherwise, such as Airflow's log.
    """

    def __init__(self, log: Path) -> None:
        self._started = time.monotonic()
        self._terminal = os.fdopen(os.dup(1), "w")
        self.style = Style.of(self._terminal.fileno(), os.environ)
        self._lock = threading.Lock()
        self.log = relative_path(log)
        with log.open("wb") as file:
            # Replace the file descriptors, because Airflow keeps references to the streams.
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)

    def print_lines(self, lines: Iterable[str] = ("",)) -> None:
        """Print lines without wrapping; by default, one empty line."""
        text = "\n".join(line.rstrip() for line in lines)
        with self._lock:
            print(text, file=self._terminal, flush=True)

    def print_text(self, text: str) -> None:
        """Print a text, wrapped."""
        self.print_lines(self.style.wrap(text))

    def print_step(self, subject: str, *texts: str, table: Iterable[str] = ()) -> None:
        """Print one step of the demo: time, subject, texts and an optional table."""
        self.print_lines([*self.style.step(self.seconds, subject, *texts), *table])

    def print_failure(self, reason: str) -> None:
        """Print the reason of a failure, and the log's path."""
        lines = self.style.wrap(f"demo: failed: {reason} (see {self.log})")
        self.print_lines([self.style.paint(line, "red") for line in lines])

    @property
    def seconds(self) -> float:
        """Seconds since the demo started."""
        return time.monotonic() - self._started


def _terminal_width(descriptor: int) -> int:
    """Return the width of a terminal, or a default if it is unknown."""
    try:
        return os.get_terminal_size(descriptor).columns or WIDTH
    except OSError:
        return shutil.get_terminal_size((WIDTH, 24)).columns
