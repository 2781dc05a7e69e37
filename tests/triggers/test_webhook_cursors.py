"""The cursors of watchers of webhook calls: never shared, never replaced by a guess."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_runs import AIRFLOW
from connections import connection_json
from task_log import TaskLog

from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _watcher

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from watcher_runs import HOOK, Store, Triggerer, add_call, next_polls, run, until

pytestmark = pytest.mark.usefixtures("connection")


class TestCursors:
    @pytest.mark.parametrize(
        ("value", "words"), [("damaged", "must be a mapping"), ({"version": 99}, "its version is 99")], ids=repr
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
            stored = {"service": "any", "cursor": value} if isinstance(value, dict) else value
            store.values[key] = json.dumps(stored)
            add_call(sandbox, "a")
            triggerer = Triggerer()
            triggerer.start(1, store)
            await until(lambda: words in task_log.text)
            await next_polls(sandbox, 3)
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
            await next_polls(sandbox, 3)
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
            await until(
                lambda: len(store.values) == 2 and all('"recent": {"' in each for each in store.values.values())
            )
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
            store.values[key] = json.dumps({"service": "any", "cursor": {**store.cursor, "floor": 5}})
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

    def test_one_is_saved_from_time_to_time_also_if_nothing_is_new(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_watcher, "SAVE_EVERY", 0.0)

        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            before = store.cursor["read_at"]
            await until(lambda: store.cursor["read_at"] > before)
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
            await until(lambda: next(iter(values.values()))["cursor"]["recent"])
            assert triggerer.ids(1) == ["a"]
            await triggerer.kill()

        run(scenario)

    @pytest.mark.parametrize("restarts", [True, False])
    def test_a_journal_under_another_base_url_is_gone_on_with(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, restarts: bool
    ) -> None:
        add_call(sandbox, "a")

        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            before = dict(store.values)
            if restarts:
                await triggerer.kill()
                triggerer = Triggerer()
            add_call(sandbox, "meanwhile")
            moved = connection_json(sandbox).replace("127.0.0.1", "localhost")
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", moved)
            if restarts:
                triggerer.start(1, store)
            await until(lambda: triggerer.ids(1) == ["meanwhile"])
            add_call(sandbox, "b")
            await until(lambda: store.known == {"a", "meanwhile", "b"})
            assert triggerer.ids(1) == ["meanwhile", "b"]
            assert [payload["gap"] for _, payload in triggerer.persisted] == ["", ""]
            assert store.values.keys() == before.keys()
            await until(lambda: services(store.values) != services(before))
            assert [json.loads(each)["conn_id"] for each in store.values.values()] == ["custody_default"]
            await triggerer.kill()

        def services(values: dict[str, str]) -> set[str]:
            return {json.loads(each)["service"] for each in values.values()}

        run(scenario)
        assert "may be missing" not in task_log.text

    @pytest.mark.parametrize("calls", [[], ["old", "new"]], ids=repr)
    def test_another_journal_is_a_gap(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, calls: list[str]
    ) -> None:
        long_ago = "2020-01-01T00:00:00Z"
        add_call(sandbox, "ancient", createdAt=long_ago)
        add_call(sandbox, "a")

        async def scenario(other: Sandbox) -> None:
            for name in calls:
                # One is older than all that is known, which proves nothing of another journal.
                add_call(other, name, **({"createdAt": long_ago} if name == "old" else {}))
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
            await until(lambda: triggerer.persisted)
            await next_polls(other)
            ((_, payload),) = triggerer.persisted
            assert "the connection has another base URL now" in payload["gap"]
            assert triggerer.ids(1) == calls[1:]
            add_call(other, "b")
            await until(lambda: triggerer.ids(1) == [*calls[1:], "b"])
            await triggerer.kill()

        with Sandbox() as other:
            run(lambda: scenario(other))
        assert "Webhook calls may be missing: the connection has another base URL now" in task_log.text

    def test_another_journal_is_a_gap_also_if_no_call_was_known(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog
    ) -> None:
        async def scenario(other: Sandbox) -> None:
            add_call(other, "a")
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
            await until(lambda: triggerer.ids(1) == ["a"])
            add_call(other, "b")
            await until(lambda: triggerer.ids(1) == ["a", "b"])
            gaps = [payload["gap"] for _, payload in triggerer.persisted]
            assert ["calls of the former one that were not read are lost" in each for each in gaps] == [True, False]
            await triggerer.kill()

        with Sandbox() as other:
            run(lambda: scenario(other))
