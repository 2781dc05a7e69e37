"""A service that shows something else at each poll: the wait ends all the same, and names what is unverified."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from airflow_runs import execute, failing_at_once, new_dag, run_dag
from clocks import SkippingTime
from connections import connection_json

from airflow_custody.client import CustodyClient
from airflow_custody.client.whitelist import progress
from airflow_custody.client.whitelist.progress import ListedRequest
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

real_look_up = progress.find_listed


class QuickSensor(CustodyWhitelistRequestSensor):
    gone_after = 30.0
    unverified_after = 1.0


@pytest.fixture
def forged(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return requests that nobody has signed, and that are shown as in effect."""
    monkeypatch.setattr(CustodyWhitelistRequestTrigger, "unverified_after", 1.0)
    monkeypatch.setattr("airflow_custody.sensors.whitelist._PAUSES", (0.2,))
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    rows = [{"label": str(each), "address": "0x" + "a" * 40, "blockchain": "ETH"} for each in range(2)]
    made = sandbox.control.add_whitelist_requests(rows, status="pending")
    for each in made:
        sandbox.control.set_whitelist_status(each, "APPROVED")
    return made


def show(monkeypatch: pytest.MonkeyPatch, hide: Callable[[ListedRequest], ListedRequest]) -> list[set[str]]:
    """Return the ids that each look-up hides: those of the first, of the second, ...; the last of all others."""
    hidden: list[set[str]] = []

    def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, ListedRequest]:
        now = hidden.pop(0) if len(hidden) > 1 else hidden[0]
        found = real_look_up(client, ids)
        return {each: hide(found[each]) if each in now else found[each] for each in found}

    monkeypatch.setattr(progress, "find_listed", find_listed)
    return hidden


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    return show(monkeypatch, lambda _: ListedRequest(None, False))


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return the same ids; what is hidden is shown as pending."""
    return show(monkeypatch, lambda found: ListedRequest(found.envelope, False))


@pytest.mark.parametrize("soft_fail", [False, True])
def test_requests_that_swap_end_the_poke(forged: list[str], hide: list[set[str]], soft_fail: bool) -> None:
    hide += [{forged[0]}, {forged[1]}] * 100
    with failing_at_once("1 of 2 whitelisting requests is not verified: whitelisting"):
        execute(lambda: wait(forged, timeout=0.5, soft_fail=soft_fail))
    # It did not go on until they stood still.
    assert len(hide) > 100


@pytest.mark.parametrize("many", [False, True])
def test_what_was_unverified_before_the_time_out_is_no_time_out(
    forged: list[str], hide: list[set[str]], many: bool
) -> None:
    # From then on it is not listed at all.
    hide += [set(), {*forged}]
    with failing_at_once(f"whitelisting request {forged[0]} is not verified: the service"):
        execute(lambda: wait(forged if many else forged[0], timeout=0.5, soft_fail=True))


def test_what_was_never_listed_is_a_time_out(forged: list[str], hide: list[set[str]]) -> None:
    hide += [{*forged}]
    with pytest.raises(AirflowSkipException):
        execute(lambda: wait(forged, timeout=0.5, soft_fail=True))


@pytest.mark.parametrize(("many", "swapping"), [(False, False), (True, False), (True, True)])
def test_the_trigger_ends_too(forged: list[str], hide: list[set[str]], many: bool, swapping: bool) -> None:
    hide += [{forged[0]}, {forged[1]}] * 100 if swapping else [set(), {*forged}]

    async def first() -> Any:
        made = CustodyWhitelistRequestTrigger(
            request_id=forged if many else forged[0], poke_interval=3600, deadline=time.time() + 0.5
        )
        async for event in made.run():
            return event.payload

    found = asyncio.run(first())
    assert found["error"]["type"] == "CustodyVerificationError"
    assert "is not verified: the service says that it is in effect" in found["error"]["message"]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("first_is_slow", [False, True])
def test_a_slow_service_makes_it_no_time_out(
    sandbox: Sandbox, forged: list[str], many: bool, first_is_slow: bool
) -> None:
    path = "/api/rest/v1/whitelists/addresses"
    # The first poll is that of the worker, if it is slow; else the trigger's first.
    sandbox.control.add_fault("normal", method="GET", path=path, delay=1.5, skip=0 if first_is_slow else 1, times=None)
    with new_dag() as dag:
        QuickSensor(
            task_id="wait",
            request_id=forged if many else forged[0],
            poke_interval=0.3,
            timeout=1,
            deferrable=True,
            soft_fail=True,
        )
    assert set(run_dag(dag).states.values()) == {"failed"}


@pytest.mark.parametrize("swapping", [False, True])
def test_a_trigger_ends_with_what_swaps_with_pending(
    forged: list[str], pending: list[set[str]], swapping: bool
) -> None:
    # One that was shown as in effect once, and then as pending for ever; or two that take turns.
    pending += [{forged[0]}, {forged[1]}] * 100 if swapping else [set(), {*forged}]
    found = asyncio.run(event_of(request_id=forged, poke_interval=3600, deadline=time.time() + 0.5))
    assert found["error"]["type"] == "CustodyVerificationError"
    assert "is not verified: the service says that it is in effect" in found["error"]["message"]


def test_after_the_deadline_a_trigger_polls_once_more(
    sandbox: Sandbox, forged: list[str], pending: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first is verified then, and the second unverified for the first time.
    pending += [{forged[1]}, set(), {forged[1]}]
    hidden = progress.find_listed

    def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, ListedRequest]:
        if len(pending) < 3:
            sandbox.control.sign_whitelist_requests(forged[:1])
        return hidden(client, ids)

    monkeypatch.setattr(progress, "find_listed", find_listed)
    found = asyncio.run(event_of(request_id=forged, poke_interval=300, deadline=time.time()))
    assert found["error"]["type"] == "CustodyVerificationError"
    assert found["error"]["message"].startswith("1 of 2 whitelisting requests is not verified: ")
    assert len(pending) == 1


async def event_of(**arguments: Any) -> Any:
    async for event in CustodyWhitelistRequestTrigger(**arguments).run():
        return event.payload


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("mode", ["poke", "reschedule", "deferrable"])
def test_what_is_unverified_and_then_pending_is_no_time_out(
    forged: list[str], pending: list[set[str]], mode: str, many: bool
) -> None:
    pending += [set(), {*forged}]
    how: dict[str, Any] = {"deferrable": True} if mode == "deferrable" else {"mode": mode, "deferrable": False}
    with new_dag() as dag:
        QuickSensor(
            task_id="wait",
            request_id=forged if many else forged[0],
            poke_interval=0.3,
            timeout=2,
            soft_fail=True,
            retries=2,
            **how,
        )
    run = run_dag(dag)
    assert set(run.states.values()) == {"failed"}
    assert run.tries["wait", -1] == 1


@pytest.mark.parametrize("many", [False, True])
def test_a_sensor_hands_over_what_is_unverified(forged: list[str], pending: list[set[str]], many: bool) -> None:
    pending += [{forged[1]}, {*forged}]
    with pytest.raises(TaskDeferred) as caught:
        execute(lambda: wait(forged if many else forged[0], timeout=0.5, deferrable=True))
    _, arguments = caught.value.trigger.serialize()
    assert arguments["unverified"].keys() == {forged[0]}
    found = asyncio.run(event_of(**json.loads(json.dumps(arguments))))
    assert found["error"]["type"] == "CustodyVerificationError"
    assert f"{forged[0]} is not verified: the service says" in found["error"]["message"]
    assert "no signature covers its text" in found["error"]["message"]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_an_execution_time_out_is_no_skip_either(forged: list[str], monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    class TimedOut(SkippingTime):
        """Time in which the execution time-out is over as soon as the sensor waits."""

        def sleep(self, seconds: float) -> None:
            raise AirflowTaskTimeout

    monkeypatch.setattr("airflow_custody.sensors.whitelist.time", TimedOut())
    with new_dag() as dag:
        wait(forged[0], timeout=600, mode=mode, soft_fail=True)
    assert set(run_dag(dag).states.values()) == {"failed"}


@pytest.mark.parametrize("deferrable", [False, True])
def test_at_one_poll_all_are_in_effect(
    sandbox: Sandbox, forged: list[str], pending: list[set[str]], deferrable: bool
) -> None:
    sandbox.control.sign_whitelist_requests(forged)
    # The first leaves while the second comes, each time that both are looked up.
    pending += [{forged[1]}, {forged[0]}, {forged[0]}, {forged[1]}] * 100
    if deferrable:
        found = asyncio.run(event_of(request_id=forged, poke_interval=0.1, deadline=time.time() + 2))
        assert found["status"] == "timeout"
        return
    with pytest.raises(AirflowSensorTimeout, match=r"Last result: \d of 2 whitelisting requests (is|are) in effect"):
        execute(lambda: wait(forged, timeout=2))


def wait(request_id: Any, **kwargs: Any) -> CustodyWhitelistRequestSensor:
    return QuickSensor(task_id="wait", request_id=request_id, poke_interval=0.2, **{"deferrable": False, **kwargs})
