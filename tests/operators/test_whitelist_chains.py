"""The chain of a new request must be active; and it may have two spellings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import failing_at_once
from support.airflow.apply_tries import ApplyTask, address, effective, plan, write_rows
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import CREATE, RowsStore, Store, Task, failure_of, needs_store, somebody_creates

from airflow_custody.client import CustodyServerError
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
def test_nothing_is_sent_on_a_chain_that_is_not_enabled(sandbox: Sandbox, disable: Any, given: dict[str, Any]) -> None:
    disable()
    with failing_at_once(r"the chain ETH is not enabled at the service; nothing is sent") as caught:
        task(**given).attempt()
    assert caught.value.error.code == "chain-disabled"
    assert sandbox.control.request_log(**CREATE) == []
    assert len(sandbox.control.request_log(**CURRENCIES)) == 1


def test_a_chain_that_is_not_listed_is_requested_with_a_warning(sandbox: Sandbox, task_log: TaskLog) -> None:
    with failing_at_once("the currency Etherium is not active"):
        task(blockchain="Etherium", check_address=False).attempt()
    assert "does not list the chain Etherium, and may refuse it. Similar: ETH (Ethereum)." in task_log.text
    assert len(sandbox.control.request_log(**CREATE)) == 1


def test_an_existing_request_is_reused_although_its_chain_was_disabled(sandbox: Sandbox, disable: Any) -> None:
    theirs = somebody_creates(sandbox)
    disable()
    assert task().attempt() == theirs
    assert sandbox.control.request_log(**CURRENCIES) == []


@pytest.mark.parametrize(
    "fault", [{"kind": "status", "status": 404}, {"kind": "html", "status": 404}, {"kind": "status", "status": 403}]
)
def test_where_currencies_are_not_offered_nothing_changes(sandbox: Sandbox, fault: dict[str, Any]) -> None:
    sandbox.control.add_fault(**fault, **CURRENCIES, times=None)
    assert task().attempt() == "3711"


def test_if_currencies_cannot_be_read_now_nothing_is_sent(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=500, **CURRENCIES, times=None)
    one = task()
    with pytest.raises(CustodyServerError):
        one.attempt()
    assert sandbox.control.request_log(**CREATE) == []
    sandbox.control.clear_faults()
    assert task().attempt() == "3711"


@needs_store
def test_a_lost_create_is_found_although_its_chain_was_disabled(sandbox: Sandbox, disable: Any) -> None:
    one = Task(Store())
    one.die_at("closed")
    disable()
    assert one.attempt() == "3711"
    assert len(sandbox.control.request_log(**CREATE)) == 1


@needs_store
def test_a_create_without_effect_stays_recorded_when_its_chain_is_disabled(sandbox: Sandbox, disable: Any) -> None:
    somebody_creates(sandbox, label="Other", address=address(9))
    sandbox.control.add_fault("drop", **CREATE)
    one = Task(Store())
    one.die_at("closed")
    disable()
    with failing_at_once("the chain ETH is not enabled"):
        one.attempt()
    assert one.store.record["state"] == "void"
    sandbox.control.configure(currencies=["ETH"], disabled_currencies=[])
    assert one.attempt() == "3712"


def test_the_advice_about_links(sandbox: Sandbox) -> None:
    sandbox.control.configure(unusable_links=["12"])
    with failing_at_once(r"linked address 12 .*must not belong to an omnibus wallet"):
        task(linked_internal_address_ids=["12"]).attempt()


def test_a_request_in_the_other_spelling_stops_the_task(sandbox: Sandbox) -> None:
    sandbox.control.configure(currencies=["ETH", "Polygon"])
    theirs = somebody_creates(sandbox, network="polygon")
    sandbox.control.clear_request_log()
    with failing_at_once(f"{theirs} may be for the same destination.*some services name this chain itself"):
        task(blockchain="Polygon").attempt()
    assert sandbox.control.request_log(**CREATE) == []
    assert task(blockchain="Polygon", if_exists="create").attempt() != theirs


@needs_store
def test_a_lost_create_is_found_beside_the_other_spelling(sandbox: Sandbox) -> None:
    sandbox.control.configure(currencies=["ETH", "Polygon"])
    somebody_creates(sandbox, network="polygon")
    one = Task(Store(), blockchain="Polygon", if_exists="create")
    one.die_at("closed")
    assert one.attempt() == "3712"


@needs_store
def test_a_lost_create_is_found_by_its_content_even_if_the_service_fills_in_a_network(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, accept_fields="network"))
    one = Task(Store())
    sandbox.control.configure(fill={"network": "sepolia"})
    one.die_at("closed")
    assert one.attempt() == "3711"


# --- plans -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
def test_a_plan_names_all_new_rows_on_chains_that_are_not_enabled(
    sandbox: Sandbox, tmp_path: Path, disable: Any, task_log: TaskLog
) -> None:
    effective(sandbox, 1)
    path = write_rows(tmp_path / "whitelist.yaml", [1, 2, 3])
    disable()
    sandbox.control.clear_request_log()
    error = failure_of(lambda: plan(path))
    assert error.message == "the chain ETH is not enabled at the service: line 4, line 5; nothing is sent"
    assert error.code == "chain-disabled"
    assert "line 4" in task_log.text
    assert len(sandbox.control.request_log(**CURRENCIES)) == 1
    # Without new rows, the chain does not matter.
    sandbox.control.clear_request_log()
    assert plan(write_rows(tmp_path / "old.yaml", [1]))["counts"]["unchanged"] == 1
    assert sandbox.control.request_log(**CURRENCIES) == []


@pytest.mark.usefixtures("airflow_db")
def test_applying_refuses_rows_whose_chain_was_disabled_since(sandbox: Sandbox, tmp_path: Path, disable: Any) -> None:
    rows = [
        {"label": name, "address": address(number), "blockchain": name}
        for number, name in enumerate(["ETH", "BASE"], 1)
    ]
    path = tmp_path / "whitelist.json"
    path.write_text(json.dumps({"version": 1, "addresses": rows}))
    sandbox.control.configure(currencies=["ETH", "BASE"])
    applying = ApplyTask(plan(str(path)), RowsStore())
    sandbox.control.configure(currencies=["BASE"], disabled_currencies=["ETH"])
    sandbox.control.clear_request_log()
    assert "the chain ETH is not enabled at the service" in str(failure_of(applying.attempt))
    assert [each["blockchain"] for each in sandbox.control.whitelist_requests()] == ["BASE"]
    assert len(sandbox.control.request_log(**CREATE)) == 1
    assert len(sandbox.control.request_log(**CURRENCIES)) == 1
