"""The pages that are made of the code have what the code has."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from custody_reference import (
    FLOORS,
    PAGES,
    documented,
    load,
    operations,
    pages,
    parameters,
    shows_members,
    spell_type,
)
from floors import modules_of

from airflow_custody.client import CustodyClient
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.metrics import METRICS


@pytest.mark.parametrize("floor", ["operators", "sensors", "triggers"])
def test_all_modules_of_the_provider_are_there_and_no_base_class(floor: str) -> None:
    found = [name.rpartition(".") for name in documented(floor)]
    named = {module for group in get_provider_info()[floor] for module in group["python-modules"]}
    assert {module for module, _, _ in found} == named & {each.__name__ for each in modules_of(floor)}
    assert not [name for _, _, name in found if name in ("CustodyTask", "CustodyOperator", "CustodyCreateOperator")]


def functions() -> dict[str, Any]:
    """Return the classes and functions that are documented, and the methods of the classes, by name."""
    found = {name: load(name) for page in (*FLOORS, *PAGES) for name in documented(page)}
    owners: list[Any] = [
        CustodyClient,
        *(each for each in found.values() if inspect.isclass(each) and shows_members(each)),
    ]
    for base in {base for owner in owners for base in inspect.getmro(owner)}:
        if base.__module__.startswith("airflow_custody."):
            methods = {name: value for name, value in vars(base).items() if not name.startswith("_")}
            found |= {f"{base.__name__}.{name}": each for name, each in methods.items() if inspect.isfunction(each)}
    return found


def test_each_parameter_has_a_text() -> None:
    found = functions()
    assert len(found) > 100
    missing = {
        (name, parameter.name)
        for name, each in found.items()
        for parameter in parameters(each)
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if f":param {parameter.name}:" not in (inspect.getdoc(each) or "")
    }
    assert missing == set()


def test_each_task_says_which_roles_it_needs() -> None:
    for name in (*documented("operators"), *documented("sensors")):
        text = " ".join((inspect.getdoc(load(name)) or "").split())
        assert re.search(r"[Nn]eeds the roles? ``|needs no role|connection's user needs", text), name


def test_operations_commands_settings_and_metrics_are_all_there() -> None:
    made = pages()
    assert sorted(each.name for each in operations() if each.documented) == [
        "create whitelisting request",
        "delete webhook",
        "list health checks",
        "set webhook status",
    ]
    assert all(f"- {each.name}\n" in made["operations"] for each in operations())
    (kind,) = get_provider_info()["connection-types"]
    assert all(f"``{name}``" in made["settings"] for name in (*kind["conn-fields"], "page_connections"))
    assert all(f"``{metric.name}``" in made["metrics"] for metric in METRICS)
    for command in ("custody check", "custody status", "custody whitelist plan", "python -m airflow_custody.sandbox"):
        assert f"\n{command}\n---" in made["commands"]


def test_types_are_those_that_a_user_knows() -> None:
    request = load("airflow_custody.client.whitelist.models.WhitelistRequest")
    types = {each.name: spell_type(str(each.annotation), request) for each in parameters(request)}
    assert types["label"] == "str"
    assert types["linked_wallet_ids"] == "list[str] | None"
    assert types["visibility_group_id"] == "str | None"
