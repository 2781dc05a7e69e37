"""Creating at most once, with simulated tries. tests/faults does the same with processes that are really killed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW, failing_at_once
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import (
    ADDRESS,
    CREATE,
    LISTING,
    Store,
    Task,
    needs_store,
    somebody_creates,
    variable_in,
)
from support.service.refusals import OTHER_REFUSAL, role_refusal

from airflow_custody.client import (
    CustodyConnectionError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyServerError,
)
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection", "waits")


@pytest.fixture(params=[pytest.param("store", marks=needs_store), "no store"])
def task(request: pytest.FixtureRequest) -> Task:
    """Return a task instance, once with a store and once without."""
    return Task(Store() if request.param == "store" else None)


@pytest.fixture
def stored() -> Task:
    """Return a task instance with a store."""
    if AIRFLOW < (3, 3):
        pytest.skip("the task state store of Airflow 3.3")
    return Task(Store())


@pytest.fixture
def own_requests_are_seen(sandbox: Sandbox) -> None:
    """Create another request of the connection's user: while the service lists that, the absence of one counts."""
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)


HIDDEN = "this proves nothing: the service counts 1 request that it does not return"


def made(sandbox: Sandbox) -> list[str]:
    """Return the ids of the requests for the address."""
    return [request["id"] for request in sandbox.control.whitelist_requests() if request["address"] == ADDRESS]


# --- the first try -----------------------------------------------------------------------------------------


def test_the_first_try_records_its_intent_and_then_the_id(sandbox: Sandbox, stored: Task, task_log: TaskLog) -> None:
    assert stored.attempt() == "3711"
    record = stored.store.record
    assert record["state"] == "created"
    assert record["detail"] == "3711"
    assert stored.store.states == ["begun", "sending", "closed"]
    assert stored.store.retention == timedelta.max
    text = json.dumps(record)
    assert sandbox.token not in text
    assert ADDRESS not in text
    assert "Created whitelisting request 3711 for 0xababab…ababab on ETH" in task_log.text


def test_a_later_try_returns_the_recorded_id(sandbox: Sandbox, stored: Task, task_log: TaskLog) -> None:
    stored.attempt()
    sandbox.control.clear_request_log()
    assert stored.attempt() == "3711"
    assert sandbox.control.request_log("POST") == []
    assert "created whitelisting request 3711: reusing it" in task_log.text


@pytest.mark.parametrize(
    "why", [BrokenPipeError(32, "gone"), RuntimeError("API_SERVER_ERROR 404")], ids=["worker 3.3", "API server"]
)
def test_a_superseded_try_sends_nothing(sandbox: Sandbox, stored: Task, why: Exception) -> None:
    stored.store.failure = why
    with pytest.raises(type(why)) as caught:
        stored.attempt()
    assert caught.value is why
    assert sandbox.control.request_log(**CREATE) == []


def test_a_service_without_the_lookup_does_not_stop_the_first_try(
    sandbox: Sandbox, task: Task, task_log: TaskLog
) -> None:
    sandbox.control.add_fault("status", **LISTING, times=None, status=404)
    assert task.attempt() == "3711"
    assert "cannot find out whether it had an effect" in task_log.text


def test_when_the_lookup_before_the_create_fails_nothing_is_sent(sandbox: Sandbox, task: Task) -> None:
    sandbox.control.add_fault("status", **LISTING, status=500)
    with pytest.raises(CustodyServerError, match=r"Nothing was created\.\n"):
        task.attempt()
    sandbox.control.add_fault("html", **LISTING)
    with failing_at_once("look_before_create=False"):
        Task(task.given_store).attempt(if_exists="create")
    assert sandbox.control.request_log(**CREATE) == []


@pytest.mark.parametrize(
    ("fault", "code", "names_way_out"),
    [
        ({"kind": "html", "status": 404}, "response-unusable", True),
        ({"kind": "status", "status": 403, "body": OTHER_REFUSAL}, "request-refused", True),
        # For a missing role and a wrong token, the advice differs.
        ({"kind": "status", "status": 403, "body": role_refusal("tpuser")}, "role-missing", False),
        ({"kind": "status", "status": 401}, "credentials-refused", False),
    ],
    ids=str,
)
def test_a_lookup_that_is_refused_for_good_names_the_way_out(
    sandbox: Sandbox, task: Task, fault: dict[str, Any], code: str, names_way_out: bool
) -> None:
    sandbox.control.add_fault(**LISTING, **fault, times=None)
    with failing_at_once("Nothing was created") as caught:
        task.attempt()
    assert caught.value.error.code == code
    way_out = 'With if_exists="create", look_before_create=False, the task does not look for existing requests'
    assert (way_out in str(caught.value)) is names_way_out
    assert made(sandbox) == []
    assert Task(task.given_store).attempt(if_exists="create", look_before_create=False) == "3711"


# --- responses that get lost -------------------------------------------------------------------------------


def test_a_request_whose_response_is_lost_is_found_in_the_same_try(sandbox: Sandbox, task: Task) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=True)
    assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


@pytest.mark.usefixtures("own_requests_are_seen")
@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "status", "status": 503, "retry_after": 9}], ids=str)
def test_a_request_lost_before_the_work_is_sent_by_the_next_try(
    sandbox: Sandbox, task: Task, fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**CREATE, **fault, work=False)
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe") as caught:
        task.attempt()
    assert caught.value.retryable
    assert caught.value.retry_after == fault.get("retry_after")
    assert task.attempt() == "3712"
    assert made(sandbox) == ["3712"]


@pytest.mark.usefixtures("own_requests_are_seen")
def test_a_search_that_finds_nothing_proves_nothing_while_requests_are_hidden(sandbox: Sandbox, task: Task) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=True)
    # The service counts the created request, but does not return it.
    sandbox.control.configure(listings={"whitelist": {"dropped": ["3712"]}})
    for _ in range(2):
        with pytest.raises((CustodyFailException, CustodyOutcomeUnknownError), match=HIDDEN) as caught:
            task.attempt()
        assert not getattr(caught.value, "retryable", False)
    assert made(sandbox) == ["3712"]


def test_a_lookup_that_keeps_failing_sends_nothing_and_is_left_to_retries(sandbox: Sandbox, task: Task) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=True)
    sandbox.control.add_fault("status", **LISTING, skip=1, times=None, status=503)
    for _ in range(2):
        with pytest.raises(CustodyServerError, match="nothing is sent until then"):
            task.attempt()
    sandbox.control.clear_faults()
    assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


PAGE = {"status": 404, "body": "404 page not found", "headers": {"content-type": "text/plain"}}


@pytest.mark.parametrize(
    ("fault", "is_checked"),
    [({"status": 403}, False), (PAGE, False), ({"status": 401}, True)],
    ids=["refused", "a page", "credentials refused"],
)
def test_without_a_lookup_a_manual_override_decides(
    sandbox: Sandbox, task: Task, fault: dict[str, Any], is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault("drop", **CREATE, work=True)
    sandbox.control.add_fault("status", **LISTING, skip=1, times=None, **fault)
    message = task.refused("it is unknown whether .*, so it is not sent again")
    assert "0xababab…ababab on ETH" in message
    assert "clear this task" in message
    assert f"status {fault['status']}" in message
    again = task.refused()
    if is_checked:
        # An error about the credentials says nothing about the request.
        sandbox.control.clear_faults()
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(again).upper()}", " 3711 ")
    assert task.attempt() == "3711"
    assert made(sandbox) == ["3711"]


# --- a process that dies -----------------------------------------------------------------------------------


def test_killed_between_response_and_record(sandbox: Sandbox, stored: Task, task_log: TaskLog) -> None:
    stored.die_at("closed")
    assert made(sandbox) == ["3711"]
    assert stored.attempt() == "3711"
    assert made(sandbox) == ["3711"]
    log = task_log.text
    assert "Try 1 sent a whitelisting request at" in log
    assert (
        "Found at the service, and created by this task: whitelisting request 3711 for 0xababab…ababab on ETH." in log
    )
    assert stored.store.record["detail"] == "3711"


@pytest.mark.usefixtures("own_requests_are_seen")
@pytest.mark.parametrize("state", ["sending", "closed"])
def test_killed_before_it_was_sent(sandbox: Sandbox, stored: Task, task_log: TaskLog, state: str) -> None:
    stored.die_at(state)
    if state == "closed":
        sandbox.control.set_whitelist_status("3712", "removed")
    own = stored.attempt()
    assert ("1 row created nothing" in task_log.text) is (state == "closed")
    assert made(sandbox) == [own]


def test_without_a_store_a_later_try_always_finds_candidates_first(sandbox: Sandbox) -> None:
    task = Task(None, if_exists="create")
    task.tries = 1
    own = somebody_creates(sandbox)
    assert task.attempt() == own
    sandbox.control.set_whitelist_age(own, 40 * 86400)
    task.refused(f"{own} may have existed before")
    sandbox.control.set_whitelist_status(own, "removed")
    task.refused("proves nothing: it lists no request that the connection's user has created")
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)
    assert task.attempt() == "3713"
    task.clear()
    task.refused("3713 may have existed before")
    sandbox.control.add_fault("status", **LISTING, status=404)
    task.refused("cannot be searched")
    assert made(sandbox) == ["3713"]


def test_a_store_that_is_cleared_on_success_counts_as_none_after_a_clear(sandbox: Sandbox, stored: Task) -> None:
    # The server has this setting, so this process does not know it.
    stored.attempt()
    stored.store.values.clear()
    stored.clear()
    stored.refused("3711 may have existed before", if_exists="create")
    # The creator of the request does not matter.
    assert stored.attempt() == "3711"
    assert made(sandbox) == ["3711"]


# --- other requests with the same content ------------------------------------------------------------------


@pytest.mark.parametrize("is_named", [False, True], ids=["lost", "the response names it"])
def test_a_request_that_existed_before_is_never_used(
    sandbox: Sandbox, task: Task, task_log: TaskLog, is_named: bool
) -> None:
    before = somebody_creates(sandbox)
    sandbox.control.set_whitelist_status(before, "APPROVED")
    if is_named:
        sandbox.control.add_fault("status", **CREATE, status=200, body={"result": {"id": before}}, work=True)
    else:
        sandbox.control.add_fault("drop", **CREATE, work=True)
    own = task.attempt(if_exists="create")
    assert made(sandbox) == [before, own]
    assert f"Similar objects exist that this task did not create: whitelisting request {before}" in task_log.text


# --- changed content, refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", ["intent", "created"])
def test_changed_content_is_refused_and_its_fields_are_named(
    sandbox: Sandbox, stored: Task, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recorded == "intent":
        stored.die_at("closed")
    else:
        stored.attempt()
    stored.refused(
        "has changed since that try: address, linked_wallet_ids, memo",
        linked_wallet_ids=["7"],
        memo="1",
        address="0x" + "cd" * 20,
    )
    assert made(sandbox) == ["3711"]
    assert stored.attempt() == "3711"
    message = stored.refused(memo="1")
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", "none")
    assert stored.attempt(memo="1") == "3712"
    # The manual override counts only once.
    assert stored.attempt(memo="1") == "3712"


def test_another_service_behind_the_connection_is_a_change(
    sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.die_at("closed")
    elsewhere = connection_json(sandbox).replace("127.0.0.1", "localhost")
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", elsewhere)
    stored.refused("has changed since that try: service")
    assert len(made(sandbox)) == 1


def test_a_request_that_the_service_refused_may_be_changed(sandbox: Sandbox, stored: Task) -> None:
    with pytest.raises(CustodyFailException) as caught:
        stored.attempt(address="0x12", check_address=False)
    assert isinstance(caught.value.error, CustodyRequestError)
    assert stored.store.record["state"] == "refused"
    assert stored.attempt() == "3711"


def test_no_connection_leaves_no_intent(sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connection_json(sandbox).replace(sandbox.url, "http://127.0.0.1:9")
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection)
    with pytest.raises(CustodyConnectionError):
        stored.attempt(if_exists="create", look_before_create=False)
    assert stored.store.states == ["begun"]


# --- a record that somebody has edited ----------------------------------------------------------------------


OTHER = "0x" + "cd" * 20


@pytest.mark.parametrize("cleared", [False, True])
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"address": OTHER}, "differs in: address"),
        ({"network": "sepolia", "customer_id": "8"}, "differs in: .*customer_id"),
        (None, "The service does not list 9999"),
    ],
    ids=["another address", "another customer", "no request"],
)
def test_an_id_that_somebody_has_put_into_the_record_is_not_used(
    sandbox: Sandbox, stored: Task, fields: dict[str, Any] | None, why: str, cleared: bool
) -> None:
    stored.attempt()
    other = "9999" if fields is None else somebody_creates(sandbox, **fields)
    stored.store.forge(other)
    sandbox.control.clear_request_log()
    if cleared and fields is not None:
        stored.clear()
    message = stored.refused(rf"An earlier try created {other}\. .*{why}")
    assert "airflow variables set custody_create_" in message
    assert sandbox.control.request_log("POST") == []


def test_a_manual_override_decides_about_a_record_that_cannot_be_checked(
    sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.attempt()
    # This is only one way to read the request. The other is the listing by ids.
    sandbox.control.add_fault("status", **LISTING, status=405)
    assert stored.attempt() == "3711"
    sandbox.control.add_fault("status", **LISTING, status=403, times=None)
    message = stored.refused("An earlier try created 3711. The content of 3711 cannot be checked: ")
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", "3711")
    assert stored.attempt() == "3711"
    assert made(sandbox) == ["3711"]


# --- cleared by a user -------------------------------------------------------------------------------------


def test_a_clear_reuses_the_request_while_it_exists(sandbox: Sandbox, stored: Task, task_log: TaskLog) -> None:
    stored.attempt()
    stored.clear()
    assert stored.attempt() == "3711"
    assert "on_clear='create'" in task_log.text
    sandbox.control.add_fault("status", **LISTING, status=500)
    with pytest.raises(CustodyServerError):
        stored.attempt()
    sandbox.control.set_whitelist_status("3711", "removed")
    # If no other request of this user is listed, it proves nothing that the request is not listed.
    stored.refused("An earlier try created 3711. The service does not list 3711, which proves nothing: ")
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)
    assert stored.attempt() == "3713"
    assert "no longer exists: creating another" in task_log.text
    assert stored.attempt() == "3713"


def test_a_clear_does_not_use_what_was_rejected_meanwhile(sandbox: Sandbox, stored: Task) -> None:
    stored.attempt()
    sandbox.control.set_whitelist_status("3711", "rejected")
    stored.clear()
    with failing_at_once("3711, which this task created, was rejected"):
        stored.attempt()
    assert made(sandbox) == ["3711"]


@needs_store
def test_a_clear_creates_another_request_with_on_clear_create(sandbox: Sandbox, task_log: TaskLog) -> None:
    stored = Task(Store(), if_exists="create", on_clear="create")
    assert stored.attempt() == "3711"
    stored.clear()
    assert stored.attempt() == "3712"
    # A retry after a clear is not another clear.
    assert stored.attempt() == "3712"
    stored.refused("has changed since that try: memo", memo="1")
    stored.clear()
    assert stored.attempt(memo="1") == "3713"
    stored.clear()
    stored.die_at("closed")
    # An unknown outcome is determined first, also after a clear.
    stored.clear()
    assert stored.attempt() == "3714"
    assert stored.attempt() == "3714"
    assert "This task created whitelisting request 3711 and was cleared: creating another" in task_log.text
