"""JSON of a whitelist file. Its rows are counted: the parser knows no lines."""

from __future__ import annotations

import json
from typing import Any

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.file_rows import Rows
from airflow_custody.client.whitelist.file_tree import BOOLEAN, NOT_JSON, NUMBER, Other, Pair, Pairs, Tree, TreeReader

_SPACE = " \t\n\r"
_WORDS = {None: Other("", ""), True: Other("true", BOOLEAN), False: Other("false", BOOLEAN)}


def read_json(text: str, rows: Rows) -> None:
    """
    Read a file.

    :param text: its text.
    :param rows: takes its rows and its faults.
    """
    if not text.strip():
        rows.no_rows()
        return
    try:
        root = json.loads(
            text,
            object_pairs_hook=lambda pairs: Pairs([Pair(key, _value(value), 0) for key, value in pairs]),
            # As they are written: 1.0 is not 1, and Python refuses to read very long ones.
            parse_int=_number,
            parse_float=_number,
            parse_constant=lambda name: Other(name, NOT_JSON),
        )
        tree = Tree(_value(root), [], complete=True)
    except json.JSONDecodeError as error:
        words = f"not JSON: {sanitize(error.msg)}"
        if (comma := _trailing_comma(text, error.pos)) is None:
            rows.fault_at(error.lineno, words, error.colno)
        else:
            line, column = text.count("\n", 0, comma) + 1, comma - text.rfind("\n", 0, comma)
            rows.fault_at(line, f"remove this comma: what follows it is a closing bracket ({words})", column)
    except RecursionError:
        rows.fault(0, "the file is nested too deeply")
    else:
        TreeReader(rows, key='"{name}":', reads="{source} is {kind}").read(tree)


def _trailing_comma(text: str, place: int) -> int | None:
    """Return where the comma is that the fault at a place is about; None if it is about something else."""
    # Python puts the fault at the comma or after it, by its version.
    comma = place if text[place : place + 1] == "," else len(text[:place].rstrip(_SPACE)) - 1
    if text[max(comma, 0) : comma + 1] == "," and text[comma + 1 :].lstrip(_SPACE)[:1] in ("]", "}"):
        return comma
    return None


def _number(source: str) -> Other:
    return Other(source, NUMBER)


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return [_value(each) for each in value] if isinstance(value, list) else value
