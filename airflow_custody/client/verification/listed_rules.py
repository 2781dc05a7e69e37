"""
The rules in a listing of whitelisting requests.

Each row gets the rules that it refers to. Equal rules are kept in memory only once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def add_rules(rows: Iterable[Any], containers: object, known: dict[str, str]) -> None:
    """
    Add rules to the rows of a page.

    Equal rules become one object, also across pages.

    Instead of repeating rules in each row, a page may have a separate list of rules, each with a label that rows refer
    to. Labels are only compared with each other, because no signature covers them and their meaning is not known. A row
    gets no rules if none, or more than one, of the page's entries has its label. A row with its own rules keeps them.

    :param rows: the rows. They are changed.
    :param containers: the page's ``rulesContainers``.
    :param known: the rules of the previous pages, empty at first. It is changed.
    """
    entries = _by_label(containers)
    for row in rows:
        label = row.get("rulesContainerHash")
        if not row.get("rulesContainer") and isinstance(label, str) and (entry := entries.get(label)) is not None:
            row["rulesContainer"] = entry.get("rulesContainer")
            row["rulesSignatures"] = entry.get("rulesSignatures")
        for name in ("rulesContainer", "rulesSignatures"):
            text = row.get(name)
            if isinstance(text, str):
                row[name] = known.setdefault(text, text)


def _by_label(containers: object) -> dict[str, dict[str, Any] | None]:
    """Return the entries by label; None for a repeated label."""
    found: dict[str, dict[str, Any] | None] = {}
    for each in containers if isinstance(containers, list) else ():
        if isinstance(each, dict) and isinstance(each.get("hash"), str) and each["hash"]:
            found[each["hash"]] = None if each["hash"] in found else each
    return found
