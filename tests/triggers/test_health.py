from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.triggers.base import TriggerEvent
from connections import connection_json
from request_triggers import end_waits_after
from task_log import TaskLog

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyRateLimitError,
    CustodyServerError,
)
from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict, HealthWait, Problem, judge
from airflow_custody.sandbox import Sandbox, health_entry
from airflow_custody.sandbox.health.store import default_entries
from airflow_custody.triggers._base import SharedPoll, next_delay
from airflow_custody.triggers.health import CustodyHealthTrigger

pytestmark = pytest.mark.usefixtures("connection")


def trigger(**kwargs: Any) -> CustodyHealthTrigger:
    return CustodyHealthTrigger(**{"poke_interval": 0.1, **kwargs})


def first_event(made: CustodyHealthTrigger, within: float = 600) -> dict[str, Any]:
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


def polled(sandbox: Sandbox, times: int) -> None:
    """Wait until the service has been polled so often."""
    before, deadline = len(sandbox.control.request_log()), time.monotonic() + 600
    while len(sandbox.control.request_log()) < before + times:
        assert time.monotonic() < deadline, "it is not polled"
        time.sleep(0.05)


def test_arguments_survive_json() -> None:
    made = trigger(tenant_id="1", groups=("hsm",), require_results={"ETH"}, deadline=5.0)
    path, arguments = made.serialize()
    assert path == "airflow_custody.triggers.health.CustodyHealthTrigger"
    again = CustodyHealthTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)


def test_arguments_from_a_set_are_the_same_in_each_process() -> None:
    names = {f"name {number}" for number in range(20)}
    assert trigger(groups=names).serialize()[1]["groups"] == sorted(names)


def test_waits_out_failures_and_fires_once(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=500)
    sandbox.control.add_fault("drop")
    sandbox.control.add_fault("truncate_body")
    event = first_event(trigger())
    assert event["status"] == "healthy"
    assert event["result"]["total"] == 9
    assert len(sandbox.control.request_log()) == 4


def test_a_renewed_token_is_used_from_the_next_poll_on(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> str:
        user = sandbox.control.add_user("reader", ["TPUser"])
        token = sandbox.control.add_token(roles=["TPUser"], user_id=user)
        connection = json.loads(connection_json(sandbox)) | {"password": token}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
        return user

    def renew() -> None:
        polled(sandbox, 1)
        connect()
        # The first one may have begun before.
        polled(sandbox, 2)
        sandbox.control.revoke_tokens(old)
        sandbox.control.update_health(status="success")

    old = connect()
    sandbox.control.update_health(group="hsm", status="failure")
    thread = threading.Thread(target=renew)
    thread.start()
    assert first_event(trigger())["status"] == "healthy"
    thread.join()


def test_deadline_is_wall_clock_and_its_message_has_the_last_result(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    event = first_event(trigger(deadline=end_waits_after(monkeypatch, sandbox, 2)))
    assert event["status"] == "timeout"
    assert "'error'" in event["message"]
    # A trigger that is restarted after its deadline polls once and gives up.
    sandbox.control.clear_request_log()
    assert first_event(trigger(deadline=time.time() - 100))["status"] == "timeout"
    assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "status", "status": 401}, "CustodyAuthenticationError"),
        ({"kind": "status", "status": 403}, "CustodyPermissionError"),
        ({"kind": "status", "status": 404}, "CustodyNotFoundError"),
        ({"kind": "html"}, "CustodyResponseError"),
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


class TestMissingNames:
    """A name that does not exist ends the wait when it is missing from two listings in a row."""

    @pytest.mark.parametrize(
        ("criteria", "setting", "existing"),
        [
            ({"groups": ["hsn"]}, "groups", "hsm"),
            ({"groups": ["hsm", "hsn"]}, "groups", "hsm"),
            ({"components": "hsm-9"}, "components", "hsm-1"),
            ({"checks": ["connectivty"]}, "checks", "connectivity"),
            ({"require_results": ["DOGE"]}, "require_results", "ETH"),
            # It exists, but the other filters leave nothing of it.
            ({"groups": ["hsm"], "checks": ["ping"]}, "checks", "connectivity"),
        ],
    )
    def test_ends_the_wait_with_the_names_that_exist(
        self, sandbox: Sandbox, criteria: dict[str, Any], setting: str, existing: str
    ) -> None:
        event = first_event(trigger(**criteria, deadline=time.time() + 60))
        assert event["status"] == "error"
        error = event["error"]
        assert (error["type"], error["setting"], error["retryable"]) == ("CustodyUnhealthyError", setting, False)
        assert repr(existing) in error["message"]
        assert len(sandbox.control.request_log()) == 2

    def test_one_listing_without_it_does_not(self, sandbox: Sandbox) -> None:
        others = [entry for entry in default_entries() if entry["group"] != "hsm"]
        sandbox.control.set_health(others)
        sandbox.control.add_fault("status", status=503, skip=1)

        def show(seconds: float) -> None:
            time.sleep(seconds)
            sandbox.control.set_health(default_entries())

        thread = threading.Thread(target=show, args=(0.6,))
        thread.start()
        event = first_event(trigger(groups=["hsm"], poke_interval=0.4))
        thread.join()
        assert event["status"] == "healthy"

    def test_another_name_is_missing_each_time(self) -> None:
        wait = HealthWait(HealthCriteria(groups=("a", "b")))

        def ends(*missing: str) -> bool:
            problems = [Problem("no", missing=("groups", each)) for each in missing]
            verdict = HealthVerdict(datetime.now(timezone.utc), problems=problems)
            return wait.update(lambda _: verdict).error is not None

        assert [ends("a"), ends("b"), ends(), ends("b"), ends("a", "b")] == [False] * 4 + [True]

    def test_an_unhealthy_check_may_be_why_a_result_is_missing(self, sandbox: Sandbox) -> None:
        sandbox.control.update_health(group="hsm", status="error", report=None)
        event = first_event(trigger(require_results=["DOGE"], deadline=time.time() + 0.5))
        assert event["status"] == "timeout"

    def test_a_service_that_lists_nothing_says_nothing_about_names(self, sandbox: Sandbox) -> None:
        sandbox.control.set_health([])
        event = first_event(trigger(groups=["hsm"], deadline=time.time() + 0.5))
        assert event["status"] == "timeout"

    def test_a_watcher_reports_it_as_unhealthy(self, sandbox: Sandbox) -> None:
        event = first_event(trigger(groups=["hsn"], fire_on="unhealthy"))
        assert event["status"] == "unhealthy"
        assert "no group named 'hsn' exists" in event["reason"]
        assert "'hsm'" in event["reason"]


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

    def test_refused_credentials_are_reported_once(self, sandbox: Sandbox) -> None:
        sandbox.control.add_fault("status", status=401, times=None)
        fired = events(trigger(fire_on="change", poke_interval=0.1), lambda: None, 2.0)
        assert [event["status"] for event in fired] == ["unhealthy"]
        # Twenty without a back-off.
        assert len(sandbox.control.request_log()) <= 6

    def test_a_watch_goes_on_after_its_poll_has_died(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_WATCHED", connection_json(sandbox))
        fired: list[str] = []

        async def scenario() -> None:
            async def collect() -> None:
                async for event in trigger(fire_on="change", custody_conn_id="watched").run():
                    fired.append(event.payload["status"])

            before = threading.stack_size(1 << 46)
            task = asyncio.create_task(collect())
            await asyncio.sleep(0.15)
            threading.stack_size(before)
            await asyncio.sleep(1.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(scenario())
        assert fired == ["unhealthy", "healthy"]
        assert SharedPoll.running() == 0

    def test_an_unknown_fire_on_is_refused(self) -> None:
        with pytest.raises(ValueError, match="fire_on"):
            trigger(fire_on="sometimes")


class TestState:
    """What a watcher of an asset keeps over a restart of the triggerer, in the store that Airflow gives it."""

    @pytest.fixture(autouse=True)
    def stored(self, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
        """Stand in for Airflow's database, behind Airflow's own accessor."""
        comms = pytest.importorskip("airflow.sdk.execution_time.comms")
        if not hasattr(comms, "SetAssetStateStoreByName"):
            pytest.skip("this Airflow keeps no state for assets")
        from airflow.sdk.execution_time import task_runner

        rows: dict[tuple[str, str], Any] = {}

        class Supervisor:
            async def asend(self, message: Any) -> Any:
                if isinstance(message, comms.SetAssetStateStoreByName):
                    rows[message.name, message.key] = message.value
                    return None
                if (message.name, message.key) in rows:
                    return comms.AssetStateStoreResult(value=rows[message.name, message.key])
                return None

        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(), raising=False)
        return rows

    def watch(self, sandbox: Sandbox, assets: tuple[str, ...] = ("alarm",), **kwargs: Any) -> list[str]:
        """Return what a watcher fires that has just been started by a triggerer."""
        from airflow.sdk import Asset
        from airflow.sdk.execution_time.context import AssetStateStoreAccessors

        made = trigger(**{"fire_on": "unhealthy", **kwargs})
        # As the triggerer does it.
        made.asset_state_store = AssetStateStoreAccessors(inlets=[Asset(name=name, uri=name) for name in assets])
        return [event["status"] for event in events(made, lambda: polled(sandbox, 3), 0.1)]

    def test_a_restart_does_not_report_it_again(self, sandbox: Sandbox) -> None:
        sandbox.control.update_health(group="hsm", status="error")
        assert self.watch(sandbox) == ["unhealthy"]
        assert self.watch(sandbox) == []
        sandbox.control.update_health(group="hsm", status="success")
        assert self.watch(sandbox) == []
        sandbox.control.update_health(group="hsm", status="error")
        assert self.watch(sandbox) == ["unhealthy"]

    @pytest.mark.parametrize(
        "other",
        [
            {"custody_conn_id": "other"},
            {"tenant_id": "1"},
            {"groups": ["hsm"]},
            {"components": ["hsm-1"]},
            {"require_fresh": False},
            {"healthy_statuses": ["success", "ok"]},
            {"fire_on": "change"},
        ],
    )
    def test_watchers_of_one_asset_do_not_share_it(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], stored: dict[Any, Any]
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
        sandbox.control.update_health(group="hsm", status="error")
        assert self.watch(sandbox) == ["unhealthy"]
        assert self.watch(sandbox, **other) == ["unhealthy"]
        assert len(stored) == 2
        assert (self.watch(sandbox), self.watch(sandbox, **other)) == ([], [])

    def test_two_assets_have_no_store_and_the_log_says_so(
        self, sandbox: Sandbox, task_log: TaskLog, stored: dict[Any, Any]
    ) -> None:
        sandbox.control.update_health(group="hsm", status="error")
        assert self.watch(sandbox, ("alarm", "page")) == ["unhealthy"]
        assert "Airflow keeps state for a trigger of exactly one asset" in task_log.text
        assert stored == {}

    def test_a_state_that_is_none_counts_as_healthy(self, sandbox: Sandbox, stored: dict[Any, Any]) -> None:
        sandbox.control.update_health(group="hsm", status="error")
        stored["alarm", trigger(fire_on="unhealthy")._state_key()] = {"odd": 1}
        assert self.watch(sandbox) == ["unhealthy"]


class TestQueues:
    """A deferred task's trigger goes to the triggerers of the task's queue; an asset watcher has none."""

    @pytest.mark.parametrize("sensor", ["health", "whitelist"])
    def test_a_deferred_task_gives_its_triggers_its_queue(self, monkeypatch: pytest.MonkeyPatch, sensor: str) -> None:
        task_runner = pytest.importorskip("airflow.sdk.execution_time.task_runner")
        if not hasattr(task_runner, "_defer_task"):
            pytest.skip("this Airflow has no queues of triggerers")
        import structlog
        from airflow.sdk.exceptions import TaskDeferred

        from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

        monkeypatch.setenv("AIRFLOW__TRIGGERER__QUEUES_ENABLED", "True")
        made = trigger() if sensor == "health" else CustodyWhitelistRequestTrigger(request_id="1")
        instance: Any = SimpleNamespace(dag_id="d", task_id="t", run_id="r", task=SimpleNamespace(queue="custody"))
        deferred = TaskDeferred(trigger=made, method_name="execute_complete")
        message, _ = task_runner._defer_task(deferred, instance, structlog.get_logger())
        assert message.queue == "custody"
        # Another process makes it anew from its arguments.
        assert CustodyHealthTrigger(**trigger().serialize()[1]).supports_triggerer_queue

    def test_a_watcher_has_no_queue(self) -> None:
        assert not trigger(fire_on="change").supports_triggerer_queue

    def test_a_watcher_is_one_for_airflow(self) -> None:
        sdk = pytest.importorskip("airflow.sdk")
        assert sdk.AssetWatcher(name="w", trigger=trigger(fire_on="change")).name == "w"


class TestSharing:
    def test_other_tenants_connections_and_intervals_have_polls_of_their_own(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
        sandbox.control.update_health(group="hsm", status="error")
        shared: list[dict[str, Any]] = [{}, {"groups": ["hsm"]}, {"deadline": time.time() + 9}, {"fire_on": "change"}]
        own: list[dict[str, Any]] = [
            {"tenant_id": "1"},
            {"poke_interval": 9},
            {"custody_conn_id": "other"},
        ]

        async def scenario() -> int:
            async def run(made: CustodyHealthTrigger) -> None:
                async for _ in made.run():
                    pass

            tasks = [asyncio.create_task(run(trigger(**kwargs))) for kwargs in shared + own]
            await asyncio.sleep(0.3)
            running = SharedPoll.running()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return running

        assert asyncio.run(scenario()) == 1 + len(own)

    def test_a_tenant_that_is_refused_is_its_own_trouble(self, sandbox: Sandbox) -> None:
        sandbox.control.add_fault("status", status=403, query={"tenantId": "9"}, times=None)

        async def one(tenant_id: str) -> Any:
            stream = cast(AsyncGenerator[TriggerEvent, None], trigger(tenant_id=tenant_id).run())
            try:
                return (await anext(stream)).payload["status"]
            finally:
                await stream.aclose()

        async def scenario() -> list[Any]:
            return list(await asyncio.gather(*(one(each) for each in ("1", "9", "2", "no number\n"))))

        assert asyncio.run(scenario()) == ["healthy", "error", "healthy", "error"]

    def test_many_share_one_poll(self, sandbox: Sandbox) -> None:
        sandbox.control.update_health(group="hsm", status="error")

        async def one(number: int) -> Any:
            stream = trigger(groups=["hsm"] if number % 2 else None).run()
            try:
                return (await anext(stream)).payload["status"]
            finally:
                await stream.aclose()  # type: ignore[attr-defined]

        started = time.monotonic()

        async def scenario() -> list[Any]:
            tasks = [asyncio.create_task(one(number)) for number in range(20)]
            await asyncio.sleep(0.5)
            sandbox.control.update_health(group="hsm", status="success")
            return await asyncio.gather(*tasks)

        assert asyncio.run(scenario()) == ["healthy"] * 20
        # One for each interval, and not one for each trigger.
        assert len(sandbox.control.request_log()) <= 2 + (time.monotonic() - started) / 0.1


def test_the_event_loop_is_not_blocked_by_a_slow_service(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    responds = threading.Event()
    list_health_checks = CustodyClient.list_health_checks

    def slow(client: CustodyClient, tenant_id: str | None = None) -> Any:
        responds.wait(600)
        return list_health_checks(client, tenant_id)

    monkeypatch.setattr(CustodyClient, "list_health_checks", slow)

    async def scenario() -> None:
        async def wait(stream: AsyncIterator[Any]) -> Any:
            return await anext(stream)

        stream = cast(AsyncGenerator[TriggerEvent, None], trigger().run())
        waiting, beats = asyncio.create_task(wait(stream)), 0
        while beats < 10:
            await asyncio.sleep(0.02)
            beats += 1
        responds.set()
        assert (await waiting).payload["status"] == "healthy"
        await stream.aclose()

    asyncio.run(scenario())


def test_the_event_loop_is_not_blocked_by_many_criteria(sandbox: Sandbox) -> None:
    entries = [health_entry(group=f"g{number % 20}", check=f"check{number}") for number in range(5_000)]
    sandbox.control.set_health(entries)
    with CustodyClient(sandbox.url, sandbox.token) as client:
        checks = client.list_health_checks()
    # The processor's time of this thread, which other processes do not prolong.
    started = time.thread_time()
    for number in range(100):
        assert judge(checks, HealthCriteria(healthy_statuses=("success", f"{number}"))).healthy
    on_the_loop = time.thread_time() - started

    async def scenario() -> float:
        async def one(number: int) -> None:
            stream = cast(
                AsyncGenerator[TriggerEvent, None],
                trigger(healthy_statuses=["success", f"{number}"], poke_interval=60).run(),
            )
            assert (await anext(stream)).payload["status"] == "healthy"
            await stream.aclose()

        waiting = asyncio.gather(*(one(number) for number in range(100)))
        pauses, last = [], time.thread_time()
        while not waiting.done():
            await asyncio.sleep(0.005)
            pauses.append(time.thread_time() - last)
            last = time.thread_time()
        await waiting
        return max(pauses)

    assert asyncio.run(scenario()) < on_the_loop / 2


def test_polls_become_rarer_while_the_service_fails() -> None:
    error = CustodyServerError("down")
    delays = [next_delay(10, polls, error) for polls in range(1, 9)]
    assert delays[0] == 10
    assert delays == sorted(delays)
    assert delays[-1] == 300
    assert next_delay(10, 0, None) == 10
    assert next_delay(600, 9, error) == 600
    assert next_delay(10, 1, CustodyRateLimitError("slow", retry_after=42)) == 42
    # Credentials that are refused again and again may lock the account.
    assert next_delay(60, 8, CustodyAuthenticationError("no")) == 3600
