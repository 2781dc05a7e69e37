"""What a name in a docstring means."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

#: Where the names of Airflow come from that docstrings name.
_AIRFLOW = "airflow.providers.common.compat.sdk"


def find_documented(target: str, documented: Iterable[str]) -> str | None:
    """
    Return the documented object that a name means; None: none, or more than one.

    A docstring names an object by its module, by another one that it can be imported from, or by its last name. An
    attribute that is a parameter of its class is on the class's page.

    :param target: the name.
    :param documented: the full names of what is documented.
    """
    names = target.split(".")
    split = {each: each.split(".") for each in documented}
    for wanted in (names[-2:], names[-1:]):
        found = [name for name, parts in split.items() if parts[-len(wanted) :] == wanted]
        if len(found) == 1:
            return found[0]
    owners = [name for name, parts in split.items() if len(names) > 1 and parts[-1] == names[-2]]
    return owners[0] if len(owners) == 1 and names[-1] in _fields(owners[0]) else None


def exists(target: str, places: Iterable[str], documented: Iterable[str]) -> bool:
    """
    Tell whether there is an object of this name.

    :param target: the name.
    :param places: the full names of the docstring's module and class.
    :param documented: the full names of what is documented; a docstring may name what its own module has.
    """
    modules = {each.rpartition(".")[0] for each in documented if each.startswith("airflow_custody.")}
    names = [
        target,
        *(f"{each}.{target}" for each in places),
        f"{_AIRFLOW}.{target}",
        *(f"{each}.{target}" for each in sorted(modules)),
    ]
    return any(_load(name) is not None for name in names)


def _fields(name: str) -> set[str]:
    """Return the names that a class's constructor takes."""
    return set(getattr(_load(name), "__annotations__", {}))


def _load(name: str) -> object:
    """Return an object by its full name; None: there is none."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for each in parts[length:]:
            found = getattr(found, each, None)
        return found
    return None
