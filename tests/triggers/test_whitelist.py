from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from airflow.triggers.base import TriggerEvent

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture
def numbers(sandbox: Sandbox) -> list[str]:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = [client.create_whitelist_request(request) for _ in range(250)]
    sandbox.control.clear_request_log()
    return made


def trigger(number: str, **kwargs: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(request_id=number, **{"poke_interval": 0.3, **kwargs})


async def first(made: CustodyWhitelistRequestTrigger) -> dict[str, Any]:
    stream = cast(AsyncGenerator[TriggerEvent, None], made.run())
    try:
        payload: dict[str, Any] = (await anext(stream)).payload
        return payload
    finally:
        await stream.aclose()


def test_many_share_one_poll_in_pages_of_a_hundred(sandbox: Sandbox, numbers: list[str]) -> None:
    async def scenario() -> list[dict[str, Any]]:
        tasks = [asyncio.create_task(first(trigger(number))) for number in numbers]
        await asyncio.sleep(1.0)
        for number in numbers[:-2]:
            sandbox.control.set_whitelist_status(number, "active")
        sandbox.control.set_whitelist_status(numbers[-2], "rejected")
        sandbox.control.set_whitelist_status(numbers[-1], "removed")
        found = await asyncio.gather(*tasks)
        assert SharedPoll.running() == 0
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    started = time.monotonic()
    events = asyncio.run(scenario())
    polls = (time.monotonic() - started) / 0.3 + 1
    assert [event["status"] for event in events] == ["effective"] * 248 + ["error"] * 2
    assert "was rejected" in events[-2]["error"]["message"]
    assert "does not exist" in events[-1]["error"]["message"]
    calls = sandbox.control.request_log()
    # Two calls for each hundred at each poll, three where some have taken effect, and not one for each request.
    assert len(calls) <= 6 * polls + 3
    assert max(len(call["query"]["ids"]) for call in calls) == 100


def test_other_connections_and_intervals_have_polls_of_their_own(
    sandbox: Sandbox, numbers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> int:
        made = [trigger("1"), trigger("2"), trigger("1", poke_interval=9), trigger("1", custody_conn_id="other")]
        tasks = [asyncio.create_task(first(each)) for each in made]
        await asyncio.sleep(0.05)
        running = SharedPoll.running()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert SharedPoll.running() == 0
        return running

    assert asyncio.run(scenario()) == 3


def test_times_out_and_waits_out_failures(sandbox: Sandbox, numbers: list[str]) -> None:
    sandbox.control.add_fault("status", status=503)
    event = asyncio.run(first(trigger(numbers[0], deadline=time.time() + 1)))
    assert event["status"] == "timeout"
    assert "is pending approval" in event["message"]


@pytest.mark.parametrize("fault", [{"status": 401}, {"status": 404}, {"status": 405}])
def test_an_error_is_an_event(sandbox: Sandbox, numbers: list[str], fault: dict[str, Any]) -> None:
    sandbox.control.add_fault("status", **fault)
    event = asyncio.run(first(trigger(numbers[0])))
    assert event["status"] == "error"
    assert event["error"]["status"] == fault["status"]
    json.dumps(event)


def test_one_status_word_is_not_a_list_of_letters() -> None:
    arguments = trigger("7", effective_statuses="APPROVED", rejected_statuses="denied").serialize()[1]
    assert (arguments["effective_statuses"], arguments["rejected_statuses"]) == (["APPROVED"], ["denied"])


def test_a_missing_connection_is_an_event() -> None:
    event = asyncio.run(first(trigger("1", custody_conn_id="nowhere")))
    assert event["status"] == "error"
    assert "nowhere" in event["error"]["message"]


def test_arguments_survive_json(sandbox: Sandbox) -> None:
    made = trigger("7", effective_statuses=("a",), rejected_statuses={"b"}, deadline=5.0)
    path, arguments = made.serialize()
    assert path.endswith("CustodyWhitelistRequestTrigger")
    assert json.loads(json.dumps(arguments)) == arguments
    assert CustodyWhitelistRequestTrigger(**arguments).serialize() == (path, arguments)
