"""The cursors of watchers of webhook calls: never shared, never replaced by a guess."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_runs import AIRFLOW
from connections import connection_json
from task_log import TaskLog

from airflow_custody.sandbox import Sandbox

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from watcher_runs import HOOK, Store, Triggerer, add_call, next_polls, run, until

pytestmark = pytest.mark.usefixtures("connection")


class TestCursors:
    @pytest.mark.parametrize(
        ("value", "words"), [("damaged", "cannot be used"), ({"version": 99}, "its version is 99")], ids=repr
    )
    def test_one_that_cannot_be_read_is_never_replaced(
        self, sandbox: Sandbox, task_log: TaskLog, value: Any, words: str
    ) -> None:
        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            await triggerer.kill()
            ((key, good),) = store.values.items()
            stored = {"cursor": value} if isinstance(value, dict) else value
            store.values[key] = json.dumps(stored)
            add_call(sandbox, "a")
            triggerer = Triggerer()
            triggerer.start(1, store)
            await until(lambda: words in task_log.text)
            await asyncio.sleep(0.3)
            assert json.loads(store.values[key]) == stored
            assert not triggerer.persisted + triggerer.failures
            # It is repaired, and the watcher goes on by itself.
            store.values[key] = good
            await until(lambda: triggerer.ids(1) == ["a"])
            await triggerer.kill()

        run(scenario)
        text = task_log.text
        assert text.count(words) == 1
        assert "'custody_webhook_calls:default'" in text

    def test_several_assets_are_refused(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        from airflow.sdk import Asset
        from airflow.sdk.execution_time.context import AssetStateStoreAccessors

        async def scenario() -> None:
            triggerer = Triggerer()
            trigger = triggerer.start(1, None)
            trigger.asset_state_store = AssetStateStoreAccessors(inlets=[Asset("one"), Asset("two")])
            await until(lambda: "exactly one asset" in task_log.text)
            triggerer.start(2, None)
            await until(lambda: "no state store" in task_log.text)
            add_call(sandbox, "a")
            await asyncio.sleep(0.3)
            assert not triggerer.persisted + triggerer.failures
            await triggerer.kill()

        run(scenario)

    def test_a_second_watcher_of_an_asset_needs_a_cursor_of_its_own(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            triggerer.start(2, store, webhook_ids=[HOOK])
            triggerer.start(3, store, cursor_name="third", start="beginning")
            await until(lambda: "cursor_name of its own" in task_log.text)
            add_call(sandbox, "a")
            await until(lambda: triggerer.ids(1) == triggerer.ids(3) == ["a"])
            assert triggerer.ids(2) == []
            await until(lambda: len(store.values) == 2 and all('"a": ' in each for each in store.values.values()))
            # As when filters are changed: the one that was waiting takes the other's place.
            await triggerer.stop(1)
            add_call(sandbox, "b")
            await until(lambda: triggerer.ids(2) == ["b"])
            await triggerer.kill()

        run(scenario)

    def test_one_that_somebody_else_writes_is_reported(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            ((key, _),) = store.values.items()
            store.values[key] = json.dumps({"cursor": {**store.cursor, "at": "2026-01-01T00:00:00Z"}})
            add_call(sandbox, "a")
            await until(lambda: "somebody else has written" in task_log.text)
            await triggerer.kill()

        run(scenario)

    def test_a_store_that_fails_for_a_while(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            store.error = RuntimeError("database is locked")
            triggerer.start(1, store)
            await until(lambda: "cannot be loaded" in task_log.text)
            store.error = None
            await until(lambda: store.values)
            store.error = RuntimeError("database is locked")
            add_call(sandbox, "a")
            await until(lambda: "cannot be saved" in task_log.text)
            assert triggerer.ids(1) == ["a"]
            store.error = None
            await until(lambda: store.known == {"a"})
            await next_polls(sandbox)
            assert triggerer.ids(1) == ["a"]
            await triggerer.kill()

        run(scenario)

    def test_a_store_without_asynchronous_methods(self, sandbox: Sandbox) -> None:
        values: dict[str, Any] = {}
        store: Any = SimpleNamespace(get=values.get, set=values.__setitem__)

        async def scenario() -> None:
            triggerer = Triggerer()
            triggerer.start(1, store)
            await until(lambda: values)
            add_call(sandbox, "a")
            await until(lambda: next(iter(values.values()))["cursor"]["seen"])
            assert triggerer.ids(1) == ["a"]
            await triggerer.kill()

        run(scenario)

    def test_a_journal_under_another_base_url_is_gone_on_with_and_another_journal_is_a_gap(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog
    ) -> None:
        add_call(sandbox, "a")

        async def scenario(other: Sandbox) -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            moved = connection_json(sandbox).replace("127.0.0.1", "localhost")
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", moved)
            add_call(sandbox, "b")
            await until(lambda: triggerer.ids(1) == ["b"])
            add_call(other, "c")
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
            await until(lambda: triggerer.ids(1) == ["b", "c"])
            add_call(other, "d")
            await until(lambda: triggerer.ids(1) == ["b", "c", "d"])
            gaps = [payload["gap"] for _, payload in triggerer.persisted]
            assert ["is not listed any more" in each for each in gaps] == [False, True, False]
            await triggerer.kill()

        with Sandbox() as other:
            run(lambda: scenario(other))
        assert "Webhook calls may be missing: the newest call that was known" in task_log.text
