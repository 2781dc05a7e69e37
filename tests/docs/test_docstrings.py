"""
What the docstrings of tasks say of errors is what happens.

Each part of a ``:raises`` is quoted by a situation, which is run against the sandbox. A part that no situation quotes
is an error, and so is a quotation that is not in the docstring.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat import sdk
from docstrings import read_docstring
from documented import load, on_floor
from support.airflow.airflow_runs import AIRFLOW
from support.clocks import SkippingTime
from support.raises import tasks
from support.raises.world import Case, World

from airflow_custody.client import CustodyError, errors
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

if AIRFLOW < (3, 1):
    pytest.skip("one of the operators cannot be imported there", allow_module_level=True)

#: The words between the parts.
_BETWEEN = {"if", "or", "and"}
_RETRIES = "; Airflow's retries apply"


#: The operators and sensors, by name.
TASKS: dict[str, Any] = {each.__name__: each for each in map(load, [*on_floor("operators"), *on_floor("sensors")])}
#: The texts of all errors in their docstrings, by the task and the error.
RAISED = {(name, error): text for name, each in TASKS.items() for error, text in read_docstring(each).raised}


@pytest.fixture
def world(sandbox: Sandbox, waits: SkippingTime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Let nothing take long."""
    monkeypatch.setattr(CustodyHealthCheckOperator, "recheck_delay", 0.02)
    monkeypatch.setattr(CustodyHealthSensor, "recheck_delay", 0.02)
    monkeypatch.setattr(CustodyWhitelistRequestSensor, "recheck_delay", 0.02)
    monkeypatch.setattr(RequestWait, "gone_after", 0.05)
    monkeypatch.setattr(RequestWait, "unverified_after", 0.05)
    return World(sandbox, monkeypatch, tmp_path)


@pytest.mark.parametrize(("name", "error"), RAISED)
def test_each_part_of_what_a_docstring_says_of_an_error_is_tried(name: str, error: str) -> None:
    # Further sentences, and what the error itself reports, are no conditions.
    rest = re.split(r"\. [A-Z]|; the error", RAISED[name, error].replace(_RETRIES, ""))[0]
    for each in sorted((each.says for each in tasks.CASES if each[:2] == (name, error)), key=len, reverse=True):
        assert each in rest, f"this docstring does not say {each!r}"
        rest = rest.replace(each, "")
    rest = re.sub(r"\([^)]*\)", "", rest)
    assert {*re.findall(r"\w+", rest)} <= _BETWEEN, f"nothing tries {rest!r}"


def test_no_situation_is_for_another_docstring() -> None:
    assert {each[:2] for each in tasks.CASES} <= RAISED.keys()


@pytest.mark.parametrize("case", tasks.CASES, ids=[f"{each.entry}: {each.says}" for each in tasks.CASES])
def test_the_error_is_raised(world: World, case: Case) -> None:
    kind = getattr(sdk, case.error, None) or getattr(errors, case.error)
    with pytest.raises(kind) as caught:
        case.work(world)
    error: Any = caught.value
    if isinstance(error, CustodyError):
        assert error.retryable
    if "nothing is sent" in case.says:
        assert world.control.request_log("PATCH") + world.control.request_log("POST") == []
    if "unknown" in case.says and error.__cause__ is None and hasattr(error, "error"):
        assert error.error.code == "outcome-unknown"
    if case.entry in tasks.PUSHES:
        says, pushing = tasks.PUSHES[case.entry]
        assert says in " ".join(TASKS[case.entry].__doc__.split())
        assert ("return_value" in world.ti.pushed) == (case.says in pushing)
