"""Imports between the parts of the package, the cost of imports, declared dependencies, and copies that must agree."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from lowest import read_project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.airflow.floors import modules_of

import airflow_custody
from airflow_custody.client import CustodyClient, CustodyConfigurationError, WhitelistRequest
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.whitelist.comparison import PAYLOAD_KEYS
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.triggers.health import TEMPLATED, CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

PACKAGE = Path(airflow_custody.__file__).parent
ROOT = PACKAGE.parent
SOURCES = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
#: What each folder may import of the rest of the package, and of these libraries, not even inside a function; ``/`` is
#: the root. Arrows point down: a folder imports none that stands above it.
LIBRARIES = {"airflow", "requests", "urllib3"}
MAY_IMPORT = {
    "sandbox": "requests",
    "client": "requests urllib3",
    "overview": "client",
    "idempotency": "airflow client",
    "hooks": "airflow client get_provider_info metrics",
    "triggers": "airflow client hooks metrics",
    "sensors": "airflow client hooks plugin retry_policy triggers _base",
    "operators": "airflow assets client hooks idempotency metrics plugin retry_policy _base",
    "task_groups": "airflow client operators sensors _base",
    "plugin": "airflow client hooks overview",
    "cli": "airflow client hooks overview get_provider_info",
    "/": "airflow client hooks idempotency retry_policy",
}
#: Modules that handle secrets.
SECRETIVE = ("client/http/", "client/auth.py", "client/settings.py", "client/secrets.py", "hooks/_connection.py")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def imports_of(path: Path, *, names: bool = False) -> Iterator[str]:
    """Yield the modules that a file imports, inside functions too; optionally also the names imported from them."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names if names)


# --- imports ---------------------------------------------------------------------------------------------------


def test_arrows_point_down_only() -> None:
    parts = {Path(name).parts[0].removesuffix(".py") for name in SOURCES}
    wrong = []
    for name, path in SOURCES.items():
        own = Path(name).parts[0] if "/" in name else "/"
        for module in imports_of(path, names=True):
            top, _, rest = module.partition(".")
            imported = rest.split(".")[0] if top == "airflow_custody" else top
            if imported in (parts | LIBRARIES) - {own, *MAY_IMPORT[own].split()}:
                wrong.append(f"{name} imports {module}")
    assert wrong == []


def test_no_two_files_import_each_other() -> None:
    """This includes imports inside a function, and imports for a type."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in SOURCES.values()}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph = {name: set(imports_of(path, names=True)) & paths.keys() - {name} for name, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


_FLOORS = ("task_groups", "operators", "sensors", "triggers", "hooks")
#: The modules that a DAG file may import.
PUBLIC = [each.__name__ for each in modules_of(*_FLOORS) if "._" not in each.__name__]
PUBLIC += [f"airflow_custody.{path.stem}" for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")]
PUBLIC += ["airflow_custody.client.errors"]
#: Modules that Airflow itself loads do not count.
OF_AIRFLOW = """
import airflow.providers.common.compat.sdk as sdk, airflow.triggers.base
sdk.BaseHook, sdk.BaseOperator, sdk.BaseSensorOperator, sdk.Asset, sdk.conf
from contextlib import suppress
with suppress(ImportError): from airflow.sdk import RetryPolicy
with suppress(ImportError): from airflow.providers.standard.operators.hitl import ApprovalOperator
"""
HEAVY = {"requests", "urllib3", "pydantic", "cryptography", "fastapi", "uvicorn", "base58", "Crypto", "pkcs11"}
# If Airflow has already loaded such a library, only an import statement in one of our modules shows that we need it.
_MEASURED = """
import builtins, importlib, sys
{before}
plain, loaded = builtins.__import__, set()
def listed(name, globals=None, *others, **named):
    if str((globals or {{}}).get("__name__")).startswith("airflow_custody"):
        loaded.add(name)
    return plain(name, globals, *others, **named)
before, builtins.__import__ = set(sys.modules), listed
for name in {modules!r}:
    importlib.import_module(name)
print("loaded", *sorted(loaded | set(sys.modules) - before))
"""


@pytest.mark.parametrize(
    ("before", "modules", "heavy"),
    [
        (OF_AIRFLOW, PUBLIC, HEAVY),
        # Airflow imports this module whenever it starts.
        ("", ["airflow_custody.cli.main"], HEAVY | {"airflow", "yaml"}),
    ],
    ids=["a DAG file", "the command line"],
)
def test_importing_loads_nothing_heavy(before: str, modules: list[str], heavy: set[str]) -> None:
    code = _MEASURED.format(before=before, modules=modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {*done.stdout.splitlines()[-1].split()}
    assert {each for each in loaded if each.partition(".")[0] in heavy} == set()
    assert {*modules} <= loaded


# --- what is declared ------------------------------------------------------------------------------------------

#: Further libraries that parts of the package may import: those of an extra, and those that belong to Airflow.
EXTRAS = {
    "client/signers/hsm.py": "pkcs11",
    "sandbox/": "sandbox",
}
NOT_DECLARED = {
    # Airflow 2 requires both and calls what imports them to draw the connection form; Airflow 3 does neither. To
    # declare them would bring Flask into every Airflow 3.
    "hooks/_form_widgets.py": {"flask_appbuilder", "wtforms"},
    # A plugin's pages are made of what Airflow's own are made of, in the versions that Airflow brings. To declare them
    # would bring FastAPI into every Airflow 2, which imports none of these modules.
    "plugin/": {"fastapi", "jinja2", "markupsafe", "sqlalchemy", "starlette"},
    # For those who test with pytest: nothing else imports the module.
    "sandbox/pytest_plugin.py": {"pytest"},
    # Airflow 3 requires this provider. Where it is missing, importing the module says so.
    "operators/_base_approval.py": {"airflow.providers.standard.operators.hitl"},
    # Each version of pydantic requires one version of this library, and documents its functions.
    "": {"pydantic_core", "airflow_custody", *sys.stdlib_module_names},
}
#: Namespaces that several distributions share.
SHARED = {
    "airflow.providers.common.compat": "apache-airflow-providers-common-compat",
    "airflow.providers": "a provider",
    "airflow": "apache-airflow",
}


def test_every_import_is_declared() -> None:
    project, installed = read_project(), packages_distributions()
    wrong = []
    for name, path in SOURCES.items():
        texts = [*project["dependencies"]]
        texts += [
            text
            for place, extra in EXTRAS.items()
            if name.startswith(place)
            for text in project["optional-dependencies"][extra]
        ]
        declared = {canonicalize_name(Requirement(text).name) for text in texts}
        exempt = {each for place, names in NOT_DECLARED.items() if name.startswith(place) for each in names}
        for module in imports_of(path):
            top = module.partition(".")[0]
            shared = next((each for each in SHARED if f"{module}.".startswith(f"{each}.")), "")
            distribution = SHARED.get(shared) or canonicalize_name(installed.get(top, [top])[0])
            if not {module, top} & exempt and distribution not in declared:
                wrong.append(f"{name} imports {module} of {distribution}")
    assert wrong == []


# --- style of the code -----------------------------------------------------------------------------------------


def test_no_error_is_made_where_another_is_handled_that_may_hold_a_secret() -> None:
    # A handled exception becomes the context of the new exception, even with "from None".
    wrong = [
        f"{name}, line {statement.lineno}"
        for name, path in SOURCES.items()
        if name.startswith(SECRETIVE)
        for handler in nodes_of(path)
        if isinstance(handler, ast.ExceptHandler)
        for statement in ast.walk(handler)
        if isinstance(statement, ast.Raise) and statement.exc is not None
    ]
    assert wrong == []
    assert all(any(name.startswith(each) for name in SOURCES) for each in SECRETIVE)


def operations() -> list[Operation]:
    found = []
    for module in pkgutil.walk_packages([str(PACKAGE / "client")], "airflow_custody.client."):
        if module.name.endswith(".operations"):
            values = vars(importlib.import_module(module.name)).values()
            found += [value for value in values if isinstance(value, Operation)]
    return found


def test_a_write_says_what_it_is_confirmed_by() -> None:
    assert {each.confirmed_by for each in operations() if each.method == "GET"} == {None}
    assert {each.confirmed_by for each in operations() if each.method != "GET"} == {"result", "read back"}


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.name)
def test_an_operation_that_carries_a_secret_quotes_nothing(operation: Operation) -> None:
    # The client's method has the operation's name, except for signing, which the service calls approving.
    name = operation.name.replace("sign whitelist", "approve whitelist").replace("whitelisting", "whitelist")
    parameters = inspect.signature(getattr(CustodyClient, name.replace(" ", "_"))).parameters
    carries_secret = not parameters.keys().isdisjoint({"password", "secret", "token", "totp"})
    # A webhook's URL may hold a password.
    assert operation.confidential or not (carries_secret or operation.path.startswith("/webhooks"))
    # A refusal may repeat parts of the request, and a listing contains URLs.
    assert not (operation.quotes_refusals and (carries_secret or operation.method == "GET"))


# --- copies that must agree ------------------------------------------------------------------------------------


def test_the_form_offers_every_way_to_authenticate(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "custody", "host": "https://custody.example.com", "extra": {"auth": "another"}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyHook().get_conn()
    offered = get_provider_info()["connection-types"][0]["conn-fields"]["auth"]["schema"]
    names = [name for name in offered["enum"] if name is not None]
    assert caught.value.text.endswith(f"must be {', '.join(names[:-1])} or {names[-1]}")
    # The empty choice must not read "null", and each choice needs a label.
    assert set(offered["values_display"]) == {"null", *names}


def test_each_field_of_a_request_is_a_parameter_and_compared_or_left_out_for_a_reason() -> None:
    names = WhitelistRequest.model_fields.keys()
    operator = CustodyCreateWhitelistRequestOperator
    assert names <= inspect.signature(operator.__init__).parameters.keys()
    assert names - {"label"} | {"address_label"} <= {*operator.template_fields}
    # The first field is another name of blockchain; the second is not part of a payload.
    compared = {key.field for key in PAYLOAD_KEYS.values() if key.field}
    assert compared == names - {"currency", "visibility_group_id"}


def test_each_criterion_of_health_is_a_parameter_and_a_template() -> None:
    criteria = {each.name for each in fields(HealthCriteria)}
    for task in (CustodyHealthCheckOperator, CustodyHealthSensor):
        assert criteria <= inspect.signature(task.__init__).parameters.keys()
        assert criteria - {"require_fresh"} <= {*task.template_fields}
    assert criteria <= inspect.signature(CustodyHealthTrigger.__init__).parameters.keys()
    # Otherwise, a template that renders to None in the triggerer would make the check weaker.
    assert {*TEMPLATED} == {*CustodyHealthSensor.template_fields}


@pytest.mark.parametrize(
    ("sensor", "trigger"),
    [
        (CustodyHealthSensor, CustodyHealthTrigger),
        (CustodyWhitelistRequestSensor, CustodyWhitelistRequestTrigger),
    ],
)
def test_each_parameter_of_a_trigger_is_stored_and_given_by_its_sensor(sensor: Any, trigger: Any) -> None:
    parameters = inspect.signature(trigger.__init__).parameters.keys() - {"self"}
    request = dict.fromkeys({"request_id"} & parameters, "1")
    assert trigger(**request).serialize()[1].keys() == parameters
    made = sensor(task_id="wait", poke_interval=7, **request)
    # Every task does this first when it is executed.
    made._check_given()
    given = made._trigger(deadline=5.0).serialize()[1]
    assert (given["poke_interval"], given["deadline"]) == (7, 5.0)
    # Only asset watchers use the last one.
    for name in parameters - {"poke_interval", "deadline", "fire_on"}:
        value = getattr(made, name)
        assert given[name] == (list(value) if isinstance(value, tuple) else value)
