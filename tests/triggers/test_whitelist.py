"""The trigger for whitelisting requests, one or a list: all share a poll, the trouble of each is its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from connections import connection_json
from request_triggers import end_waits_after, events, first, until

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist import progress
from airflow_custody.client.whitelist.wait import RequestWait
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")
LOOK_UP = "airflow_custody.client.whitelist.wait.find_listed"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests count as gone or unverified soon."""
    monkeypatch.setattr(RequestWait, "gone_after", 0.5)
    monkeypatch.setattr(RequestWait, "unverified_after", 0.4)


def create(sandbox: Sandbox, number: int, status: str = "pending") -> list[str]:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        made = [client.create_whitelist_request(request) for _ in range(number)]
    for each in made if status != "pending" else ():
        sandbox.control.set_whitelist_status(each, status)
    sandbox.control.clear_request_log()
    return made


@pytest.fixture
def numbers(sandbox: Sandbox) -> list[str]:
    """Return the ids of 250 requests that are in effect."""
    return create(sandbox, 250, "APPROVED")


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
        found = await waiting
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

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
    result = {"state": "effective", "count": 4, "statuses": {"APPROVED": 4}, "verified": 0}
    assert (one["status"], one["result"]) == ("effective", result)
    assert [each["result"]["id"] for each in others] == numbers[2:]
    assert lengths(sandbox) == [6, 6]
    json.dumps(one)


def test_more_than_a_hundred_hold_up_nobody(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = create(sandbox, 301, "APPROVED")
    # What the large one asks for takes long.
    responds, find_listed = threading.Event(), progress.find_listed

    def look_up(client: CustodyClient, ids: Sequence[str], **how: Any) -> Any:
        if numbers[0] in ids:
            responds.wait(600)
        return find_listed(client, ids, **how)

    monkeypatch.setattr(LOOK_UP, look_up)

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


def test_other_connections_and_intervals_have_polls_of_their_own(sandbox: Sandbox) -> None:
    async def scenario() -> int:
        made = [trigger("1", poke_interval=9), trigger("1", custody_conn_id="other"), trigger("1"), trigger("2")]
        tasks = [asyncio.create_task(first(each)) for each in made]
        await until(lambda: SharedPoll.running() == 3)
        await asyncio.sleep(0.05)
        running = SharedPoll.running()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return running

    assert asyncio.run(scenario()) == 3
    assert SharedPoll.running() == 0


# --- how a wait ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True])
def test_times_out_and_waits_out_failures(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    numbers = create(sandbox, 150 if many else 1)
    sandbox.control.add_fault("status", status=503)
    deadline = end_waits_after(monkeypatch, sandbox, 6 if many else 3)
    (event,) = asyncio.run(events(trigger(numbers if many else numbers[0], deadline=deadline)))
    assert event["status"] == "timeout"
    assert ("0 of 150 whitelisting requests are in effect" if many else "is pending approval") in event["message"]


def test_what_is_listed_late_is_waited_for_and_what_stays_missing_is_gone(sandbox: Sandbox) -> None:
    (number,) = create(sandbox, 1, "APPROVED")
    sandbox.control.add_fault("status", status=200, body={}, times=4)
    assert statuses(trigger(number)) == ["effective"]
    sandbox.control.clear_request_log()
    (event,) = asyncio.run(events(trigger("9999", poke_interval=1.5)))
    assert "9999 does not exist: it has not been listed for " in event["error"]["message"]
    assert not event["error"]["retryable"]
    # At a long interval the second miss decides: two polls, of three listings each.
    assert len(lengths(sandbox)) == 6


def test_the_service_may_ask_for_a_pause_in_the_middle_of_a_poll(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 150, "APPROVED")
    sandbox.control.add_fault("rate_limit", query={"ids": numbers[7]}, retry_after=1)
    started = time.monotonic()
    assert statuses(trigger(numbers)) == ["effective"]
    assert time.monotonic() - started >= 1


# --- the trouble of one request is that of its trigger, and of no other ----------------------------------------


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize("bad", [(7,), (0, 99, 249)])
def test_an_id_that_the_service_refuses(
    sandbox: Sandbox, numbers: list[str], status: int, bad: tuple[int, ...]
) -> None:
    for number in bad:
        sandbox.control.add_fault("status", status=status, query={"ids": numbers[number]}, times=None)
    got = statuses(*map(trigger, numbers))
    assert [number for number, status in enumerate(got) if status == "error"] == list(bad)
    assert got.count("effective") == 250 - len(bad)
    assert len(lengths(sandbox)) < 300


def test_a_bad_id_is_the_trouble_of_its_own_list(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 9, "APPROVED")
    sandbox.control.add_fault("status", status=400, query={"ids": numbers[4]}, times=None)
    made = [trigger(numbers[:3]), trigger(numbers[3:6]), trigger(numbers[6:]), trigger(numbers[0])]
    found = asyncio.run(events(*made))
    assert [each["status"] for each in found] == ["effective", "error", "effective", "effective"]
    assert f"It is about whitelisting request {numbers[4]}." in found[1]["error"]["advice"]


def test_what_cannot_be_read_or_is_no_id(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 4, "APPROVED")
    sandbox.control.set_whitelist_metadata(numbers[3], payloadAsString=["no", "text"])
    assert statuses(*map(trigger, [*numbers, "1/2", "None"])) == ["effective"] * 3 + ["error"] * 3
    sent = {each for call in sandbox.control.request_log() for each in call["query"]["ids"]}
    assert sent == set(numbers)


@pytest.mark.parametrize("fault", [{"kind": "status", "status": 500}, {"kind": "truncate_body"}])
def test_a_request_that_makes_the_service_fail_is_waited_for_alone(sandbox: Sandbox, fault: dict[str, Any]) -> None:
    numbers = create(sandbox, 20, "APPROVED")
    sandbox.control.add_fault(**fault, query={"ids": numbers[3]}, times=None)

    async def scenario() -> list[str]:
        waiting = [asyncio.create_task(first(trigger(number))) for number in numbers]
        alone = waiting.pop(3)
        found = await asyncio.gather(*waiting)
        assert not alone.done()
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        return [each["status"] for each in found]

    assert asyncio.run(scenario()) == ["effective"] * 19


def test_more_than_one_poll_can_find(sandbox: Sandbox) -> None:
    numbers = create(sandbox, 60, "APPROVED")
    for number in numbers[:30]:
        sandbox.control.add_fault("status", status=400, query={"ids": number}, times=None)
    assert statuses(*map(trigger, numbers)) == ["error"] * 30 + ["effective"] * 30


@pytest.mark.parametrize("fault", [{"kind": "status", "status": 404}, {"kind": "html"}])
def test_a_service_that_refuses_all_ends_all_with_few_calls(
    sandbox: Sandbox, numbers: list[str], fault: dict[str, Any]
) -> None:
    sandbox.control.add_fault(**fault, times=None)
    assert statuses(*map(trigger, numbers)) == ["error"] * 250
    assert len(lengths(sandbox)) <= 48 + 3


@pytest.mark.parametrize("status", [401, 403, 405, 503])
def test_a_refusal_that_is_nobodys_in_particular_is_not_looked_into(
    sandbox: Sandbox, numbers: list[str], status: int
) -> None:
    sandbox.control.add_fault("status", status=status, times=None)
    statuses(*(trigger(number, deadline=time.time(), poke_interval=9) for number in numbers))
    assert len(lengths(sandbox)) == 1


# --- with pinned keys ----------------------------------------------------------------------------------------


@pytest.fixture
def partly_signed(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pin keys, and return five requests: nobody has signed the first two, which are shown as in effect."""
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    monkeypatch.setenv("AIRFLOW_CONN_UNPINNED", connection_json(sandbox))
    rows = [{"label": str(each), "address": "0x" + "a" * 40, "blockchain": "ETH"} for each in range(5)]
    made = sandbox.control.add_whitelist_requests(rows, status="pending")
    sandbox.control.sign_whitelist_requests(made[2:])
    for each in made[:2]:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    return made


def test_what_nobody_signed_is_an_error_of_its_own(partly_signed: list[str]) -> None:
    # After a second poll, however far the polls are apart.
    made = [trigger(each, poke_interval=3600.0) for each in (*partly_signed, partly_signed)]
    # A connection without pinned keys shares no result with one that has them.
    *found, of_list, unpinned = asyncio.run(events(*made, trigger(partly_signed[0], custody_conn_id="unpinned")))
    assert [each["status"] for each in found] == ["error"] * 2 + ["effective"] * 3
    for number, event in zip(partly_signed, found[:2], strict=False):
        assert (event["error"]["type"], event["error"]["retryable"]) == ("CustodyVerificationError", False)
        assert event["error"]["message"].startswith(f"whitelisting request {number} is not verified: the service says")
    assert all(event["result"]["verified"] is True for event in found[2:])
    assert [event["result"]["fields"]["label"] for event in found[2:]] == ["2", "3", "4"]
    assert json.loads(json.dumps(found)) == found
    assert of_list["error"]["message"].startswith("2 of 5 whitelisting requests are not verified: ")
    assert (unpinned["status"], unpinned["result"]["verified"]) == ("effective", False)


@pytest.mark.parametrize("many", [False, True])
def test_a_signature_that_is_shown_late_is_waited_for(
    sandbox: Sandbox, partly_signed: list[str], many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_listed = progress.find_listed

    def look_up(client: CustodyClient, ids: Iterable[str], **how: Any) -> Any:
        found = find_listed(client, ids, **how)
        sandbox.control.sign_whitelist_requests(partly_signed[:2])
        return found

    monkeypatch.setattr(LOOK_UP, look_up)
    made = trigger(partly_signed if many else partly_signed[0], poke_interval=3600.0, deadline=time.time())
    (event,) = asyncio.run(events(made))
    assert event["status"] == "effective"
    assert event["result"]["verified"] == (5 if many else True)
