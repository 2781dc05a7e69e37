"""Completing a plan: once its creations are in effect, only the replaced and pruned requests are deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task
from support.airflow.airflow_runs import AIRFLOW, FakeTaskInstance, execute, new_dag, run_dag
from support.airflow.apply_tries import ApplyTask, address, complete, effective, plan, write_rows
from support.airflow.connections import connection_json
from support.airflow.task_tries import RowsStore, failure_of, needs_store, somebody_creates

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.client.whitelist.plans.plan import create_operation
from airflow_custody.client.whitelist.status_words import REJECTED_STATUSES
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection", "airflow_db", "waits")

BOTH = {"prune": True, "replace": True}
DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}


def there(sandbox: Sandbox) -> dict[str, str]:
    """Return the labels of the existing requests, by id. Labels of pending requests are in brackets."""
    found = [each for each in sandbox.control.whitelist_requests() if each["status"] not in ("removed", "deleted")]
    return {each["id"]: each["label"] if each["status"] == "APPROVED" else f"({each['label']})" for each in found}


def deletions(sandbox: Sandbox) -> int:
    return len(sandbox.control.request_log(**DELETE))


class Run:
    """
    A plan that renames two addresses, removes a third and creates a fourth, and was applied.

    :ivar old: the ids of the requests that are replaced, and of the one that is removed.
    :ivar new: the ids of the requests that were created.
    """

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.old = [effective(sandbox, number, label="Old") for number in (1, 2, 3)]
        self.path = write_rows(folder / "whitelist.yaml", [1, 2, 4])
        self.planned = plan(self.path, **BOTH)
        self.plan_hash = self.planned["plan_hash"]
        self.applied = ApplyTask(self.planned, RowsStore()).attempt()
        self.new = self.applied["request_ids"]
        self.store = RowsStore()
        self.tries = 0

    def sign(self, *ids: str) -> None:
        self.sandbox.control.sign_whitelist_requests(list(ids or self.new))

    def complete(self, **changes: Any) -> dict[str, Any]:
        """Run a try of the task that completes the plan."""
        self.tries += 1
        arguments = {"applied": self.applied, **changes}
        return complete(plan_hash=self.plan_hash, store=self.store, try_number=self.tries, **arguments)

    def fails(self, **changes: Any) -> CustodyError:
        return failure_of(lambda: self.complete(**changes))


@pytest.fixture
def run(sandbox: Sandbox, tmp_path: Path) -> Run:
    return Run(sandbox, tmp_path)


# --- in a run --------------------------------------------------------------------------------------------------


def test_a_rename_is_one_run_that_ends_with_a_proof(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "whitelist.yaml", [1])
    old = effective(sandbox, 1, label="Old")
    both: dict[str, Any] = {"path": path, "replace": True}
    with new_dag() as dag:
        made = CustodyPlanWhitelistOperator(task_id="plan", **both)
        plan_hash = made.output["plan_hash"]
        apply = CustodyApplyWhitelistPlanOperator(
            task_id="apply",
            plan=made.output,
            plan_hash=plan_hash,
            lookup_wait=0.2,
        )

        @task
        def sign(ids: list[str]) -> None:
            """Stand for the signers."""
            sandbox.control.sign_whitelist_requests(list(ids))

        complete = CustodyCompleteWhitelistPlanOperator(task_id="complete", applied=apply.output, plan_hash=plan_hash)
        prove = CustodyPlanWhitelistOperator(task_id="prove", fail_on_changes=True, fail_on_pending=True, **both)
        signed = sign(apply.output["request_ids"])  # type: ignore[arg-type]
        signed >> complete >> prove
    ran = run_dag(dag)
    assert ran.state == "success"
    (new,) = ran.xcom("apply")["request_ids"]
    assert ran.xcom("complete")["request_ids"] == [old]
    assert there(sandbox) == {new: "Label 1"}
    assert ran.xcom("prove")["counts"]["unchanged"] == 1


# --- when the task may delete ----------------------------------------------------------------------------------


def test_no_request_is_deleted_before_all_created_ones_are_in_effect(sandbox: Sandbox, run: Run) -> None:
    assert sorted(there(sandbox).values()) == ["(Label 1)", "(Label 2)", "(Label 4)", "Old", "Old", "Old"]
    for signed in range(3):
        error = run.fails()
        assert f"whitelisting request {run.new[signed]} is pending, not in effect" in str(error)
        assert error.code == "plan-incomplete"
        assert error.retryable
        assert deletions(sandbox) == 0
        run.sign(run.new[signed])
    assert run.complete()["counts"] == {"deleted": 3, "refused": 0, "unknown": 0, "left": 0}
    assert sorted(there(sandbox).values()) == ["Label 1", "Label 2", "Label 4"]
    assert plan(run.path, **BOTH)["counts"] == {**dict.fromkeys(plan(run.path)["counts"], 0), "unchanged": 3}
    # The task is cleared, or runs twice.
    assert run.complete()["counts"]["deleted"] == 3
    # The value as a template renders it.
    assert run.complete(applied=json.dumps(run.applied))["counts"]["deleted"] == 3
    assert deletions(sandbox) == 3


def test_a_plan_that_creates_nothing_is_complete_once_it_is_applied(sandbox: Sandbox, tmp_path: Path) -> None:
    effective(sandbox, 1)
    old = effective(sandbox, 2)
    path = write_rows(tmp_path / "whitelist.yaml", [1])
    planned = plan(path, prune=True, max_deletes=None, max_delete_percent=None)
    applied = ApplyTask(planned, RowsStore()).attempt()
    assert applied["counts"]["deleted"] == 1
    assert applied["completion"] is None
    assert old not in there(sandbox)
    assert complete(applied, planned["plan_hash"])["counts"] == {"deleted": 0, "refused": 0, "unknown": 0, "left": 0}


# --- requests that have changed since the approval ---------------------------------------------------------------


def revoked(run: Run) -> None:
    run.sandbox.control.set_whitelist_status(run.new[1], "rejected")


def renamed(run: Run) -> None:
    run.sandbox.control.change_whitelist_request(run.new[1], label="Odd")


def removed(run: Run) -> None:
    run.sandbox.control.set_whitelist_status(run.new[1], "removed")


def limited(run: Run) -> None:
    with CustodyHook().get_conn() as client:
        payload = client.get_whitelist_request(run.new[1]).payload()
    text = json.dumps({**payload, "dailyLimit": "0"}, separators=(",", ":"))
    hash_ = hashlib.sha256(text.encode()).hexdigest()
    run.sandbox.control.set_whitelist_metadata(run.new[1], payloadAsString=text, hash=hash_)


def odd(run: Run) -> None:
    run.sandbox.control.set_whitelist_envelope(run.new[1], action="odd")


def frozen(run: Run) -> None:
    run.sandbox.control.set_whitelist_status(run.new[1], "frozen")


@pytest.mark.parametrize(
    ("happens", "why", "retryable"),
    [
        (revoked, "is rejected, not in effect", False),
        (renamed, "differs from the requested content: it differs in: label", False),
        # A plan would also report both of them as different.
        (limited, "differs from the requested content: not requested: dailyLimit", False),
        (odd, "differs from the requested content: its envelope's action 'odd' is not a known word", False),
        (removed, "is missing, not in effect", True),
        (frozen, "is unknown, not in effect: its status 'frozen' is unknown, so it does not count as in effect", True),
    ],
    ids=["revoked", "renamed", "limited", "odd", "removed", "frozen"],
)
@pytest.mark.parametrize("moment", ["before", "between two deletions"])
def test_a_replaced_request_stays_unless_its_successor_is_in_effect_as_requested(
    sandbox: Sandbox,
    run: Run,
    happens: Callable[[Run], None],
    why: str,
    retryable: bool,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run.sign()
    if moment == "before":
        happens(run)
        error = run.fails()
        assert error.retryable is retryable
        assert deletions(sandbox) == 0
    else:
        delete, todo = CustodyClient.delete_whitelist_request, [happens]

        def delete_and_then(client: CustodyClient, *given: Any) -> None:
            delete(client, *given)
            while todo:
                todo.pop()(run)

        monkeypatch.setattr(CustodyClient, "delete_whitelist_request", delete_and_then)
        error = run.fails()
        assert "2 deleted, 1 refused" in str(error)
        assert f"request {run.old[1]}: not deleted: " in str(error)
    assert f"whitelisting request {run.new[1]} {why}" in str(error)
    assert run.old[1] in there(sandbox)


def test_a_successor_that_nobody_signed_replaces_nothing(
    sandbox: Sandbox, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in run.new:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    error = run.fails()
    assert f"whitelisting request {run.new[0]} is unverified, not in effect: no signature" in str(error)
    # The last signature may be listed late.
    assert error.retryable
    assert deletions(sandbox) == 0


@pytest.mark.parametrize("number", [0, 2], ids=["replaced", "pruned"])
def test_a_request_that_has_changed_since_the_approval_stays(sandbox: Sandbox, run: Run, number: int) -> None:
    run.sign()
    sandbox.control.change_whitelist_request(run.old[number], label="Other")
    error = run.fails()
    assert "2 deleted, 1 refused" in str(error)
    assert f"request {run.old[number]}: not deleted: it has changed since the plan was approved" in str(error)
    assert run.old[number] in there(sandbox)


def test_only_the_approved_plan_is_completed(sandbox: Sandbox, run: Run) -> None:
    run.sign()
    other = somebody_creates(sandbox, label="Other", address=address(9))
    key = next(iter(run.applied["completion"]["requests"]))

    def forge(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
        applied = deepcopy(run.applied)
        change(applied["completion"]["record"], applied["completion"]["requests"])
        return applied

    deletion = {"operation": json.dumps({"delete": other}), "expected": {other: ["a", "b", "c"]}}

    def move(record: dict[str, Any], requests: dict[str, Any]) -> None:
        # An operation with the same text as an observation has another hash.
        for row, replaces in record["creations"].items():
            record["observed"].append(create_operation(WhitelistRequest(**requests[row]), replaces))
        record["creations"] = {}

    forged = [
        forge(lambda record, _: record["creations"][key].append(other)),
        forge(lambda record, _: record["deletions"][0].update(deletion)),
        forge(lambda _, requests: requests.pop(key)),
        forge(move),
    ]
    for applied in forged:
        error = run.fails(applied=applied)
        assert error.code == "plan-changed"
        assert not error.retryable
    assert deletions(sandbox) == 0


@pytest.mark.parametrize(
    "applied",
    [{}, {"completion": {}}, "{{ 1 }}"],
    ids=["empty", "an empty plan", "text"],
)
def test_only_an_xcom_of_the_apply_task_is_completed(sandbox: Sandbox, applied: Any) -> None:
    error = failure_of(lambda: complete(applied, "0" * 64))
    assert "applied must be the XCom of the apply task" in str(error)
    assert sandbox.control.request_log() == []


def test_a_plan_that_was_not_applied_is_not_called_complete(sandbox: Sandbox, run: Run) -> None:
    applying = ApplyTask(run.planned, RowsStore())
    assert applying.fails(source={"replace": False}).code == "plan-changed"
    assert "a mapping without 'completion'" in str(run.fails(applied=applying.ti.pushed["return_value"]))
    assert deletions(sandbox) == 0


def test_a_task_that_is_stopped_before_it_has_read_the_service_deletes_nothing(sandbox: Sandbox, run: Run) -> None:
    run.sign()

    def stopped() -> CustodyCompleteWhitelistPlanOperator:
        operator = CustodyCompleteWhitelistPlanOperator(
            task_id="complete", applied=run.applied, plan_hash=run.plan_hash
        )
        operator.on_kill()
        return operator

    context = {"ti": FakeTaskInstance(1, 3), **({"task_state_store": run.store} if AIRFLOW >= (3, 3) else {})}
    assert failure_of(lambda: execute(stopped, **context)).code == "task-stopped"
    assert deletions(sandbox) == 0
    assert run.complete()["counts"]["deleted"] == 3


def test_a_successor_is_what_the_plan_creates(sandbox: Sandbox, run: Run) -> None:
    """Airflow's users can edit XCom, and name another request as the one that was created."""
    run.sign()
    other = effective(sandbox, 9)
    applied = deepcopy(run.applied)
    ids = applied["completion"]["ids"]
    first = next(key for key in ids if ids[key] == run.new[0])
    ids[first] = other
    assert "differs from the requested content" in str(run.fails(applied=applied))
    ids[first] = run.new[1]
    assert "two creations name the same request" in str(run.fails(applied=applied))
    assert deletions(sandbox) == 0


def test_a_row_that_was_not_created_keeps_everything(sandbox: Sandbox, tmp_path: Path) -> None:
    old = effective(sandbox, 1, label="Old")
    path = write_rows(tmp_path / "whitelist.yaml", [1, 2])
    planned = plan(path, **BOTH)
    sandbox.control.add_fault(
        "status", method="POST", path="/whitelists/addresses", status=400, body={"message": "no", "code": 3}
    )
    apply = ApplyTask(planned, RowsStore(), max_parallel=1)
    apply.fails()
    applied = apply.ti.pushed["return_value"]
    sandbox.control.sign_whitelist_requests(applied["request_ids"])
    error = failure_of(lambda: complete(applied, planned["plan_hash"]))
    assert "not all rows were created, so nothing is deleted; missing: " in str(error)
    assert old in there(sandbox)


@needs_store
def test_a_deleted_request_that_stays_listed_is_known_by_the_status_that_the_user_names(
    sandbox: Sandbox, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.sign()
    sandbox.control.add_fault("empty", **DELETE, times=3, work=False)
    words = [*REJECTED_STATUSES, "gone"]
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, rejected_statuses=words))
    assert run.complete()["counts"]["deleted"] == 3
    for each in run.old:
        sandbox.control.set_whitelist_status(each, "gone")
    assert run.complete()["counts"]["deleted"] == 3
    assert deletions(sandbox) == 3


# --- the bad day -----------------------------------------------------------------------------------------------


@needs_store
@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_task_that_was_killed_goes_on(sandbox: Sandbox, run: Run, write: int, is_before: bool) -> None:
    run.sign()
    run.store.writes, run.store.dies_at, run.store.dies_before = 0, write, is_before
    with pytest.raises(RuntimeError, match="killed"):
        run.complete()
    run.store.dies_at = None
    assert run.complete()["counts"]["deleted"] == 3
    assert sorted(there(sandbox).values()) == ["Label 1", "Label 2", "Label 4"]
