"""Aligned plain text for logs and terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_custody.client.text import escape


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """
    Return an aligned table.

    Line breaks, terminal escapes and invisible characters are written as ``\\uXXXX``. No cell is cut, so that an
    address is never in two pieces.

    :param header: the names of the columns.
    :param rows: the rows; a cell may be anything, and None is empty.
    :return: a line for the header, and one for each row; without a line break at the end.
    """
    lines = [["" if each is None else escape(str(each)) for each in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
