"""The text of a whitelist file, in YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.file_formats import kind_of
from airflow_custody.client.whitelist.file_schema import FIELDS, VERSION
from airflow_custody.client.whitelist.models import WhitelistRequest

_PLAIN = re.compile(r"\w[\w ./@-]*\w")


def dump_whitelist(requests: Iterable[WhitelistRequest], *, comments: Mapping[int, str] | None = None) -> str:
    """
    Return the text of a file in YAML.

    Reading it back gives the same requests, if there are any, their destinations are different, no value begins or ends
    with white space, and no id in a list has a comma, a semicolon or white space in it. It has no ``defaults``; text
    that YAML would not read as text is quoted.

    :param requests: the rows.
    :param comments: comments by the index of the row above which they stand, from 0; each becomes one line.
    :return: the text; its fields are in the order of :class:`WhitelistRequest`.
    """
    parts = [f"version: {VERSION}\n"]
    for index, request in enumerate(requests):
        parts.append("" if index else "addresses:\n")
        if comment := sanitize((comments or {}).get(index, ""), 1000):
            parts.append(f"# {comment}\n")
        start = "- "
        for name in FIELDS:
            if (value := getattr(request, name)) is not None:
                text = f"[{', '.join(map(_scalar, value))}]" if isinstance(value, list) else _scalar(value)
                parts.append(f"{start}{name}: {text}\n")
                start = "  "
    return "".join(parts) if len(parts) > 1 else f"{parts[0]}addresses: []\n"


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and kind_of(text) is None:
        return text
    return json.dumps(text, ensure_ascii=False)
