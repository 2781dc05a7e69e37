"""The pages that are made of the code have what the code has."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from custody_docs import catalogue, docstrings, pages
from custody_docs.sources import find_source, line_of
from floors import modules_of

from airflow_custody import metrics
from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.get_provider_info import get_provider_info

FLOORS = ("operators", "sensors", "triggers", "hooks")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages.pages()


@pytest.mark.parametrize(
    ("floor", "name"),
    [
        ("operators", "CustodyReadWebhookCallsOperator"),
        ("operators", "CustodyApplyWhitelistPlanOperator"),
        ("sensors", "CustodyHealthSensor"),
        ("triggers", "CustodyWebhookCallTrigger"),
    ],
)
def test_each_class_has_a_page_and_its_line(made: dict[str, str], floor: str, name: str) -> None:
    assert f".{name}\n" in made[f"reference/{floor}/{name}"]
    assert f".{name}`\n" in made[f"reference/{floor}"]


@pytest.mark.parametrize("floor", ["operators", "sensors", "triggers"])
def test_all_modules_of_the_provider_are_there_and_no_base_class(floor: str) -> None:
    found = catalogue.provided(floor)
    available = {each.__name__ for each in modules_of(floor)}
    assert {module for module, _ in found} == available & {
        module for group in get_provider_info()[floor] for module in group["python-modules"]
    }
    assert not [each for _, each in found if each.__module__.endswith("._base")]


def test_every_method_that_calls_the_service_says_what_it_needs() -> None:
    for subject, names in catalogue.client_methods().items():
        for name in names:
            operations = catalogue.operations_of(inspect.getattr_static(CustodyClient, name))
            assert bool(operations) is bool(subject), name
    (listing,) = catalogue.operations_of(CustodyClient.list_webhooks)
    assert (listing.name, listing.documented) == ("list webhooks", False)
    (setting,) = catalogue.operations_of(CustodyClient.set_webhook_status)
    assert (setting.roles, setting.documented) == (("Admin",), True)


def public_functions() -> dict[str, Any]:
    """Return the classes and functions that the reference documents, and the methods of these, by their names."""
    found = {each.__name__: each for floor in FLOORS for _, each in catalogue.provided(floor)}
    found |= {
        f"CustodyClient.{name}": inspect.getattr_static(CustodyClient, name)
        for names in catalogue.client_methods().values()
        for name in names
    }
    for module, names in pages.documented():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            found[name] = value
            bases = inspect.getmro(value) if inspect.isclass(value) and name not in pages.WITHOUT_MEMBERS else ()
            for base in bases:
                if base.__module__.startswith("airflow_custody."):
                    found |= {f"{name}.{key}": each for key, each in vars(base).items() if not key.startswith("_")}
    return {
        name: each for name, each in found.items() if inspect.isfunction(inspect.unwrap(each)) or inspect.isclass(each)
    }


def test_each_parameter_has_a_text() -> None:
    found = public_functions()
    assert len(found) > 100
    missing = {}
    for name, each in found.items():
        if inspect.isclass(each) and issubclass(each, Exception):
            continue
        texts = re.findall(r"^:param (\w+):", inspect.getdoc(each) or "", re.MULTILINE)
        known = [
            parameter.name
            for parameter in docstrings.parameters(each).values()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
        if without := [parameter for parameter in known if parameter not in texts]:
            missing[name] = without
    assert missing == {}


def test_each_task_says_which_roles_it_needs() -> None:
    for floor in ("operators", "sensors"):
        for _, each in catalogue.provided(floor):
            text = " ".join((inspect.getdoc(each) or "").split())
            assert re.search(r"[Nn]eeds the roles? ``|needs no role|connection's user needs", text), each


def test_only_four_operations_are_in_the_interface_description(made: dict[str, str]) -> None:
    known = [each for each in catalogue.operations() if each.documented]
    assert sorted(each.name for each in known) == [
        "create whitelisting request",
        "delete webhook",
        "list health checks",
        "set webhook status",
    ]
    rows = made["reference/operations"]
    assert rows.count("|published|") == len(catalogue.operations()) - len(known)


def test_types_are_those_that_a_user_knows(made: dict[str, str]) -> None:
    text = "\n".join(docstrings.complete([":param linked_wallet_ids: a"], WhitelistRequest, {}))
    assert ":type linked_wallet_ids: list[str] | None\n" in text
    assert ":type visibility_group_id: str | None\n" in text
    assert ":param label:\n:type label: str\n" in text
    signature = docstrings.signature(WhitelistRequest)
    assert signature is not None
    assert signature.startswith("(*, label, address, blockchain=None, ")
    assert docstrings.signature(CustodyClient) is None


def test_the_command_line_has_every_command_option_and_exit_code(made: dict[str, str]) -> None:
    plan = made["reference/command-line/whitelist-plan"]
    assert ".. program:: custody whitelist plan\n" in plan
    assert ".. option:: -o {table,json,markdown}, --output {table,json,markdown}\n" in plan
    assert ".. option:: FILE\n" in plan
    assert "CUSTODY\\_TOKEN" in plan
    overview = made["reference/command-line"]
    for name in ("check", "status", "health", "whitelist plan", "whitelist verify", "webhooks list"):
        assert f":doc:`custody {name} <" in overview
    assert [f"* - ``{number}``\n" in overview for number in (0, 1, 2, 130)] == [True] * 4
    assert "--with-signers" in made["reference/sandbox-command"]


def test_settings_and_metrics_are_all_there(made: dict[str, str]) -> None:
    (kind,) = get_provider_info()["connection-types"]
    for name in kind["conn-fields"]:
        assert f"``{name}``" in made["reference/connection"]
    assert "number, from 1 to 86400" in made["reference/connection"]
    assert "AIRFLOW__CUSTODY__PAGE_CONNECTIONS" in made["reference/configuration"]
    for metric in metrics.METRICS:
        assert f"``{metric.name}``" in made["reference/metrics"]


def test_each_example_has_a_page(made: dict[str, str]) -> None:
    for path in catalogue.EXAMPLES.glob("*.py"):
        assert f".. literalinclude:: ../../example_dags/{path.name}\n" in made[f"examples/{path.stem}"]
    assert "custody_whitelist.yaml" in made["examples/custody_whitelist_as_code"]
    assert "CustodyHealthSensor`" in made["examples/custody_health_gate"]


def test_a_source_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    path = tmp_path / "tests" / "test_a.py"
    path.write_text("class A:\n    async def test_b(self): ...\n")
    assert find_source("tests/test_a.py", tmp_path) == path
    assert find_source("tests/test_a.py::A", tmp_path) == path
    assert find_source("tests/test_a.py::test_b", tmp_path) == path
    assert line_of("tests/test_a.py::test_b", path) == 2
    assert line_of("tests/test_a.py", path) is None
    for text in ("tests/test_a.py::test_", "tests/test_b.py", "tests", "../outside.py"):
        with pytest.raises(ValueError, match="has no"):
            find_source(text, tmp_path)
