"""Applying deletions: of what was removed from the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from apply_tries import ApplyTask, address, check_exactly, plan, write_rows
from task_tries import RowsStore, needs_store, somebody_creates

from airflow_custody.client import CustodyClient, CustodyConflictError, CustodyPermissionError
from airflow_custody.client.verification.trust import REJECTED_STATUSES
from airflow_custody.client.whitelist.listing import Listing
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.idempotency import send
from airflow_custody.idempotency.apply_plan import ApplyPlan
from airflow_custody.idempotency.create import CreateRows, Outcome
from airflow_custody.idempotency.plan_settings import PlanSettings
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

ROWS = range(1, 13)
DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}
ALL = {"prune": True, "max_deletes": None, "max_delete_percent": None}


@pytest.fixture(autouse=True)
def quick(connection: str, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "BATCH", 5)


@pytest.fixture
def path(sandbox: Sandbox, tmp_path: Path) -> str:
    """Return a file of which the last five rows are new, and without seven requests that exist."""
    for number in ROWS[:7]:
        somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    return write_rows(tmp_path / "whitelist.yaml", ROWS[7:])


@pytest.fixture
def task(path: str) -> ApplyTask:
    return ApplyTask(path, plan(path, **ALL)["plan_hash"], RowsStore(), prune=True)


def left(sandbox: Sandbox) -> list[str]:
    """Return the addresses of the requests that are neither deleted nor removed."""
    found = sandbox.control.whitelist_requests()
    return sorted(each["address"] for each in found if each["status"] not in ("removed", "deleted"))


def addresses(numbers: range) -> list[str]:
    return [address(each) for each in numbers]


def test_what_the_file_has_no_more_is_deleted(sandbox: Sandbox, task: ApplyTask, path: str) -> None:
    result = task.attempt()
    assert result["counts"] == {"created": 5, "deleted": 7, "found": 0, "refused": 0, "unknown": 0, "left": 0}
    assert left(sandbox) == addresses(ROWS[7:])
    assert plan(path, **ALL)["counts"]["undeclared"] == 0


def test_without_prune_nothing_is_deleted(sandbox: Sandbox, path: str) -> None:
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore())
    assert "Both tasks need the same arguments" in str(task.fails(prune=True))
    result = task.attempt()
    assert result["counts"]["deleted"] == 0
    assert left(sandbox) == addresses(ROWS)


def test_a_plan_with_deletions_is_another_one(sandbox: Sandbox, task: ApplyTask) -> None:
    error = task.fails(prune=False)
    assert "is not the one that was approved" in str(error)
    assert "Both tasks need the same arguments" in str(error)
    assert left(sandbox) == addresses(ROWS[:7])


@needs_store
@pytest.mark.parametrize("write", range(3, 8))
@pytest.mark.parametrize("before", [True, False])
def test_deletions_that_were_killed_go_on(sandbox: Sandbox, task: ApplyTask, write: int, before: bool) -> None:
    task.dies_at(write, before=before)
    result = task.attempt()
    assert left(sandbox) == addresses(ROWS[7:])
    assert result["counts"]["deleted"] == 7
    assert result["counts"]["created"] == 5


@needs_store
def test_a_changed_plan_says_what_earlier_tries_have_created_and_deleted(
    sandbox: Sandbox, task: ApplyTask, path: str
) -> None:
    # Killed before the second batch of deletions.
    task.dies_at(5)
    before = left(sandbox)
    assert len(before) == 5 + 2
    write_rows(Path(path), ROWS[6:])
    assert "this try sent nothing, and earlier ones created 5 and deleted 5" in str(task.fails())
    assert left(sandbox) == before


@needs_store
@pytest.mark.parametrize("is_late", [True, False])
def test_what_was_deleted_and_is_listed_all_the_same_is_left_alone(
    sandbox: Sandbox, task: ApplyTask, path: str, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """A listing that lags, or a response that was not true."""
    listing: list[Listing] = []
    fetch = PlanSettings.fetch
    if is_late:
        monkeypatch.setattr(PlanSettings, "fetch", lambda *given: listing[0])
        listing.append(fetch(PlanSettings(), CustodyHook().get_conn()))
    else:
        sandbox.control.add_fault("empty", **DELETE, times=7, work=False)
    assert task.attempt()["counts"]["deleted"] == 7
    sandbox.control.clear_request_log()
    task.clear()
    error = task.fails()
    assert (error.code, error.retryable) == ("outcome-unknown", True)
    assert "5 created, 7 unknown" in str(error)
    assert "the service lists it as not deleted" in str(error)
    assert task.ti.pushed["counts"]["deleted"] == 0
    assert not [each for each in sandbox.control.request_log() if each["path"].endswith("/delete")]
    monkeypatch.setattr(PlanSettings, "fetch", fetch)
    if is_late:
        assert task.attempt()["counts"]["deleted"] == 7
    else:
        # A new run has no record of it.
        ApplyTask(path, plan(path, **ALL)["plan_hash"], RowsStore(), prune=True).attempt()
    assert left(sandbox) == addresses(ROWS[7:])


@needs_store
@pytest.mark.parametrize("lost", [True, False])
def test_a_word_of_its_own_for_what_was_deleted_is_named_in_rejected_statuses(
    sandbox: Sandbox, task: ApplyTask, path: str, lost: bool
) -> None:
    """A service that goes on listing what was deleted."""
    made = sandbox.control.whitelist_requests()
    sandbox.control.add_fault("empty", **DELETE, times=6 if lost else 7, work=False)
    if lost:
        sandbox.control.add_fault("drop", **DELETE)
        assert "1 unknown" in str(task.fails())
    else:
        task.attempt()
    for each in made:
        sandbox.control.set_whitelist_status(each["id"], "DELETED")
    if lost:
        assert "add the status word that it then has to rejected_statuses" in str(task.fails())
    with pytest.raises(CustodyFailException) as caught:
        plan(path, prune=True)
    assert "max_delete_percent is 30" in str(caught.value)
    words = [*REJECTED_STATUSES, "deleted"]
    planned = plan(path, prune=True, rejected_statuses=words)
    task.clear()
    result = task.attempt(plan_hash=planned["plan_hash"], rejected_statuses=words)
    assert result["counts"] == {"created": 5, "deleted": 0, "found": 0, "refused": 0, "unknown": 0, "left": 0}


def test_what_is_gone_already_is_deleted(sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sandbox.control.whitelist_requests()
    normal = CreateRows.run

    def run(creator: CreateRows, keys: list[str], **options: Any) -> Outcome:
        sandbox.control.set_whitelist_status(made[2]["id"], "removed")
        return normal(creator, keys, **options)

    monkeypatch.setattr(CreateRows, "run", run)
    assert task.attempt()["counts"]["deleted"] == 7
    assert left(sandbox) == addresses(ROWS[7:])


def test_what_has_come_into_effect_since_the_approval_is_not_deleted(sandbox: Sandbox, task: ApplyTask) -> None:
    made = sandbox.control.whitelist_requests()
    sandbox.control.sign_whitelist_requests([made[2]["id"]])
    assert "is not the one that was approved" in str(task.fails())
    assert left(sandbox) == addresses(ROWS[:7])


@pytest.mark.parametrize("number", [0, 6])
def test_what_comes_into_effect_while_rows_are_created_or_deleted_is_not_deleted(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The last one: after the first deletions were sent."""
    approved = sandbox.control.whitelist_requests()[number]
    owner, name = (CreateRows, "run") if number == 0 else (ApplyPlan, "_delete_one")
    normal = getattr(owner, name)

    def sign_first(self: object, *given: object, **options: object) -> object:
        monkeypatch.setattr(owner, name, normal)
        sandbox.control.sign_whitelist_requests([approved["id"]])
        return normal(self, *given, **options)

    monkeypatch.setattr(owner, name, sign_first)
    error = task.fails()
    assert "5 created, 6 deleted, 1 refused" in str(error)
    assert f"request {approved['id']}: not deleted: it is not any more what the approved plan deletes" in str(error)
    assert left(sandbox) == [approved["address"], *addresses(ROWS[7:])]


@needs_store
def test_where_it_cannot_be_read_what_there_is_now_nothing_is_deleted(sandbox: Sandbox, task: ApplyTask) -> None:
    normal = CreateRows.run

    def run(creator: CreateRows, keys: list[str], **options: Any) -> Outcome:
        outcome = normal(creator, keys, **options)
        sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=503, times=None)
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CreateRows, "run", run)
        error = task.fails()
    assert error.retryable
    assert "7 left" in str(error)
    sandbox.control.clear_faults()
    task.clear()
    assert task.attempt()["counts"]["deleted"] == 7
    assert left(sandbox) == addresses(ROWS[7:])


def test_one_refused_deletion_stops_nothing_else(sandbox: Sandbox, task: ApplyTask) -> None:
    body = {"error": "FailedPrecondition", "message": "in use", "code": 409}
    sandbox.control.add_fault("status", **DELETE, status=409, body=body, skip=2)
    error = task.fails()
    assert not error.retryable
    assert "5 created, 6 deleted, 1 refused" in str(error)
    assert "not deleted: delete whitelisting request failed: FailedPrecondition: in use" in str(error)
    assert "add the status word that it then has to rejected_statuses" in str(error)
    assert len(left(sandbox)) == 6


@needs_store
@pytest.mark.parametrize(("status", "retryable"), [(403, False), (503, True)])
def test_a_service_that_deletes_nothing_any_more_ends_the_task(
    sandbox: Sandbox, task: ApplyTask, status: int, retryable: bool
) -> None:
    body = {"error": "No", "message": "no", "code": status}
    sandbox.control.add_fault("status", **DELETE, status=status, body=body, times=None)
    error = task.fails()
    assert error.retryable is retryable
    assert re.search(rf"5 created, \d {'unknown' if retryable else 'refused'}, \d left", str(error))
    if status == 403:
        assert isinstance(error, CustodyPermissionError)
    sandbox.control.clear_faults()
    task.clear()
    assert task.attempt()["counts"]["deleted"] == 7
    assert left(sandbox) == addresses(ROWS[7:])


@needs_store
def test_nothing_is_deleted_while_a_row_is_unknown(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.configure(label_length=3)
    sandbox.control.add_fault("drop", method="POST", path="/whitelists/addresses", work=True)
    before = {each["id"] for each in sandbox.control.whitelist_requests()}
    assert "4 created, 1 unknown, 7 left" in str(task.fails())
    task.clear()
    assert "4 created, 1 unknown, 7 left" in str(task.fails())
    assert before <= {each["id"] for each in sandbox.control.whitelist_requests()}


def test_nothing_is_deleted_if_a_row_is_refused(sandbox: Sandbox, task: ApplyTask) -> None:
    # The address may be that of one of the requests to delete, under a mistyped chain.
    before = {each["id"] for each in sandbox.control.whitelist_requests()}
    sandbox.control.add_fault("status", method="POST", path="/whitelists/addresses", status=400)
    assert "4 created, 1 refused, 7 left" in str(task.fails())
    assert before <= {each["id"] for each in sandbox.control.whitelist_requests()}


@needs_store
def test_what_the_file_declares_again_is_not_deleted_by_the_next_try(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.yaml", range(1, 6))
    for number in range(1, 6):
        somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    write_rows(tmp_path / "rows.yaml", [1])
    hash_ = plan(path, prune=True, max_deletes=None, max_delete_percent=None)["plan_hash"]
    task = ApplyTask(path, hash_, RowsStore(), prune=True)
    sandbox.control.add_fault("status", method="POST", path="/whitelists/addresses/delete", status=503, times=None)
    assert task.fails().retryable
    sandbox.control.clear_faults()
    write_rows(tmp_path / "rows.yaml", [1, 2])
    assert isinstance(task.fails(), CustodyConflictError)
    assert isinstance(task.fails(prune=False), CustodyConflictError)
    check_exactly(sandbox, range(1, 6))


@needs_store
@pytest.mark.parametrize("now", ["deleted", "suspended", "not listed"])
def test_a_deletion_that_was_begun_counts_only_if_it_is_certain(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, now: str
) -> None:
    # Without a response: it may have been carried out, or not. The service has words of its own.
    sandbox.control.add_fault("drop", **DELETE, times=1)
    assert task.fails().retryable
    # The requests are deleted in parallel, and any of them may be the one.
    dropped = left(sandbox)[0]
    (number,) = [each["id"] for each in sandbox.control.whitelist_requests() if each["address"] == dropped]
    if now == "not listed":
        fetch = PlanSettings.fetch
        monkeypatch.setattr(PlanSettings, "fetch", lambda *given: fetch(*given).without([number]))
    else:
        sandbox.control.set_whitelist_status(number, now)
    assert f"request {number}: unknown: an earlier try began to delete it" in str(task.fails())
    others = [each for each in left(sandbox) if each not in addresses(ROWS[7:])]
    assert others == ([] if now == "deleted" else [dropped])


def test_what_is_not_listed_and_exists_is_not_deleted(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = sandbox.control.whitelist_requests()[0]["id"]
    fetch = PlanSettings.fetch
    readings: list[Listing] = []

    def without_one(settings: PlanSettings, client: CustodyClient) -> Listing:
        # A replica that lags, from the second reading on.
        readings.append(fetch(settings, client))
        return readings[-1] if len(readings) == 1 else readings[-1].without([number])

    monkeypatch.setattr(PlanSettings, "fetch", without_one)
    assert f"request {number}: not deleted: it is not any more" in str(task.fails())
    assert left(sandbox) == sorted([*addresses(ROWS[:1]), *addresses(ROWS[7:])])


def test_a_task_that_is_stopped_between_deletions_does_not_succeed(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = ApplyPlan._deletions_now

    def stop(applying: ApplyPlan, *given: Any) -> Any:
        applying.stop()
        return keep(applying, *given)

    monkeypatch.setattr(ApplyPlan, "_deletions_now", stop)
    error = task.fails()
    assert error.code == "task-stopped"
    assert len(left(sandbox)) == 12


@needs_store
def test_a_task_that_is_stopped_within_a_window_sends_no_further_deletion(sandbox: Sandbox, task: ApplyTask) -> None:
    read, delete = ApplyPlan._deletions_now, CustodyClient.delete_whitelist_request
    applying: list[ApplyPlan] = []

    def remember(plan: ApplyPlan, *given: Any) -> Any:
        applying.append(plan)
        return read(plan, *given)

    def stop(client: CustodyClient, request_id: str, comment: str) -> None:
        delete(client, request_id, comment)
        applying[0].stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApplyPlan, "_deletions_now", remember)
        patch.setattr(CustodyClient, "delete_whitelist_request", stop)
        error = task.fails(max_parallel=1)
    assert (error.code, error.retryable) == ("task-stopped", True)
    assert "5 created, 1 deleted, 6 left" in str(error)
    assert len(left(sandbox)) == 11
    assert task.attempt()["counts"]["deleted"] == 7


@needs_store
@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_begun_deletion_that_cannot_be_read_back_is_named_and_stops_nothing_else(
    sandbox: Sandbox, task: ApplyTask, path: str, status: int
) -> None:
    # It is carried out, and the response is lost.
    sandbox.control.add_fault("drop", **DELETE, work=True)
    (number,) = re.findall(r"request (\d+): unknown: delete", str(task.fails(max_parallel=1)))
    read = f"/whitelists/addresses/{number}"
    body = {"error": "Odd", "message": "boom", "code": status}
    sandbox.control.add_fault("status", method="GET", path=read, status=status, body=body, times=None)
    error = task.fails()
    assert error.retryable is (status == 500)
    assert f"request {number}: unknown: an earlier try began to delete it" in str(error)
    assert "boom" in str(error)
    assert task.ti.pushed["counts"]["deleted"] == 6
    assert left(sandbox) == addresses(ROWS[7:])
    again = task.attempt(plan_hash=plan(path, **ALL)["plan_hash"])
    assert again["counts"]["created"] == 5


@needs_store
def test_a_changed_plan_counts_what_earlier_tries_deleted(sandbox: Sandbox, task: ApplyTask) -> None:
    sandbox.control.add_fault("drop", **DELETE, times=1, skip=4)
    task.fails(max_parallel=1)
    assert task.ti.pushed["counts"]["deleted"] == 4
    kept = left(sandbox)[0]
    (number,) = [each["id"] for each in sandbox.control.whitelist_requests() if each["address"] == kept]
    sandbox.control.sign_whitelist_requests([number])
    assert task.fails().code == "plan-changed"
    assert task.ti.pushed["counts"]["deleted"] == 4
