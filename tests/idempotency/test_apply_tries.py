"""Applying a plan over several tries: killed, superseded, stopped, cleared with another plan."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.apply_tries import ROWS, ApplyTask, address, check_all, check_exactly, plan, write_rows
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import CREATE, KEY, LISTING, RowsStore, somebody_creates, variable_in
from support.clocks import SkippingTime

from airflow_custody.client import CustodyClient, CustodyOutcomeUnknownError
from airflow_custody.client.http.fence import FENCE
from airflow_custody.idempotency import send
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("earlier")

# The connection's time-out, in seconds.
TIMEOUT = 60.0
# Where the record of a plan is stored.
PLAN_KEY = f"{KEY}_plan"


# --- killed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moments",
    [
        # Each write of a try to the store. The try is killed right before it, or right after it.
        *([(write, is_before)] for write in range(2, 9) for is_before in (True, False)),
        [(4, True), (3, False), (3, True)],
        [(5, True), (2, False), (3, True)],
        [(4, True), (5, False), (1, True), (1, False)],
    ],
    ids=str,
)
def test_a_task_that_was_killed_goes_on_where_it_was(
    sandbox: Sandbox, stored: ApplyTask, moments: list[tuple[int, bool]]
) -> None:
    for skip in (2, 5) if len(moments) > 1 else ():
        sandbox.control.add_fault("drop", **CREATE, work=True, skip=skip)
    for write, is_before in moments:
        stored.dies_at(write, before=is_before)
    assert stored.attempt()["counts"]["created"] == len(ROWS)
    check_all(sandbox, stored)


@pytest.mark.parametrize("sent", [0, 3])
def test_a_batch_that_was_killed_halfway_is_finished(
    sandbox: Sandbox, stored: ApplyTask, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, calls = CustodyClient.create_whitelist_request, []

    def dying(*given: Any, **options: Any) -> str:
        calls.append(1)
        if len(calls) > sent:
            # A killed process writes nothing more.
            stored.store.failure = RuntimeError("killed")
            raise KeyboardInterrupt
        return create(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(CustodyClient, "create_whitelist_request", dying)
        with pytest.raises(KeyboardInterrupt):
            stored.attempt(max_parallel=1)
    stored.store.failure = None
    assert len(sandbox.control.whitelist_requests()) == 1 + sent
    stored.attempt()
    check_all(sandbox, stored)


@pytest.mark.parametrize(("lookup_wait", "is_named"), [(60, False), (5, True)])
def test_requests_that_are_listed_late_are_waited_for(
    sandbox: Sandbox, tmp_path: Path, waits: SkippingTime, task_log: TaskLog, lookup_wait: float, is_named: bool
) -> None:
    """The next plan must find the request, and nothing else proves that it was created."""
    path = write_rows(tmp_path / "late.yaml", range(1, 4))
    task = ApplyTask(plan(path), RowsStore(), lookup_wait=lookup_wait)
    sandbox.control.configure(whitelist_lag=3600)
    waits.after(20, lambda: sandbox.control.configure(whitelist_lag=0))
    if is_named:
        assert "does not list a request that it reported as created" in str(task.fails())
    else:
        assert task.attempt()["counts"]["created"] == 3
    assert ("Not yet listed by the service: " in task_log.text) is is_named


def test_requests_of_another_plan_are_listed_before_the_next_is_applied(
    sandbox: Sandbox, stored: ApplyTask, tmp_path: Path, waits: SkippingTime
) -> None:
    sandbox.control.configure(whitelist_lag=3600)
    stored.dies_at(4, before=False)
    sent = len(sandbox.control.whitelist_requests())
    assert sent > 1
    path = write_rows(tmp_path / "more.yaml", [*ROWS, 13])
    waits.after(20, lambda: sandbox.control.configure(whitelist_lag=0))
    error = stored.fails(planned=plan(path))
    assert "the plan is not the approved plan" in str(error)
    assert len(sandbox.control.whitelist_requests()) == sent


def test_the_wait_for_another_plan_begins_when_the_service_responds(
    sandbox: Sandbox, stored: ApplyTask, tmp_path: Path, waits: SkippingTime
) -> None:
    """A service that hangs may process the requests that it has received after it responds again."""
    stored.dies_at(4, before=False)
    path = write_rows(tmp_path / "more.yaml", [*ROWS, 13])
    planned = plan(path)
    sandbox.control.add_fault("drop", method="GET", path="/whitelists/addresses")
    skipped = waits.skipped
    assert stored.fails(planned=planned).transient
    assert waits.skipped - skipped < TIMEOUT


def test_a_row_that_is_sent_again_and_lost_again_is_waited_for_again(
    sandbox: Sandbox, stored: ApplyTask, waits: SkippingTime
) -> None:
    stored.dies_at(3, before=False)
    # By the sandbox's clock, the existing request is older than the lag.
    time.sleep(1.6)
    sandbox.control.configure(whitelist_lag=1.5)
    # First come the seven rows that no try has sent, then the rows whose outcome was open.
    sandbox.control.add_fault("drop", **CREATE, work=True, skip=8)
    waits.after(TIMEOUT + 60, lambda: sandbox.control.configure(whitelist_lag=0))
    stored.attempt()
    check_all(sandbox, stored)


def test_rows_whose_outcome_is_unknown_wait_for_a_manual_override(
    sandbox: Sandbox, stored: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The service's responses show nothing about the first window.
    sandbox.control.configure(label_length=3)
    stored.dies_at(4)
    first = json.loads(stored.store.values[KEY])["batch"]["rows"]
    for _ in range(2):
        error = stored.fails()
        assert "7 created, 5 unknown" in str(error)
        assert str(error).count("differs in: label") == 5
    assert {*json.loads(stored.store.values[f"{KEY}_0000"])["rows"]} == {*first}
    variables = {}
    for row in sandbox.control.whitelist_requests():
        _, is_found, advice = str(error).partition(f"{row['id']} is new")
        if is_found:
            variables[row["id"]] = f"AIRFLOW_VAR_{variable_in(advice).upper()}"
    # The request of another user is refused; the row's own request is accepted.
    monkeypatch.setenv(next(iter(variables.values())), stored.requests[0]["id"])
    assert "this object belongs to another row" in str(stored.fails())
    for identifier, variable in variables.items():
        monkeypatch.setenv(variable, identifier)
    stored.attempt()
    made = {each["id"]: each["address"] for each in sandbox.control.whitelist_requests()}
    assert len(made) == 13
    assert all(made[each["id"]] == each["address"] for each in stored.requests)


# --- a record that somebody has edited --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "fields"),
    [("created", {"address": "0x" + "cd" * 20}), ("found", {"customer_id": "9"})],
    ids=["created, another address", "found, another customer"],
)
def test_an_id_that_somebody_has_put_into_the_record_is_not_used(
    sandbox: Sandbox, path: str, fields: dict[str, Any], state: str
) -> None:
    if AIRFLOW < (3, 3):
        pytest.skip("the task state store of Airflow 3.3")
    write_rows(Path(path), ROWS, customer_id="8", linked_wallet_ids=["1"])
    task = ApplyTask(plan(path), RowsStore())
    task.dies_at(3, before=False)
    other = somebody_creates(sandbox, **{"label": "Label 2", "address": address(2), **fields})
    first, second, *_ = task.store.batch[1]["rows"]
    # A row whose request is not listed does not hide a wrong record.
    task.store.forge("9999", first)
    task.store.forge(other, second, state=state)
    sandbox.control.clear_request_log()
    error = task.fails()
    assert f"the task's record names request {other} for 0x000000…000002 on ETH, but it differs in" in str(error)
    assert not error.retryable
    assert sandbox.control.request_log("POST") == []


def test_a_row_is_not_found_under_an_id_that_is_not_listed(sandbox: Sandbox, stored: ApplyTask) -> None:
    stored.dies_at(3, before=False)
    stored.store.forge("9999", next(iter(stored.store.batch[1]["rows"])), state="found")
    sandbox.control.clear_request_log()
    error = stored.fails()
    assert "the task's record names request 9999 for" in str(error)
    assert "but the service does not list it; this try sent nothing" in str(error)
    assert sandbox.control.request_log("POST") == []


def test_a_record_that_is_not_the_approved_plan_is_not_executed(sandbox: Sandbox, path: str) -> None:
    if AIRFLOW < (3, 3):
        pytest.skip("the task state store of Airflow 3.3")
    task = ApplyTask(plan(path), RowsStore())
    task.dies_at(3, before=False)
    stored = task.store.values[PLAN_KEY]
    record = json.loads(stored)
    key, *others = record["creations"]
    deletion = {"operation": '{"delete":"3711"}', "expected": {"3711": ["a", "b", "c"]}}
    sandbox.control.clear_request_log()
    changes: list[dict[str, Any]] = [
        {"creations": {other: [] for other in others}},
        {"creations": {**record["creations"], key: ["3711"]}},
        {"deletions": [deletion]},
        {"observed": ['{"ignored":"3711"}']},
    ]
    for change in changes:
        task.store.values[PLAN_KEY] = json.dumps({**record, **change})
        error = task.fails()
        assert error.code == "plan-changed"
        assert "the service, its tenant or the task's record has changed; this try sent nothing" in str(error)
    task.store.values[PLAN_KEY] = json.dumps({**record, "format": 1})
    assert task.fails().code == "record-unreadable"
    assert sandbox.control.request_log("POST") == []
    task.store.values[PLAN_KEY] = stored
    task.attempt()
    check_all(sandbox, task)


def test_a_file_that_changes_between_two_tries_stops_the_task(sandbox: Sandbox, stored: ApplyTask, path: str) -> None:
    stored.dies_at(4, before=False)
    text, sent = Path(path).read_text(), len(sandbox.control.whitelist_requests())
    for numbers in ([*ROWS][:-1], [*ROWS][1:]):
        write_rows(Path(path), numbers)
        error = stored.fails()
        gone = "gone or changed: 1 of 12 approved creations: create line "
        assert f"the rows of the file have changed since the first try ({gone}" in str(error)
        assert error.code == "plan-changed"
    assert len(sandbox.control.whitelist_requests()) == sent
    # Another order and a new row do not matter: the new row is not approved, so the next plan creates it.
    head, *rows = text.partition("addresses:\n")[2].splitlines(keepends=True)
    new = head.replace(address(1), address(13)).replace("Label 1", "Label 13")
    Path(path).write_text("version: 1\naddresses:\n" + "".join([*reversed(rows), head, new]))
    stored.attempt()
    check_all(sandbox, stored)


@pytest.mark.parametrize("write", [3, 4])
def test_rows_that_earlier_tries_sent_are_counted_although_the_file_has_changed(
    sandbox: Sandbox, stored: ApplyTask, path: str, write: int
) -> None:
    stored.dies_at(write, before=False)
    write_rows(Path(path), [99])
    message = stored.fails().message
    known, unknown = (
        sum(map(int, re.findall(text, message)))
        for text in (r"earlier tries .*created (\d+)", r"earlier tries .*may have sent (\d+) whose outcome is unknown")
    )
    sent = len(sandbox.control.whitelist_requests()) - 1
    assert known <= sent <= known + unknown


def test_other_requests_that_appear_between_two_tries_do_not_stop_a_plan(sandbox: Sandbox, stored: ApplyTask) -> None:
    stored.dies_at(4, before=False)
    somebody_creates(sandbox, label="Another team's", address=address(77))
    stored.attempt()
    check_exactly(sandbox, [0, 77, *ROWS])


# --- superseded and stopped -------------------------------------------------------------------------------------


def test_a_try_that_was_superseded_sends_nothing_more(sandbox: Sandbox, stored: ApplyTask) -> None:
    store = stored.store
    assert store is not None
    normal = store.set

    def set_(key: str, value: Any, **options: Any) -> None:
        # When this try reads its record again, another try has overwritten it.
        normal(key, {**value, "try_number": 99} if value["state"] == "closed" else value, **options)

    store.set = set_  # type: ignore[method-assign]
    error = stored.fails()
    assert error.code == "task-stopped"
    assert error.retryable
    assert "another try of this task has taken over" in str(error)
    assert len(sandbox.control.whitelist_requests()) == 1 + 5


def test_a_process_that_was_stopped_asks_whether_it_still_may(
    sandbox: Sandbox, stored: ApplyTask, waits: SkippingTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped right before it sends, and resumed after another try has taken over, sends nothing."""
    store, normal = stored.store, CustodyClient.create_whitelist_request
    assert store is not None

    def create(*given: Any, before_send: Callable[[], None], **options: Any) -> str:
        def stopped_before_sending() -> None:
            waits.sleep(FENCE + 1)
            # Airflow no longer gives the old try access to the store.
            store.failure = RuntimeError("this try is not current")
            before_send()

        return normal(*given, before_send=stopped_before_sending, **options)

    with monkeypatch.context() as patch:
        patch.setattr(CustodyClient, "create_whitelist_request", create)
        with pytest.raises(RuntimeError, match="this try is not current"):
            stored.attempt()
    check_exactly(sandbox, [0])
    store.failure = None
    stored.attempt()
    check_all(sandbox, stored)


def test_a_task_that_is_stopped_before_it_reads_the_file_sends_nothing(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(CustodyApplyWhitelistPlanOperator):
        def _run(self, context: Any, hook: Any) -> Any:
            self.on_kill()
            return super()._run(context, hook)

    monkeypatch.setattr(ApplyTask, "operator", Stopped)
    assert task.fails().code == "task-stopped"
    check_exactly(sandbox, [0])


def test_a_task_that_is_stopped_sends_no_further_row(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    normal, operators = CustodyClient.create_whitelist_request, []

    class Noted(CustodyApplyWhitelistPlanOperator):
        def _run(self, context: Any, hook: Any) -> Any:
            operators.append(self)
            return super()._run(context, hook)

    def create_and_stop(*given: Any, **options: Any) -> str:
        number = normal(*given, **options)
        operators[0].on_kill()
        return number

    monkeypatch.setattr(ApplyTask, "operator", Noted)
    monkeypatch.setattr(CustodyClient, "create_whitelist_request", create_and_stop)
    error = task.fails(max_parallel=1)
    # Without a record, a later try would only find that the plan has changed.
    assert error.retryable is (AIRFLOW >= (3, 3))
    assert "the task was stopped" in str(error)
    assert len(sandbox.control.whitelist_requests()) == 1 + 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_task_sends_nothing_more_and_forgets_nothing(
    sandbox: Sandbox,
    task: ApplyTask,
    waits: SkippingTime,
    interrupt: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: object) -> None:
        """Wait like the main thread, until it is interrupted after a row was sent."""
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
    if task.given_store is not None:
        skipped = waits.skipped
        task.attempt(lookup_wait=20)
        # Everything that was sent is recorded, so the try need not wait.
        assert waits.skipped - skipped < 15
        check_all(sandbox, task)


# --- another plan, and no store -----------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [[*ROWS, 99], [20, 21]], ids=["with the open rows", "without them"])
def test_a_new_plan_is_refused_while_rows_of_the_old_one_are_open(
    sandbox: Sandbox, stored: ApplyTask, path: str, numbers: list[int]
) -> None:
    # The try ends right before it records the outcome of the first window.
    stored.dies_at(4)
    write_rows(Path(path), numbers)
    stored.clear()
    error = stored.fails(plan_hash=plan(path)["plan_hash"])
    assert isinstance(error, CustodyOutcomeUnknownError)
    assert "begun to apply another plan, and the outcome of 5 rows of that plan is unknown" in str(error)
    check_exactly(sandbox, [0, 1, 2, 3, 4, 5])
    # The old plan continues.
    write_rows(Path(path), ROWS)
    stored.attempt()
    check_exactly(sandbox, [0, *ROWS], stored.requests)


def test_pending_requests_of_an_earlier_plan_are_to_be_signed_while_the_file_has_them(
    sandbox: Sandbox, stored: ApplyTask, path: str, task_log: TaskLog
) -> None:
    in_effect, *waiting, dropped = stored.attempt()["request_ids"]
    sandbox.control.sign_whitelist_requests([in_effect])
    write_rows(Path(path), [*ROWS[:-1], 99])
    stored.clear()
    to_sign = {*stored.attempt(planned=plan(path))["request_ids"]}
    assert len(to_sign) == len(waiting) + 1
    assert to_sign - {in_effect, dropped} > {*waiting}
    (ids,) = re.findall(r"Created by this task under an earlier plan: (.*?)\.", task_log.text)
    assert {*ids.split(", ")} == {*waiting}


def test_a_request_of_an_earlier_plan_that_the_service_may_hide_is_not_created_again(
    sandbox: Sandbox, stored: ApplyTask, path: str
) -> None:
    number, *_ = stored.attempt()["request_ids"]
    sandbox.control.configure(listings={"whitelist": {"dropped": [number]}})
    write_rows(Path(path), [*ROWS, 99])
    stored.clear()
    planned = plan(path)
    sandbox.control.clear_request_log()
    error = stored.fails(planned=planned)
    assert isinstance(error, CustodyOutcomeUnknownError)
    assert f"this task has created request {number} for" in str(error)
    assert not sandbox.control.request_log(**CREATE)


def test_requests_of_another_plan_are_waited_for(
    sandbox: Sandbox, stored: ApplyTask, path: str, waits: SkippingTime
) -> None:
    stored.attempt()
    write_rows(Path(path), range(20, 23))
    stored.clear()
    skipped = waits.skipped
    stored.attempt(plan_hash=plan(path)["plan_hash"])
    # The fence, the time-out and the look-up's time.
    assert waits.skipped - skipped >= 10.0 + TIMEOUT + 0.3
    check_exactly(sandbox, [0, *ROWS, 20, 21, 22], stored.requests)


def test_without_a_store_a_later_try_waits_and_refuses_what_changed(
    sandbox: Sandbox, path: str, task_log: TaskLog, waits: SkippingTime
) -> None:
    task = ApplyTask(plan(path), None)
    # Nothing was sent, so the next try continues.
    sandbox.control.add_fault("status", **LISTING, status=503)
    assert task.fails().retryable
    sandbox.control.add_fault("normal", **CREATE, times=6)
    sandbox.control.add_fault("status", **CREATE, status=401, body={"error": "No", "message": "no"}, times=None)
    task.fails()
    sandbox.control.clear_faults()
    skipped = waits.skipped
    error = task.fails()
    assert "this try sent nothing; there is no record of earlier tries of this task" in str(error)
    assert waits.skipped - skipped > 10.0 + TIMEOUT
    assert "requests that earlier tries may have sent without a record" in task_log.text
    # A new plan is applied.
    task.attempt(plan_hash=plan(path)["plan_hash"])
    check_exactly(sandbox, [0, *ROWS])


# --- requests that have changed since they were created -----------------------------------------------------------


def test_a_request_that_was_removed_since_is_not_created_again(sandbox: Sandbox, stored: ApplyTask, path: str) -> None:
    """The plan that creates it again has the same hash, so the task cannot tell that the plan was approved again."""
    number, *others = stored.attempt()["request_ids"]
    sandbox.control.set_whitelist_status(number, "removed")
    stored.clear()
    error = stored.fails()
    assert f"the service does not list request {number}, which this task created" in str(error)
    assert "start a new run" in str(error)
    assert stored.ti.pushed["request_ids"] == others
    (again,) = ApplyTask(plan(path), RowsStore()).attempt()["request_ids"]
    assert again != number
