"""The examples of the reference, from ``docs/snippets/reference.py``."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from documented import import_path, is_task, load, parameters

_FILE = Path(__file__).resolve().parents[1] / "snippets" / "reference.py"


def example(name: str) -> str:
    """Return the example of a class or a function: its imports and a statement; or else only its import."""
    obj = load(name)
    statement = _find(obj.__name__)
    if statement is not None:
        return f"{_imports(statement)}\n\n{ast.get_source_segment(_text(), statement)}"
    line = f"from {import_path(name)} import {obj.__name__}"
    return f"{line}\n\n{_minimal_call(obj)}" if is_task(obj) else line


@cache
def _text() -> str:
    return _FILE.read_text()


@cache
def _statements() -> list[ast.stmt]:
    return ast.parse(_text()).body


def _find(name: str) -> ast.stmt | None:
    """Return the statement that makes or calls it, or else the first one that uses it."""
    using = [each for each in _statements() if name in _names(each) and not isinstance(each, ast.ImportFrom)]
    making = [each for each in using if name == _outermost(each)]
    return next(iter([*making, *using]), None)


def _names(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]


def _outermost(statement: ast.stmt) -> str:
    """Return the name that a statement calls, or a method of."""
    value: ast.AST | None = getattr(statement, "value", None)
    if isinstance(statement, ast.With):
        value = statement.items[0].context_expr
    while isinstance(value, (ast.Call, ast.Attribute)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def _imports(statement: ast.stmt) -> str:
    used = _names(statement)
    lines = []
    for each in _statements():
        if isinstance(each, ast.ImportFrom):
            names = [alias.name for alias in each.names if alias.name in used]
            lines += [f"from {each.module} import {', '.join(names)}"] if names else []
    return "\n".join(lines)


def _minimal_call(obj: Any) -> str:
    """Return a call with the required parameters, for a task that has no example yet."""
    needed = [each.name for each in parameters(obj) if each.default is each.empty]
    words = obj.__name__.removeprefix("Custody").removesuffix("Operator").removesuffix("Sensor")
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", words).lower()
    lines = [f"    {each}," for each in (f'task_id="{name}"', *(f'{each}="..."' for each in needed))]
    return "\n".join([f"{name} = {obj.__name__}(", *lines, ")"])
