"""The trigger with pinned keys: what is in effect is verified in the shared poll, each for itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from connections import connection_json
from request_triggers import events, first

from airflow_custody.client import CustodyClient
from airflow_custody.client.whitelist import progress
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger


@pytest.fixture(autouse=True)
def quick(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define a connection with pinned keys, and one without; both show signatures soon."""
    monkeypatch.setattr(RequestWait, "unverified_after", 0.4)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    monkeypatch.setenv("AIRFLOW_CONN_UNPINNED", connection_json(sandbox))


@pytest.fixture
def numbers(sandbox: Sandbox) -> list[str]:
    """Return five requests: nobody has signed the first two, which are shown as in effect all the same."""
    rows = [{"label": str(each), "address": "0x" + "a" * 40, "blockchain": "ETH"} for each in range(5)]
    made = sandbox.control.add_whitelist_requests(rows, status="pending")
    sandbox.control.sign_whitelist_requests(made[2:])
    for each in made[:2]:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    sandbox.control.clear_request_log()
    return made


def trigger(request_id: Any, **kwargs: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(request_id=request_id, **{"poke_interval": 3600.0, **kwargs})


def test_what_nobody_signed_is_an_error_of_its_own(numbers: list[str]) -> None:
    started = time.monotonic()
    found = asyncio.run(events(*map(trigger, numbers)))
    # After a second poll, however far the polls are apart.
    assert 0.4 <= time.monotonic() - started < 1800
    assert [each["status"] for each in found] == ["error"] * 2 + ["effective"] * 3
    for number, event in zip(numbers, found[:2], strict=False):
        assert event["error"]["type"] == "CustodyVerificationError"
        assert not event["error"]["retryable"]
        assert event["error"]["message"].startswith(f"whitelisting request {number} is not verified: the service says")
    assert all(event["result"]["verified"] is True for event in found[2:])
    assert [event["result"]["fields"]["label"] for event in found[2:]] == ["2", "3", "4"]
    assert json.loads(json.dumps(found)) == found


def test_a_list_names_all_that_nobody_signed(numbers: list[str]) -> None:
    (event,) = asyncio.run(events(trigger(numbers)))
    assert event["error"]["type"] == "CustodyVerificationError"
    message = event["error"]["message"]
    assert message.startswith(f"2 of 5 whitelisting requests are not verified: whitelisting request {numbers[0]} is no")
    assert f"; whitelisting request {numbers[1]} is not verified: " in message


@pytest.mark.parametrize("many", [False, True])
def test_a_signature_that_is_shown_late_is_waited_for(
    sandbox: Sandbox, numbers: list[str], many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_listed = progress.find_listed

    def look_up(client: CustodyClient, ids: Iterable[str], **how: Any) -> Any:
        found = find_listed(client, ids, **how)
        sandbox.control.sign_whitelist_requests(numbers[:2])
        return found

    monkeypatch.setattr("airflow_custody.client.whitelist.wait.find_listed", look_up)
    event = asyncio.run(first(trigger(numbers if many else numbers[0], deadline=time.time())))
    assert event["status"] == "effective"
    assert event["result"]["verified"] == (5 if many else True)


def test_a_connection_without_pinned_keys_shares_no_result_with_one_that_has_them(numbers: list[str]) -> None:
    found = asyncio.run(events(trigger(numbers[0]), trigger(numbers[0], custody_conn_id="unpinned")))
    assert [each["status"] for each in found] == ["error", "effective"]
    assert found[1]["result"]["verified"] is False
