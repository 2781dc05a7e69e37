"""Which errors the package raises, and with which codes, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import get_args

import airflow_custody
from airflow_custody.client import errors
from airflow_custody.client.error_codes import ErrorCode

PACKAGE = Path(airflow_custody.__file__).parent
CODES: frozenset[str] = frozenset(get_args(ErrorCode))
#: Errors that one code says enough about.
SPECIFIC = {
    "CustodyAuthenticationError",
    "CustodyPermissionError",
    "CustodyNotFoundError",
    "CustodyRateLimitError",
    "CustodyServerError",
    "CustodyUnhealthyError",
    "WhitelistFileError",
}
TYPES = {name for name in vars(errors) if name.endswith("Error")}


@dataclass
class Module:
    """
    A module of the package.

    :param path: its path below the package.
    :param tree: its source.
    """

    path: str
    tree: ast.Module

    def calls(self) -> Iterator[ast.Call]:
        """Yield all calls."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    @cached_property
    def texts(self) -> frozenset[str]:
        """All pieces of text."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return frozenset(node.value for node in nodes if isinstance(node.value, str))

    def raised(self) -> Iterator[tuple[int, str]]:
        """Yield line and name of what is raised by its name."""
        for node in ast.walk(self.tree):
            raised = node.exc if isinstance(node, ast.Raise) else None
            name = raised.func if isinstance(raised, ast.Call) else raised
            if isinstance(name, ast.Name):
                yield raised.lineno if raised else 0, name.id


@cache
def modules() -> tuple[Module, ...]:
    """Return all modules that may raise errors."""
    return tuple(
        Module(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
        if not {"sandbox", "error_codes", "example_dags"} & set(path.relative_to(PACKAGE).parts)
    )


def error_of(call: ast.Call) -> str | None:
    """Return the type that a call makes an error of: ``Type(...)``, ``failed(Type, ...)``; None: it makes none."""
    for name in (call.func, *call.args[:1]):
        if isinstance(name, ast.Name) and name.id in TYPES:
            is_maker = name is call.func or "failed" in ast.unparse(call.func)
            return name.id if is_maker else None
    return None


def code_of(call: ast.Call) -> ast.expr | None:
    """Return what a call gives as ``code``; None: nothing."""
    return next((each.value for each in call.keywords if each.arg == "code"), None)


def passes_code(call: ast.Call) -> bool:
    """Tell whether a call gives a code, be it that of another error."""
    return code_of(call) is not None


def codes_in(call: ast.Call) -> set[str]:
    """Return the codes that a call names; none if it hands on that of another error."""
    code = code_of(call)
    names = ast.walk(code) if code is not None else ()
    return {node.value for node in names if isinstance(node, ast.Constant) and node.value in CODES}


def is_retryable(call: ast.Call, name: str) -> object:
    """Return whether the error that a call makes is retryable; None: only the run knows."""
    for each in call.keywords:
        if each.arg == "retryable":
            return each.value.value if isinstance(each.value, ast.Constant) else None
    return getattr(errors, name).retryable
