"""Creating at most once while the service, the store and the clocks are odd: what INTERFACE leaves open, both ways."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow_runs import FakeTaskInstance, failing_at_once
from clocks import SkippingTime
from connections import connection_json
from task_tries import CREATE, LISTING, Store, Task, needs_store, somebody_creates, variable_in

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    WhitelistRequest,
)
from airflow_custody.idempotency.create import CreateOnce
from airflow_custody.idempotency.search import Found
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

MIXED_CASE = "0x52908400098527886E0F7030069857D2E4169EE7"
LOST: dict[str, Any] = {**CREATE, "kind": "drop", "work": True}

pytestmark = needs_store


@pytest.fixture(autouse=True)
def quick(sandbox: Sandbox, connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # While the service lists another request of this user, the absence of one counts.
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)


@pytest.fixture
def stored() -> Task:
    return Task(Store(), address=MIXED_CASE)


def made(sandbox: Sandbox) -> list[str]:
    """Return the ids of all requests but the first."""
    return [request["id"] for request in sandbox.control.whitelist_requests()][1:]


def ends(task: Task, **changes: Any) -> CustodyError:
    """Let a try fail, and return what it failed with."""
    with pytest.raises((CustodyError, CustodyFailException)) as caught:
        task.attempt(**changes)
    error = getattr(caught.value, "error", caught.value)
    assert isinstance(error, CustodyError)
    return error


# --- who refuses -------------------------------------------------------------------------------------------

NOT_THE_SERVICES: list[dict[str, Any]] = [
    {"kind": "html", "status": 400, "body": "<html>no</html>"},
    {"kind": "status", "status": 401, "body": {"detail": "Not Found"}},
    {"kind": "status", "status": 403, "body": {"message": "no Route matched with those values"}},
    {"kind": "status", "status": 404, "body": {"code": "E1"}},
    {"kind": "status", "status": 429, "body": ""},
    {"kind": "redirect", "location": "https://example.com/login"},
]


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("page", NOT_THE_SERVICES, ids=str)
def test_what_is_not_the_services_refusal_leaves_the_outcome_unknown(
    sandbox: Sandbox, stored: Task, page: dict[str, Any], retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, max_retries=retries))
    sandbox.control.add_fault(**{**LOST, **page})
    stored.store.fails_at, stored.store.failure = "closed", RuntimeError("killed")
    with pytest.raises(RuntimeError, match="killed"):
        stored.attempt()
    assert stored.store.record["state"] == "sent"
    stored.store.failure = None
    assert [stored.attempt()] == made(sandbox)


@pytest.mark.parametrize("form", ["flat", "rpc"])
@pytest.mark.parametrize("status", [400, 403, 404, 409])
def test_the_services_own_refusal_is_recorded_as_one(sandbox: Sandbox, stored: Task, status: int, form: str) -> None:
    body = (
        {"error": "No", "message": "no", "code": status}
        if form == "flat"
        else {"code": 3, "message": "no", "details": []}
    )
    sandbox.control.add_fault("status", **CREATE, status=status, body=body)
    ends(stored)
    assert stored.store.record["state"] == "refused"
    sandbox.control.clear_request_log()
    assert [stored.attempt()] == made(sandbox)


@pytest.mark.parametrize(("status", "code"), [(408, 4), (499, 1)])
def test_a_request_that_the_service_gave_up_may_have_been_done(
    sandbox: Sandbox, stored: Task, status: int, code: int
) -> None:
    body = {"code": code, "message": "context canceled", "details": []}
    sandbox.control.add_fault("status", **CREATE, status=status, body=body, work=True)
    assert [stored.attempt()] == made(sandbox)


# --- what the service makes of a request ---------------------------------------------------------------------


@pytest.mark.parametrize("form", ["lower", "upper", "no prefix"])
def test_another_spelling_of_the_address_is_recognized(sandbox: Sandbox, stored: Task, form: str) -> None:
    sandbox.control.configure(address_form=form, created_at="0001-01-01T00:00:00Z")
    sandbox.control.add_fault(**LOST)
    if form != "no prefix":
        assert [stored.attempt()] == made(sandbox)
        return
    # The service filters exactly, and nobody asked in this form: the filter finds neither this one nor an older one.
    for _ in range(2):
        message = stored.refused("may have existed before this task")
        (own,) = made(sandbox)
        assert own in message


CHANGES: list[dict[str, Any]] = [
    {"label_length": 4},
    {"drop_links": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("look_before_create", [True, False])
def test_a_request_that_the_service_changes_is_a_reason_to_ask(
    sandbox: Sandbox, stored: Task, change: dict[str, Any], look_before_create: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.configure(**change)
    sandbox.control.add_fault(**LOST)
    stored.arguments.update(linked_wallet_ids=["7"], look_before_create=look_before_create, if_exists="create")
    message = stored.refused("differs in")
    (own,) = made(sandbox)
    assert own in message
    message = stored.refused()
    assert made(sandbox) == [own]
    # A person has looked at it. Somebody else's address is refused all the same.
    variable = f"AIRFLOW_VAR_{variable_in(message).upper()}"
    other = somebody_creates(sandbox, label="Other", address="0x" + "11" * 20, linked_wallet_ids=["7"])
    monkeypatch.setenv(variable, other)
    message = stored.refused("differs in: address")
    monkeypatch.setenv(variable, own)
    assert stored.attempt() == own


@pytest.mark.parametrize("look_before_create", [True, False])
@pytest.mark.parametrize("date", [{"created_at": "0001-01-01T00:00:00Z"}, {"clock_offset": -2 * 86400}], ids=str)
def test_a_date_never_makes_a_request_somebody_elses(
    sandbox: Sandbox, stored: Task, date: dict[str, Any], look_before_create: bool
) -> None:
    sandbox.control.configure(**date)
    sandbox.control.add_fault(**LOST)
    stored.arguments |= {"look_before_create": look_before_create, "if_exists": "create"}
    if look_before_create:
        # It is new, and its date is no reason to doubt that.
        assert [stored.attempt()] == made(sandbox)
    else:
        stored.refused("may have existed before")
    assert len(made(sandbox)) == 1


@pytest.mark.parametrize("look_before_create", [True, False])
def test_another_name_of_the_chain_is_a_reason_to_ask(
    sandbox: Sandbox, stored: Task, look_before_create: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.configure(chain_name="ETHX")
    sandbox.control.add_fault(**LOST)
    stored.arguments |= {"look_before_create": look_before_create, "if_exists": "create"}
    message = stored.refused("differs in: blockchain")
    (own,) = made(sandbox)
    assert own in message
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", own)
    assert stored.attempt() == own


def test_the_absence_of_a_request_counts_only_where_it_would_be_seen(
    sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.configure(creator_sees_own=False)
    sandbox.control.add_fault(**LOST)
    message = stored.refused("proves nothing: it lists no request that the connection's user has created")
    stored.clear()
    stored.refused("proves nothing")
    assert len(made(sandbox)) == 1
    sandbox.control.configure(creator_sees_own=True)
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", made(sandbox)[0])
    assert [stored.attempt()] == made(sandbox)


def test_requests_of_another_visibility_group_prove_nothing(sandbox: Sandbox, stored: Task) -> None:
    sandbox.control.add_fault("drop", **CREATE)
    stored.arguments["visibility_group_id"] = "treasury"
    stored.refused("proves nothing: it lists no request of the visibility group treasury")
    somebody_creates(sandbox, label="Earlier", address="0x" + "11" * 20, visibility_group_id="treasury")
    stored.attempt()
    assert len(made(sandbox)) == 2


def test_where_nobody_says_who_the_user_is_absence_proves_nothing(sandbox: Sandbox, stored: Task) -> None:
    sandbox.control.add_fault("drop", **CREATE)
    sandbox.control.add_fault("status", method="GET", path="/users/me", status=404, times=None)
    stored.refused("proves nothing: the service does not say who the connection's user is")
    assert made(sandbox) == []


# --- other programs ------------------------------------------------------------------------------------------


class SlowStore(Store):
    """A store that takes its time to record the intent."""

    def __init__(self, meanwhile: Callable[[], Any]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        super().set(key, value, retention=retention)
        if value["state"] == "sending":
            self._meanwhile()


def test_what_another_user_created_is_not_taken(sandbox: Sandbox, stored: Task) -> None:
    other = sandbox.control.add_token(roles=["TPUser", "WhitelistedAddressCreator"], user_id="77")
    stored.die_at("closed")
    sandbox.control.set_whitelist_status("3712", "removed")
    with CustodyClient(sandbox.url, other) as client:
        theirs = client.create_whitelist_request(
            WhitelistRequest(label="Treasury", address=MIXED_CASE, blockchain="ETH")
        )
    stored.refused(f"{theirs} is new, and another user created it")
    assert made(sandbox) == [theirs]


def test_what_the_users_predecessor_created_is_not_sent_again(
    sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.die_at("closed")
    other = sandbox.control.add_token(roles=["TPUser", "WhitelistedAddressCreator"], user_id="77")
    with CustodyClient(sandbox.url, other) as client:
        client.create_whitelist_request(WhitelistRequest(label="O", address="0x" + "22" * 20, blockchain="ETH"))
    connection = connection_json(sandbox).replace(sandbox.token, other)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection)
    stored.clear()
    stored.refused("another user created it")


@pytest.mark.parametrize("offset", [-7200, -360, 480, 3600])
def test_a_changed_request_is_a_reason_to_ask_whatever_the_services_clock_says(
    sandbox: Sandbox, stored: Task, offset: int
) -> None:
    sandbox.control.configure(label_length=4, clock_offset=offset)
    sandbox.control.add_fault(**LOST)
    stored.refused("differs in: label")
    stored.refused("differs in: label")
    assert len(made(sandbox)) == 1


def test_an_old_request_that_the_filter_does_not_find_is_not_taken(sandbox: Sandbox, stored: Task) -> None:
    # The filter compares with what was sent, and an old request is spelled as it was asked for now.
    sandbox.control.configure(created_at="0001-01-01T00:00:00Z")
    old = somebody_creates(sandbox, address=MIXED_CASE)
    sandbox.control.add_fault("status", method="GET", query={"addresses": MIXED_CASE}, status=200, body={}, times=None)
    sandbox.control.add_fault("drop", **CREATE)
    stored.refused(f"{old} may have existed before")


def test_without_proof_that_it_would_be_seen_a_clear_reuses(sandbox: Sandbox, stored: Task) -> None:
    own = stored.attempt()
    sandbox.control.configure(creator_sees_own=False)
    for _ in range(2):
        stored.clear()
        assert stored.attempt() == own
    assert made(sandbox) == [own]


def test_a_person_may_say_that_another_request_is_not_this_tasks(
    sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault(**LOST)
    sandbox.control.add_fault("status", **LISTING, skip=1, status=404)
    variable = f"AIRFLOW_VAR_{variable_in(stored.refused()).upper()}"
    (theirs,) = made(sandbox)
    monkeypatch.setenv(variable, "none")
    message = stored.refused("says none: ")
    assert f"'none {theirs}'" in message
    monkeypatch.setenv(variable, f"none {theirs}")
    own = stored.attempt()
    assert made(sandbox) == [theirs, own]


def test_a_persons_none_is_checked(sandbox: Sandbox, stored: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.add_fault(**LOST)
    sandbox.control.add_fault("status", **LISTING, skip=1, status=404)
    message = stored.refused()
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", "none")
    (own,) = made(sandbox)
    stored.refused(f"says none: {own} is what was asked for")
    monkeypatch.setenv(f"AIRFLOW_VAR_{variable_in(message).upper()}", own)
    assert [stored.attempt()] == made(sandbox)


# --- time ------------------------------------------------------------------------------------------------------


def test_cleared_soon_after_success_waits_until_the_request_is_listed(
    sandbox: Sandbox, stored: Task, waits: SkippingTime
) -> None:
    sandbox.control.configure(whitelist_lag=3600)
    own = stored.attempt()
    waits.after(20, lambda: sandbox.control.configure(whitelist_lag=0))
    stored.clear()
    assert stored.attempt(lookup_wait=60) == own
    assert made(sandbox) == [own]


def test_a_clear_creates_another_only_after_the_service_had_time(
    sandbox: Sandbox, stored: Task, waits: SkippingTime
) -> None:
    own = stored.attempt()
    sandbox.control.set_whitelist_status(own, "removed")
    stored.clear()
    skipped = waits.skipped
    assert stored.attempt(lookup_wait=60) != own
    assert waits.skipped - skipped > 59


def test_the_next_worker_waits_by_its_own_clock(sandbox: Sandbox, stored: Task, waits: SkippingTime) -> None:
    sandbox.control.configure(whitelist_lag=3600)
    stored.die_at("closed")
    waits.after(60, lambda: sandbox.control.configure(whitelist_lag=0))
    earlier = datetime.now(timezone.utc) - timedelta(minutes=4)
    stored.store.backdate(earlier)
    assert [stored.attempt()] == made(sandbox)


def test_the_wait_begins_anew_when_the_service_responds_again(
    sandbox: Sandbox, stored: Task, waits: SkippingTime
) -> None:
    sandbox.control.configure(whitelist_lag=3600)
    stored.die_at("closed")
    # The wait is 70 s. The service responds again after 60, and lists it 120 s after it was sent.
    sandbox.control.add_fault("status", method="GET", status=503, times=None)
    waits.after(60, sandbox.control.clear_faults)
    waits.after(120, lambda: sandbox.control.configure(whitelist_lag=0))
    assert [stored.attempt()] == made(sandbox)


def test_a_service_that_keeps_hanging_is_left_to_the_next_try(sandbox: Sandbox, stored: Task) -> None:
    stored.die_at("closed")
    sandbox.control.add_fault("status", method="GET", times=None, status=503)
    assert ends(stored).retryable
    sandbox.control.clear_faults()
    assert [stored.attempt()] == made(sandbox)


# --- the store -------------------------------------------------------------------------------------------------


class TakenOverStore(Store):
    """A store whose write of the intent is under way while the task is failed, cleared and tried again."""

    def get(self, key: str, default: Any = None) -> Any:
        # Airflow answers a try that was superseded as if there were no such key.
        return default if self.states and self.states[-1] == "sending" else super().get(key, default)


def test_a_try_that_was_superseded_while_it_wrote_sends_nothing(sandbox: Sandbox) -> None:
    task = Task(TakenOverStore())
    error = ends(task)
    assert "another try of this task has taken over" in str(error)
    assert sandbox.control.request_log(**CREATE)[1:] == []


class OverwrittenStore(Store):
    """A store in which the late write of an earlier try replaces the intent of this one, once."""

    late: dict[str, Any] | None = None

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        super().set(key, value, retention=retention)
        if value["state"] == "sending" and self.late is None:
            self.late = {**value, "key": "0" * 32, "try": 0}
            self.values[key] = json.dumps(self.late)


def test_a_late_write_of_an_earlier_try_is_noticed_and_replaced(sandbox: Sandbox) -> None:
    task = Task(OverwrittenStore())
    own = task.attempt()
    assert task.store.states == ["begun", "sending", "sending", "closed"]
    assert (task.store.record["detail"], task.store.record["try_number"]) == (own, 1)


def test_a_try_that_failed_before_its_first_record_is_no_unknown_one(sandbox: Sandbox, stored: Task) -> None:
    # A wrong setting: fixed, and the task is cleared.
    with failing_at_once("is not defined"):
        stored.attempt(custody_conn_id="another")
    stored.clear()
    sandbox.control.clear_request_log()
    assert [stored.attempt()] == made(sandbox)
    assert len(sandbox.control.request_log()) == 2


def test_a_cleared_task_without_any_record_looks_first(sandbox: Sandbox, stored: Task) -> None:
    stored.attempt()
    stored.store.values.clear()
    # A retry finds what there was; so nothing was.
    stored.clear()
    error = ends(stored, if_exists="create")
    assert isinstance(error, CustodyOutcomeUnknownError)
    assert [stored.attempt()] == made(sandbox)


class NeverSent:
    """A creation whose connection is closed before the first byte leaves, every time."""

    what = "whitelisting request"
    content: Mapping[str, object] = {}
    timeout = 1.0

    def which(self, key: str) -> str:
        return key

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        before_send()
        raise CustodyConnectionError("nothing was sent", operation="create", nothing_sent=True)

    def find(self, keys: Collection[str], *, thorough: bool) -> dict[str, Found]:
        return dict.fromkeys(keys, Found([]))

    def get(self, key: str, identifier: str) -> None:
        return None


def test_a_request_that_never_left_leaves_no_doubt() -> None:
    store = Store()
    context: Any = {"ti": FakeTaskInstance(), "task_state_store": store}
    with pytest.raises(CustodyConnectionError):
        CreateOnce(context, NeverSent(), logging.getLogger(__name__)).run()
    assert store.record["state"] == "void"
