"""The trigger with a list of ids: it shares the polls of the others, holds up nobody, and fails alone."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from request_triggers import end_waits_after, events, first

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist import progress
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)


def create(sandbox: Sandbox, number: int) -> list[str]:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = [client.create_whitelist_request(request) for _ in range(number)]
    sandbox.control.clear_request_log()
    return made


def approve(sandbox: Sandbox, numbers: list[str]) -> None:
    for number in numbers:
        sandbox.control.set_whitelist_status(number, "APPROVED")
    sandbox.control.clear_request_log()


def trigger(request_id: Any, **kwargs: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(request_id=request_id, **{"poke_interval": 0.2, **kwargs})


def lengths(sandbox: Sandbox) -> list[int]:
    return [len(call["query"]["ids"]) for call in sandbox.control.request_log()]


def test_a_list_and_single_ids_share_their_look_ups(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 6)
    approve(sandbox, numbers)
    one, *others = asyncio.run(events(trigger(numbers[:4]), *(trigger(each) for each in numbers[2:])))
    result = {"state": "effective", "count": 4, "statuses": {"APPROVED": 4}, "verified": 0}
    assert (one["status"], one["result"]) == ("effective", result)
    assert [each["result"]["id"] for each in others] == numbers[2:]
    assert lengths(sandbox) == [6, 6]
    json.dumps(one)


def test_a_thousand_triggers_take_three_calls_for_each_hundred(sandbox: Sandbox) -> None:
    numbers = [str(10_000 + each) for each in range(1000)]

    async def scenario() -> None:
        tasks = [asyncio.create_task(first(trigger(number, poke_interval=60))) for number in numbers]
        while len(sandbox.control.request_log()) < 30:
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
    assert lengths(sandbox) == [100] * 30


def test_more_than_a_hundred_hold_up_nobody(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = create(sandbox, 301)
    approve(sandbox, numbers)
    # What the large one asks for takes long.
    responds, find_listed = threading.Event(), progress.find_listed

    def look_up(client: CustodyClient, ids: Sequence[str], **how: Any) -> Any:
        if numbers[0] in ids:
            responds.wait(600)
        return find_listed(client, ids, **how)

    monkeypatch.setattr("airflow_custody.client.whitelist.wait.find_listed", look_up)

    async def scenario() -> None:
        large = asyncio.create_task(first(trigger(numbers[:300])))
        also_large = asyncio.create_task(first(trigger(numbers[100:250])))
        await asyncio.sleep(0.05)
        small = await asyncio.gather(first(trigger(numbers[300])), first(trigger(numbers[299:])))
        assert SharedPoll.running() == 1
        responds.set()
        assert [each["status"] for each in (*small, await large, await also_large)] == ["effective"] * 4

    asyncio.run(scenario())
    # The two large ones shared theirs.
    assert sorted(lengths(sandbox)) == [2, 2, *[100] * 6]


def test_a_bad_id_is_the_trouble_of_its_own_list(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 9)
    approve(sandbox, numbers)
    sandbox.control.add_fault("status", status=400, query={"ids": numbers[4]}, times=None)
    found = asyncio.run(events(trigger(numbers[:3]), trigger(numbers[3:6]), trigger(numbers[6:]), trigger(numbers[0])))
    assert [each["status"] for each in found] == ["effective", "error", "effective", "effective"]
    assert f"It is about whitelisting request {numbers[4]}." in found[1]["error"]["advice"]


def test_a_part_that_cannot_be_looked_up_is_waited_out(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = create(sandbox, 150)
    approve(sandbox, numbers)
    sandbox.control.add_fault("status", status=503, query={"ids": numbers[7]}, times=3)
    assert asyncio.run(events(trigger(numbers)))[0]["result"]["count"] == 150
    sandbox.control.add_fault("status", status=503, times=None)
    sandbox.control.clear_request_log()
    (event,) = asyncio.run(events(trigger(numbers, deadline=end_waits_after(monkeypatch, sandbox, 1))))
    assert event["status"] == "timeout"
    assert "503" in event["message"]


def test_the_service_may_ask_for_a_pause_in_the_middle_of_a_poll(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 150)
    approve(sandbox, numbers)
    sandbox.control.add_fault("rate_limit", query={"ids": numbers[7]}, retry_after=1)
    started = time.monotonic()
    assert asyncio.run(events(trigger(numbers)))[0]["status"] == "effective"
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("status", [401, 404, 405])
def test_what_no_wait_would_mend_ends_it(sandbox: Sandbox, status: int) -> None:
    sandbox.control.add_fault("status", status=status, times=None)
    (event,) = asyncio.run(events(trigger(["1", "2"])))
    assert (event["status"], event["error"]["status"]) == ("error", status)


def test_rejected_and_timed_out(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = create(sandbox, 3)
    sandbox.control.set_whitelist_status(numbers[1], "rejected")
    deadline = end_waits_after(monkeypatch, sandbox, 1)
    wrong, late = asyncio.run(events(trigger(numbers), trigger([numbers[0], numbers[2]], deadline=deadline)))
    assert (
        f"1 of 3 whitelisting requests is not going to take effect: whitelisting request {numbers[1]} was rejected"
        in str(wrong["error"]["message"])
    )
    assert late["status"] == "timeout"
    assert "0 of 2 whitelisting requests are in effect (2 pending approval)" in late["message"]


@pytest.mark.parametrize("given", [["7", "12"], ("7", "12"), ["7", 12]], ids=str)
def test_a_list_survives_json(given: Any) -> None:
    path, arguments = trigger(given).serialize()
    assert arguments["request_id"] == list(given)
    assert json.loads(json.dumps(arguments)) == arguments
    assert CustodyWhitelistRequestTrigger(**arguments).serialize() == (path, arguments)
