from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest
from request_triggers import end_waits_after, first

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestWait, "gone_after", 1.0)


@pytest.fixture
def numbers(sandbox: Sandbox) -> list[str]:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = [client.create_whitelist_request(request) for _ in range(250)]
    sandbox.control.clear_request_log()
    return made


def trigger(number: str, **kwargs: Any) -> CustodyWhitelistRequestTrigger:
    return CustodyWhitelistRequestTrigger(request_id=number, **{"poke_interval": 0.3, **kwargs})


def test_many_share_one_poll_in_pages_of_a_hundred(sandbox: Sandbox, numbers: list[str]) -> None:
    async def scenario() -> list[dict[str, Any]]:
        tasks = [asyncio.create_task(first(trigger(number))) for number in numbers]
        await asyncio.sleep(1.0)
        for number in numbers[:-2]:
            sandbox.control.set_whitelist_status(number, "APPROVED")
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
        while SharedPoll.running() < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        running = SharedPoll.running()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert SharedPoll.running() == 0
        return running

    assert asyncio.run(scenario()) == 3


def test_times_out_and_waits_out_failures(
    sandbox: Sandbox, numbers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault("status", status=503)
    deadline = end_waits_after(monkeypatch, sandbox, 3)
    event = asyncio.run(first(trigger(numbers[0], deadline=deadline)))
    assert event["status"] == "timeout"
    assert "is pending approval" in event["message"]


class TestMissing:
    """A listing may lag: a request that is not listed is gone only when it has been missing for a while, in a row."""

    @pytest.mark.parametrize("pauses", [0.1, 0.3])
    def test_is_gone_when_it_has_been_missing_for_long_enough(self, sandbox: Sandbox, pauses: float) -> None:
        started = time.monotonic()
        event = asyncio.run(first(trigger("9999", poke_interval=pauses)))
        assert event["status"] == "error"
        found = re.search(r"9999 does not exist: it has not been listed for ([\d.]+) s", event["error"]["message"])
        assert found is not None
        assert not event["error"]["retryable"]
        assert 1.0 <= float(found[1]) <= time.monotonic() - started

    def test_at_a_long_interval_the_second_miss_decides(self, sandbox: Sandbox) -> None:
        event = asyncio.run(first(trigger("9999", poke_interval=1.5)))
        assert re.search(r"not been listed for [1-9][\d.]* s", event["error"]["message"])
        # Two polls, of three listings each.
        assert len(sandbox.control.request_log()) == 6

    def test_what_is_listed_late_is_waited_for(self, sandbox: Sandbox, numbers: list[str]) -> None:
        sandbox.control.set_whitelist_status(numbers[0], "APPROVED")
        sandbox.control.add_fault("status", status=200, body={}, times=4)
        assert asyncio.run(first(trigger(numbers[0])))["status"] == "effective"

    def test_each_trigger_of_a_shared_poll_has_its_own_time(self, sandbox: Sandbox) -> None:
        async def scenario() -> float:
            early = asyncio.create_task(first(trigger("9999")))
            await asyncio.sleep(0.8)
            started = time.monotonic()
            late = asyncio.create_task(first(trigger("9999")))
            assert (await early)["status"] == "error"
            assert (await late)["status"] == "error"
            return time.monotonic() - started

        assert asyncio.run(scenario()) >= 1.0

    def test_a_time_out_says_that_it_is_not_listed(self, sandbox: Sandbox) -> None:
        event = asyncio.run(first(trigger("9999", deadline=time.time() + 0.5)))
        assert event["status"] == "timeout"
        assert "9999 is not listed" in event["message"]


async def statuses(made: list[CustodyWhitelistRequestTrigger]) -> list[str]:
    return [event["status"] for event in await asyncio.gather(*(first(each) for each in made))]


class TestIsolation:
    """The trouble of one request is that of its trigger, and of no other."""

    @pytest.fixture(autouse=True)
    def in_effect(self, sandbox: Sandbox, numbers: list[str]) -> None:
        for number in numbers:
            sandbox.control.set_whitelist_status(number, "APPROVED")
        sandbox.control.clear_request_log()

    @pytest.mark.parametrize("status", [400, 404, 422])
    @pytest.mark.parametrize("bad", [(7,), (0, 99, 249)])
    def test_an_id_that_the_service_refuses(
        self, sandbox: Sandbox, numbers: list[str], status: int, bad: tuple[int, ...]
    ) -> None:
        for number in bad:
            sandbox.control.add_fault("status", status=status, query={"ids": numbers[number]}, times=None)
        got = asyncio.run(statuses([trigger(number) for number in numbers]))
        assert [number for number, status in enumerate(got) if status == "error"] == list(bad)
        assert got.count("effective") == 250 - len(bad)
        assert len(sandbox.control.request_log()) < 300

    def test_a_row_that_cannot_be_read(self, sandbox: Sandbox, numbers: list[str]) -> None:
        sandbox.control.set_whitelist_metadata(numbers[3], payloadAsString=["no", "text"])
        got = asyncio.run(statuses([trigger(number) for number in numbers[:20]]))
        assert got == ["effective"] * 3 + ["error"] + ["effective"] * 16

    @pytest.mark.parametrize("fault", [{"kind": "status", "status": 500}, {"kind": "truncate_body"}])
    def test_a_request_that_makes_the_service_fail_is_waited_for_alone(
        self, sandbox: Sandbox, numbers: list[str], fault: dict[str, Any]
    ) -> None:
        sandbox.control.add_fault(**fault, query={"ids": numbers[3]}, times=None)

        async def scenario() -> list[str]:
            waiting = [asyncio.create_task(first(trigger(number))) for number in numbers[:20]]
            alone = waiting.pop(3)
            found = await asyncio.gather(*waiting)
            assert not alone.done()
            alone.cancel()
            await asyncio.gather(alone, return_exceptions=True)
            return [each["status"] for each in found]

        assert asyncio.run(scenario()) == ["effective"] * 19

    def test_more_than_one_poll_can_find(self, sandbox: Sandbox, numbers: list[str]) -> None:
        bad = numbers[:30]
        for number in bad:
            sandbox.control.add_fault("status", status=400, query={"ids": number}, times=None)
        got = asyncio.run(statuses([trigger(number, poke_interval=0.1) for number in numbers[:60]]))
        assert got == ["error"] * 30 + ["effective"] * 30

    def test_what_is_no_id_is_not_sent(self, sandbox: Sandbox, numbers: list[str]) -> None:
        made = [trigger(numbers[0]), trigger("1/2"), trigger("None"), trigger(numbers[1])]
        assert asyncio.run(statuses(made)) == ["effective", "error", "error", "effective"]
        sent = {each for call in sandbox.control.request_log() for each in call["query"]["ids"]}
        assert sent == set(numbers[:2])

    @pytest.mark.parametrize("fault", [{"kind": "status", "status": 404}, {"kind": "html"}])
    def test_a_service_that_refuses_all_ends_all_with_few_calls(
        self, sandbox: Sandbox, numbers: list[str], fault: dict[str, Any]
    ) -> None:
        sandbox.control.add_fault(**fault, times=None)
        assert asyncio.run(statuses([trigger(number) for number in numbers])) == ["error"] * 250
        assert len(sandbox.control.request_log()) <= 48 + 3

    @pytest.mark.parametrize("status", [401, 403, 405, 503])
    def test_a_refusal_that_is_nobodys_in_particular_is_not_looked_into(
        self, sandbox: Sandbox, numbers: list[str], status: int
    ) -> None:
        sandbox.control.add_fault("status", status=status, times=None)
        asyncio.run(statuses([trigger(number, deadline=time.time(), poke_interval=9) for number in numbers]))
        assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize("fault", [{"status": 401}, {"status": 404}, {"status": 405}])
def test_an_error_is_an_event(sandbox: Sandbox, numbers: list[str], fault: dict[str, Any]) -> None:
    sandbox.control.add_fault("status", **fault)
    event = asyncio.run(first(trigger(numbers[0])))
    assert event["status"] == "error"
    assert event["error"]["status"] == fault["status"]
    json.dumps(event)


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
