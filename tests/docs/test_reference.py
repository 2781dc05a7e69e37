"""The generated pages of the reference are those in Git, and contain everything that the code documents."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG
from custody_reference import COMMAND, DOCS, STATES, pages
from documented import (
    documented,
    function_of,
    import_path,
    is_property,
    is_task,
    is_task_group,
    load,
    members,
    on_floor,
    page_names,
    parameter_texts,
    parameters,
    shows_members,
)
from examples import example
from service_calls import operations_used, roles_of
from support.airflow.floors import modules_of

from airflow_custody.client.whitelist.plans.plan import ROW_STATES
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.sandbox import Sandbox

ENTRIES = {load(name).__name__: name for page in page_names() for name in documented(page)}
TASKS = [*on_floor("operators"), *on_floor("sensors")]
#: Names that users do not create or call themselves: classes of results, and details of the sandbox.
WITHOUT_EXAMPLE = {
    *("CallCursor", "HealthCheck", "HealthReport", "NewCalls", "PendingApprovals", "VaultdClient", "WebhookCall"),
    *("Delivery", "WebhookEvent", "WhitelistEnvelope"),
    *("RequestSignatures", "VerifiedAddress", "VerifiedRules", "SandboxControl"),
    *("CallSettings", "ListingSettings", "Settings", "Signer"),
    *("connection_variables", "fingerprint", "health_entry"),
}


def test_the_pages_in_git_are_those_of_the_code() -> None:
    made = pages()
    stored = {path.stem: path.read_text() for path in (DOCS / "reference").iterdir()}
    if sys.version_info[:2] != (3, 11):
        # The form of a help text is that of the Python version.
        del made["commands"], stored["commands"]
    wrong = sorted(name for name in made.keys() | stored.keys() if made.get(name) != stored.get(name))
    assert wrong == [], f"to renew the pages, run: {COMMAND}"


def test_each_state_of_a_plan_is_explained() -> None:
    assert STATES.keys() == {*ROW_STATES}


@pytest.mark.parametrize("floor", ["operators", "sensors", "triggers"])
def test_all_modules_of_the_provider_are_there_and_no_base_class(floor: str) -> None:
    found = [name.rpartition(".") for name in on_floor(floor)]
    named = {module for group in get_provider_info()[floor] for module in group["python-modules"]}
    assert {module for module, _, _ in found} == named & {each.__name__ for each in modules_of(floor)}
    assert not [name for _, _, name in found if name in ("CustodyTask", "CustodyOperator", "CustodyCreateOperator")]


def functions() -> dict[str, Any]:
    """Return the classes and functions that are documented, and the methods of the classes, by name."""
    found = {name: load(name) for name in ENTRIES.values()}
    for obj in [each for each in found.values() if inspect.isclass(each) and shows_members(each)]:
        methods = {name: function_of(each) for name, each in members(obj).items() if not is_property(each)}
        found |= {f"{obj.__name__}.{name}": each for name, each in methods.items()}
    return found


def test_each_parameter_has_a_text() -> None:
    found = functions()
    assert len(found) > 100
    missing = {
        (name, parameter.name)
        for name, each in found.items()
        for parameter in parameters(each)
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if not parameter_texts(each).get(parameter.name)
    }
    assert missing == set()


# --- examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_example_is_short_and_runs_as_it_stands(name: str, sandbox: Sandbox, connection: str) -> None:
    text = example(ENTRIES[name])
    assert len(text.splitlines()) <= 10
    assert f"from {import_path(ENTRIES[name])} import " in text
    code = text.replace("https://custody.example.com", sandbox.url).replace("<API token>", sandbox.token)
    code = code.replace("<secret in hex>", "5e" * 32)
    with DAG("example", schedule=None) as dag:
        exec(code, {})
    obj = load(ENTRIES[name])
    assert len(dag.tasks) > 1 if is_task_group(obj) else len(dag.tasks) == is_task(obj)
    needs_one = name not in WITHOUT_EXAMPLE and not name.endswith("Error")
    assert "\n\n" in text or not needs_one, f"{name} has no statement in docs/snippets/reference.py"


# --- roles and operations --------------------------------------------------------------------------------------


def test_each_task_says_which_roles_it_needs() -> None:
    for name in TASKS:
        text = " ".join((inspect.getdoc(load(name)) or "").split())
        assert re.search(r"[Nn]eeds the roles? ``|needs no role|connection's user needs", text), name


@pytest.mark.parametrize("name", TASKS)
def test_the_roles_of_the_docstring_are_among_those_of_the_operations(name: str) -> None:
    text = " ".join((inspect.getdoc(load(name)) or "").split())
    sentences = re.findall(r"[Nn]eeds the roles? (``\w+``(?: (?:and|or) ``\w+``)*)", text)
    named = {role for sentence in sentences for role in re.findall(r"\w+", sentence)} - {"and", "or"}
    assert named <= {*re.findall(r"\w+", " ".join(roles_of(operations_used(load(name)))))}
