"""
The operations of the service that a class uses, found in its code.

The search follows the names that a function loads and, in each class that it reaches, the methods whose names occur as
an attribute. It may find an operation that is called only with some settings; it misses none that is called by name.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, ModuleType
from typing import Any

from airflow_custody.client.http.operation import Operation
from airflow_custody.hooks.custody import CustodyHook

_PACKAGE = "airflow_custody."
#: Every user with a password signs in; the page of the connection says so once.
_EVERYWHERE = ("sign in",)


def operations_used(obj: Any, owner: type | None = None) -> list[Operation]:
    """Return the operations that a class or a function uses, by name; ``owner`` is the class of a method."""
    search = _Search()
    if isinstance(obj, type):
        search.enter(obj)
    else:
        search.reach(owner)
        search.reach(obj)
    search.run()
    return [found for name, found in sorted(search.operations.items()) if name not in _EVERYWHERE]


def roles_of(operations: list[Operation]) -> list[str]:
    """Return the roles that a user needs for operations; one role of two is left out where another asks for it."""
    roles = {role for each in operations for role in each.roles}
    return sorted(role for role in roles if " or " not in role or roles.isdisjoint(role.split(" or ")))


class _Search:
    def __init__(self) -> None:
        self.operations: dict[str, Operation] = {}
        self._names: set[str] = set()
        self._classes: set[type] = set()
        self._functions: set[Callable[..., Any]] = set()
        self._new: list[Callable[..., Any]] = []

    def reach(self, value: Any) -> None:
        """Note a value to which a function refers."""
        if isinstance(value, Operation):
            self.operations[value.name] = value
        elif not str(getattr(value, "__module__", "")).startswith(_PACKAGE):
            return
        elif isinstance(value, type):
            # A task refers to another one for its parameters, and never runs it.
            if not hasattr(value, "template_fields"):
                self._reach_class(value)
        elif inspect.isfunction(function := inspect.unwrap(value)) and function not in self._functions:
            self._functions.add(function)
            self._new.append(function)

    def enter(self, owner: type) -> None:
        """Note that all methods of a class may be called, because Airflow calls them."""
        self._classes.update(_own_bases(owner))
        for each in _own_bases(owner):
            self._names.update(vars(each))

    def run(self) -> None:
        """Follow everything that was reached, until nothing is new."""
        before = -1
        while before != (before := self._size()):
            while self._new:
                self._follow(self._new.pop())
            for owner in [*self._classes]:
                for name, member in vars(owner).items():
                    if name in self._names or name.startswith("__"):
                        self._reach_member(member)

    def _size(self) -> int:
        return len(self._names) + len(self._classes) + len(self._functions)

    def _reach_class(self, owner: type) -> None:
        self._classes.update(_own_bases(owner))
        # The base class of a trigger's shared poll is Airflow's, which calls its methods.
        is_called_by_airflow = any(each.__module__.startswith("airflow.triggers.") for each in owner.__mro__)
        if is_called_by_airflow and not issubclass(owner, CustodyHook):
            self.enter(owner)

    def _reach_member(self, member: Any) -> None:
        for each in (member, *(getattr(member, name, None) for name in ("__func__", "fget", "func"))):
            if inspect.isfunction(each):
                self.reach(each)

    def _follow(self, function: Callable[..., Any]) -> None:
        module = sys.modules[function.__module__]
        for code in _codes(function.__code__):
            self._names.update(code.co_names)
            imported = _local_imports(code)
            for each in imported:
                self.reach(each)
            for each in (module, *imported):
                if isinstance(each, ModuleType):
                    for name in code.co_names:
                        self.reach(vars(each).get(name))


def _own_bases(owner: type) -> list[type]:
    return [each for each in owner.__mro__ if each.__module__.startswith(_PACKAGE)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and that of the functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


@cache
def _local_imports(code: CodeType) -> list[Any]:
    """Return what a function imports from modules of the package."""
    module: ModuleType | None = None
    found = []
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            is_own = str(each.argval).startswith(_PACKAGE)
            module = importlib.import_module(each.argval) if is_own else None
        elif each.opname == "IMPORT_FROM" and module is not None:
            if not hasattr(module, each.argval):
                importlib.import_module(f"{module.__name__}.{each.argval}")
            found.append(getattr(module, each.argval))
    return found
