"""
A setting is one field of ``ClientSettings``. Its copies are written by ``python tests/client/test_settings.py``.

Airflow reads the provider metadata whenever it is loaded, so the form's fields cannot be computed. The parameters of
``CustodyClient`` are source text, so that editors and type checkers know them.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest

from airflow_custody import get_provider_info
from airflow_custody.client import client
from airflow_custody.client.settings import ClientSettings, FormField

WIDTH = 120
KINDS = {bool: "boolean", int: "integer", float: "number"}


@dataclass(frozen=True)
class Setting:
    """A field of ``ClientSettings``, with its type and default as they are written there."""

    name: str
    type: str
    default: str
    meaning: str
    form: FormField | None
    schema: dict[str, Any]


def read_settings() -> Iterator[Setting]:
    (tree,) = ast.parse(inspect.getsource(ClientSettings)).body
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign):
            continue
        assert isinstance(node.target, ast.Name)
        assert node.value is not None
        field = ClientSettings.__pydantic_fields__[node.target.id]  # type: ignore[attr-defined]
        written = node.annotation
        if isinstance(written, ast.Subscript):
            assert isinstance(written.slice, ast.Tuple)
            written = written.slice.elts[0]
        is_computed = isinstance(node.value, ast.Call)
        yield Setting(
            node.target.id,
            ast.unparse(written),
            repr(field.default) if is_computed else ast.unparse(node.value),
            " ".join((field.description or "").split()),
            next((each for each in field.metadata if isinstance(each, FormField)), None),
            json_schema(field),
        )


def json_schema(field: Any) -> dict[str, Any]:
    """Return the JSON schema of a setting's form field. The form saves an empty field as null."""
    types = set(get_args(field.annotation) or [field.annotation]) - {NoneType}
    kind = KINDS.get(types.pop(), "string") if len(types) == 1 else "string"
    schema: dict[str, Any] = {"type": [kind, "null"]}
    for each in field.metadata:
        if (minimum := getattr(each, "ge", None)) is not None:
            schema["minimum"] = math.ceil(minimum)
        if (maximum := getattr(each, "le", None)) is not None:
            schema["maximum"] = maximum
        if isinstance(each, FormField):
            schema |= each.schema
    return schema


# --- the copies ----------------------------------------------------------------------------------------------


def documented(names: set[str] | None = None) -> str:
    """Return the lines of the client's docstring about some settings; by default, all but the first."""
    lines = []
    for each in read_settings():
        if each.name in (names or SETTINGS - {"base_url"}):
            begins_with_a_word = each.meaning[1:2].islower()
            meaning = each.meaning[0].lower() + each.meaning[1:] if begins_with_a_word else each.meaning
            lines += textwrap.wrap(
                f":param {each.name}: {meaning}",
                WIDTH,
                initial_indent=" " * 4,
                subsequent_indent=" " * 8,
                break_on_hyphens=False,
            )
    return "".join(f"{line}\n" for line in lines)


def parameters() -> str:
    return "".join(
        f"        {each.name}: {each.type} = {each.default},\n" for each in read_settings() if each.name != "base_url"
    )


def passed_on() -> str:
    return "".join(f"            {each.name}={each.name},\n" for each in read_settings())


def form_fields() -> str:
    """Return the fields of the form, in the form that the provider metadata has."""
    return ",\n".join(form_field(each, each.form) for each in read_settings() if each.form) + ","


def form_field(setting: Setting, form: FormField) -> str:
    field, line = " " * 20, " " * 24
    first = f'{line}"description": "'
    wrapped = textwrap.wrap(
        setting.meaning.replace("``", ""),
        # Room for a space, a quotation mark and a comma.
        WIDTH - 3,
        initial_indent=first,
        subsequent_indent=f'{line}"',
        break_on_hyphens=False,
    )
    description = ' "\n'.join(wrapped)
    return (
        f'{field}"{setting.name}": {{\n'
        f'{line}"label": "{form.label}",\n'
        f'{description}",\n'
        f'{line}"schema": {json.dumps(setting.schema)},\n'
        f"{field}}}"
    )


SETTINGS = {each.name for each in read_settings()}


@dataclass(frozen=True)
class Copy:
    """Generated text in a source file, between two texts that occur there."""

    module: Any
    after: str
    before: str
    make: Callable[[], str]

    @property
    def path(self) -> Path:
        return Path(self.module.__file__)

    def split(self) -> tuple[str, str, str]:
        """Return the file's text before, within and after the copy."""
        start, after, rest = self.path.read_text("utf-8").partition(self.after)
        found, before, end = rest.partition(self.before)
        assert before, f"{self.path}: {self.after!r} and {self.before!r} are not there"
        return start + after, found, before + end

    def write(self) -> None:
        start, _, end = self.split()
        self.path.write_text(start + self.make() + end, "utf-8")


COPIES = {
    "the meaning of base_url": Copy(
        client,
        "publications, and not every service offers them.\n\n",
        "    :param token:",
        lambda: documented({"base_url"}),
    ),
    "the meaning of the other settings": Copy(
        client,
        ":class:`PasswordSignIn` or :class:`ApiKey`.\n",
        "    :raises CustodyConfigurationError: if a setting is missing",
        documented,
    ),
    "parameters": Copy(client, "auth: Authentication | None = None,\n", "    ) -> None:", parameters),
    "arguments": Copy(client, "settings = ClientSettings(\n", "        )\n", passed_on),
    "form": Copy(
        get_provider_info,
        f'"an API token.",\n{"":24}"schema": {{"type": ["string", "null"]}},\n{"":20}}},\n',
        f"\n{'':16}}},\n",
        form_fields,
    ),
}


# --- the tests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_the_settings_is_up_to_date(name: str) -> None:
    copy = COPIES[name]
    expected, (_, found, _) = copy.make(), copy.split()
    assert found == expected, (
        f"{copy.path} differs from ClientSettings ({name}). Run 'python tests/client/test_settings.py', or replace the "
        f"text there by:\n{expected}"
    )


def test_each_setting_is_in_the_form_except_those_that_the_hook_sets() -> None:
    assert {each.name for each in read_settings() if each.form is None} == {"base_url", "user_agent", "source"}


if __name__ == "__main__":
    for each in COPIES.values():
        each.write()
