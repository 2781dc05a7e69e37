"""The information that an editor has about the public names: parameters, types, results, and mistakes."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from documented import (
    documented,
    function_of,
    is_property,
    load,
    members,
    page_names,
    parameters,
    shows_members,
)
from support.airflow.airflow_runs import AIRFLOW

FILE = Path(__file__).with_name("every_public_name.py")
ROOT = Path(__file__).parents[2]
NAMES = sorted({name for page in page_names() for name in documented(page)})
#: Public names with an ``Any``, and why no better type exists.
WITH_ANY = {
    # Airflow's own types of these parts of the context differ between its versions, and users do not import them.
    "airflow_custody.assets.UnhandledEvents": "inlet_events ti",
    "airflow_custody.assets.calls_of": "event",
    "airflow_custody.assets.last_event": "inlet_events return",
    "airflow_custody.assets.latest_events": "inlet_events return",
    # Airflow's base classes have these parameters.
    "airflow_custody.hooks.custody.CustodyHook": "kwargs",
    "airflow_custody.task_groups.whitelist.CustodyWhitelistFileTaskGroup": "kwargs",
    "airflow_custody.task_groups.whitelist.CustodyWhitelistRequestTaskGroup": "kwargs",
    # JSON of the service, which tests read to any depth.
    "airflow_custody.sandbox.SandboxControl.about": "return",
    "airflow_custody.sandbox.SandboxControl.pins": "return",
    "airflow_custody.sandbox.SandboxControl.whitelist_requests": "return",
    "airflow_custody.sandbox.SandboxControl.webhooks": "return",
    "airflow_custody.sandbox.SandboxControl.add_webhook": "return",
    "airflow_custody.sandbox.SandboxControl.send_event": "return",
    "airflow_custody.sandbox.SandboxControl.faults": "return",
    "airflow_custody.sandbox.SandboxControl.request_log": "return",
    "airflow_custody.sandbox.SandboxControl.send": "return",
    "airflow_custody.sandbox.health_entry": "return",
}
MISTAKES = """\
# pyright: strict
from airflow_custody.client import CustodyClient, CustodyClint
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator

CustodyHealthCheckOperator(task_id="check", groups=3)
plan = CustodyPlanWhitelistOperator(task_id="plan", path="whitelist.yaml", max_creates="many")
CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan.output)
CustodyApplyWhitelistPlanOperator(task_id="apply", plan=plan, plan_hash=plan.output["plan_hash"])
CustodyClient("https://custody.example.com", "token", time_out=3)
CustodyClient("https://custody.example.com", "token").list_health()
"""
#: The line of each mistake, from 1.
WRONG_LINES = [2, 6, 7, 8, 9, 10, 11]


def check_types(file: Path) -> list[tuple[int, str]]:
    """Return the line and the text of each error that pyright reports about a file."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, done.stderr
    return [(each["range"]["start"]["line"] + 1, each["message"]) for each in report["generalDiagnostics"]]


@pytest.mark.slow
@pytest.mark.skipif(AIRFLOW < (3, 0), reason="Airflow 2 has no airflow.sdk, from which Airflow's types come")
def test_an_editor_accepts_the_use_of_every_public_name() -> None:
    assert check_types(FILE) == []


@pytest.mark.slow
@pytest.mark.skipif(AIRFLOW < (3, 0), reason="Airflow 2 has no airflow.sdk, from which Airflow's types come")
def test_an_editor_reports_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "mistakes.py"
    # Pyright finds the package from the folder that it runs in.
    file.write_text(MISTAKES)
    assert sorted({line for line, _ in check_types(file)}) == WRONG_LINES


@cache
def used_names() -> set[str]:
    """Return the names, attributes and called methods in the file with every public name."""
    nodes = list(ast.walk(ast.parse(FILE.read_text())))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("name", NAMES)
def test_the_file_uses_every_public_name(name: str) -> None:
    obj = load(name)
    wanted = {name.rpartition(".")[2]}
    if inspect.isclass(obj) and shows_members(obj):
        wanted |= members(obj).keys()
    assert wanted - used_names() == set()


def signatures(name: str) -> Iterator[tuple[str, list[inspect.Parameter], Any]]:
    """Yield name, parameters and annotation of the result of a public name, and of each of its members."""
    obj = load(name)
    is_class = inspect.isclass(obj)
    yield name, parameters(obj), None if is_class else obj.__annotations__["return"]
    for member, value in members(obj).items() if is_class and shows_members(obj) else ():
        if is_property(value):
            function = getattr(value, "fget", None) or value.func
            yield f"{name}.{member}", [], function.__annotations__["return"]
        else:
            function = function_of(value)
            yield f"{name}.{member}", parameters(function), function.__annotations__["return"]


@pytest.mark.parametrize("name", NAMES)
def test_public_signatures_are_annotated_without_any(name: str) -> None:
    for owner, given, result in signatures(name):
        # A protocol has no constructor.
        annotations = {} if owner.endswith(".Signer") else {each.name: each.annotation for each in given}
        unannotated = {each for each, annotation in annotations.items() if annotation is inspect.Parameter.empty}
        assert unannotated == set(), owner
        texts = {each: str(annotation) for each, annotation in {**annotations, "return": result}.items()}
        found = {each for each, text in texts.items() if re.search(r"\bAny\b", text)}
        assert found == set(WITH_ANY.get(owner, "").split()), owner


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(load(name))])
def test_an_editor_shows_the_documentation_of_the_parameters(name: str) -> None:
    own = [each for each in inspect.getmro(load(name)) if each.__module__.startswith("airflow_custody.")]
    # Where a constructor is called, an editor shows the constructor's docstring, or else that of the class.
    assert [each for each in own if getattr(vars(each).get("__init__"), "__doc__", None)] == []
    assert own[0].__doc__


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "airflow_custody" / "py.typed").is_file()
