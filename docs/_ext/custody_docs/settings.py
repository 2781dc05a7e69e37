"""The pages of what is set outside of DAGs: the connection, Airflow's configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_custody.client import ClientSettings
from airflow_custody.get_provider_info import get_provider_info
from custody_docs.rest import code, escape, heading, page, table

#: The fields of every connection, by their names in the provider metadata, with those in a connection's JSON.
_STANDARD = {"host": "Host", "login": "Login", "password": "Password", "port": "Port", "schema": "Schema"}


def connection() -> str:
    """Return the page of the connection's fields."""
    (kind,) = get_provider_info()["connection-types"]
    behaviour = kind["ui-field-behaviour"]
    standard = [
        (
            escape(behaviour["relabeling"].get(name, label)),
            f"{label}, ``{name}``",
            "text",
            _placeholder(behaviour, name),
        )
        for name, label in _STANDARD.items()
        if name not in behaviour["hidden-fields"]
    ]
    extras = [
        (escape(each["label"]), f"``{name}``", _type(each["schema"]), _meaning(name, each))
        for name, each in kind["conn-fields"].items()
    ]
    return page(
        heading("Connection"),
        f"A connection of the type ``{kind['connection-type']}``. The form's hook is "
        f":class:`~{kind['hook-class-name']}`.",
        heading("Fields of every connection", 1),
        table(("Field", "Name", "Type", "Value"), standard),
        heading("Extras", 1),
        "An extra that is not filled in has the default.",
        table(("Field", "Name", "Type", "Meaning"), extras),
    )


def _placeholder(behaviour: Mapping[str, Any], name: str) -> str:
    text = behaviour["placeholders"].get(name, "")
    return code(text) if "://" in text else escape(text)


def _meaning(name: str, field: Mapping[str, Any]) -> str:
    """Return what the client says of its setting; of the others, what the form says."""
    setting = ClientSettings.__pydantic_fields__.get(name)  # type: ignore[attr-defined]
    return " ".join(setting.description.split()) if setting else _description(field)


def _description(field: Mapping[str, Any]) -> str:
    words = {key: word for key, word in field["schema"].get("values_display", {}).items() if key != "null"}
    values = "; ".join(f"{code(key)}: {escape(word)}" for key, word in words.items())
    return f"{escape(field['description'])} {values}".strip()


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of an extra, and its bounds."""
    names = {"string": "text", "boolean": "true or false", "integer": "whole number", "number": "number"}
    words = [names[each] for each in schema["type"] if each != "null"]
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None:
        words.append(f"from {low}" if high is None else f"from {low} to {high}")
    return ", ".join(words)


def configuration() -> str:
    """Return the page of the options in Airflow's configuration."""
    return page(heading("Configuration"), *_sections())


def _sections() -> Iterator[str]:
    for section, each in get_provider_info()["config"].items():
        yield heading(f"[{section}]", 1)
        yield escape(each["description"])
        rows = [
            (
                f"``{name}``",
                escape(option["type"]),
                code(option["default"]) if option["default"] else "empty",
                escape(" ".join(option["description"].split()))
                + (f" Example: {code(option['example'])}." if option["example"] else ""),
            )
            for name, option in each["options"].items()
        ]
        yield table(("Option", "Type", "Default", "Meaning"), rows)
        names = [f"AIRFLOW__{section.upper()}__{re.sub(r'[^A-Z0-9_]', '_', name.upper())}" for name in each["options"]]
        yield f"In the environment: {', '.join(map(code, names))}."
