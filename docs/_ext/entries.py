"""The entry of a class or a function in the reference, as Markdown."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable
from functools import cache
from typing import Any

from docstrings import Docstring, cell, read_docstring, to_markdown
from documented import (
    documented,
    documented_base,
    error_names,
    function_of,
    is_property,
    is_task,
    is_task_group,
    load,
    members,
    page_names,
    parameter_texts,
    parameters,
    shows_members,
    spell_type,
)
from examples import example
from service_calls import operations_used, roles_of

from airflow_custody._base import NOT_GIVEN, PARAMETER_OF
from airflow_custody.client import CustodyClient
from airflow_custody.client.http.operation import Operation

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def entry(name: str, page: str) -> str:
    """Return the entry of a class or a function for a page."""
    obj = load(name)
    docstring = read_docstring(obj)
    parts = [
        f"## {obj.__name__}",
        f"```python\n{textwrap.dedent(example(name)).strip()}\n```",
        to_markdown(docstring.text, Links(page).link),
        _parameter_table(obj, page),
        _of_airflow(obj) if is_task(obj) or is_task_group(obj) else "",
        _outcome(docstring, page),
    ]
    if inspect.isclass(obj):
        parts += [_service_calls(obj, page) if is_task(obj) or ".triggers." in obj.__module__ else ""]
        parts += _members(obj, page) if shows_members(obj) else []
    return "\n\n".join(part for part in parts if part)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    names = [*header]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(' '.join(each.split()) for each in row)} |" for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def documented_word(each: Operation) -> str:
    """Return whether the API description includes an operation, in a word."""
    return "documented" if each.documented else "undocumented"


class Links:
    """
    The links from a page to the entries of names.

    :param page: the page.
    """

    def __init__(self, page: str) -> None:
        self._page = page

    def link(self, target: str) -> str:
        """Return a link to a documented name; the name as code if it is not documented."""
        *_, shown = parts = target.split(".")
        # Within a class, a docstring names another method without the class.
        methods = [name for name, (page, _) in _index().items() if name.endswith(f".{shown}") and page == self._page]
        for name in (".".join(parts[-2:]), shown, *(methods if len(methods) == 1 else ())):
            if name in _index():
                page, anchor = _index()[name]
                return f"[{shown}]({'' if page == self._page and anchor else f'{page}.md'}{anchor})"
        return f"`{shown}`"


@cache
def _index() -> dict[str, tuple[str, str]]:
    """Return the page and the anchor of each documented name."""
    result = {"errors": ("errors", "")} | {name.rpartition(".")[2]: ("errors", "") for name in error_names()}
    for page in page_names():
        for obj in map(load, documented(page)):
            name = obj.__name__
            result[name] = (page, f"#{name.lower()}")
            if inspect.isclass(obj) and shows_members(obj):
                for member, value in members(obj).items():
                    anchor = name if is_property(value) else f"{name}{member}"
                    result[f"{name}.{member}"] = (page, f"#{anchor.lower()}")
    return result


def _parameter_table(obj: Any, page: str) -> str:
    texts = parameter_texts(obj)
    found = [each for each in parameters(obj) if each.name in texts or each.kind not in _VARIABLE]
    templated = None
    if is_task(obj):
        templated = {PARAMETER_OF.get(field, field) for field in obj.template_fields}
    elif is_task_group(obj):
        # It passes them to tasks.
        templated = {name for name, text in texts.items() if "(templated)" in text}
    rows = []
    for each in found:
        kind = spell_type(each.annotation, obj) if isinstance(each.annotation, str) else ""
        row = [code(each.name), code(kind), _default(each)]
        if templated is not None:
            row.append("yes" if each.name in templated else "no")
        text = texts.get(each.name, "").replace("(templated)", "")
        rows.append([*row, cell(text, Links(page).link)])
    middle = ["Templated"] if templated is not None else []
    return table(["Parameter", "Type", "Default", *middle, "Meaning"], rows) if rows else ""


def _default(each: inspect.Parameter) -> str:
    if each.default is each.empty:
        return "" if each.kind in _VARIABLE else "**required**"
    return "not given" if each.default is NOT_GIVEN else code(_spell(each.default))


def _spell(default: object) -> str:
    return repr(default).replace("datetime.timedelta", "timedelta")


def _of_airflow(obj: Any) -> str:
    if is_task_group(obj):
        return "It also takes the parameters of Airflow's task groups, such as `default_args` and `tooltip`."
    is_sensor = hasattr(obj, "poke")
    names = "`task_id`, `poke_interval`, `timeout` and `soft_fail`" if is_sensor else "`task_id` and `retries`"
    return f"It also takes the parameters of every {'sensor' if is_sensor else 'operator'} of Airflow, such as {names}."


def _outcome(docstring: Docstring, page: str) -> str:
    """Return what a task, a function or a method returns and raises."""
    link = Links(page).link
    returned = f"**Returns** {to_markdown(docstring.returned, link)}" if docstring.returned else ""
    errors = [f"- {link(name)}: {to_markdown(text, link)}" for name, text in docstring.raised]
    raised = "\n".join(["**Raises**", "", *errors]) if errors else ""
    return "\n\n".join(part for part in (returned, raised) if part)


def _service_calls(obj: Any, page: str, owner: type | None = None) -> str:
    """Return the roles that a task, a trigger or a method needs, and the operations of the service that it uses."""
    found = operations_used(obj, owner)
    if not found:
        return "" if owner else "**Roles**: none. It does not call the service."
    roles = ", ".join(code(role) for role in roles_of(found)) or "none"
    calls = [f"[{each.name}](operations.md) ({documented_word(each)})" for each in found]
    return f"**Roles**: {roles}. **Operations of the service**: {', '.join(calls)}."


def _members(obj: type, page: str) -> Iterable[str]:
    link = Links(page).link
    found = members(obj)
    attributes = [
        (code(name), cell(read_docstring(getattr(value, "func", value)).text, link))
        for name, value in found.items()
        if is_property(value)
    ]
    if attributes:
        yield table(("Attribute", "Meaning"), attributes)
    if base := documented_base(obj):
        yield f"It also has the methods of {link(base.__name__)}."
    for name, value in found.items():
        if not is_property(value):
            yield _method(obj, name, function_of(value), page)


def _method(owner: type, name: str, function: Any, page: str) -> str:
    docstring = read_docstring(function)
    arguments = ", ".join(_argument(each) for each in parameters(function))
    parts = [
        f"### {owner.__name__}.{name}",
        f"```python\n{name}({arguments})\n```",
        to_markdown(docstring.text, Links(page).link),
        _parameter_table(function, page),
        _outcome(docstring, page),
        _service_calls(function, page, owner) if owner is CustodyClient else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _argument(each: inspect.Parameter) -> str:
    if each.kind in _VARIABLE:
        return f"*{each.name}" if each.kind is each.VAR_POSITIONAL else f"**{each.name}"
    return each.name if each.default is each.empty else f"{each.name}={_spell(each.default)}"
