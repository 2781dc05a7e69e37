"""The same address again: an existing request is reused, or stops the task, and is never created twice."""

from __future__ import annotations

from typing import Any

import pytest
from support.airflow.airflow_runs import FakeTaskInstance, execute, failing_at_once
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.airflow.task_tries import ADDRESS, CREATE, LISTING, somebody_creates

from airflow_custody.client import CustodyConflictError, CustodyResponseError
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection", "waits")
FIELDS: dict[str, Any] = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}
CHECKSUMMED = "0x52908400098527886E0F7030069857D2E4169EE7"


def create(ti: FakeTaskInstance | None = None, **changes: Any) -> str:
    arguments = {**FIELDS, "lookup_wait": 0.3, **changes}
    request_id: str = execute(
        lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments), ti=ti or FakeTaskInstance()
    )
    return request_id


def sent(sandbox: Sandbox) -> int:
    """Return how many creates were sent, and forget all calls."""
    number = len(sandbox.control.request_log(**CREATE))
    sandbox.control.clear_request_log()
    return number


def test_a_listing_that_changes_while_it_is_read_is_left_to_the_next_try(sandbox: Sandbox) -> None:
    theirs = somebody_creates(sandbox)
    sandbox.control.clear_request_log()
    page: dict[str, Any] = {"result": [], "totalItems": "0"}
    sandbox.control.add_fault("status", **LISTING, query={"ids": theirs}, body=page, times=3)
    with pytest.raises(CustodyResponseError, match="by address, but not by id: the listing changed") as caught:
        create()
    assert caught.value.retryable
    assert sent(sandbox) == 0


def test_a_hidden_request_for_the_address_may_be_the_same_one(sandbox: Sandbox) -> None:
    theirs = somebody_creates(sandbox)
    sandbox.control.configure(listings={"whitelist": {"dropped": [theirs]}})
    sandbox.control.clear_request_log()
    with failing_at_once("the service counts 1 request that it does not return for this address") as caught:
        create()
    assert caught.value.error.code == "request-exists"
    assert sent(sandbox) == 0


def test_beside_a_hidden_request_another_one_is_created_only_if_asked_for(sandbox: Sandbox, task_log: TaskLog) -> None:
    theirs = somebody_creates(sandbox)
    sandbox.control.configure(listings={"whitelist": {"dropped": [theirs]}})
    assert create(if_exists="create") != theirs
    assert "The service counts 1 request that it does not return for this address" in task_log.text


# --- night after night -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["pending", "APPROVED"])
def test_another_users_request_is_reused(sandbox: Sandbox, task_log: TaskLog, status: str) -> None:
    somebody_creates(sandbox, label="Other", address="0x" + "11" * 20)
    theirs = somebody_creates(sandbox)
    sandbox.control.set_whitelist_status(theirs, status)
    sandbox.control.clear_request_log()
    ti = FakeTaskInstance()
    assert create(ti) == theirs
    assert ti.pushed == {"request": {"id": theirs, **FIELDS}, "created": False}
    assert f"Reusing whitelisting request {theirs}, so nothing is sent" in task_log.text
    assert sent(sandbox) == 0
    ti = FakeTaskInstance()
    assert create(ti, if_exists="create") != theirs
    assert ti.pushed["created"] is True


def test_another_spelling_is_the_same_and_what_follows_goes_through(sandbox: Sandbox) -> None:
    sandbox.control.configure(address_form="as sent")
    theirs = somebody_creates(sandbox, address=CHECKSUMMED, network="Mainnet")
    ti = FakeTaskInstance()
    assert create(ti, address=CHECKSUMMED.lower(), blockchain="Ethereum", network="main") == theirs
    # The values are spelled as at the service, because that spelling is signed and compared.
    assert ti.pushed["request"] == {"id": theirs, **FIELDS, "address": CHECKSUMMED, "network": "Mainnet"}
    assert sent(sandbox) == 1


# --- what stops the task -----------------------------------------------------------------------------------


def unreadable(sandbox: Sandbox, number: str) -> None:
    sandbox.control.set_whitelist_metadata(number, hash="0" * 64)


STOPS: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "another label": (
        {"label": "Other"},
        "pending",
        r"3711 is for .* label \(requested 'Treasury', shown 'Other'\)",
        "request-differs",
        "replace=True",
    ),
    "other links": (
        {"linked_wallet_ids": ["7"]},
        "APPROVED",
        "3711 .* linked_wallet_ids",
        "request-differs",
        "replace=True",
    ),
    "an unknown status": (
        {},
        "frozen",
        r"3711 .* status \(shown 'frozen'\): its status 'frozen' is unknown, so it does not count as in effect",
        "request-differs",
        "'effective_statuses' or 'rejected_statuses' of the Airflow connection 'custody_default'",
    ),
    "rejected": (
        {},
        "rejected",
        "3711 has the same content and was rejected",
        "request-rejected",
        "if_exists='create'",
    ),
    "unreadable": (
        {},
        "unreadable",
        "request 3711 cannot be read, and may be for this row",
        "request-differs",
        "='create'",
    ),
}


@pytest.mark.parametrize(("changes", "status", "why", "code", "advice"), STOPS.values(), ids=STOPS)
def test_an_unusable_request_stops_the_task_and_is_named(
    sandbox: Sandbox, changes: dict[str, Any], status: str, why: str, code: str, advice: str
) -> None:
    number = somebody_creates(sandbox, **changes)
    if status == "unreadable":
        unreadable(sandbox, number)
    else:
        sandbox.control.set_whitelist_status(number, status)
    sandbox.control.clear_request_log()
    with failing_at_once(f"{why}.*; nothing is sent") as caught:
        create()
    error = caught.value.error
    assert isinstance(error, CustodyConflictError)
    assert error.code == code
    assert not error.retryable
    assert advice in str(error)
    assert sent(sandbox) == 0


def test_an_existing_request_fails_a_task_that_must_create(sandbox: Sandbox) -> None:
    assert create(if_exists="fail") == "3711"
    with failing_at_once("3711 already has the same content and is pending approval") as caught:
        create(if_exists="fail")
    assert caught.value.error.code == "request-exists"
    assert sent(sandbox) == 1


def test_an_unverified_request_is_not_reused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    forged = somebody_creates(sandbox)
    sandbox.control.set_whitelist_status(forged, "APPROVED")
    sandbox.control.clear_request_log()
    with failing_at_once(f"{forged} is not verified: .*nothing is created; nothing is sent") as caught:
        create()
    assert caught.value.error.code == "not-verified"
    assert "if_exists" not in str(caught.value.error)
    assert sent(sandbox) == 0


def test_a_rejected_request_with_other_content_does_not_count(sandbox: Sandbox) -> None:
    for each in ("Old", "Older"):
        sandbox.control.set_whitelist_status(somebody_creates(sandbox, label=each), "rejected")
    sandbox.control.clear_request_log()
    own = create()
    assert sent(sandbox) == 1
    sandbox.control.set_whitelist_status(own, "removed")
    unreadable(sandbox, somebody_creates(sandbox, label="Odd"))
    sandbox.control.clear_request_log()
    with failing_at_once("cannot be read, and may be for this row"):
        create()
    assert sent(sandbox) == 0


# --- the DAG file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"if_exists": "{{ params.x }}"}, "if_exists must be 'reuse', 'fail' or 'create'"),
        ({"on_clear": "new"}, "on_clear must be"),
        ({"on_clear": "create"}, "on_clear='create' requires if_exists='create'"),
        ({"look_before_create": False, "if_exists": "fail"}, "look_before_create=False requires if_exists='create'"),
    ],
    ids=str,
)
def test_contradictory_parameters_are_refused_when_the_file_is_parsed(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CustodyCreateWhitelistRequestOperator(task_id="create", **FIELDS, **given)
