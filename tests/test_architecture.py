"""Which layer may import which, what is defined in one place, and what importing costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseOperator
from floors import modules_of

import airflow_custody
from airflow_custody._base import CustodyTask
from airflow_custody.client import CustodyClient, CustodyConfigurationError, WhitelistRequest
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.whitelist.review import NOT_COMPARED, compare
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.triggers.health import TEMPLATED, CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

PACKAGE = Path(airflow_custody.__file__).parent
FLOORS = ("operators", "sensors", "triggers")
#: What the modules below a folder must not import, not even inside a function.
FORBIDDEN = {
    "client": (
        "airflow",
        "airflow_custody.hooks",
        "airflow_custody.operators",
        "airflow_custody.overview",
        "airflow_custody.sandbox",
    ),
    "hooks": ("requests", "airflow_custody.operators", "airflow_custody.sensors", "airflow_custody.triggers"),
    "idempotency": ("requests", "airflow_custody.hooks", "airflow_custody.operators"),
    "operators": ("requests", "urllib3", "airflow_custody.sensors", "airflow_custody.triggers"),
    "sensors": ("requests", "urllib3", "airflow_custody.operators"),
    "triggers": ("requests", "urllib3", "airflow_custody.operators", "airflow_custody.sensors"),
    "cli": ("requests", "urllib3", "airflow_custody.operators", "airflow_custody.sensors", "airflow_custody.triggers"),
    "overview": ("airflow", "requests", "urllib3", "airflow_custody.hooks", "airflow_custody.operators"),
    "sandbox": ("airflow", "airflow_custody.client", "airflow_custody.hooks", "airflow_custody.operators"),
}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def names_imported_by(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and the names that it imports from them, which may be modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    yield from imports_of(path)


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_arrows_point_down_only(folder: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in (PACKAGE / folder).rglob("*.py")
        for module in imports_of(path)
        if any(is_in(module, forbidden) for forbidden in FORBIDDEN[folder])
    ]
    assert wrong == []


def test_no_two_files_import_each_other() -> None:
    """Not even inside a function, or for a type."""
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph = {name: set(names_imported_by(path)) & paths.keys() - {name} for name, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_numbers_of_the_service_are_read_by_one_function() -> None:
    """``int`` fails on a text of thousands of digits, with an error that is none of ours."""
    # Digits one by one, ids that were checked, numbers that are none of the service's, and the function itself.
    allowed = {"address_decoders.py": 1, "models.py": 1, "file_formats.py": 1, "text.py": 1}
    allowed |= {"transport.py": 1, "settings.py": 1}
    found = Counter(
        path.name
        for path in (PACKAGE / "client").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and node.args
    )
    assert found == allowed


def test_nothing_but_itself_imports_the_sandbox() -> None:
    wrong = [
        str(path)
        for path in PACKAGE.rglob("*.py")
        if "sandbox" not in path.relative_to(PACKAGE).parts
        and any(is_in(module, "airflow_custody.sandbox") for module in imports_of(path))
    ]
    assert wrong == []


def test_the_command_line_imports_airflow_and_hooks_inside_functions_only() -> None:
    wrong = [
        f"{path.name} imports {module}"
        for path in (PACKAGE / "cli").glob("*.py")
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for module in [getattr(statement, "module", None) or statement.names[0].name]
        if is_in(module, "airflow") or is_in(module, "airflow_custody.hooks")
    ]
    assert wrong == []


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    # Airflow does at each start.
    script = "import sys, airflow_custody.cli.main\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("airflow", "requests", "urllib3", "pydantic", "yaml", "cryptography", "airflow_custody.client.settings")
    assert [module for module in loaded if any(is_in(module, each) for each in heavy)] == []
    assert "airflow_custody.cli.whitelist" in loaded


def test_a_dag_file_loads_nothing_of_the_client() -> None:
    public = [each.__name__ for each in modules_of("operators", "sensors", "hooks") if "._" not in each.__name__]
    script = (
        "import json, sys\n"
        # What Airflow itself loads is not ours to count.
        "import airflow.providers.common.compat.sdk as sdk\n"
        "sdk.BaseHook, sdk.BaseOperator, sdk.BaseSensorOperator, sdk.Asset, sdk.conf\n"
        "from contextlib import suppress\n"
        "with suppress(ImportError): from airflow.sdk import RetryPolicy\n"
        "with suppress(ImportError): from airflow.providers.standard.operators.hitl import ApprovalOperator\n"
        "before = set(sys.modules)\n"
        f"for name in {public!r}: __import__(name)\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    loaded = json.loads(output.splitlines()[-1])
    heavy = ("requests", "urllib3", "pydantic", "fastapi", "cryptography")
    ours = [f"airflow_custody.{each}" for each in ("client", "idempotency", "triggers", "metrics", "get_provider_info")]
    assert [module for module in loaded if any(is_in(module, each) for each in (*heavy, *ours))] == []
    assert set(public) <= set(loaded)


def test_the_defaults_of_a_dag_file_are_those_of_the_client() -> None:
    from airflow_custody import _base
    from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
    from airflow_custody.client.verification import trust

    assert tuple(trust.EFFECTIVE_STATUSES) == _base.EFFECTIVE_STATUSES
    assert tuple(trust.REJECTED_STATUSES) == _base.REJECTED_STATUSES
    assert _base.LOOKUP_WAIT == DEFAULT_LOOKUP_WAIT


#: Modules that handle secrets.
SECRETIVE = [*(PACKAGE / "client" / "http").glob("*.py"), PACKAGE / "client" / "auth.py"]
SECRETIVE += [PACKAGE / "client" / "settings.py", PACKAGE / "client" / "secrets.py"]
SECRETIVE += [PACKAGE / "hooks" / "_connection.py"]


@pytest.mark.parametrize("path", SECRETIVE, ids=lambda path: path.stem)
def test_no_error_is_made_where_another_is_handled_that_may_hold_a_secret(path: Path) -> None:
    # The one that is handled becomes the context of the new one, also with "from None".
    wrong = [
        f"{path.name}, line {statement.lineno}"
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
        for statement in ast.walk(handler)
        if isinstance(statement, ast.Raise) and statement.exc is not None
    ]
    assert wrong == []


def test_a_trigger_that_is_cancelled_ends() -> None:
    """``asyncio.wait_for`` may swallow the cancellation; ``_waiting.within`` does not."""
    calls = [
        f"{path.name}:{node.lineno}"
        for path in sorted((PACKAGE / "triggers").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute | ast.Name | ast.alias)
        and "wait_for" in (getattr(node, "attr", ""), getattr(node, "id", ""), getattr(node, "name", ""))
    ]
    assert not calls


def test_the_form_offers_every_way_to_authenticate(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "custody", "host": "https://custody.example.com", "extra": {"auth": "another"}}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyHook().get_conn()
    offered = get_provider_info()["connection-types"][0]["conn-fields"]["auth"]["schema"]
    names = [name for name in offered["enum"] if name is not None]
    assert caught.value.text.endswith(f"must be {', '.join(names[:-1])} or {names[-1]}")
    # An empty choice that does not read "null", and a label for each.
    assert set(offered["values_display"]) == {"null", *names}


# --- operations --------------------------------------------------------------------------------------------


def operations() -> list[Operation]:
    found = []
    for module in pkgutil.walk_packages([str(PACKAGE / "client")], "airflow_custody.client."):
        if module.name.endswith(".operations"):
            values = vars(importlib.import_module(module.name)).values()
            found += [value for value in values if isinstance(value, Operation)]
    return found


def method_of(operation: Operation) -> Any:
    """Return the client's method, which has the operation's name; where people sign, it has the service's word."""
    name = re.sub("^sign ", "approve ", operation.name)
    return getattr(CustodyClient, name.replace("whitelisting", "whitelist").replace(" ", "_"))


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.name)
def test_an_operation_has_a_method_that_documents_it(operation: Operation) -> None:
    method = method_of(operation)
    documentation = inspect.getdoc(method) or ""
    assert re.search(rf"``{operation.method} {operation.path}(/[{{}}\w/]+)?``", documentation)
    assert ("(undocumented)" in documentation) is not operation.documented


def test_a_write_says_what_it_is_confirmed_by() -> None:
    assert {each.confirmed_by for each in operations() if each.method == "GET"} == {None}
    assert {each.confirmed_by for each in operations() if each.method != "GET"} == {"result", "read back"}


def test_only_confirmed_writes_take_any_response() -> None:
    # A call without a shape accepts every body: only the method that judges it may make one.
    found = [
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "client").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "call"
        for shape in [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "shape")]
        if isinstance(shape, ast.Constant)
    ]
    assert found == ["client/http/service.py"]


@pytest.mark.parametrize(
    "operation", [each for each in operations() if each.confirmed_by == "read back"], ids=lambda each: each.name
)
def test_what_is_read_back_goes_through_the_one_method(operation: Operation) -> None:
    method = method_of(operation)
    assert re.search(r"self\._write\(", inspect.getsource(method))


SECRET_NAMES = {"password", "secret", "token", "totp"}


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.name)
def test_an_operation_that_carries_a_secret_quotes_nothing(operation: Operation) -> None:
    method = method_of(operation)
    carries_secret = bool(SECRET_NAMES & set(inspect.signature(method).parameters))
    # A webhook's URL may hold a password.
    assert operation.confidential or not (carries_secret or operation.path.startswith("/webhooks"))


# --- the fields of a whitelisting request -------------------------------------------------------------------

REQUEST_FIELDS = list(WhitelistRequest.model_fields)


def parameters_in(documentation: str | None) -> set[str]:
    return set(re.findall(r":param (\w+):", documentation or ""))


@pytest.mark.parametrize("name", REQUEST_FIELDS)
def test_each_field_of_a_request_is_named_everywhere(name: str) -> None:
    operator = CustodyCreateWhitelistRequestOperator
    assert name in inspect.signature(operator.__init__).parameters
    assert {"label": "address_label"}.get(name, name) in operator.template_fields
    assert name in parameters_in(operator.__doc__)
    assert name in parameters_in(WhitelistRequest.__doc__)


def test_each_field_of_a_request_is_compared_or_left_out_for_a_reason() -> None:
    request = WhitelistRequest(label="l", address="a", blockchain="ETH")
    compared = {each.name for each in compare(request, {}).findings}
    assert compared | set(NOT_COMPARED) == set(REQUEST_FIELDS)
    assert not compared & set(NOT_COMPARED)
    assert all(NOT_COMPARED.values())


# --- the criteria of health --------------------------------------------------------------------------------

CRITERIA = [each.name for each in fields(HealthCriteria)]


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("where", [CustodyHealthCheckOperator, CustodyHealthSensor, CustodyHealthTrigger])
def test_each_criterion_is_named_everywhere(where: type, name: str) -> None:
    assert name in inspect.signature(where.__init__).parameters  # type: ignore[misc]
    assert name in parameters_in(where.__doc__)
    assert name in inspect.signature(HealthCriteria).parameters
    if name != "require_fresh" and where is not CustodyHealthTrigger:
        assert name in where.template_fields  # type: ignore[attr-defined]


# --- sensors and their triggers -----------------------------------------------------------------------------

PAIRS = [
    (CustodyHealthSensor, CustodyHealthTrigger),
    (CustodyWhitelistRequestSensor, CustodyWhitelistRequestTrigger),
]
#: What only asset watchers use.
NOT_OF_SENSORS = {"fire_on"}


@pytest.mark.parametrize(("sensor", "trigger"), PAIRS)
def test_each_parameter_of_a_trigger_is_stored_documented_and_given_by_its_sensor(sensor: Any, trigger: Any) -> None:
    parameters = set(inspect.signature(trigger.__init__).parameters) - {"self"}
    request = dict.fromkeys({"request_id"} & parameters, "1")
    assert set(trigger(**request).serialize()[1]) == parameters
    assert parameters_in(trigger.__doc__) == parameters
    made = sensor(task_id="wait", poke_interval=7, **request)
    given = made._trigger(deadline=5.0).serialize()[1]
    assert (given["poke_interval"], given["deadline"]) == (7, 5.0)
    for name in {*parameters} - {*NOT_OF_SENSORS, "poke_interval", "deadline"}:
        value = getattr(made, name)
        assert given[name] == (list(value) if isinstance(value, tuple) else value)


def test_the_trigger_knows_what_the_triggerer_may_render() -> None:
    # A template that renders to None there would otherwise make the gate weaker.
    assert set(TEMPLATED) == set(CustodyHealthSensor.template_fields)


def test_all_operators_and_sensors_check_what_was_given() -> None:
    for module in modules_of("operators", "sensors"):
        # That one is Airflow's, and calls no service.
        if module.__name__.endswith(".whitelist_plan_approval"):
            continue
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, BaseOperator) and each.__module__ == module.__name__:
                assert issubclass(each, CustodyTask)
                # The bases' own: they check before anything else happens.
                assert module.__name__.endswith("._base") or not {"execute", "resume_execution"} & set(vars(each))


def test_no_constructor_of_a_task_raises() -> None:
    # A mapped task is constructed before the visible part of its log begins: they call _refuse.
    tasks = [each for module in modules_of("operators", "sensors") for each in vars(module).values()]
    for task in (each for each in tasks if isinstance(each, type) and issubclass(each, CustodyTask)):
        if task is not CustodyTask and "__init__" in vars(task):
            assert not re.search(r"^ *raise ", inspect.getsource(vars(task)["__init__"]), re.MULTILINE), task
