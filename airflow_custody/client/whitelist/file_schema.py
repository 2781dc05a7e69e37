"""The JSON Schema of a whitelist file: built from the fields of a request, which stand in one place."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from airflow_custody.client.whitelist.models import WhitelistRequest

#: The version of the form.
VERSION = 1
#: The names of a row's fields, in the order of a request.
FIELDS = tuple(WhitelistRequest.model_fields)
#: What belongs to one address only, and so is no default.
NOT_DEFAULTS = ("label", "address")
#: What an id in a list is: no separator that would make it several.
ID_PATTERN = r"[^\s,;]+"
_NAMES_A_CHAIN = [{"required": ["blockchain"]}, {"required": ["currency"]}]


def whitelist_schema() -> dict[str, Any]:
    """
    Return the JSON Schema (draft 2020-12) of a file in YAML or JSON, with which editors complete and check it.

    It knows less than :func:`parse_whitelist`, which also finds repeated destinations and mistyped addresses.

    :return: the schema, new for each call.
    """
    row = _fields()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Whitelist",
        "description": "The destination addresses that are to be whitelisted.",
        "type": "object",
        "properties": {
            "version": {"description": f"Version of this form: {VERSION}.", "type": "integer", "const": VERSION},
            "defaults": {
                "description": "Fields of every row that does not give its own.",
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
                    "properties": row,
                    "required": [name for name, each in WhitelistRequest.model_fields.items() if each.is_required()],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["version", "addresses"],
        "additionalProperties": False,
        "if": {"required": ["defaults"], "properties": {"defaults": {"anyOf": _NAMES_A_CHAIN}}},
        "else": {"properties": {"addresses": {"items": {"anyOf": _NAMES_A_CHAIN}}}},
    }


@cache
def list_fields() -> frozenset[str]:
    """Return the names of the fields that are lists."""
    return frozenset(name for name, each in _fields().items() if each.get("type") == "array")


@cache
def id_fields() -> frozenset[str]:
    """Return the names of the fields whose value, or whose members, may be whole numbers."""
    return frozenset(name for name, each in _fields().items() if "'integer'" in repr(each))


def _fields() -> dict[str, dict[str, Any]]:
    """Return the schema of each field by its name."""
    descriptions = _descriptions()
    found = {}
    for name, schema in WhitelistRequest.model_json_schema(by_alias=False)["properties"].items():
        # A field that is not given is left out: there is no null in a file.
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        kind: dict[str, Any] = dict(kinds[0]) if len(kinds) == 1 else {"anyOf": kinds}
        kind.pop("title", None)
        for each in kind.get("items", {}).get("anyOf", ()):
            if each["type"] == "string":
                each["pattern"] = f"^{ID_PATTERN}$"
        found[name] = {**({"description": descriptions[name]} if name in descriptions else {}), **kind}
    return found


def _descriptions() -> dict[str, str]:
    """Return what the documentation of a request says of each field; nothing under ``python -OO``."""
    documented = re.findall(r":param (\w+): (.*?)(?=\n\s*:|\Z)", WhitelistRequest.__doc__ or "", re.DOTALL)
    return {name: _sentence(" ".join(text.split()).replace("``", "")) for name, text in documented}


def _sentence(text: str) -> str:
    # The first sentence: what follows it is about the documentation's list.
    first = text.partition(". ")[0].rstrip(".")
    return f"{first[0].upper()}{first[1:]}."
