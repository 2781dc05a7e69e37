"""The chain of a new request must be active; and it may have two spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import failing_at_once
from support.airflow.apply_tries import ApplyTask, address, effective, plan, write_rows
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import CREATE, RowsStore, Store, Task, failure_of, needs_store, somebody_creates

from airflow_custody.sandbox import Sandbox

CURRENCIES = {"path": "/currencies"}
pytestmark = pytest.mark.usefixtures("connection", "waits")


@pytest.fixture
def disable(sandbox: Sandbox) -> Any:
    return lambda: sandbox.control.configure(currencies=["BTC"], disabled_currencies=["ETH"])


def task(**arguments: Any) -> Task:
    return Task(None, **arguments)


# --- one request -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"if_exists": "create", "look_before_create": False}], ids=["looks", "does not"])
def test_no_request_is_sent_on_a_chain_that_is_not_enabled(
    sandbox: Sandbox, disable: Any, given: dict[str, Any]
) -> None:
    disable()
    with failing_at_once(r"the chain ETH is not enabled at the service; nothing is sent") as caught:
        task(**given).attempt()
    assert caught.value.error.code == "chain-disabled"
    assert sandbox.control.request_log(**CREATE) == []


def test_a_chain_that_is_not_listed_is_requested_with_a_warning(sandbox: Sandbox, task_log: TaskLog) -> None:
    with failing_at_once("the currency Etherium is not active"):
        task(blockchain="Etherium", check_address=False).attempt()
    assert "does not list the chain Etherium, and may refuse it. Similar chains: ETH (Ethereum)." in task_log.text
    assert len(sandbox.control.request_log(**CREATE)) == 1


def test_an_existing_request_is_reused_although_its_chain_was_disabled(sandbox: Sandbox, disable: Any) -> None:
    theirs = somebody_creates(sandbox)
    disable()
    assert task().attempt() == theirs
    assert sandbox.control.request_log(**CURRENCIES) == []


@needs_store
def test_a_lost_create_is_found_although_its_chain_was_disabled(sandbox: Sandbox, disable: Any) -> None:
    one = Task(Store())
    one.die_at("closed")
    disable()
    assert one.attempt() == "3711"
    assert len(sandbox.control.request_log(**CREATE)) == 1


def test_a_request_in_the_other_spelling_stops_the_task(sandbox: Sandbox) -> None:
    sandbox.control.configure(currencies=["ETH", "Polygon"])
    theirs = somebody_creates(sandbox, network="polygon")
    sandbox.control.clear_request_log()
    with failing_at_once(f"{theirs} may be for the same destination.*some services name this chain itself"):
        task(blockchain="Polygon").attempt()
    assert sandbox.control.request_log(**CREATE) == []
    assert task(blockchain="Polygon", if_exists="create").attempt() != theirs


# --- plans -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
def test_a_plan_names_all_new_rows_on_chains_that_are_not_enabled(
    sandbox: Sandbox, tmp_path: Path, disable: Any
) -> None:
    effective(sandbox, 1)
    path = write_rows(tmp_path / "whitelist.yaml", [1, 2, 3])
    disable()
    error = failure_of(lambda: plan(path))
    assert error.message == "the chain ETH is not enabled at the service: line 4, line 5; nothing is sent"
    # If there are no new rows, the chain does not matter.
    assert plan(write_rows(tmp_path / "old.yaml", [1]))["counts"]["unchanged"] == 1


@pytest.mark.usefixtures("airflow_db")
def test_applying_refuses_rows_whose_chain_was_disabled_since(sandbox: Sandbox, tmp_path: Path, disable: Any) -> None:
    path = tmp_path / "whitelist.csv"
    path.write_text(f"label,address,blockchain\na,{address(1)},ETH\nb,{address(2)},BASE\n")
    sandbox.control.configure(currencies=["ETH", "BASE"])
    applying = ApplyTask(plan(str(path)), RowsStore())
    sandbox.control.configure(currencies=["BASE"], disabled_currencies=["ETH"])
    assert "the chain ETH is not enabled at the service" in str(failure_of(applying.attempt))
    assert [each["blockchain"] for each in sandbox.control.whitelist_requests()] == ["BASE"]
