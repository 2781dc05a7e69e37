"""Creating at most once, try by try. What real kills do to it is in tests/faults."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow_runs import AIRFLOW, FakeTaskInstance, execute
from conftest import connection_json

from airflow_custody import create_once
from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyServerError,
    WhitelistRequest,
)
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox

ADDRESS = "0x" + "ab" * 20
KEY = "custody_create_once"
LISTING = {"method": "GET", "path": "/whitelists/addresses"}
CREATE = {"method": "POST", "path": "/whitelists/addresses"}

needs_store = pytest.mark.skipif(AIRFLOW < (3, 3), reason="the task state store of Airflow 3.3")


@pytest.fixture(autouse=True)
def quick(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=1))
    monkeypatch.setattr(create_once, "FENCE_SECONDS", 0.2)


class Store:
    """Behave as Airflow's task state store does, also for a try that was superseded."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.retention: Any = None
        self.failure: Exception | None = None
        self.fails_from = 0
        self.writes = 0

    def get(self, key: str, default: Any = None) -> Any:
        return default if self.failure and not self.fails_from else json.loads(self.values.get(key, "null")) or default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self.writes += 1
        if self.failure and self.writes > self.fails_from:
            raise self.failure
        text = json.dumps(value, allow_nan=False)
        assert "null" not in text
        assert json.loads(text) == value
        self.values[key], self.retention = text, retention

    @property
    def record(self) -> dict[str, Any]:
        return json.loads(self.values[KEY])


class Task:
    """One task instance, over its tries."""

    def __init__(self, store: Store | None, **arguments: Any) -> None:
        self.store = store
        self.tries = 0
        self.max_tries = 3
        self.run = SimpleNamespace(clear_number=0, start_date=datetime.now(timezone.utc))
        self.arguments = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", "lookup_wait": 0.3, **arguments}

    def attempt(self, **changes: Any) -> str:
        self.tries += 1
        context = {"ti": FakeTaskInstance(self.tries, self.max_tries), "dag_run": self.run}
        if self.store is not None:
            context["task_state_store"] = self.store
        arguments = {**self.arguments, **changes}
        return execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="task", **arguments), **context)

    def clear(self) -> None:
        self.max_tries = self.tries + 3
        self.run.clear_number += 1

    def die_at(self, write: int, sandbox: Sandbox) -> None:
        """Let a try end at one of its writes: the first is the intent, the second the id."""
        assert self.store is not None
        self.store.failure, self.store.fails_from, self.store.writes = RuntimeError("killed"), write - 1, 0
        with pytest.raises(RuntimeError, match="killed"):
            self.attempt()
        self.store.failure = None

    def refused(self, match: str | None = None, **changes: Any) -> str:
        with pytest.raises(AirflowFailException, match=match) as caught:
            self.attempt(**changes)
        assert isinstance(caught.value.__cause__, CustodyOutcomeUnknownError)
        return str(caught.value)


@pytest.fixture(params=[pytest.param("store", marks=needs_store), "no store"])
def task(request: pytest.FixtureRequest) -> Task:
    """A task instance, with and without a store."""
    return Task(Store() if request.param == "store" else None)


@pytest.fixture
def stored() -> Task:
    return Task(Store())


def made(sandbox: Sandbox) -> list[str]:
    return [request["id"] for request in sandbox.control.whitelist_requests()]


def somebody_creates(sandbox: Sandbox, **changes: Any) -> str:
    with CustodyClient(sandbox.url, sandbox.token) as client:
        return client.create_whitelist_request(
            WhitelistRequest(**{"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", **changes})
        )


def variable_in(message: str) -> str:
    return message.split("airflow variables set ")[1].split()[0]


# --- the first try -----------------------------------------------------------------------------------------


@needs_store
def test_first_try_writes_down_its_intent_and_then_the_id(sandbox: Sandbox, stored: Task, task_log):
    assert stored.attempt() == "3711"
    assert [call["method"] for call in sandbox.control.received()] == ["GET", "POST"]
    record = stored.store.record
    assert (record["state"], record["id"], record["try"], record["before"]) == ("created", "3711", 1, [])
    assert stored.store.writes == 2
    assert stored.store.retention == timedelta.max
    text = json.dumps(record)
    assert sandbox.token not in text
    assert ADDRESS not in text
    log = task_log.text
    assert log.index("Noting the intent, sending") < log.index(
        "Created whitelisting request 3711 for 0xababab…ababab on ETH"
    )


@needs_store
def test_a_later_try_takes_the_id_without_a_call(sandbox: Sandbox, stored: Task, task_log):
    stored.attempt()
    sandbox.control.clear_received()
    assert stored.attempt() == "3711"
    assert sandbox.control.received() == []
    assert "created whitelisting request 3711: taking it" in task_log.text


@needs_store
@pytest.mark.parametrize("why", [BrokenPipeError(32, "gone"), RuntimeError("API_SERVER_ERROR 404")])
def test_a_superseded_try_sends_nothing(sandbox: Sandbox, stored: Task, why):
    stored.store.failure = why
    with pytest.raises(type(why)) as caught:
        stored.attempt()
    assert caught.value is why
    assert sandbox.control.received(**CREATE) == []


@needs_store
def test_a_fence_that_took_long_is_written_again(sandbox: Sandbox, stored: Task, monkeypatch):
    clock = iter([0.0, 9.0, 9.0, 18.0, 18.0, 18.1])
    monkeypatch.setattr(create_once, "_clocks", lambda: (0.0, next(clock)))
    assert stored.attempt() == "3711"
    assert stored.store.writes == 4
    clock = iter(float(9 * step // 2) for step in range(100))
    stored = Task(Store())
    with pytest.raises(CustodyError, match="three times; nothing was sent") as caught:
        stored.attempt()
    assert caught.value.retryable
    assert made(sandbox) == ["3711"]


def test_a_service_without_the_lookup_is_no_hindrance_to_the_first_try(sandbox: Sandbox, task: Task, task_log):
    sandbox.control.order_fault("status", **LISTING, times=None, status=404)
    assert task.attempt() == "3711"
    assert "can not find out what became of it" in task_log.text


def test_when_the_look_before_fails_nothing_is_sent(sandbox: Sandbox, task: Task):
    sandbox.control.order_fault("status", **LISTING, status=500)
    with pytest.raises(CustodyServerError, match="Nothing was sent"):
        task.attempt()
    sandbox.control.order_fault("html", **LISTING)
    task = Task(task.store)
    with pytest.raises(AirflowFailException, match="look_before_create=False"):
        task.attempt()
    assert sandbox.control.received(**CREATE) == []


def test_without_the_look_before_there_is_one_call(sandbox: Sandbox, task: Task):
    assert task.attempt(look_before_create=False) == "3711"
    assert len(sandbox.control.received()) == 1


# --- answers that get lost ---------------------------------------------------------------------------------

LOST = [
    {"answer": "drop"},
    {"answer": "html"},
    {"answer": "cut_body", "keep": 5},
    {"answer": "cut_headers"},
    {"answer": "empty"},
    {"answer": "status", "status": 500},
    {"answer": "status", "status": 503, "retry_after": 9},
    {"answer": "status", "status": 200, "body": {"result": {}}},
    {"answer": "normal", "delay_after": 3},
]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: "-".join(str(value) for value in fault.values()))
def test_an_answer_lost_after_the_work_is_found_in_the_same_try(sandbox: Sandbox, task: Task, fault):
    sandbox.control.order_fault(**CREATE, **{**fault, "work": True})
    assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


@pytest.mark.parametrize("fault", [{"answer": "drop"}, {"answer": "status", "status": 503, "retry_after": 9}], ids=str)
def test_lost_before_the_work_is_left_to_retries_and_then_sent(sandbox: Sandbox, task: Task, fault):
    sandbox.control.order_fault(**CREATE, **fault, work=False)
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        task.attempt()
    assert caught.value.retryable
    assert caught.value.retry_after == fault.get("retry_after")
    assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


def test_what_shows_up_late_is_waited_for(sandbox: Sandbox, task: Task):
    sandbox.control.set_whitelist_lag(1.5)
    sandbox.control.order_fault("drop", **CREATE, work=True)
    assert task.attempt(lookup_wait=5) == "3711"


def test_a_lookup_that_fails_for_a_while_is_asked_again(sandbox: Sandbox, task: Task):
    sandbox.control.order_fault("drop", **CREATE, work=True)
    sandbox.control.order_fault("status", **LISTING, skip=1, status=503)
    assert task.attempt(lookup_wait=5) == "3711"


def test_a_lookup_that_keeps_failing_sends_nothing_and_is_tried_again(sandbox: Sandbox, task: Task):
    sandbox.control.order_fault("drop", **CREATE, work=True)
    sandbox.control.order_fault("status", **LISTING, skip=1, times=None, status=503)
    for _ in range(2):
        with pytest.raises(CustodyServerError, match="nothing is sent until then"):
            task.attempt()
    sandbox.control.clear_faults()
    assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


@pytest.mark.parametrize("status", [401, 403, 404, 405, 400])
def test_where_it_can_not_be_asked_a_person_decides(sandbox: Sandbox, task: Task, status, monkeypatch):
    sandbox.control.order_fault("drop", **CREATE, work=True)
    sandbox.control.order_fault("status", **LISTING, skip=1, times=None, status=status)
    message = task.refused("can not be known, so it is not sent again")
    assert "0xababab…ababab on ETH" in message
    assert "clear this task" in message
    assert f"status {status}" in message
    again = task.refused()
    if status in (403, 404, 405):
        monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(again).upper()}", " 3711 ")
        assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


def test_a_person_says_that_there_is_none_and_is_asked_again_next_time(sandbox: Sandbox, task: Task, monkeypatch):
    sandbox.control.order_fault("status", **LISTING, times=None, status=404)
    sandbox.control.order_fault("drop", **CREATE)
    first = variable_in(task.refused())
    monkeypatch.setenv(f"AIRFLOW_VAR_{first.upper()}", "None")
    sandbox.control.order_fault("drop", **CREATE, work=True)
    second = variable_in(task.refused())
    assert second != first
    assert made(sandbox) == ["3711"]
    monkeypatch.setenv(f"AIRFLOW_VAR_{second.upper()}", "none")
    assert task.attempt() == "3712"


def test_a_persons_id_is_checked_where_that_is_possible(sandbox: Sandbox, task: Task, monkeypatch):
    other = somebody_creates(sandbox, label="Other")
    sandbox.control.order_fault("drop", **CREATE, work=True)
    sandbox.control.order_fault("status", **LISTING, skip=1, status=404)
    message = task.refused()
    for wrong, why in (("9999", "is not there"), (other, "asks for something else")):
        monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", wrong)
        message = task.refused(why)
    (ours,) = set(made(sandbox)) - {other}
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", ours)
    assert task.attempt() == ours


# --- a process that dies -----------------------------------------------------------------------------------


@needs_store
def test_killed_before_the_intent(sandbox: Sandbox, stored: Task):
    stored.die_at(1, sandbox)
    assert made(sandbox) == []
    assert stored.attempt() == "3711"


@needs_store
def test_killed_between_answer_and_record(sandbox: Sandbox, stored: Task, task_log):
    stored.die_at(2, sandbox)
    assert made(sandbox) == ["3711"]
    assert stored.attempt() == "3711"
    assert made(sandbox) == ["3711"]
    log = task_log.text
    assert "Try 1 was about to send at" in log
    assert "Found whitelisting request 3711" in log
    assert stored.store.record["id"] == "3711"


@needs_store
def test_killed_between_intent_and_send(sandbox: Sandbox, stored: Task, task_log):
    stored.die_at(2, sandbox)
    sandbox.control.set_whitelist_status("3711", "removed")
    assert stored.attempt() == "3712"
    assert "There is none at the service" in task_log.text
    assert made(sandbox) == ["3712"]


def test_without_a_store_a_later_try_always_looks(sandbox: Sandbox):
    task = Task(None)
    task.tries = 1
    ours = somebody_creates(sandbox)
    assert task.attempt() == ours
    sandbox.control.set_whitelist_age(ours, 40 * 86400)
    assert task.attempt() == "3712"
    sandbox.control.set_whitelist_age("3712", 3600)
    task.refused("3712 may have been there before")
    task.clear()
    task.refused("3711 may have been there before")
    sandbox.control.order_fault("status", **LISTING, status=404)
    task.refused("can not be asked")
    assert made(sandbox) == [ours, "3712"]


@needs_store
def test_a_store_that_forgets_on_success_is_as_none_after_a_clear(sandbox: Sandbox, stored: Task, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS", "True")
    stored.attempt()
    stored.store.values.clear()
    stored.clear()
    stored.refused("3711 may have been there before")
    assert made(sandbox) == ["3711"]


# --- others who want the same ------------------------------------------------------------------------------


def test_what_was_there_before_is_never_taken(sandbox: Sandbox, task: Task, task_log):
    before = somebody_creates(sandbox)
    sandbox.control.set_whitelist_status(before, "active")
    sandbox.control.order_fault("drop", **CREATE, work=True)
    ours = task.attempt()
    assert made(sandbox) == [before, ours]
    assert f"There already, and not this task's: whitelisting request {before}" in task_log.text


@needs_store
def test_two_new_ones_of_the_same_content_are_for_a_person_to_tell_apart(sandbox: Sandbox, stored: Task):
    stored.die_at(2, sandbox)
    theirs = somebody_creates(sandbox)
    message = stored.refused("There are 2 like it that were not there before")
    assert theirs in message
    assert len(made(sandbox)) == 2


@needs_store
@pytest.mark.parametrize("theirs", [{"label": "Other"}, {"memo": "1"}, {"linked_wallet_ids": ["1"]}], ids=str)
def test_requests_for_the_same_address_with_other_content_are_not_taken(sandbox, stored: Task, theirs):
    stored.die_at(2, sandbox)
    sandbox.control.set_whitelist_status("3711", "removed")
    other = somebody_creates(sandbox, **theirs)
    assert stored.attempt() == "3713"
    assert made(sandbox) == [other, "3713"]


@needs_store
def test_one_that_was_created_long_after_the_send_is_not_taken(sandbox: Sandbox, stored: Task):
    stored.die_at(2, sandbox)
    sandbox.control.set_whitelist_status("3711", "removed")
    sent = datetime.now(timezone.utc) - timedelta(minutes=6)
    stored.store.values[KEY] = json.dumps({**stored.store.record, "at": sent.isoformat()})
    somebody_creates(sandbox)
    stored.refused("3712 was created at .*, after this task can have sent it")


@needs_store
def test_one_that_is_nearly_the_same_is_for_a_person_to_judge(sandbox: Sandbox, stored: Task):
    stored.die_at(2, sandbox)
    sandbox.control.set_whitelist_status("3711", "removed")
    somebody_creates(sandbox, label="TREASURY")
    stored.refused("3712 is like it, but it leaves open: label")


@needs_store
def test_one_whose_payload_can_not_be_verified_is_for_a_person_to_judge(sandbox: Sandbox, stored: Task):
    stored.die_at(2, sandbox)
    broken = {"id": "3711", "metadata": {"payloadAsString": "{}", "hash": "0" * 64}}
    sandbox.control.order_fault("status", **LISTING, status=200, body={"result": [broken], "totalItems": "1"})
    stored.refused("can not be verified")


@needs_store
def test_without_a_look_before_dates_decide(sandbox: Sandbox):
    month_old = somebody_creates(sandbox)
    sandbox.control.set_whitelist_age(month_old, 30 * 86400)
    stored = Task(Store(), look_before_create=False)
    stored.die_at(2, sandbox)
    assert stored.attempt() == "3712"
    hour_old = somebody_creates(sandbox, address="0x" + "cd" * 20)
    sandbox.control.set_whitelist_age(hour_old, 3600)
    stored = Task(Store(), look_before_create=False, address="0x" + "cd" * 20)
    stored.die_at(2, sandbox)
    stored.refused(f"{hour_old} may have been there before")


# --- changed content, refusals ------------------------------------------------------------------------------


@needs_store
@pytest.mark.parametrize("write", [2, 3])
def test_changed_content_is_refused_by_the_fields_names(sandbox: Sandbox, stored: Task, write, monkeypatch):
    if write == 2:
        stored.die_at(2, sandbox)
    else:
        stored.attempt()
    stored.refused(
        "has changed since: address, linked_wallet_ids, memo",
        linked_wallet_ids=["7"],
        memo="1",
        address="0x" + "cd" * 20,
    )
    assert made(sandbox) == ["3711"]
    assert stored.attempt() == "3711"
    message = stored.refused(memo="1")
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", "none")
    assert stored.attempt(memo="1") == "3712"
    # The word is spent.
    assert stored.attempt(memo="1") == "3712"


@needs_store
def test_another_service_behind_the_connection_is_a_change(sandbox: Sandbox, stored: Task, monkeypatch):
    stored.die_at(2, sandbox)
    with Sandbox() as other:
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
        stored.refused("has changed since: service")
        assert other.control.received() == []


@needs_store
def test_what_the_service_refused_may_be_changed(sandbox: Sandbox, stored: Task):
    with pytest.raises(AirflowFailException) as caught:
        stored.attempt(address="0x12")
    assert isinstance(caught.value.__cause__, CustodyRequestError)
    assert stored.store.record["state"] == "refused"
    assert stored.attempt() == "3711"


@needs_store
def test_no_connection_leaves_no_intent(sandbox: Sandbox, stored: Task, monkeypatch):
    connection = connection_json(sandbox).replace(sandbox.url, "http://127.0.0.1:9")
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection)
    with pytest.raises(CustodyConnectionError):
        stored.attempt(look_before_create=False)
    assert stored.store.values == {}


@needs_store
def test_a_record_of_another_version_is_not_guessed_at(sandbox: Sandbox, stored: Task):
    stored.attempt()
    stored.store.values[KEY] = json.dumps({**stored.store.record, "format": 2})
    stored.refused("another version")


# --- cleared by a person -----------------------------------------------------------------------------------


@needs_store
def test_a_clear_takes_the_same_request_again_if_it_is_still_there(sandbox: Sandbox, stored: Task, task_log):
    stored.attempt()
    stored.clear()
    assert stored.attempt() == "3711"
    assert "on_clear='create'" in task_log.text
    sandbox.control.order_fault("status", **LISTING, status=405)
    assert stored.attempt() == "3711"
    assert "can not be checked" in task_log.text
    sandbox.control.order_fault("status", **LISTING, status=500)
    with pytest.raises(CustodyServerError):
        stored.attempt()
    sandbox.control.set_whitelist_status("3711", "removed")
    assert stored.attempt() == "3712"
    assert "not there any more: creating another" in task_log.text
    assert stored.attempt() == "3712"


@needs_store
def test_a_clear_makes_a_new_one_where_that_is_asked_for(sandbox: Sandbox):
    stored = Task(Store(), on_clear="create")
    assert stored.attempt() == "3711"
    stored.clear()
    assert stored.attempt() == "3712"
    # A retry after the clear is no clear.
    assert stored.attempt() == "3712"
    stored.clear()
    stored.die_at(2, sandbox)
    assert stored.attempt() == "3713"


@needs_store
def test_a_clear_after_an_unknown_outcome_finds_out_first(sandbox: Sandbox):
    stored = Task(Store(), on_clear="create")
    stored.die_at(2, sandbox)
    stored.clear()
    assert stored.attempt() == "3711"
    assert stored.attempt() == "3711"


def test_on_clear_takes_two_words():
    with pytest.raises(ValueError, match="on_clear"):
        CustodyCreateWhitelistRequestOperator(task_id="t", label="l", address="a", blockchain="b", on_clear="new")
