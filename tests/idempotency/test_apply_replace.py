"""Applying a changed row: first the new request, then the deletion of the old one; and deleting duplicates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.airflow.apply_tries import ApplyTask, address, before, effective, plan, write_rows
from support.airflow.task_tries import RowsStore, needs_store

from airflow_custody.idempotency.deletions import Deletions
from airflow_custody.sandbox import Sandbox

REPLACE = {"replace": True}
PRUNE = {"prune": True}
pytestmark = pytest.mark.usefixtures("connection", "airflow_db", "waits")


def there(sandbox: Sandbox, number: int = 1) -> dict[str, str]:
    """Return the labels of the requests for an address, by id. Labels of pending requests are in brackets."""
    found = [each for each in sandbox.control.whitelist_requests() if each["address"] == address(number)]
    return {each["id"]: each["label"] if each["status"] == "APPROVED" else f"({each['label']})" for each in found}


@pytest.fixture
def old(sandbox: Sandbox) -> str:
    """Return the id of a request in effect that has another label than the first row of the file."""
    return effective(sandbox, 1, label="Old")


@pytest.fixture
def path(tmp_path: Path, old: str) -> str:
    return write_rows(tmp_path / "whitelist.yaml", [1, 2])


def applied(path: str, **arguments: Any) -> ApplyTask:
    """Return a task that applies a plan which was made with these arguments."""
    return ApplyTask(plan(path, **arguments), RowsStore())


@needs_store
@pytest.mark.parametrize("write", range(1, 7))
@pytest.mark.parametrize("is_before", [True, False])
def test_a_row_that_replaces_is_sent_once_whenever_the_task_is_killed(
    sandbox: Sandbox, path: str, old: str, write: int, is_before: bool
) -> None:
    # The value as a template renders it.
    task = applied(path, replace="True")
    task.store.dies_at, task.store.dies_before = write, is_before
    try:
        task.attempt()
    except RuntimeError:
        task.store.dies_at = None
        task.attempt()
    task.store.dies_at = None
    task.clear()
    result = task.attempt()
    assert result["counts"]["created"] == 2
    assert result["counts"]["deleted"] == 0
    assert list(there(sandbox).values()) == ["Old", "(Label 1)"]


def test_a_replacement_is_approved_with_the_plan(sandbox: Sandbox, path: str, old: str) -> None:
    task = applied(path, **REPLACE)
    assert task.fails(source={"replace": False}).code == "plan-changed"
    # The approved request was deleted, and another request is in effect. Its replacement was not approved.
    sandbox.control.set_whitelist_status(old, "removed")
    effective(sandbox, 1, label="Older")
    assert task.fails().code == "plan-changed"
    assert "(" not in "".join(there(sandbox).values())


def test_a_service_that_takes_no_second_request_keeps_the_first(sandbox: Sandbox, path: str, old: str) -> None:
    task = applied(path, **REPLACE, **PRUNE)
    sandbox.control.configure(second_requests=False)
    error = task.fails()
    assert error.code == "plan-incomplete"
    assert f"the new request would have replaced {old}, so nothing is deleted" in str(error)
    assert "either change the file to match the service, or delete the request at the service" in str(error)
    assert there(sandbox) == {old: "Old"}
    # The other row is done.
    assert list(there(sandbox, 2).values()) == ["(Label 2)"]


# --- duplicates --------------------------------------------------------------------------------------------


@pytest.fixture
def twice(sandbox: Sandbox, old: str) -> tuple[str, str]:
    """Return the ids of two requests in effect that equal the first row of the file, and of an old request."""
    # With the second row in effect, a plan creates nothing.
    effective(sandbox, 2)
    return effective(sandbox, 1), effective(sandbox, 1)


def test_duplicates_are_deleted_and_one_is_kept(sandbox: Sandbox, path: str, twice: tuple[str, str]) -> None:
    assert plan(path)["counts"]["duplicate"] == 2
    task = applied(path, **PRUNE)
    result = task.attempt()
    assert result["counts"]["deleted"] == 2
    assert there(sandbox) == {twice[0]: "Label 1"}
    task.clear()
    # Airflow 2 has no record of earlier tries.
    if task.given_store is not None:
        assert task.attempt()["counts"]["deleted"] == 2
    assert there(sandbox) == {twice[0]: "Label 1"}


def test_a_kept_request_is_read_again_before_one_beside_it_is_deleted(
    sandbox: Sandbox, path: str, twice: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = applied(path, **PRUNE)
    before(monkeypatch, Deletions, "send", lambda: sandbox.control.set_whitelist_status(twice[0], "rejected"))
    error = task.fails(max_parallel=1)
    assert "2 refused" in str(error)
    assert f"request {twice[1]}: not deleted: it has changed since the plan was approved" in str(error)
    assert twice[1] in there(sandbox)
    assert not [each for each in sandbox.control.request_log() if each["path"].endswith("/delete")]


# --- which rows a plan is for ----------------------------------------------------------------------------------


def test_a_plan_for_some_rows_is_applied_to_these(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1, 2], customer_id="a")
    theirs = effective(sandbox, 7, customer_id="b")
    planned = plan(path, prune=True, only={"customer_id": ["a"]})
    assert "This plan is limited to: `customer_id a`" in planned["report"]
    task = ApplyTask(planned, RowsStore())
    assert task.attempt()["counts"]["created"] == 2
    assert list(there(sandbox, 7)) == [theirs]
