"""The fields of a whitelist file, and its JSON Schema: built from the fields of a request, which stand in one place."""

from __future__ import annotations

import re
from typing import Any

from airflow_custody.client.whitelist.models import WhitelistRequest

#: The version of the form.
VERSION = 1
#: The names of a row's fields, in the order of a request.
FIELDS = tuple(WhitelistRequest.model_fields)
#: The fields that are lists.
LISTS = ("linked_internal_address_ids", "linked_wallet_ids")
#: The fields whose value, or whose members, may be whole numbers.
IDS = (*LISTS, "exchange_account_id")
#: What belongs to one address only, and so is no default.
NOT_DEFAULTS = ("label", "address")
_NAMES_A_CHAIN = [{"required": ["blockchain"]}, {"required": ["currency"]}]


def whitelist_schema() -> dict[str, Any]:
    """
    Return the JSON Schema (draft 2020-12) of a file in YAML or JSON, with which editors complete and check it.

    It knows less than :func:`parse_whitelist`, which also finds repeated destinations and mistyped addresses.

    :return: the schema, new for each call.
    """
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


def _fields() -> dict[str, dict[str, Any]]:
    """Return the schema of each field by its name."""
    descriptions = _descriptions()
    found = {}
    for name, schema in WhitelistRequest.model_json_schema(by_alias=False)["properties"].items():
        # A field that is not given is left out: there is no null in a file.
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        for each in kinds if name not in LISTS else kinds[0]["items"]["anyOf"]:
            each.pop("title", None)
            if each["type"] == "string":
                # A file's own rule: no white space at the ends, and none in an id.
                each["pattern"] = r"^[^\s,;]+$" if name in LISTS else r"^\S(.*\S)?$"
        found[name] = {"description": descriptions.get(name, ""), **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}
    return found


def _descriptions() -> dict[str, str]:
    """Return the first sentence that the documentation of a request says of each field; nothing under ``-OO``."""
    documented = re.findall(r":param (\w+): (.*?)(?=\n\s*:|\Z)", WhitelistRequest.__doc__ or "", re.DOTALL)
    sentences = {name: " ".join(text.split()).replace("``", "").partition(". ")[0] for name, text in documented}
    return {name: f"{text[0].upper()}{text[1:].rstrip('.')}." for name, text in sentences.items()}
