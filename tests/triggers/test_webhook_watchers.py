"""What a watcher of webhook calls does with filters and with troubles of the service."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any, NoReturn

import pytest
from airflow_runs import AIRFLOW
from connections import connection_json
from task_log import TaskLog

from airflow_custody.client import CustodyClient, CustodyServerError
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers import _calls

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from watcher_runs import HOOK, OTHER_HOOK, Store, Triggerer, add_call, ids_of, run, until

pytestmark = pytest.mark.usefixtures("connection")

NO_TYPE = "44444444-4444-4444-8444-444444444444"


class TestEvents:
    def test_a_backlog_comes_in_parts_that_are_not_large(self, sandbox: Sandbox) -> None:
        for number in range(230):
            add_call(sandbox, str(number))
        add_call(sandbox, "large", payload=json.dumps({"text": "x" * 70_000}))
        for number in range(4):
            add_call(sandbox, f"mid-{number}", payload=json.dumps({"text": "ü" * 5_000}))

        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store, start="beginning")
            await until(lambda: "mid-3" in store.known)
            payloads = [payload for _, payload in triggerer.persisted]
            assert [payload["count"] for payload in payloads] == [100, 100, 30, 1, 2, 2]
            assert [payload["more"] for payload in payloads] == [True] * 5 + [False]
            assert payloads[3]["call_ids"] == ["large"]
            assert all(len(json.dumps(payload)) <= 65_536 for payload in payloads)
            assert len({*triggerer.ids(1)}) == 235
            await triggerer.kill()

        run(scenario)

    def test_without_payloads(self, sandbox: Sandbox) -> None:
        add_call(sandbox, "a", payload=json.dumps({"text": "x" * 70_000}))

        async def scenario() -> None:
            triggerer = Triggerer()
            triggerer.start(1, Store(), start="beginning", with_payload=False)
            await until(lambda: triggerer.persisted)
            (call,) = triggerer.persisted[0][1]["calls"]
            assert call["id"] == "a"
            assert "payload" not in call
            await triggerer.kill()

        run(scenario)

    def test_a_backlog_is_read_in_bounded_portions(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_calls, "MAX_CALLS_PER_READING", 10)
        for number in range(35):
            add_call(sandbox, str(number))

        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store, start="beginning")
            await until(lambda: len(triggerer.ids(1)) == 35)
            assert triggerer.ids(1) == [str(number) for number in range(35)]
            assert [payload["count"] for _, payload in triggerer.persisted] == [10, 10, 10, 5]
            await triggerer.kill()

        run(scenario)

    def test_many_events_come_at_several_polls(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_calls, "MAX_EVENTS_PER_POLL", 2)
        monkeypatch.setattr(_calls, "MAX_CALLS_PER_EVENT", 3)
        for number in range(20):
            add_call(sandbox, str(number), HOOK if number % 2 else OTHER_HOOK)
        store = Store()

        async def scenario() -> None:
            triggerer = Triggerer(confirms=False)
            triggerer.start(1, store, start="beginning", webhook_ids=[HOOK])
            await until(lambda: len(triggerer.fired) == 4)
            # Of the first poll's two; it ends before it has handed on the rest.
            triggerer.persist(2)
            await until(lambda: store.values)
            assert store.known == {str(number) for number in range(12)}
            await triggerer.kill()
            assert triggerer.ids(1) == ["1", "3", "5", "7", "9", "11"]
            triggerer = Triggerer()
            triggerer.start(1, store, start="beginning", webhook_ids=[HOOK])
            await until(lambda: len(store.known) == 20)
            assert triggerer.ids(1) == ["13", "15", "17", "19"]
            await triggerer.kill()

        run(scenario)

    def test_a_call_that_appears_late(self, sandbox: Sandbox) -> None:
        add_call(sandbox, "a", createdAt="2026-01-01T00:00:10Z")
        # Newest first, also where the one that comes last is not the newest.
        sandbox.control.configure(listings={"webhook-calls": {"orders": [["a"]]}})

        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            add_call(sandbox, "late", createdAt="2026-01-01T00:00:05Z")
            sandbox.control.configure(listings={"webhook-calls": {"orders": [["a", "late"]]}})
            await until(lambda: triggerer.persisted)
            ((_, payload),) = triggerer.persisted
            assert payload["late_ids"] == ids_of(payload) == ["late"]
            await triggerer.kill()

        run(scenario)

    def test_a_journal_that_was_cut_off(self, sandbox: Sandbox, task_log: TaskLog) -> None:
        # So young that nothing says how long calls are kept.
        add_call(sandbox, "a", createdAt=datetime.now(timezone.utc).isoformat())
        store = Store()

        async def scenario() -> None:
            triggerer = Triggerer()
            triggerer.start(1, store)
            await until(lambda: store.values)
            await triggerer.kill()
            # All that was known is gone.
            sandbox.control.reset()
            add_call(sandbox, "z", createdAt=datetime.now(timezone.utc).isoformat())
            triggerer = Triggerer()
            triggerer.start(1, store, webhook_ids=[OTHER_HOOK])
            await until(lambda: triggerer.persisted)
            ((_, payload),) = triggerer.persisted
            assert payload["count"] == 0
            assert "may have been removed" in payload["gap"]
            assert "Webhook calls may be missing" in task_log.text
            await until(lambda: "z" in store.known)
            await triggerer.kill()

        run(scenario)


class TestFilters:
    def test_by_type_status_and_event(self, sandbox: Sandbox) -> None:
        sandbox.control.add_webhook(id=HOOK)
        sandbox.control.add_webhook("currencyStatus.updated", id=OTHER_HOOK)
        sandbox.control.add_webhook("", id=NO_TYPE)

        async def scenario() -> None:
            triggerer = Triggerer()
            filters: list[dict[str, Any]] = [
                {"webhook_types": ["requestStatus.updated"]},
                {"webhook_types": ["CurrencyStatus.updated"]},
                {"statuses": ["failed"]},
                {"event_ids": ["event-b"]},
            ]
            stores = [Store(str(number)) for number, _ in enumerate(filters)]
            for number, (store, each) in enumerate(zip(stores, filters, strict=True)):
                triggerer.start(number, store, **each)
            await until(lambda: all(store.values for store in stores))
            add_call(sandbox, "a")
            add_call(sandbox, "b", OTHER_HOOK)
            add_call(sandbox, "c", status="failed")
            # A webhook that is gone: what its type was, nobody knows.
            add_call(sandbox, "d", "33333333-3333-4333-8333-333333333333")
            # One without a type.
            add_call(sandbox, "e", NO_TYPE)
            add_call(sandbox, "f", status=None)
            known = set("abcdef")
            await until(lambda: all(store.known == known for store in stores))
            found = [triggerer.ids(number) for number in range(4)]
            assert found == [["a", "c", "d", "e", "f"], ["b", "d", "e"], ["c", "f"], ["b"]]
            await triggerer.kill()

        run(scenario)

    def test_types_that_cannot_be_read_skip_nothing(
        self, sandbox: Sandbox, task_log: TaskLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(client: CustodyClient) -> NoReturn:
            raise CustodyServerError("away", operation="list webhooks")

        async def scenario() -> None:
            sandbox.control.add_webhook("currencyStatus.updated", id=OTHER_HOOK)
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store, webhook_types=["requestStatus.updated"])
            await until(lambda: store.values)
            # A webhook that is new, and a listing that fails.
            sandbox.control.add_webhook(id=HOOK)
            monkeypatch.setattr(CustodyClient, "list_webhooks", fails)
            add_call(sandbox, "a")
            add_call(sandbox, "b", OTHER_HOOK)
            await until(lambda: "it is tried again" in task_log.text)
            assert store.known == set()
            monkeypatch.undo()
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
            await until(lambda: store.known == {"a", "b"})
            assert triggerer.ids(1) == ["a"]
            await triggerer.kill()

        run(scenario)


class TestTrouble:
    @pytest.mark.parametrize("fault", [{"kind": "status", "status": 401}, {"kind": "drop"}, {"kind": "html"}], ids=repr)
    def test_failures_are_waited_out_and_logged(
        self, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, fault: dict[str, Any]
    ) -> None:
        async def scenario() -> None:
            sandbox.control.add_fault(**fault, path="/webhooks/calls", times=3)
            triggerer, store = Triggerer(), Store()
            triggerer.start(1, store)
            await until(lambda: store.values)
            assert triggerer.failures == []
            await triggerer.kill()

        run(scenario)
        text = caplog.text
        assert text.count("cannot be read; it is tried again") == 3
        assert sandbox.token not in text

    def test_a_poll_that_raises_does_not_end_the_watchers(
        self, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> None:
            triggerer, store = Triggerer(), Store()
            monkeypatch.delenv("AIRFLOW_CONN_CUSTODY_DEFAULT")
            triggerer.start(1, store)
            await until(lambda: "cannot be read" in caplog.text)
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
            await until(lambda: store.values)
            assert triggerer.failures == []
            await triggerer.kill()

        run(scenario)
