"""Texts for errors about a requested value and the one that the service shows, of bounded length."""

from __future__ import annotations

from typing import Any

from airflow_custody.client.text import escape, sanitize

# Whole, as people compare it: an address.
_MAX_TEXT = 120
_MAX_LINKS = 5


def differing_values(asked: Any, shown: object) -> str:
    """
    Describe two differing values. Invisible characters are written out, as they may be the difference.

    :param asked: the requested value: a text or a list of ids.
    :param shown: the value shown instead, of any type; for links, their ids.
    """
    return f"asked for {_text(asked)}, shown {_text(shown)}"


def _text(value: Any) -> str:
    if value in (None, "", []):
        return "nothing"
    if isinstance(value, list):
        ids = [each.get("id") if isinstance(each, dict) else each for each in value[:_MAX_LINKS]]
        return ", ".join(sanitize(each, 40) for each in ids) + (", ..." if value[_MAX_LINKS:] else "")
    if not isinstance(value, str):
        return "a value of another type"
    return f"'{escape(value[:_MAX_TEXT])}{'…' if value[_MAX_TEXT:] else ''}'"
