from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import pytest
from airflow.triggers.base import TriggerEvent

from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import PollSchedule
from airflow_custody.triggers.health import CustodyHealthTrigger, HealthListing

pytestmark = pytest.mark.usefixtures("connection")


def trigger(**kwargs: Any) -> CustodyHealthTrigger:
    return CustodyHealthTrigger(**{"poke_interval": 0.1, **kwargs})


def first_event(made: CustodyHealthTrigger, within: float = 10) -> dict[str, Any]:
    async def wait() -> Any:
        stream = cast(AsyncGenerator[TriggerEvent, None], made.run())
        try:
            return (await asyncio.wait_for(anext(stream), within)).payload
        finally:
            await stream.aclose()

    return asyncio.run(wait())


def events(made: CustodyHealthTrigger, script: Any, seconds: float) -> list[dict[str, Any]]:
    """Return the events that a trigger fires while a script changes the sandbox."""
    fired: list[dict[str, Any]] = []

    async def collect() -> None:
        async for event in made.run():
            fired.append(event.payload)

    async def both() -> None:
        task = asyncio.create_task(collect())
        await asyncio.to_thread(script)
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(both())
    return fired


def test_arguments_survive_json() -> None:
    made = trigger(tenant_id="1", groups=("hsm",), require_results={"ETH"}, deadline=5.0, max_wait=3)
    path, arguments = made.serialize()
    assert path == "airflow_custody.triggers.health.CustodyHealthTrigger"
    again = CustodyHealthTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)


def test_waits_out_failures_and_fires_once(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=500)
    sandbox.control.add_fault("drop")
    event = first_event(trigger())
    assert event["status"] == "healthy"
    assert event["result"]["total"] == 9
    assert len(sandbox.control.request_log()) == 3


def test_deadline_is_wall_clock_and_its_message_has_the_last_result(sandbox: Sandbox) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    started = time.time()
    event = first_event(trigger(deadline=started + 0.4))
    assert event["status"] == "timeout"
    assert "'error'" in event["message"]
    assert 0.3 < time.time() - started < 5
    # A trigger that is restarted after its deadline polls once and gives up.
    sandbox.control.clear_request_log()
    assert first_event(trigger(deadline=started - 100))["status"] == "timeout"
    assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "status", "status": 401}, "CustodyAuthenticationError"),
        ({"kind": "status", "status": 403}, "CustodyPermissionError"),
        ({"kind": "status", "status": 404}, "CustodyNotFoundError"),
        ({"kind": "html"}, "CustodyResponseError"),
        ({"kind": "truncate_body"}, "CustodyResponseError"),
        ({"kind": "redirect", "location": "https://elsewhere.example"}, "CustodyResponseError"),
    ],
)
def test_an_error_is_an_event_and_holds_no_token(sandbox: Sandbox, fault: dict[str, Any], kind: str) -> None:
    sandbox.control.add_fault(**fault)
    event = first_event(trigger())
    assert event["status"] == "error"
    assert event["error"]["type"] == kind
    assert sandbox.token not in json.dumps(event)


def test_wrong_settings_are_events_too(sandbox: Sandbox) -> None:
    assert first_event(trigger(custody_conn_id="nowhere"))["error"]["setting"] == "custody_conn_id"
    assert first_event(trigger(groups=[]))["error"]["setting"] == "groups"


class TestWatcher:
    """The trigger of an asset watcher, which fires when the state changes and not at every poll."""

    @pytest.mark.parametrize(
        ("fire_on", "fired"),
        [
            ("unhealthy", ["unhealthy", "unhealthy"]),
            ("healthy", ["healthy"]),
            ("change", ["unhealthy", "healthy", "unhealthy"]),
        ],
    )
    def test_fires_when_the_state_changes(self, sandbox: Sandbox, fire_on: str, fired: list[str]) -> None:
        def script() -> None:
            time.sleep(0.5)
            sandbox.control.update_health(group="hsm", status="error")
            time.sleep(0.6)
            sandbox.control.update_health(group="hsm", status="success")
            time.sleep(0.6)
            sandbox.control.add_fault("status", status=401, times=None)

        got = events(trigger(fire_on=fire_on), script, 0.6)
        assert [event["status"] for event in got] == fired
        assert all(event["reason"] for event in got)

    def test_fires_if_the_first_result_is_unhealthy(self, sandbox: Sandbox) -> None:
        sandbox.control.update_health(group="hsm", status="error")
        assert first_event(trigger(fire_on="unhealthy"))["status"] == "unhealthy"

    def test_a_restart_does_not_report_it_again(self, sandbox: Sandbox) -> None:
        class Store(dict[str, Any]):
            async def aget(self, key: str, default: Any = None) -> Any:
                return self.get(key, default)

            async def aset(self, key: str, value: Any) -> None:
                self[key] = value

        store: Any = Store()
        sandbox.control.update_health(group="hsm", status="error")
        fired = []
        for _ in range(2):
            made = trigger(fire_on="unhealthy")
            made.asset_state_store = store
            fired += events(made, lambda: None, 0.4)
        assert len(fired) == 1

    def test_an_unknown_fire_on_is_refused(self) -> None:
        with pytest.raises(ValueError, match="fire_on"):
            trigger(fire_on="sometimes")


class TestSharing:
    def test_triggers_of_the_same_listing_share_a_poll(self) -> None:
        assert trigger().shared_stream_key() == trigger(groups=["hsm"], deadline=3.0).shared_stream_key()
        assert trigger().shared_stream_key() != trigger(tenant_id="1").shared_stream_key()
        assert trigger().shared_stream_key() != trigger(poke_interval=9).shared_stream_key()
        assert trigger().shared_stream_key() != trigger(custody_conn_id="other").shared_stream_key()
        assert trigger(exponential_backoff=True).shared_stream_key() is None
        hash(trigger().shared_stream_key())

    def test_airflow_shares_one_poll_among_many(self, sandbox: Sandbox) -> None:
        shared = pytest.importorskip("airflow.triggers.shared_stream")
        sandbox.control.update_health(group="hsm", status="error")

        async def scenario() -> list[Any]:
            import logging

            import structlog

            manager = shared.SharedStreamManager(log=structlog.wrap_logger(logging.getLogger("test")))
            made = [trigger(groups=["hsm"] if number % 2 else None) for number in range(50)]

            async def one(number: int) -> Any:
                key = made[number].shared_stream_key()
                stream = manager.subscribe(trigger_id=number, trigger=made[number], key=key)
                try:
                    async for event in made[number].filter_shared_stream(stream):
                        return event.payload["status"]
                finally:
                    await manager.unsubscribe(number, key)

            tasks = [asyncio.create_task(one(number)) for number in range(50)]
            await asyncio.sleep(0.5)
            sandbox.control.update_health(group="hsm", status="success")
            return await asyncio.gather(*tasks)

        assert asyncio.run(scenario()) == ["healthy"] * 50
        assert len(sandbox.control.request_log()) < 15

    def test_many_share_one_poll_where_the_triggerer_shares_nothing(self, sandbox: Sandbox) -> None:
        sandbox.control.update_health(group="hsm", status="error")

        async def one(number: int) -> Any:
            stream = trigger(groups=["hsm"] if number % 2 else None).run()
            try:
                return (await anext(stream)).payload["status"]
            finally:
                await stream.aclose()  # type: ignore[attr-defined]

        async def scenario() -> list[Any]:
            tasks = [asyncio.create_task(one(number)) for number in range(20)]
            await asyncio.sleep(0.5)
            sandbox.control.update_health(group="hsm", status="success")
            return await asyncio.gather(*tasks)

        assert asyncio.run(scenario()) == ["healthy"] * 20
        assert len(sandbox.control.request_log()) < 15

    def test_the_same_criteria_are_judged_once(self, sandbox: Sandbox) -> None:
        from airflow_custody.client.health.verdict import HealthCriteria

        listing = HealthListing([])
        assert listing.verdict(HealthCriteria()) is listing.verdict(HealthCriteria.of())


def test_the_event_loop_is_not_blocked_by_a_slow_service(sandbox: Sandbox) -> None:
    sandbox.control.add_fault(delay=1.0)

    async def scenario() -> float:
        async def heartbeat() -> float:
            longest, last = 0.0, time.monotonic()
            for _ in range(40):
                await asyncio.sleep(0.02)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            return longest

        async def wait(stream: AsyncIterator[Any]) -> Any:
            return await anext(stream)

        stream = cast(AsyncGenerator[TriggerEvent, None], trigger().run())
        longest, event = await asyncio.gather(heartbeat(), wait(stream))
        await stream.aclose()
        assert event.payload["status"] == "healthy"
        return longest

    assert asyncio.run(scenario()) < 0.5


def test_polls_become_rarer_while_the_service_fails() -> None:
    from airflow_custody.client import CustodyRateLimitError, CustodyServerError

    error = CustodyServerError("down")
    delays = [PollSchedule(10).next_delay(polls, polls, error) for polls in range(1, 9)]
    assert delays[0] == 10
    assert delays == sorted(delays)
    assert delays[-1] == 300
    assert PollSchedule(10).next_delay(1, 0, None) == 10
    assert PollSchedule(600).next_delay(9, 9, error) == 600
    assert PollSchedule(10).next_delay(1, 1, CustodyRateLimitError("slow", retry_after=42)) == 42
    growing = PollSchedule(1, exponential_backoff=True, max_wait=5)
    assert [growing.next_delay(polls, 0, None) for polls in (1, 2, 3, 9)] == [1, 2, 4, 5]
