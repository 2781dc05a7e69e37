"""Small parts of reStructuredText."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

_MARKS = "=-~"


def heading(text: str, level: int = 0) -> str:
    """
    Return a heading.

    :param text: the heading, as reStructuredText.
    :param level: 0 for the page's title. Default 0.
    """
    return f"{text}\n{_MARKS[level] * len(text)}\n"


def escape(text: str) -> str:
    """Return plain text as reStructuredText that shows it as it is."""
    for mark in "\\*`|_":
        text = text.replace(mark, f"\\{mark}")
    return text


def code(value: object) -> str:
    """Return a text as code."""
    text = str(value)
    return f"``{text}``" if text.strip() == text and text and "``" not in text else escape(text)


def block(text: str, *, language: str = "text") -> str:
    """Return a text as a block of code."""
    return f".. code-block:: {language}\n\n{textwrap.indent(text.rstrip(), '   ')}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    Return a table.

    :param header: the columns' names.
    :param rows: the cells, as reStructuredText; one may have several lines.
    """
    name = "reference pairs" if len(header) == 2 else "reference"
    lines = [".. list-table::", "   :header-rows: 1", f"   :class: {name}", ""]
    for row in [header, *rows]:
        for index, cell in enumerate(row):
            first, *others = cell.splitlines() or [""]
            lines.append(f"   {'*' if index == 0 else ' '} - {first}".rstrip())
            lines += [f"       {other}".rstrip() for other in others]
    return "\n".join(lines) + "\n"


def toctree(entries: Iterable[str]) -> str:
    """Return a table of contents that is only seen in the navigation."""
    return ".. toctree::\n   :hidden:\n\n" + "".join(f"   {each}\n" for each in entries)


def page(*parts: str) -> str:
    """Return a page: parts that are not empty, with a line between them."""
    return "\n".join(part.rstrip() + "\n" for part in parts if part.strip())
