"""A service that shows something else at each poll: the wait ends all the same, and names what is unverified."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow_runs import execute, failing_at_once, new_dag, run_dag
from conftest import connection_json

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


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return the ids that each look-up hides: those of the first, of the second, ...; the last of all others."""
    hidden: list[set[str]] = []

    def find_listed(client: CustodyClient, ids: Iterable[str]) -> dict[str, ListedRequest]:
        now = hidden.pop(0) if len(hidden) > 1 else hidden[0]
        found = real_look_up(client, ids)
        return {each: ListedRequest(None, False) if each in now else found[each] for each in found}

    monkeypatch.setattr(progress, "find_listed", find_listed)
    return hidden


@pytest.mark.parametrize("soft_fail", [False, True])
def test_requests_that_swap_end_the_poke(forged: list[str], hide: list[set[str]], soft_fail: bool) -> None:
    hide += [{forged[0]}, {forged[1]}] * 100
    started = time.monotonic()
    with failing_at_once("1 of 2 whitelisting requests are not verified: whitelisting"):
        execute(lambda: wait(forged, timeout=0.5, soft_fail=soft_fail))
    assert time.monotonic() - started < 8


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
            request_id=forged if many else forged[0], poke_interval=300, deadline=time.time() + 0.5
        )
        async for event in made.run():
            return event.payload

    started = time.monotonic()
    found = asyncio.run(first())
    assert time.monotonic() - started < 8
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
    sandbox.control.add_fault("normal", method="GET", path=path, delay=4, skip=0 if first_is_slow else 1, times=None)
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


def wait(request_id: Any, **kwargs: Any) -> CustodyWhitelistRequestSensor:
    return QuickSensor(task_id="wait", request_id=request_id, poke_interval=0.2, deferrable=False, **kwargs)
