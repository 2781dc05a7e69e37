"""
The rules in a listing of whitelisting requests.

Each row gets the rules that it refers to. Equal rules are kept in memory only once.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any


def add_rules(rows: Iterable[Any], containers: object, known: dict[str, str]) -> None:
    """
    Add rules to the rows of a page.

    Equal rules become one object, also across pages.

    Instead of repeating rules in each row, a page may have a separate list of rules, each with a label that rows refer
    to. The label of rules is computed again: see :func:`label_of`. If rules have another label, or several rules have
    the same label, the rows that refer to this label get a ``rulesFault`` instead of rules, and are not verified. A row
    whose label is not in the list gets nothing. A row with its own rules keeps them.

    :param rows: the rows. They are changed.
    :param containers: the page's ``rulesContainers``.
    :param known: the rules of the previous pages, empty at first. It is changed.
    """
    entries: dict[str, dict[str, Any]] = {}
    for each in containers if isinstance(containers, list) else ():
        label = each.get("hash") if isinstance(each, dict) else None
        if not isinstance(label, str) or not label:
            continue
        if label in entries:
            entries[label] = {"rulesFault": "several"}
        elif label != label_of(each.get("rulesContainer")):
            entries[label] = {"rulesFault": "wrong label"}
        else:
            entries[label] = {name: each.get(name) for name in ("rulesContainer", "rulesSignatures")}
    for row in rows:
        label = row.get("rulesContainerHash")
        if not row.get("rulesContainer") and isinstance(label, str):
            row.update(entries.get(label, {}))
        for name in ("rulesContainer", "rulesSignatures"):
            text = row.get(name)
            if isinstance(text, str):
                row[name] = known.setdefault(text, text)


def label_of(container: object) -> str | None:
    """
    Return the label of rules in a listing: the SHA-256 of their base64 text, not of their bytes, in base64.

    :param container: the rules, as sent; they should be text in base64.
    :return: the label; None if the rules are not text.
    """
    if not isinstance(container, str):
        return None
    return base64.b64encode(hashlib.sha256(container.encode("utf-8", "surrogatepass")).digest()).decode()
