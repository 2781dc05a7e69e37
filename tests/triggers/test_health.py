"""The health trigger: it waits once for a deferred task, or watches for an asset."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timezone
from typing import Any, cast

import pytest
from airflow.triggers.base import TriggerEvent
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json
from support.airflow.request_triggers import Store, events, first, no_more_threads
from support.airflow.task_log import TaskLog

from airflow_custody.client.health import verdict
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import SharedPoll
from airflow_custody.triggers.health import CustodyHealthTrigger

pytestmark = pytest.mark.usefixtures("connection")


def trigger(**kwargs: Any) -> CustodyHealthTrigger:
    return CustodyHealthTrigger(**{"poke_interval": 0.1, **kwargs})


def first_event(made: CustodyHealthTrigger) -> dict[str, Any]:
    return asyncio.run(first(made))


def events_during(made: CustodyHealthTrigger, script: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the events that a trigger fires while a script of changes to the sandbox runs."""
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
    """Wait until the service was polled this often. The first poll may have begun earlier; the last may go on."""
    before, deadline = len(sandbox.control.request_log()), time.monotonic() + 600
    while len(sandbox.control.request_log()) < before + times:
        assert time.monotonic() < deadline, "it is not polled"
        time.sleep(0.05)


# --- for a deferred task -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("saves_at_once")
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


def test_a_trigger_that_is_restarted_after_its_deadline_polls_once_and_gives_up(sandbox: Sandbox) -> None:
    sandbox.control.update_health(group="hsm", status="error")
    assert first_event(trigger(deadline=time.time() - 100))["status"] == "timeout"
    assert len(sandbox.control.request_log()) == 1


def test_an_error_is_an_event_and_holds_no_token(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=401)
    event = first_event(trigger())
    assert event["status"] == "error"
    assert event["error"]["type"] == "CustodyAuthenticationError"
    assert sandbox.token not in json.dumps(event)


def test_a_connection_that_is_not_defined_is_an_event() -> None:
    assert first_event(trigger(custody_conn_id="nowhere"))["error"]["setting"] == "custody_conn_id"


def test_another_name_is_missing_each_time() -> None:
    wait = verdict.HealthWait(verdict.HealthCriteria(groups=("a", "b")))

    def ends(*missing: str) -> bool:
        problems = [verdict.Problem("no", missing=("groups", each)) for each in missing]
        found = verdict.HealthVerdict(datetime.now(timezone.utc), problems=problems)
        return wait.update(lambda _: found).error is not None

    assert [ends("a"), ends("b"), ends(), ends("b"), ends("a", "b")] == [False] * 4 + [True]


# --- watching for an asset: it fires when the state changes, not at every poll ---------------------------------


@pytest.fixture
def saves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assume that Airflow stores an event at once."""
    monkeypatch.setattr("airflow_custody.triggers.health.SAVE_DELAY", 0.0)


@pytest.mark.usefixtures("saves_at_once")
@pytest.mark.parametrize(
    ("fire_on", "fired"),
    [("unhealthy", ["unhealthy"] * 2), ("healthy", ["healthy"]), ("change", ["unhealthy", "healthy", "unhealthy"])],
    ids=["unhealthy", "healthy", "change"],
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


@pytest.mark.usefixtures("saves_at_once")
def test_a_watch_goes_on_after_its_poll_has_died(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WATCHED", connection_json(sandbox))

    async def scenario() -> None:
        stream = cast(AsyncGenerator[TriggerEvent, None], trigger(fire_on="change", custody_conn_id="watched").run())
        with no_more_threads():
            assert (await anext(stream)).payload["status"] == "unhealthy"
        assert (await anext(stream)).payload["status"] == "healthy"
        await stream.aclose()

    asyncio.run(scenario())
    assert len(SharedPoll._running) == 0


def watch(sandbox: Sandbox, store: Any, **kwargs: Any) -> list[str]:
    """Return the events of a watcher that a triggerer has just started."""
    made = trigger(**{"fire_on": "unhealthy", **kwargs})
    made.asset_state_store = store
    return [event["status"] for event in events_during(made, lambda: polled(sandbox))]


class EarlierStore:
    """A state store of Airflow 3.3.0 and 3.3.1, which has no asynchronous methods."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value


@pytest.mark.usefixtures("saves_at_once")
@pytest.mark.parametrize("kind", [Store, EarlierStore])
def test_a_restart_does_not_report_it_again(sandbox: Sandbox, kind: type) -> None:
    store = kind()
    for status, fired in (("error", ["unhealthy"]), ("error", []), ("success", []), ("error", ["unhealthy"])):
        sandbox.control.update_health(group="hsm", status=status)
        assert watch(sandbox, store) == fired
    # A stored value that is not a state counts as healthy.
    store.values = dict.fromkeys(store.values, '{"odd": 1}')
    assert watch(sandbox, store) == ["unhealthy"]


def test_an_event_that_airflow_may_not_have_stored_is_repeated(sandbox: Sandbox) -> None:
    store = Store()
    for status, fired in (("error", ["unhealthy"]), ("error", ["unhealthy"]), ("success", [])):
        sandbox.control.update_health(group="hsm", status=status)
        assert watch(sandbox, store) == fired


@pytest.mark.usefixtures("saves_at_once")
def test_a_watcher_waits_until_its_state_can_be_loaded(sandbox: Sandbox, task_log: TaskLog) -> None:
    store = Store()
    sandbox.control.update_health(group="hsm", status="error")
    assert watch(sandbox, store, fire_on="change") == ["unhealthy"]
    sandbox.control.update_health(group="hsm", status="success")
    store.error = RuntimeError("the API server is starting")
    made = trigger(fire_on="change")
    made.asset_state_store = cast(Any, store)
    before = len(sandbox.control.request_log())

    def script() -> None:
        deadline = time.monotonic() + 600
        while "the API server is starting" not in task_log.text:
            assert time.monotonic() < deadline, "no warning"
            time.sleep(0.05)
        assert len(sandbox.control.request_log()) == before
        store.error = None
        polled(sandbox)

    assert [event["status"] for event in events_during(made, script)] == ["healthy"]


@pytest.mark.usefixtures("saves_at_once")
@pytest.mark.parametrize(
    "other",
    [{"custody_conn_id": "other"}, {"groups": ["hsm"]}],
    ids=["connection", "criteria"],
)
def test_watchers_of_one_asset_do_not_share_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(sandbox))
    sandbox.control.update_health(group="hsm", status="error")
    store = Store()
    for fired in (["unhealthy"], []):
        assert watch(sandbox, store) == watch(sandbox, store, **other) == fired


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow keeps no state for assets")
def test_two_assets_have_no_store_and_the_log_says_so(sandbox: Sandbox, task_log: TaskLog) -> None:
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

    sandbox.control.update_health(group="hsm", status="error")
    assert watch(sandbox, AssetStateStoreAccessors(inlets=[Asset("one"), Asset("two")])) == ["unhealthy"]
    assert "Airflow only stores state for a trigger of exactly one asset" in task_log.text


# --- sharing ---------------------------------------------------------------------------------------------------


def test_a_tenant_that_is_refused_is_its_own_trouble(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=403, query={"tenantId": "9"}, times=None)
    found = asyncio.run(events(*(trigger(tenant_id=each) for each in ("1", "9", "2", "no number\n"))))
    assert [each["status"] for each in found] == ["healthy", "error", "healthy", "error"]


def test_many_share_one_poll_and_all_with_the_same_criteria_one_verdict(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Any] = []
    judge = verdict.judge

    def count(checks: Any, criteria: Any, now: Any) -> Any:
        judged.append(criteria)
        return judge(checks, criteria, now)

    monkeypatch.setattr("airflow_custody.triggers.health.judge", count)
    found = asyncio.run(events(*(trigger(groups=["hsm"] if number % 2 else None) for number in range(20))))
    assert [event["status"] for event in found] == ["healthy"] * 20
    assert len(sandbox.control.request_log()) == 1
    assert len(judged) == 2
