"""
The trigger for whitelisting requests, one or a list: all share a poll, and the failure of one affects no other.

How a look-up of many is halved until the bad request is alone is tested in client/whitelist/test_isolating.py.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from support.airflow.connections import connection_json
from support.airflow.request_triggers import events, first, until

from airflow_custody.client import CustodyClient
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests count as gone or unverified after a short time."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(RequestWait, "unverified_after", 0.4)


def create(sandbox: Sandbox, number: int, status: str = "pending") -> list[str]:
    row = {"label": "L", "address": "0x" + "a" * 40, "blockchain": "ETH"}
    return sandbox.control.add_whitelist_requests([row] * number, status=status)


def trigger(request_id: Any, **kwargs: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(request_id=request_id, **{"poke_interval": 0.2, **kwargs})


def statuses(*made: CustodyWhitelistRequestTrigger) -> list[str]:
    return [event["status"] for event in asyncio.run(events(*made))]


def lengths(sandbox: Sandbox) -> list[int]:
    return [len(call["query"]["ids"]) for call in sandbox.control.request_log()]


def test_many_share_one_poll_in_pages_of_a_hundred(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 250)

    async def scenario() -> list[dict[str, Any]]:
        waiting = asyncio.create_task(events(*map(trigger, numbers)))
        await until(lambda: len(sandbox.control.request_log()) >= 6)
        for number in numbers[:-2]:
            sandbox.control.set_whitelist_status(number, "APPROVED")
        sandbox.control.set_whitelist_status(numbers[-2], "rejected")
        sandbox.control.set_whitelist_status(numbers[-1], "removed")
        return await waiting

    found = asyncio.run(scenario())
    assert [event["status"] for event in found] == ["effective"] * 248 + ["error"] * 2
    assert "was rejected" in found[-2]["error"]["message"]
    assert "does not exist" in found[-1]["error"]["message"]
    assert max(lengths(sandbox)) == 100


def test_more_than_a_hundred_hold_up_nobody(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = create(sandbox, 301, "APPROVED")
    # The look-up of the large list takes long.
    responds = threading.Event()

    def read(client: CustodyClient, ids: Sequence[str]) -> Any:
        if numbers[0] in ids:
            responds.wait(600)
        return read_snapshot(client, ids)

    monkeypatch.setattr("airflow_custody.client.whitelist.wait.read_snapshot", read)

    async def scenario() -> list[str]:
        large = asyncio.create_task(first(trigger(numbers[:300])))
        await asyncio.sleep(0.05)
        small = await asyncio.gather(first(trigger(numbers[300])), first(trigger(numbers[299:])))
        assert len(SharedPoll._running) == 1
        responds.set()
        return [each["status"] for each in (*small, await large)]

    assert asyncio.run(scenario()) == ["effective"] * 3


# --- the failure of one request ends only its own trigger --------------------------------------------


def test_an_unreadable_request_or_a_malformed_id_ends_only_its_own_trigger(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 4, "APPROVED")
    sandbox.control.set_whitelist_metadata(numbers[3], payloadAsString=["no", "text"])
    assert statuses(*map(trigger, [*numbers, "1/2", "None"])) == ["effective"] * 3 + ["error"] * 3
    sent = {each for call in sandbox.control.request_log() for each in call["query"]["ids"]}
    assert sent == set(numbers)


# --- with pinned keys ----------------------------------------------------------------------------------------


def test_an_unsigned_request_ends_only_its_own_trigger(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    monkeypatch.setenv("AIRFLOW_CONN_UNPINNED", connection_json(sandbox))
    rows = [{"label": str(each), "address": "0x" + "a" * 40, "blockchain": "ETH"} for each in range(2)]
    forged, signed = sandbox.control.add_whitelist_requests(rows, status="pending")
    sandbox.control.sign_whitelist_requests([signed])
    sandbox.control.set_whitelist_status(forged, "APPROVED")
    # A connection without pinned keys shares no result with one that has them.
    made = (trigger(forged), trigger(signed), trigger(forged, custody_conn_id="unpinned"))
    bad, good, unpinned = found = asyncio.run(events(*made))
    assert bad["error"]["type"] == "CustodyVerificationError"
    assert not bad["error"]["retryable"]
    assert good["result"]["verified"]
    assert (unpinned["status"], unpinned["result"]["verified"]) == ("effective", False)
    assert json.loads(json.dumps(found)) == found
