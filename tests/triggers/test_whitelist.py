"""
The trigger for whitelisting requests, one or a list: all share a poll, and the failure of one affects no other.

How a look-up of many is halved until the bad request is alone is tested in client/whitelist/test_isolating.py.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
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
    """Let requests count as gone or unverified soon."""
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

    started = time.monotonic()
    found = asyncio.run(scenario())
    polls = (time.monotonic() - started) / 0.2 + 1
    assert [event["status"] for event in found] == ["effective"] * 248 + ["error"] * 2
    assert "was rejected" in found[-2]["error"]["message"]
    assert "does not exist" in found[-1]["error"]["message"]
    # Two calls for each hundred at each poll, three where some have taken effect, and not one for each request.
    assert len(lengths(sandbox)) <= 6 * polls + 3
    assert max(lengths(sandbox)) == 100


def test_a_list_and_single_ids_share_their_look_ups(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 6, "APPROVED")
    one, *others = asyncio.run(events(trigger(numbers[:4]), *(trigger(each) for each in numbers[2:])))
    assert one["status"] == "effective"
    assert one["result"] == {"state": "effective", "count": 4, "statuses": {"APPROVED": 4}, "verified": 0}
    assert [each["result"]["id"] for each in others] == numbers[2:]
    assert lengths(sandbox) == [6, 6, 6]
    json.dumps(one)


def test_more_than_a_hundred_hold_up_nobody(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = create(sandbox, 301, "APPROVED")
    # What the large one asks for takes long.
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


# --- how a wait ends -----------------------------------------------------------------------------------------


# --- the failure of one request ends its own trigger, and no other --------------------------------------------


def test_a_bad_id_is_the_trouble_of_its_own_list(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 9, "APPROVED")
    sandbox.control.add_fault("status", status=400, query={"ids": numbers[4]}, times=None)
    made = [trigger(numbers[:3]), trigger(numbers[3:6]), trigger(numbers[6:]), trigger(numbers[0])]
    found = asyncio.run(events(*made))
    assert [each["status"] for each in found] == ["effective", "error", "effective", "effective"]
    assert f"The error is about whitelisting request {numbers[4]}." in found[1]["error"]["advice"]


def test_an_unreadable_request_or_a_malformed_id_ends_only_its_own_trigger(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 4, "APPROVED")
    sandbox.control.set_whitelist_metadata(numbers[3], payloadAsString=["no", "text"])
    assert statuses(*map(trigger, [*numbers, "1/2", "None"])) == ["effective"] * 3 + ["error"] * 3
    sent = {each for call in sandbox.control.request_log() for each in call["query"]["ids"]}
    assert sent == set(numbers)


def test_a_request_that_makes_the_service_fail_is_waited_for_alone(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 20, "APPROVED")
    sandbox.control.add_fault("status", status=500, query={"ids": numbers[3]}, times=None)

    async def scenario() -> list[str]:
        waiting = [asyncio.create_task(first(trigger(number))) for number in numbers]
        alone = waiting.pop(3)
        found = await asyncio.gather(*waiting)
        assert not alone.done()
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        return [each["status"] for each in found]

    assert asyncio.run(scenario()) == ["effective"] * 19


# --- with pinned keys ----------------------------------------------------------------------------------------


def test_an_unsigned_request_ends_only_its_own_trigger(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    monkeypatch.setenv("AIRFLOW_CONN_UNPINNED", connection_json(sandbox))
    rows = [{"label": str(each), "address": "0x" + "a" * 40, "blockchain": "ETH"} for each in range(4)]
    forged, *signed = sandbox.control.add_whitelist_requests(rows, status="pending")
    sandbox.control.sign_whitelist_requests(signed)
    sandbox.control.set_whitelist_status(forged, "APPROVED")
    # After a second poll, however far the polls are apart.
    made = [trigger(each, poke_interval=3600.0) for each in (forged, *signed)]
    # A connection without pinned keys shares no result with one that has them.
    bad, *good, unpinned = found = asyncio.run(events(*made, trigger(forged, custody_conn_id="unpinned")))
    assert bad["error"]["type"] == "CustodyVerificationError"
    assert not bad["error"]["retryable"]
    assert bad["error"]["message"].startswith(f"whitelisting request {forged} is not verified: the service reports")
    assert all(event["result"]["verified"] for event in good)
    assert [event["result"]["fields"]["label"] for event in good] == ["1", "2", "3"]
    assert json.loads(json.dumps(found)) == found
    assert unpinned["status"] == "effective"
    assert not unpinned["result"]["verified"]
