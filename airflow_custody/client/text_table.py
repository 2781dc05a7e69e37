"""Aligned plain text for logs and terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_custody.client.text import count, escape

#: Maximum width of a cell in characters.
MAX_CELL_WIDTH = 200


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, max_width: int = MAX_CELL_WIDTH) -> str:
    """
    Return an aligned table.

    Line breaks, terminal escapes and invisible characters are written as ``\\uXXXX``. A cell that is cut says so.

    :param header: the names of the columns.
    :param rows: the rows; a cell may be anything, and None is empty.
    :param max_width: maximum width of a cell in characters. Default 200.
    :return: a line for the header, and one for each row; without a line break at the end.
    """
    lines = [[_cell(each, max_width) for each in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object, max_width: int) -> str:
    text = "" if value is None else str(value)
    shown = escape(text[: max_width + 1])
    if len(shown) <= max_width:
        return shown
    mark = f"… ({count(len(text), 'character')})"
    return shown[: max(0, max_width - len(mark))] + mark
