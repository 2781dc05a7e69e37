"""What there is to document, found in the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import runpy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException

from airflow_custody.client.http.operation import Operation
from airflow_custody.get_provider_info import get_provider_info

#: The folder of the project.
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "example_dags"
#: What each example is for, in a few words: the titles of the gallery.
TITLES = {
    "custody_first_dag": "Whitelist one address",
    "custody_health_gate": "Run only while the service is healthy",
    "custody_on_request_status": "Start a DAG when a request changes",
    "custody_pending_approvals": "Tell somebody when a signature is late",
    "custody_unhealthy_watcher": "Start a DAG when the service turns unhealthy",
    "custody_watch_webhook_calls": "Start a DAG when a transaction arrives",
    "custody_webhook_maintenance": "Disable a webhook during maintenance",
    "custody_whitelist_approval": "Have a person approve before it is signed",
    "custody_whitelist_as_code": "Keep a whitelist as a file",
    "custody_whitelist_complete": "Whitelist an address with a decision",
    "custody_whitelist_from_rows": "Keep a whitelist as another system has it",
    "custody_whitelist_mapping": "Whitelist a list that the run brings",
    "custody_whitelist_reconciliation": "Prove each morning that the whitelist is right",
}


@dataclass(frozen=True)
class Graph:
    """
    The graph of a DAG.

    :param dag_id: of the DAG.
    :param tasks: ids of its tasks, each after those that it waits for.
    """

    dag_id: str
    tasks: tuple[str, ...]

    @property
    def picture(self) -> str:
        """Its picture's path, below the folder of pictures."""
        return f"examples/{self.dag_id}.png"

    @property
    def text(self) -> str:
        """What its picture shows, in words."""
        return f"The graph of {self.dag_id}: {', '.join(self.tasks)}."


@dataclass(frozen=True)
class Example:
    """
    An example, as a file.

    :param path: its file.
    """

    path: Path

    @property
    def stem(self) -> str:
        """Its file's name without the ending."""
        return self.path.stem

    @property
    def title(self) -> str:
        """What it is for, in a few words."""
        return TITLES[self.stem]

    @property
    def docstring(self) -> str:
        """What it says of itself."""
        return ast.get_docstring(ast.parse(self.path.read_text())) or ""

    def graphs(self) -> list[Graph]:
        """Return the graphs of its DAGs, in the order of the file. Some need an Airflow that is not an old one."""
        from airflow.providers.common.compat.sdk import DAG

        dags = {id(each): each for each in runpy.run_path(str(self.path)).values() if isinstance(each, DAG)}
        return [
            Graph(dag.dag_id, tuple(each.node_id for each in dag.task_group.topological_sort()))
            for dag in dags.values()
        ]


def examples() -> list[Example]:
    """Return the examples."""
    return [Example(path) for path in sorted(EXAMPLES.glob("*.py")) if path.stem != "__init__"]


def uses() -> dict[str, list[Example]]:
    """Return the examples that name each class of the package, by the class's name."""
    result: dict[str, list[Example]] = {}
    for example in examples():
        for name in sorted(set(re.findall(r"\b(?:Custody|Connection)\w+", example.path.read_text()))):
            result.setdefault(name, []).append(example)
    return result


def is_operator(obj: object) -> bool:
    """Tell whether something is a class of operators or sensors."""
    return inspect.isclass(obj) and "template_fields" in dir(obj) and "task_type" in dir(obj)


def provided(floor: str) -> list[tuple[str, type]]:
    """
    Return the classes of a kind that the provider metadata name, with the modules to import them from.

    :param floor: ``operators``, ``sensors``, ``triggers`` or ``hooks``.
    """
    modules = [module for group in get_provider_info()[floor] for module in group["python-modules"]]
    return [(module, each) for module in modules for each in _classes(module, f"airflow_custody.{floor}.")]


def _classes(module: str, package: str) -> list[type]:
    """Return the classes of a module that a user may use; its order is that of their names."""
    try:
        names = vars(importlib.import_module(module)).items()
    except AirflowOptionalProviderFeatureException:  # on this Airflow
        return []
    return [
        each
        for name, each in sorted(names, key=lambda item: item[0])
        if name.startswith("Custody") and inspect.isclass(each) and not inspect.isabstract(each)
        if each.__module__.startswith(package)
    ]


def operations() -> list[Operation]:
    """Return all operations of the service that the client knows, by their paths."""
    import airflow_custody.client as package

    found: dict[int, Operation] = {}
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(each.name)).values():
            if isinstance(value, Operation):
                found[id(value)] = value
    return sorted(found.values(), key=lambda operation: (operation.path, operation.method, operation.name))


def client_methods() -> dict[str, list[str]]:
    """Return the names of the client's public methods and properties, by subject; its own have none."""
    from airflow_custody.client import CustodyClient

    result = {}
    for each in (*CustodyClient.__bases__, CustodyClient):
        subject = each.__module__.removeprefix("airflow_custody.client.").rpartition(".")[0]
        result[subject] = [name for name in vars(each) if not name.startswith("_")]
    return result


def operations_of(function: Any) -> list[Operation]:
    """Return the operations that a method of the client names; if it names none, those of private methods it calls."""
    from airflow_custody.client import CustodyClient

    if not inspect.isfunction(function) or not hasattr(CustodyClient, function.__name__):
        return []
    if inspect.unwrap(getattr(CustodyClient, function.__name__)) is not function:
        return []
    names = list(_names(function.__code__))
    found = _operations(function, names)
    if not found:
        private = (inspect.getattr_static(CustodyClient, name, None) for name in names if name.startswith("_"))
        found = [each for method in private if inspect.isfunction(method) for each in _operations(method)]
    return found


def _operations(function: Any, names: Iterable[str] | None = None) -> list[Operation]:
    """Return the operations that a function names."""
    values = (function.__globals__.get(name) for name in names or _names(function.__code__))
    return list({id(each): each for each in values if isinstance(each, Operation)}.values())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
