"""Applying a plan over several tries: killed, superseded, stopped, cleared with another plan."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_runs import AIRFLOW, failing_at_once
from apply_tries import ROWS, ApplyTask, address, check_all, check_exactly, plan, write_rows
from clocks import SkippingTime
from connections import connection_json
from task_log import TaskLog
from task_tries import CREATE, RowsStore, needs_store, somebody_creates

from airflow_custody.client import (
    CustodyClient,
    CustodyConflictError,
    CustodyOutcomeUnknownError,
    WhitelistRequest,
)
from airflow_custody.client.http import transport
from airflow_custody.idempotency import send
from airflow_custody.idempotency.send import Fence
from airflow_custody.sandbox import Sandbox

# Seconds that the service has for a response.
TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def quick(sandbox: Sandbox, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=TIMEOUT))
    monkeypatch.setattr(send, "BATCH", 5)
    somebody_creates(sandbox, label="Earlier", address=address(0))


# --- killed ---------------------------------------------------------------------------------------------------


@needs_store
@pytest.mark.parametrize("moments", [(3, 3, 3), (4, 2, 3), (3, 5, 2, 2)], ids=str)
def test_a_task_that_is_killed_again_and_again(sandbox: Sandbox, task: ApplyTask, moments: tuple[int, ...]) -> None:
    for skip in (2, 5):
        sandbox.control.add_fault("drop", **CREATE, work=True, skip=skip)
    for index, write in enumerate(moments):
        task.dies_at(write, before=index % 2 == 0)
    task.attempt()
    check_all(sandbox, task)


@needs_store
def test_what_is_sent_again_and_lost_again_is_waited_for_again(
    sandbox: Sandbox, task: ApplyTask, waits: SkippingTime
) -> None:
    task.dies_at(2, before=False)
    assert len(sandbox.control.whitelist_requests()) == 1
    # The request that was there before is older than the lag, by the sandbox's clock.
    time.sleep(1.6)
    sandbox.control.configure(whitelist_lag=1.5)
    # The seven rows that no try has sent are first, then come those that were open.
    sandbox.control.add_fault("drop", **CREATE, work=True, skip=8)
    waits.after(TIMEOUT + 60, lambda: sandbox.control.configure(whitelist_lag=0))
    task.attempt()
    check_all(sandbox, task)


@needs_store
def test_an_open_window_of_which_nothing_is_known_is_kept(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing of the first window can be told from what the service shows.
    sandbox.control.configure(label_length=3)
    task.dies_at(3)
    assert task.store is not None
    first = json.loads(task.store.values["custody_create_once"])["batch"]["rows"]
    for _ in range(2):
        error = task.fails()
        assert "7 created, 5 unknown" in str(error)
        assert str(error).count("differs in: label") == 5
    assert set(json.loads(task.store.values["custody_create_once_0000"])["rows"]) == set(first)
    assert len(sandbox.control.whitelist_requests()) == 13
    text = str(error)
    for row in sandbox.control.whitelist_requests():
        if row["id"] in text:
            line = next(each for each in text.splitlines() if f"{row['id']} is new" in each)
            variable = line.split("airflow variables set ")[1].split()[0]
            monkeypatch.setenv(f"AIRFLOW_VAR_{variable.upper()}", row["id"])
    task.attempt()
    made = {each["id"]: each["address"] for each in sandbox.control.whitelist_requests()}
    assert len(made) == 13
    assert all(made[each["id"]] == each["address"] for each in task.requests)


@needs_store
def test_a_try_that_was_superseded_sends_nothing_more(sandbox: Sandbox, task: ApplyTask) -> None:
    store = task.store
    assert store is not None
    normal = store.set

    def set_(key: str, value: Any, **options: Any) -> None:
        # What this try writes is not there when it reads it again: another has written after it.
        normal(key, {**value, "try_number": 99} if value["state"] == "closed" else value, **options)

    store.set = set_  # type: ignore[method-assign]
    error = task.fails()
    assert error.retryable
    assert "another try of this task has taken over" in str(error)
    assert len(sandbox.control.whitelist_requests()) == 1 + 5


@needs_store
def test_a_try_whose_store_says_nothing_sends_nothing(sandbox: Sandbox, task: ApplyTask) -> None:
    store = task.store
    assert store is not None
    store.fails_at, store.failure = "sending", BrokenPipeError("the supervisor is gone")
    with pytest.raises(BrokenPipeError):
        task.attempt()
    assert len(sandbox.control.whitelist_requests()) == 1


@needs_store
def test_a_process_that_was_stopped_asks_whether_it_still_may(sandbox: Sandbox, task: ApplyTask) -> None:
    """A process that is stopped right before it sends, and resumed after the next try is done, sends nothing."""
    store, stopped, resumed = task.store, threading.Event(), threading.Event()
    assert store is not None

    normal = CustodyClient.create_whitelist_request
    first_thread: list[int] = []

    def create(
        client: CustodyClient, request: WhitelistRequest, *, before_send: Callable[[], None], **more: Any
    ) -> str:
        def wait_and_send() -> None:
            if not first_thread or threading.get_ident() in first_thread:
                first_thread.append(threading.get_ident())
                stopped.set()
                resumed.wait(600)
            before_send()

        return normal(client, request, before_send=wait_and_send, **more)

    late: list[BaseException] = []

    def first_try() -> None:
        try:
            task.attempt(max_parallel=1)
        except BaseException as error:
            late.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CustodyClient, "create_whitelist_request", create)
        old = threading.Thread(target=first_try)
        old.start()
        assert stopped.wait(600)
    # Airflow gives no old try access to the store any more.
    other = ApplyTask(task.arguments["path"], task.arguments["plan_hash"], RowsStore())
    assert other.store is not None
    other.store.values, other.tries = dict(store.values), task.tries
    store.failure = RuntimeError("this try is not current")
    other.attempt()
    resumed.set()
    old.join(600)
    assert not old.is_alive()
    assert "this try is not current" in str(late)
    check_all(sandbox, other)


# --- another plan, and no store -----------------------------------------------------------------------------------


@needs_store
@pytest.mark.parametrize("work", [True, False])
def test_a_new_plan_in_the_same_run_while_rows_of_the_old_one_are_open(
    sandbox: Sandbox, task: ApplyTask, path: str, work: bool
) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=work, skip=1)
    # Right before the outcome of the first window is written down.
    task.dies_at(3)
    write_rows(Path(path), [*ROWS, 99])
    task.clear()
    new = plan(path)
    result = task.attempt(plan_hash=new["plan_hash"])
    check_exactly(sandbox, [0, *ROWS, 99])
    # What the task has created under the old plan is to be signed as well.
    assert result["counts"]["created"] == len([*ROWS, 99])
    check_exactly(sandbox, [0, *ROWS, 99], task.requests)


@needs_store
def test_what_was_approved_before_the_open_rows_were_listed_is_void(
    sandbox: Sandbox, task: ApplyTask, path: str
) -> None:
    write_rows(Path(path), [*ROWS, 99])
    new = plan(path)["plan_hash"]
    write_rows(Path(path), ROWS)
    task.dies_at(3)
    write_rows(Path(path), [*ROWS, 99])
    assert isinstance(task.fails(plan_hash=new), CustodyConflictError)
    check_exactly(sandbox, [0, 1, 2, 3, 4, 5])


@needs_store
def test_open_rows_that_a_new_file_has_no_more_are_waited_for(
    sandbox: Sandbox, task: ApplyTask, path: str, waits: SkippingTime
) -> None:
    task.dies_at(3)
    write_rows(Path(path), range(20, 23))
    task.clear()
    skipped = waits.skipped
    task.attempt(plan_hash=plan(path)["plan_hash"])
    # The fence, the time-out and the look-up's time.
    assert waits.skipped - skipped >= 10.0 + TIMEOUT + 0.3
    check_exactly(sandbox, [0, 1, 2, 3, 4, 5, 20, 21, 22], task.requests)


@needs_store
def test_a_record_that_cannot_be_read_sends_nothing(sandbox: Sandbox, task: ApplyTask) -> None:
    assert task.store is not None
    task.store.values["custody_create_once"] = json.dumps({"format": 1, "state": "applying"})
    error = task.fails()
    assert isinstance(error, CustodyOutcomeUnknownError)
    assert "cannot be read, so nothing is sent" in str(error)
    check_exactly(sandbox, [0])


def test_without_a_store_a_later_try_waits_and_refuses_what_changed(
    sandbox: Sandbox, path: str, task_log: TaskLog, waits: SkippingTime
) -> None:
    task = ApplyTask(path, plan(path)["plan_hash"], None)
    sandbox.control.add_fault("normal", **CREATE, times=6)
    sandbox.control.add_fault("status", **CREATE, status=401, body={"error": "No", "message": "no"}, times=None)
    task.fails()
    sandbox.control.clear_faults()
    skipped = waits.skipped
    assert "is not the one that was approved; nothing was sent" in str(task.fails())
    assert waits.skipped - skipped > 10.0 + TIMEOUT
    assert "this Airflow has no record of it" in task_log.text
    # A new plan goes on.
    task.attempt(plan_hash=plan(path)["plan_hash"])
    check_exactly(sandbox, [0, *ROWS])


def test_without_a_store_a_later_try_goes_on_if_nothing_was_sent(sandbox: Sandbox, path: str) -> None:
    task = ApplyTask(path, plan(path)["plan_hash"], None)
    sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=503, times=1)
    assert task.fails().retryable
    task.attempt()
    check_all(sandbox, task)


def test_an_empty_plan_is_done_at_once(sandbox: Sandbox, path: str) -> None:
    for number in ROWS:
        somebody_creates(sandbox, label=f"Label {number}", address=address(number))
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore() if AIRFLOW >= (3, 3) else None)
    assert task.attempt()["request_ids"] == []
    assert task.requests == []
    check_exactly(sandbox, [0, *ROWS])


@pytest.mark.parametrize("plan_hash", [10**63, 1e10, None, "", " "], ids=str)
def test_a_hash_that_is_no_text_is_refused(sandbox: Sandbox, path: str, plan_hash: Any) -> None:
    with failing_at_once("plan_hash"):
        ApplyTask(path, plan_hash, None).attempt()
    check_exactly(sandbox, [0])


# --- what ends the main thread --------------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_task_ends_soon_and_sends_nothing_more(
    sandbox: Sandbox, task: ApplyTask, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"error": "ResourceExhausted", "message": "slow down", "code": 429}
    sandbox.control.add_fault("status", **CREATE, status=429, body=body, retry_after="590", times=None)

    def interrupted(_: object) -> None:
        """Wait as the main thread does, until it is interrupted."""
        while len(sandbox.control.request_log("POST")) <= 1:
            time.sleep(0.01)
        raise interrupt("enough")

    with monkeypatch.context() as patch:
        patch.setattr(send, "wait", interrupted)
        with pytest.raises(interrupt):
            task.attempt()
    number = len(sandbox.control.request_log("POST"))
    time.sleep(0.2)
    assert len(sandbox.control.request_log("POST")) == number
    if AIRFLOW >= (3, 3):
        sandbox.control.clear_faults()
        task.attempt()
        check_all(sandbox, task)


@needs_store
def test_recording_that_takes_too_long_lets_nothing_pass(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch, waits: SkippingTime
) -> None:
    monkeypatch.setattr(transport, "time", waits)
    assert task.store is not None
    normal = task.store.set

    def set_(key: str, value: Any, **options: Any) -> None:
        normal(key, value, **options)
        waits.sleep(6 if value["state"] == "sending" else 0)

    with monkeypatch.context() as patch:
        patch.setattr(task.store, "set", set_)
        error = task.fails(max_parallel=1)
    assert "3 times recording the request took longer than 5 s" in str(error)
    assert (error.retryable, error.code) == (True, "task-stopped")
    check_exactly(sandbox, [0])
    task.attempt()
    check_all(sandbox, task)


@pytest.mark.parametrize("moved", [(0.5, -1000.0), (0.5, 4000.0), (6.0, 6.0)])
def test_a_clock_that_is_set_back_or_ahead_renews_the_fence(
    moved: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = [0.0, 1000.0]
    monkeypatch.setattr(send, "time", SimpleNamespace(monotonic=lambda: clocks[0], time=lambda: clocks[1]))
    records: list[int] = []
    fence = Fence(lambda: records.append(1))
    for _ in range(2):
        fence.check()
    assert len(records) == 1
    clocks[0] += moved[0]
    clocks[1] += moved[1]
    fence.check()
    assert len(records) == 2


@needs_store
def test_what_was_created_and_removed_since_is_not_created(sandbox: Sandbox, tmp_path: Path) -> None:
    """The plan of it has the hash of the first one, so the task cannot tell that it was approved once more."""
    path = write_rows(tmp_path / "rows.yaml", [1, 2])
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore())
    number, other = task.attempt()["request_ids"]
    sandbox.control.set_whitelist_status(number, "removed")
    task.clear()
    error = task.fails()
    assert f"request {number}, which this task has created, is not listed any more" in str(error)
    assert "start a new run" in str(error)
    assert task.ti.pushed["request_ids"] == [other]
    (again,) = ApplyTask(path, plan(path)["plan_hash"], RowsStore()).attempt()["request_ids"]
    assert again != number


@needs_store
def test_what_was_created_and_rejected_since_is_named(sandbox: Sandbox, tmp_path: Path, task_log: TaskLog) -> None:
    path = write_rows(tmp_path / "rows.yaml", [1])
    task = ApplyTask(path, plan(path)["plan_hash"], RowsStore())
    (number,) = task.attempt()["request_ids"]
    sandbox.control.set_whitelist_status(number, "rejected")
    task.clear()
    task.attempt()
    assert f"Request {number}, which this task has created, has the status rejected now" in task_log.text
