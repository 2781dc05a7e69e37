"""Write whitelist files in YAML, and their JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.files.formats import FIELDS, NOT_DEFAULTS, VERSION
from airflow_custody.client.whitelist.models import LISTS, WhitelistRequest


def dump_whitelist(requests: Iterable[WhitelistRequest], *, comments: Mapping[int, str] | None = None) -> str:
    """
    Return the text of a file in YAML.

    Reading the file returns the same requests, provided that there is at least one request, all destinations differ, no
    value begins or ends with white space, and no id in a list contains a comma, a semicolon, a point or white space.

    The file has no ``defaults``. All texts are quoted, so that YAML reads them as text.

    :param requests: the rows.
    :param comments: comments of one line each, by the index (from 0) of the row before which they are written. Default
        None: no comments.
    :return: the text, with fields in the order of :class:`WhitelistRequest`.
    """
    parts = [f"version: {VERSION}\n"]
    for index, request in enumerate(requests):
        parts.append("" if index else "addresses:\n")
        if comment := sanitize((comments or {}).get(index, ""), 1000):
            parts.append(f"# {comment}\n")
        start = "- "
        for name in FIELDS:
            if (value := getattr(request, name)) is not None:
                # Write the value as JSON, because JSON is valid YAML.
                parts.append(f"{start}{name}: {json.dumps(value, ensure_ascii=False)}\n")
                start = "  "
    return "".join(parts) if len(parts) > 1 else f"{parts[0]}addresses: []\n"


# --- the schema ---------------------------------------------------------------------------------------------

_NAMES_A_CHAIN = [{"required": ["blockchain"]}, {"required": ["currency"]}]


def whitelist_schema() -> dict[str, Any]:
    """
    Return the JSON Schema (draft 2020-12) of a YAML or JSON file.

    Editors use it to complete and check files. It does not find repeated destinations and mistyped addresses; only
    :func:`parse_whitelist` does.

    :return: a new copy of the schema.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Whitelist",
        "description": "The destination addresses to whitelist.",
        "type": "object",
        "properties": {
            "$schema": {"description": "This schema, for editors; ignored otherwise.", "type": "string"},
            "version": {"description": f"Version of the file format: {VERSION}.", "type": "integer", "const": VERSION},
            "defaults": {
                "description": "Default fields of all rows. A row may override each of them.",
                "type": "object",
                "properties": {name: each for name, each in _fields().items() if name not in NOT_DEFAULTS},
                "additionalProperties": False,
            },
            "addresses": {
                "description": "The rows, one for each destination address.",
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": _fields(),
                    "required": list(NOT_DEFAULTS),
                    "additionalProperties": False,
                },
            },
        },
        "required": ["version", "addresses"],
        "additionalProperties": False,
        "if": {"required": ["defaults"], "properties": {"defaults": {"anyOf": _NAMES_A_CHAIN}}},
        "else": {"properties": {"addresses": {"items": {"anyOf": _NAMES_A_CHAIN}}}},
    }


_PATTERNS = {"address": r"^\S+$", **dict.fromkeys(LISTS, r"^[^\s,;.]+$")}


def _fields() -> dict[str, dict[str, Any]]:
    """Return the schema of each field by its name."""
    descriptions = _descriptions()
    found = {}
    for name, schema in WhitelistRequest.model_json_schema(by_alias=False)["properties"].items():
        # The schema does not allow null, because a file leaves out missing fields.
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        for each in kinds if name not in LISTS else kinds[0]["items"]["anyOf"]:
            each.pop("title", None)
            if each["type"] == "string":
                # Files allow no white space at the ends of a value, or inside an address or id.
                each["pattern"] = _PATTERNS.get(name, r"^\S(.*\S)?$")
        found[name] = {"description": descriptions.get(name, ""), **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}
    return found


def _descriptions() -> dict[str, str]:
    """
    Return a description of each field: the first sentence about it in the docstring of :class:`WhitelistRequest`.

    With ``python -OO`` there are no descriptions, because docstrings are removed.
    """
    documented = re.findall(r":param (\w+): (.*?)(?=\n\s*:|\Z)", WhitelistRequest.__doc__ or "", re.DOTALL)
    sentences = {name: " ".join(text.split()).replace("``", "").partition(". ")[0] for name, text in documented}
    return {name: f"{text[0].upper()}{text[1:].rstrip('.')}." for name, text in sentences.items()}
