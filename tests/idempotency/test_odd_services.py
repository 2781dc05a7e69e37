"""Creating at most once while the service, the store and the clocks are odd: what INTERFACE leaves open, both ways."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.airflow.airflow_runs import failing_at_once
from support.airflow.task_tries import (
    CREATE,
    LISTING,
    Store,
    Task,
    needs_store,
    somebody_creates,
    variable_in,
)
from support.clocks import SkippingTime

from airflow_custody.sandbox import Sandbox

MIXED_CASE = "0x52908400098527886E0F7030069857D2E4169EE7"
LOST: dict[str, Any] = {**CREATE, "kind": "drop", "work": True}

pytestmark = needs_store


@pytest.fixture(autouse=True)
def quick(sandbox: Sandbox, connection: str, waits: SkippingTime) -> None:
    # While the service lists another request of this user, an empty search result proves absence.
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)


@pytest.fixture
def stored() -> Task:
    return Task(Store(), address=MIXED_CASE)


def made(sandbox: Sandbox) -> list[str]:
    """Return the ids of all requests but the first."""
    return [request["id"] for request in sandbox.control.whitelist_requests()][1:]


# --- refusals by the service or a gateway ------------------------------------------------------------------


def test_a_gateways_refusal_leaves_the_outcome_unknown(sandbox: Sandbox, stored: Task) -> None:
    body = {"message": "no Route matched with those values"}
    sandbox.control.add_fault(**{**LOST, "kind": "status", "status": 403, "body": body})
    stored.die_at("closed")
    assert stored.store.record["state"] == "sent"
    assert [stored.attempt()] == made(sandbox)


# --- services that store a request differently -----------------------------------------------------------------


@pytest.mark.parametrize("form", ["lower", "upper", "no prefix"])
def test_another_spelling_of_the_address_is_recognized(sandbox: Sandbox, stored: Task, form: str) -> None:
    sandbox.control.configure(address_form=form, created_at="0001-01-01T00:00:00Z")
    sandbox.control.add_fault(**LOST)
    if form != "no prefix":
        assert [stored.attempt()] == made(sandbox)
        return
    # The service filters by exact text, so the filter finds neither this request nor an older one.
    for _ in range(2):
        message = stored.refused("may have existed before this task")
        (own,) = made(sandbox)
        assert own in message


@pytest.mark.parametrize(
    "change",
    [{"label_length": 4}, {"drop_links": True}, {"chain_name": "ETHX"}],
    ids=["label cut", "links dropped", "another chain name"],
)
def test_a_request_that_the_service_changes_is_a_reason_to_ask(
    sandbox: Sandbox, stored: Task, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.configure(**change)
    sandbox.control.add_fault(**LOST)
    stored.arguments.update(linked_wallet_ids=["7"], if_exists="create")
    assert "differs in" in stored.refused()
    message = stored.refused()
    (own,) = made(sandbox)
    assert own in message
    # The user may name a request whose label was cut, but no request with another destination or other links.
    variable = f"AIRFLOW_VAR_{variable_in(message).upper()}"
    other = somebody_creates(sandbox, label="Other", address="0x" + "11" * 20, linked_wallet_ids=["7"])
    monkeypatch.setenv(variable, other)
    stored.refused("differs in: .*address")
    monkeypatch.setenv(variable, own)
    if "label_length" in change:
        assert stored.attempt() == own
    else:
        stored.refused("differs in: (linked_wallet_ids|blockchain)")


@pytest.mark.parametrize("look_before_create", [True, False])
@pytest.mark.parametrize(
    "date", [{"created_at": "0001-01-01T00:00:00Z"}, {"clock_offset": -2 * 86400}], ids=["no date", "clock behind"]
)
def test_a_date_never_makes_a_request_somebody_elses(
    sandbox: Sandbox, stored: Task, date: dict[str, Any], look_before_create: bool
) -> None:
    sandbox.control.configure(**date)
    sandbox.control.add_fault(**LOST)
    stored.arguments |= {"look_before_create": look_before_create, "if_exists": "create"}
    if look_before_create:
        # The request is new, and its date does not contradict this.
        assert [stored.attempt()] == made(sandbox)
    else:
        stored.refused("may have existed before")
    assert len(made(sandbox)) == 1


# --- other programs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_own", [True, False])
def test_a_manual_none_is_checked(
    sandbox: Sandbox, stored: Task, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault(**LOST)
    sandbox.control.add_fault("status", **LISTING, skip=1, status=404)
    variable = f"AIRFLOW_VAR_{variable_in(stored.refused()).upper()}"
    (found,) = made(sandbox)
    monkeypatch.setenv(variable, "none")
    assert f"'none {found}'" in stored.refused(f"is set to none: {found} has the requested content")
    # Nevertheless, a user may declare that the request does not belong to this task.
    monkeypatch.setenv(variable, found if is_own else f"none {found}")
    own = stored.attempt()
    assert made(sandbox) == ([own] if is_own else [found, own])


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


@pytest.mark.parametrize("hangs", [0, 60])
def test_the_next_worker_waits_by_its_own_clock(
    sandbox: Sandbox, stored: Task, waits: SkippingTime, hangs: int
) -> None:
    sandbox.control.configure(whitelist_lag=3600)
    stored.die_at("closed")
    # By the clock of the worker that recorded the request, the time has long passed.
    stored.store.backdate(datetime.now(timezone.utc) - timedelta(minutes=4))
    if hangs:
        # The wait is 70 s, and begins anew when the service responds again.
        sandbox.control.add_fault("status", method="GET", status=503, times=None)
        waits.after(hangs, sandbox.control.clear_faults)
    waits.after(hangs + 60, lambda: sandbox.control.configure(whitelist_lag=0))
    assert [stored.attempt()] == made(sandbox)


# --- the store -------------------------------------------------------------------------------------------------


def test_a_try_that_failed_before_its_first_record_is_no_unknown_one(sandbox: Sandbox, stored: Task) -> None:
    # A setting is wrong. It is corrected, and the task is cleared.
    with failing_at_once("is not defined"):
        stored.attempt(custody_conn_id="another")
    stored.clear()
    sandbox.control.clear_request_log()
    assert [stored.attempt()] == made(sandbox)
    # The search for the address, the currencies, and the create.
    assert len(sandbox.control.request_log()) == 3
