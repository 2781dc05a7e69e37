"""An installation with its own status words: once its connection knows them, every task, page and command does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import FakeTaskInstance, execute, failing_at_once
from support.airflow.apply_tries import ApplyTask, address, plan, write_rows
from support.airflow.task_tries import RowsStore, needs_store, somebody_creates
from support.service.people import Person

from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator, CustodyVerifyWhitelistOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.overview import read_request
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

FIELDS: dict[str, Any] = {"label": "Label 1", "address": address(1), "blockchain": "ETH"}
WORDS = {"effective_statuses": "ACTIVE", "rejected_statuses": ["VOID"]}
DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}
Connect = Callable[..., None]

pytestmark = pytest.mark.usefixtures("airflow_db", "waits")


@pytest.fixture
def connect(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Return what defines the connection of an approver, with pinned keys and settings."""
    sandbox.control.configure(status_words={"APPROVED": "ACTIVE", "rejected": "VOID"})
    person = Person(sandbox, "ann", "approvers")
    key = {"conn_type": "generic", "extra": {"private_key": person.pem}}
    monkeypatch.setenv("AIRFLOW_CONN_SIGNING_KEY", json.dumps(key))

    def connect(**settings: object) -> None:
        connection = json.loads(sandbox.connection(pins=True, **settings)) | {"password": person.token}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))

    connect(**WORDS)
    return connect


@pytest.fixture
def active(sandbox: Sandbox, connect: Connect) -> str:
    """Return a request in effect, which others have signed."""
    made = somebody_creates(sandbox, **FIELDS)
    sandbox.control.sign_whitelist_requests([made])
    return made


def run(operator: Callable[..., Any], **arguments: Any) -> Any:
    return execute(lambda: operator(task_id="task", **arguments), ti=FakeTaskInstance())


def create() -> Any:
    return run(CustodyCreateWhitelistRequestOperator, **FIELDS)


def sign(request_id: str) -> Any:
    arguments = {"signer": ConnectionSigner("signing_key"), "expected": FIELDS, "lookup_wait": 0.3}
    return run(CustodySignWhitelistRequestsOperator, request_ids=request_id, **arguments)


@pytest.mark.usefixtures("connect")
def test_a_request_is_created_signed_and_signed_again(sandbox: Sandbox) -> None:
    number = create()
    assert sign(number) == 1
    assert sandbox.control.whitelist_requests()[0]["status"] == "APPROVED"
    assert sign(number) == 1
    assert create() == number


def test_it_is_planned_verified_and_shown_as_in_effect(active: str, tmp_path: Path) -> None:
    assert plan(write_rows(tmp_path / "list.yaml", [1]))["counts"]["unchanged"] == 1
    assert run(CustodyVerifyWhitelistOperator)["counts"]["verified"] == 1
    with CustodyHook().get_conn() as client:
        row = read_request(client, active).row
    assert (row.state, row.trust, row.problem) == ("effective", "verified", "")


@pytest.mark.usefixtures("connect")
def test_a_rejection_is_recognized(sandbox: Sandbox) -> None:
    number = create()
    for _ in range(2):
        assert run(CustodyRejectWhitelistRequestsOperator, request_ids=number, comment="no") == [number]
    with failing_at_once("was rejected"):
        create()


def test_without_the_words_nothing_is_taken_for_in_effect_and_the_setting_is_named(
    active: str, connect: Connect, tmp_path: Path
) -> None:
    connect()
    with failing_at_once(r"not pending this user's signature: .*status ACTIVE"):
        sign(active)
    with failing_at_once("add the word to 'effective_statuses' or 'rejected_statuses' of the Airflow connection"):
        create()
    assert plan(write_rows(tmp_path / "list.yaml", [1]))["counts"]["differs"] == 1
    # The signatures prove that the request was approved, whatever its status word.
    assert run(CustodyVerifyWhitelistOperator)["counts"]["verified"] == 1


# --- words that change after the approval ----------------------------------------------------------------------


@pytest.fixture
def duplicates(sandbox: Sandbox, active: str, tmp_path: Path) -> ApplyTask:
    """Return a task that applies a plan with one deletion: of a second request for the row's destination."""
    sandbox.control.sign_whitelist_requests([somebody_creates(sandbox, **{**FIELDS, "label": "Old"})])
    path = write_rows(tmp_path / "list.yaml", [1])
    return ApplyTask(plan(path, prune=True), RowsStore())


@pytest.mark.parametrize("words", [{}, {**WORDS, "effective_statuses": ["live"]}], ids=["not set", "another word"])
def test_a_plan_is_another_one_if_the_words_have_changed(
    sandbox: Sandbox, duplicates: ApplyTask, connect: Connect, words: dict[str, Any]
) -> None:
    connect(**words)
    error = duplicates.fails()
    assert error.code == "plan-changed"
    assert "or the connection's status words or accepted fields have changed" in str(error)
    assert sandbox.control.request_log(**DELETE) == []
    connect(**WORDS)
    assert duplicates.attempt()["counts"]["deleted"] == 1


@needs_store
def test_a_later_try_deletes_nothing_if_the_words_have_changed(
    sandbox: Sandbox, duplicates: ApplyTask, connect: Connect
) -> None:
    sandbox.control.add_fault("status", **DELETE, status=503, times=None)
    assert duplicates.fails().retryable
    sandbox.control.clear_faults()
    sandbox.control.clear_request_log()
    connect()
    assert "it has changed since the plan was approved" in str(duplicates.fails())
    assert sandbox.control.request_log(**DELETE) == []
