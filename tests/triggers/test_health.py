"""The health trigger: it waits once for a deferred task, or watches for an asset."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from connections import connection_json
from request_triggers import end_waits_after, events, first, until
from task_log import TaskLog

from airflow_custody.client import CustodyClient
from airflow_custody.client.health import verdict
from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.health.store import default_entries
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

pytestmark = pytest.mark.usefixtures("connection")


def trigger(**kwargs: Any) -> CustodyHealthTrigger:
    return CustodyHealthTrigger(**{"poke_interval": 0.1, **kwargs})


def first_event(made: CustodyHealthTrigger) -> dict[str, Any]:
    return asyncio.run(first(made))


def events_during(made: CustodyHealthTrigger, script: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the events that a trigger fires while a script changes the sandbox."""
    fired: list[dict[str, Any]] = []

    async def collect() -> None:
        async for event in made.run():
            fired.append(event.payload)

    async def both() -> None:
        task = asyncio.create_task(collect())
        await asyncio.to_thread(script)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(both())
    return fired


def polled(sandbox: Sandbox, times: int = 3) -> None:
    """Wait until the service has been polled so often. The first may have begun before, the last goes on."""
    before, deadline = len(sandbox.control.request_log()), time.monotonic() + 600
    while len(sandbox.control.request_log()) < before + times:
        assert time.monotonic() < deadline, "it is not polled"
        time.sleep(0.05)


# --- for a deferred task -------------------------------------------------------------------------------------


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
        polled(sandbox)
        sandbox.control.revoke_tokens(old)
        sandbox.control.update_health(status="success")
        polled(sandbox)

    old = connect()
    sandbox.control.update_health(group="hsm", status="failure")
    fired = events_during(trigger(fire_on="change"), renew)
    assert [event["status"] for event in fired] == ["unhealthy", "healthy"]


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


def test_a_name_that_is_missing_from_two_listings_in_a_row_ends_the_wait(sandbox: Sandbox) -> None:
    error = first_event(trigger(groups=["hsm", "hsn"], deadline=time.time() + 600))["error"]
    assert (error["type"], error["setting"], error["retryable"]) == ("CustodyUnhealthyError", "groups", False)
    assert "'hsm'" in error["message"]
    assert len(sandbox.control.request_log()) == 2


def test_a_name_that_one_listing_lacks_does_not(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    list_health_checks = CustodyClient.list_health_checks

    def list_then_show(client: CustodyClient, tenant_id: str | None = None) -> Any:
        found = list_health_checks(client, tenant_id)
        sandbox.control.set_health(default_entries())
        return found

    monkeypatch.setattr(CustodyClient, "list_health_checks", list_then_show)
    sandbox.control.set_health([entry for entry in default_entries() if entry["group"] != "hsm"])
    sandbox.control.add_fault("status", status=503, skip=1)
    assert first_event(trigger(groups=["hsm"]))["status"] == "healthy"


def test_another_name_is_missing_each_time() -> None:
    wait = verdict.HealthWait(verdict.HealthCriteria(groups=("a", "b")))

    def ends(*missing: str) -> bool:
        problems = [verdict.Problem("no", missing=("groups", each)) for each in missing]
        found = verdict.HealthVerdict(datetime.now(timezone.utc), problems=problems)
        return wait.update(lambda _: found).error is not None

    assert [ends("a"), ends("b"), ends(), ends("b"), ends("a", "b")] == [False] * 4 + [True]


# --- watching for an asset: it fires when the state changes, not at every poll ---------------------------------


@pytest.mark.parametrize(
    ("fire_on", "fired"),
    [
        ("unhealthy", ["unhealthy", "unhealthy"]),
        ("healthy", ["healthy"]),
        ("change", ["unhealthy", "healthy", "unhealthy"]),
    ],
)
def test_fires_when_the_state_changes(sandbox: Sandbox, fire_on: str, fired: list[str]) -> None:
    def script() -> None:
        polled(sandbox)
        sandbox.control.update_health(group="hsm", status="error")
        polled(sandbox)
        sandbox.control.update_health(group="hsm", status="success")
        polled(sandbox)
        # Refused credentials are reported once.
        sandbox.control.add_fault("status", status=401, times=None)
        polled(sandbox, 4)

    got = events_during(trigger(fire_on=fire_on), script)
    assert [event["status"] for event in got] == fired
    assert all(event["reason"] for event in got)


def test_a_watch_goes_on_after_its_poll_has_died(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WATCHED", connection_json(sandbox))
    fired: list[str] = []

    async def collect() -> None:
        async for event in trigger(fire_on="change", custody_conn_id="watched").run():
            fired.append(event.payload["status"])

    async def scenario() -> None:
        # No new thread has room for such a stack.
        before = threading.stack_size(1 << 46)
        try:
            task = asyncio.create_task(collect())
            await until(lambda: fired == ["unhealthy"])
        finally:
            threading.stack_size(before)
        await until(lambda: fired == ["unhealthy", "healthy"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    assert SharedPoll.running() == 0


def test_an_unknown_fire_on_is_refused() -> None:
    with pytest.raises(ValueError, match="fire_on"):
        trigger(fire_on="sometimes")


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """Stand in for Airflow's database, behind Airflow's own accessor of what is kept over a restart."""
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


def watch(sandbox: Sandbox, assets: tuple[str, ...] = ("alarm",), **kwargs: Any) -> list[str]:
    """Return what a watcher fires that has just been started by a triggerer."""
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

    made = trigger(**{"fire_on": "unhealthy", **kwargs})
    # As the triggerer does it.
    made.asset_state_store = AssetStateStoreAccessors(inlets=[Asset(name=name, uri=name) for name in assets])
    return [event["status"] for event in events_during(made, lambda: polled(sandbox))]


def test_a_restart_does_not_report_it_again(sandbox: Sandbox, stored: dict[Any, Any]) -> None:
    for status, fired in (("error", ["unhealthy"]), ("error", []), ("success", []), ("error", ["unhealthy"])):
        sandbox.control.update_health(group="hsm", status=status)
        assert watch(sandbox) == fired
    # What is stored and no state counts as healthy.
    stored["alarm", trigger(fire_on="unhealthy")._state_key()] = {"odd": 1}
    assert watch(sandbox) == ["unhealthy"]


@pytest.mark.parametrize(
    "other",
    [
        {"custody_conn_id": "other"},
        {"tenant_id": "1"},
        {"groups": ["hsm"]},
        {"require_fresh": False},
        {"healthy_statuses": ["success", "ok"]},
        {"fire_on": "change"},
    ],
)
def test_watchers_of_one_asset_do_not_share_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], stored: dict[Any, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    sandbox.control.update_health(group="hsm", status="error")
    assert (watch(sandbox), watch(sandbox, **other)) == (["unhealthy"], ["unhealthy"])
    assert (watch(sandbox), watch(sandbox, **other)) == ([], [])
    assert len(stored) == 2


def test_two_assets_have_no_store_and_the_log_says_so(
    sandbox: Sandbox, task_log: TaskLog, stored: dict[Any, Any]
) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    assert watch(sandbox, ("alarm", "page")) == ["unhealthy"]
    assert "Airflow keeps state for a trigger of exactly one asset" in task_log.text
    assert stored == {}


@pytest.mark.parametrize("made", [trigger(), CustodyWhitelistRequestTrigger(request_id="1")], ids=["health", "request"])
def test_a_deferred_task_gives_its_triggers_its_queue(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    task_runner = pytest.importorskip("airflow.sdk.execution_time.task_runner")
    if not hasattr(task_runner, "_defer_task"):
        pytest.skip("this Airflow has no queues of triggerers")
    import structlog
    from airflow.sdk import AssetWatcher
    from airflow.sdk.exceptions import TaskDeferred

    monkeypatch.setenv("AIRFLOW__TRIGGERER__QUEUES_ENABLED", "True")
    instance: Any = SimpleNamespace(dag_id="d", task_id="t", run_id="r", task=SimpleNamespace(queue="custody"))
    deferred = TaskDeferred(trigger=made, method_name="execute_complete")
    message, _ = task_runner._defer_task(deferred, instance, structlog.get_logger())
    assert message.queue == "custody"
    # An asset watcher has none.
    watcher = trigger(fire_on="change")
    assert AssetWatcher(name="w", trigger=watcher).name == "w"
    assert not watcher.supports_triggerer_queue


# --- sharing ---------------------------------------------------------------------------------------------------


def test_other_tenants_connections_and_intervals_have_polls_of_their_own(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    sandbox.control.update_health(group="hsm", status="error")
    shared: list[dict[str, Any]] = [{}, {"groups": ["hsm"]}, {"deadline": time.time() + 999}, {"fire_on": "change"}]
    own: list[dict[str, Any]] = [{"tenant_id": "1"}, {"poke_interval": 9}, {"custody_conn_id": "other"}]

    async def wait(made: CustodyHealthTrigger) -> None:
        async for _ in made.run():
            pass

    async def scenario() -> int:
        tasks = [asyncio.create_task(wait(trigger(**kwargs))) for kwargs in own + shared]
        await until(lambda: SharedPoll.running() > len(own))
        await asyncio.sleep(0.1)
        running = SharedPoll.running()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return running

    assert asyncio.run(scenario()) == 1 + len(own)


def test_a_tenant_that_is_refused_is_its_own_trouble(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=403, query={"tenantId": "9"}, times=None)
    found = asyncio.run(events(*(trigger(tenant_id=each) for each in ("1", "9", "2", "no number\n"))))
    assert [each["status"] for each in found] == ["healthy", "error", "healthy", "error"]


def test_many_share_one_poll_which_leaves_the_event_loop_free(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    responds = threading.Event()
    judged: list[tuple[Any, int]] = []
    list_health_checks, judge = CustodyClient.list_health_checks, verdict.judge

    def slow(client: CustodyClient, tenant_id: str | None = None) -> Any:
        responds.wait(600)
        return list_health_checks(client, tenant_id)

    def judge_in_a_thread(checks: Any, criteria: Any, now: Any) -> Any:
        judged.append((criteria, threading.get_ident()))
        return judge(checks, criteria, now)

    monkeypatch.setattr(CustodyClient, "list_health_checks", slow)
    monkeypatch.setattr(verdict, "judge", judge_in_a_thread)

    async def scenario() -> list[dict[str, Any]]:
        made = [trigger(groups=["hsm"] if number % 2 else None) for number in range(20)]
        waiting = asyncio.create_task(events(*made))
        for _ in range(10):
            await asyncio.sleep(0.02)
        assert not waiting.done()
        responds.set()
        return await waiting

    assert [event["status"] for event in asyncio.run(scenario())] == ["healthy"] * 20
    assert len(sandbox.control.request_log()) == 1
    # The same listing is judged once by each set of criteria, and not on the event loop.
    assert len(judged) == len({criteria for criteria, _ in judged}) == 2
    assert threading.get_ident() not in {thread for _, thread in judged}
