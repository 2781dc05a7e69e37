"""Watchers of webhook calls: their events and filters, troubles of the service, and their cursors."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timezone
from typing import NoReturn

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.task_log import TaskLog

from airflow_custody.client import CustodyClient, CustodyServerError
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _calls

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from support.airflow.watcher_runs import HOOK, OTHER_HOOK, Store, Triggerer, add_call, in_triggerers, next_polls, until

pytestmark = pytest.mark.usefixtures("connection")


@in_triggerers
async def test_a_backlog_comes_in_parts_that_are_not_large(sandbox: Sandbox) -> None:
    for number in range(130):
        add_call(sandbox, str(number))
    add_call(sandbox, "large", payload=json.dumps({"text": "x" * 70_000}))
    for number in range(4):
        add_call(sandbox, f"mid-{number}", payload=json.dumps({"text": "ü" * 5_000}))
    triggerer, store = await Triggerer.watching(start="beginning")
    await until(lambda: "mid-3" in store.known)
    payloads = [payload for _, payload in triggerer.persisted]
    assert [payload["count"] for payload in payloads] == [100, 30, 1, 2, 2]
    assert [payload["more"] for payload in payloads] == [True] * 4 + [False]
    assert payloads[2]["call_ids"] == ["large"]
    assert all(len(json.dumps(payload)) <= 65_536 for payload in payloads)


@in_triggerers
async def test_many_events_come_at_several_polls(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "MAX_EVENTS_PER_POLL", 2)
    monkeypatch.setattr(_calls, "MAX_CALLS_PER_EVENT", 3)
    for number in range(20):
        add_call(sandbox, str(number), HOOK if number % 2 else OTHER_HOOK)
    triggerer, store = Triggerer(confirms=False), Store()
    triggerer.start(1, store, start="beginning", webhook_ids=[HOOK])
    await until(lambda: len(triggerer.fired) == 4)
    # Only the events of the first poll are stored.
    triggerer.persist(2)
    await until(lambda: store.values)
    assert store.known == {str(number) for number in range(12)}
    await triggerer.kill()
    assert triggerer.ids(1) == ["1", "3", "5", "7", "9", "11"]
    triggerer, _ = await Triggerer.watching(store, start="beginning", webhook_ids=[HOOK])
    await until(lambda: len(store.known) == 20)
    assert triggerer.ids(1) == ["13", "15", "17", "19"]


@in_triggerers
async def test_a_journal_that_was_cut_off(sandbox: Sandbox, task_log: TaskLog) -> None:
    # The journal is so young that it does not show how long calls are kept.
    add_call(sandbox, "a", createdAt=datetime.now(timezone.utc).isoformat())
    triggerer, store = await Triggerer.watching()
    await triggerer.kill()
    # All known calls are gone.
    sandbox.control.reset()
    add_call(sandbox, "z", createdAt=datetime.now(timezone.utc).isoformat())
    triggerer, _ = await Triggerer.watching(store, webhook_ids=[OTHER_HOOK])
    await until(lambda: triggerer.persisted)
    ((_, payload),) = triggerer.persisted
    assert payload["count"] == 0
    assert "may have been removed" in payload["gap"]
    assert "Webhook calls may be lost" in task_log.text
    await until(lambda: "z" in store.known)


@in_triggerers
async def test_types_that_cannot_be_read_skip_nothing(
    sandbox: Sandbox, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(client: CustodyClient) -> NoReturn:
        raise CustodyServerError("away", operation="list webhooks")

    sandbox.control.add_webhook("currencyStatus.updated", id=OTHER_HOOK)
    triggerer, store = await Triggerer.watching(webhook_types=["requestStatus.updated"])
    # A webhook that is new, and a listing that fails: a fault of the sandbox would also be one of the journal.
    sandbox.control.add_webhook(id=HOOK)
    with monkeypatch.context() as patch:
        patch.setattr(CustodyClient, "list_webhooks", fails)
        add_call(sandbox, "a")
        add_call(sandbox, "b", OTHER_HOOK)
        await until(lambda: "The next poll tries again" in task_log.text)
        assert store.known == set()
    await until(lambda: store.known == {"a", "b"})
    assert triggerer.ids(1) == ["a"]


@in_triggerers
async def test_failures_are_waited_out_and_logged(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    sandbox.control.add_fault("status", status=401, path="/webhooks/calls", times=2)
    triggerer, store = Triggerer(), Store()
    triggerer.start(1, store)
    await until(lambda: store.values)
    assert triggerer.failures == []
    assert "cannot be read. The next poll tries again" in caplog.text
    assert sandbox.token not in caplog.text


# --- cursors: never shared, never replaced by a guess ---------------------------------------------------------


@in_triggerers
async def test_an_unreadable_cursor_is_never_replaced(sandbox: Sandbox, task_log: TaskLog) -> None:
    triggerer, store = await Triggerer.watching()
    await triggerer.kill()
    ((key, good),) = store.values.items()
    store.values[key] = unreadable = json.dumps({"cursor": {"version": 99}})
    add_call(sandbox, "a")
    triggerer, _ = await Triggerer.watching(store)
    await until(lambda: "its version is 99" in task_log.text)
    await asyncio.sleep(0.3)
    assert store.values[key] == unreadable
    assert not triggerer.persisted + triggerer.failures
    # The state is repaired, and the watcher continues by itself.
    store.values[key] = good
    await until(lambda: triggerer.ids(1) == ["a"])


@in_triggerers
async def test_several_assets_are_refused(sandbox: Sandbox, task_log: TaskLog) -> None:
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

    triggerer = Triggerer()
    trigger = triggerer.start(1, None)
    trigger.asset_state_store = AssetStateStoreAccessors(inlets=[Asset("one"), Asset("two")])
    await until(lambda: "exactly one asset" in task_log.text)
    triggerer.start(2, None)
    await until(lambda: "no state store" in task_log.text)
    add_call(sandbox, "a")
    await asyncio.sleep(0.3)
    assert not triggerer.persisted + triggerer.failures


@in_triggerers
async def test_a_second_watcher_of_an_asset_needs_a_cursor_of_its_own(sandbox: Sandbox, task_log: TaskLog) -> None:
    triggerer, store = await Triggerer.watching()
    triggerer.start(2, store, webhook_ids=[HOOK])
    triggerer.start(3, store, cursor_name="third", start="beginning")
    await until(lambda: "its own cursor_name" in task_log.text)
    add_call(sandbox, "a")
    await until(lambda: triggerer.ids(1) == triggerer.ids(3) == ["a"])
    assert triggerer.ids(2) == []
    await until(lambda: len(store.values) == 2 and all('"a": ' in each for each in store.values.values()))
    # The filters were changed: a waiting watcher takes the place of another one.
    await triggerer.stop(1)
    add_call(sandbox, "b")
    await until(lambda: triggerer.ids(2) == ["b"])


@in_triggerers
async def test_a_store_that_fails_for_a_while(sandbox: Sandbox, task_log: TaskLog) -> None:
    triggerer, store = await Triggerer.watching()
    await triggerer.kill()
    store.error = RuntimeError("database is locked")
    triggerer, _ = await Triggerer.watching(store)
    await until(lambda: "cannot be loaded" in task_log.text)
    store.error = None
    add_call(sandbox, "a")
    await until(lambda: store.known == {"a"})
    store.error = RuntimeError("database is locked")
    add_call(sandbox, "b")
    await until(lambda: triggerer.ids(1) == ["a", "b"] and "cannot be saved" in task_log.text)
    store.error = None
    await until(lambda: store.known == {"a", "b"})
    await next_polls(sandbox)
    assert triggerer.ids(1) == ["a", "b"]
