"""With pinned keys, an unverified request never counts as a row's request, and does not cause a second send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.airflow.apply_tries import ROWS, ApplyTask, address, before, effective
from support.airflow.task_tries import CREATE, somebody_creates
from support.clocks import SkippingTime

from airflow_custody.idempotency import send
from airflow_custody.idempotency.apply_plan import ApplyPlan
from airflow_custody.idempotency.search import Search
from airflow_custody.idempotency.send import Sender
from airflow_custody.sandbox import Sandbox

NUMBER = 3


@pytest.fixture(autouse=True)
def pinned(sandbox: Sandbox, airflow_db: None, waits: SkippingTime, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.loads(sandbox.connection(pins=True))
    connection["extra"] |= {"timeout": 60, "max_retries": 0}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    monkeypatch.setattr(send, "MAX_BATCH", 5)
    somebody_creates(sandbox, label="Earlier", address=address(0))


def forge(sandbox: Sandbox, **changes: Any) -> str:
    """Return an unsigned request that the service lists as in effect."""
    return effective(sandbox, NUMBER, **changes)


def rows_of(sandbox: Sandbox, number: int = NUMBER) -> list[str]:
    return [each["id"] for each in sandbox.control.whitelist_requests() if each["address"] == address(number)]


def test_a_request_that_is_forged_right_before_sending_takes_no_row(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    before(monkeypatch, Sender, "send", lambda: made.append(forge(sandbox)))
    error = task.fails()
    assert f"{made[0]}: not verified: no signature covers its text" in str(error)
    assert "1 refused" in str(error)
    assert "found" not in str(error)
    assert rows_of(sandbox) == made
    assert len(sandbox.control.whitelist_requests()) == 1 + len(ROWS)


def test_a_request_that_is_forged_after_a_lost_response_is_not_this_tasks(
    sandbox: Sandbox, stored: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault("drop", **CREATE, skip=NUMBER - 1)
    made: list[str] = []
    before(monkeypatch, Search, "resolve", lambda: made.append(forge(sandbox)))
    error = stored.fails(max_parallel=1)
    assert "1 unknown" in str(error)
    error = stored.fails(max_parallel=1)
    assert f"{made[0]} is new, and whitelisting request {made[0]} is not verified: no signature" in str(error)
    assert rows_of(sandbox) == made
    # Once people have signed the request, it counts.
    sandbox.control.sign_whitelist_requests(made)
    assert stored.attempt()["counts"]["created"] == len(ROWS)
    assert rows_of(sandbox) == made


def test_a_created_request_that_is_shown_as_in_effect_is_unknown(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(
        monkeypatch,
        ApplyPlan,
        "_check_created",
        lambda: sandbox.control.set_whitelist_status(rows_of(sandbox)[0], "APPROVED"),
    )
    error = task.fails()
    (made,) = rows_of(sandbox)
    assert f"returned the id {made} for this row, but whitelisting request {made} is not verified: no" in str(error)
    assert "1 unknown" in str(error)


def test_a_created_request_is_pending_although_its_word_means_in_effect(
    sandbox: Sandbox, task: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["approved", "pending"]
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True, effective_statuses=words))
    assert task.attempt()["counts"]["created"] == len(ROWS)


def test_a_found_request_that_no_longer_verifies_gives_its_row_back(
    sandbox: Sandbox, stored: ApplyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    fields = {"label": f"Label {NUMBER}", "address": address(NUMBER)}
    before(monkeypatch, Sender, "send", lambda: made.append(somebody_creates(sandbox, **fields)))
    stored.dies_at(6)
    assert rows_of(sandbox) == made
    sandbox.control.set_whitelist_status(made[0], "APPROVED")
    error = stored.fails()
    refused = "line 5, Label 3: refused: another client has meanwhile created a request for the same destination"
    assert f"{refused} ({made[0]}: not verified" in str(error)
    assert rows_of(sandbox) == made
