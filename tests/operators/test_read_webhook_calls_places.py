"""Where reading webhook calls goes on: the last event, the state store, and what else may be there."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

import pytest
from airflow_runs import failing_at_once
from connections import connection_json
from journal_service import Service
from task_log import TaskLog
from webhook_reads import TYPE, Reader, StateStore, write_calls

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.client.webhooks import reading
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.client.webhooks.results import NewCalls
from airflow_custody.operators._call_place import STORE_KEY
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture
def webhook(sandbox: Sandbox) -> str:
    """Return the id of a webhook."""
    return str(sandbox.control.add_webhook(type=TYPE)["id"])


DAY = 86_400.0


class Clock:
    """
    The clock of the machine on which the task runs; the service shows the same time.

    :ivar ahead: by how many seconds it is ahead of the real one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        keywords = reading.JournalReader.__init__.__kwdefaults__
        monkeypatch.setitem(keywords, "now", lambda: time.time() + self.ahead)  # type: ignore[arg-type]
        fetch_page = reading.JournalReader._fetch_page

        def fetch_now(reader: reading.JournalReader, order: reading.Order, name: str | None) -> Any:
            page = fetch_page(reader, order, name)
            reader._ahead = 0.0
            return page

        monkeypatch.setattr(reading.JournalReader, "_fetch_page", fetch_now)

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(seconds=self.ahead)

    def iso(self, seconds: float) -> str:
        """Return a time so many seconds from now."""
        return (self.now() + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def read_at(reader: Reader) -> int:
    """Return when the cursor in the last event was read."""
    return CallCursor.from_json(reader.events[-1].extra["cursor"]).read_at or 0


# --- the state store ----------------------------------------------------------------------------------------------


def test_a_reading_without_calls_is_kept_in_the_store(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning", event_ids=["event-1", "event-4"])
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    # Not beyond what is emitted for certain.
    assert CallCursor.from_json(store.get(STORE_KEY)["cursor"]).newest is None
    write_calls(sandbox, webhook, 2, 3)
    assert reader.ids() is None
    kept = store.get(STORE_KEY)["cursor"]
    assert "3" in str(kept)
    # What was deleted by Airflow's clean-up does no harm.
    reader.events.clear()
    write_calls(sandbox, webhook, 4)
    assert reader.ids(start="now") == ["4"]


def test_the_cursor_of_a_later_event_wins(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning")
    write_calls(sandbox, webhook, 1)
    reader.run()
    reader.run()
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]
    kept, emitted = (CallCursor.from_json(each["cursor"]) for each in (store.get(STORE_KEY), reader.events[-1].extra))
    assert (kept.newest or 0) < (emitted.newest or 0)
    assert reader.ids() is None


def test_what_other_filters_have_left_in_the_store_is_not_used(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning")
    write_calls(sandbox, webhook, 1)
    reader.run()
    write_calls(sandbox, webhook, 2)
    # Another task of the same asset, to which nothing is new.
    assert reader.ids(event_ids=["event-9"]) is None
    assert "event-9" in store.values[STORE_KEY]
    assert reader.ids() == ["2"]


def test_trouble_with_the_store_does_no_harm_where_an_event_has_the_place(
    sandbox: Sandbox, webhook: str, task_log: TaskLog
) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning")
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    store.failure = BrokenPipeError("away")
    assert reader.ids() is None
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]
    assert "cannot be read (BrokenPipeError): its last event will do" in task_log.text
    store.failure = None
    store.set(STORE_KEY, {**reader.events[-1].extra, "cursor": {"version": 99}})
    assert reader.ids() is None


def test_where_nothing_else_has_the_place_a_broken_store_is_retried(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    store.failure = RuntimeError("away")
    with pytest.raises(CustodyError, match="where to go on is not known") as caught:
        Reader(store).run()
    assert caught.value.retryable
    assert sandbox.control.request_log() == []


def test_without_a_store_an_event_of_each_day_keeps_the_cursor_young(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1)
    reader.run()
    reader.events[-1].timestamp -= timedelta(days=1)
    assert reader.ids() == []
    assert reader.ids() is None
    reader.store = StateStore()
    reader.events[-1].timestamp -= timedelta(days=1)
    assert reader.ids() is None


# --- events of others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", [None, {}, {"from_rest_api": True}, {"payload": {"count": 1, "cursor": {}}}])
def test_events_of_other_producers_are_passed_over(sandbox: Sandbox, webhook: str, foreign: Any) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1)
    reader.run()
    for _ in range(30):
        reader.add_event(foreign, task_id="another")
    assert reader.ids() is None
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]


def test_a_place_that_is_buried_under_other_events_is_not_guessed(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader()
    reader.run()
    sent = len(sandbox.control.request_log())
    for _ in range(500):
        reader.add_event({}, task_id=None)
    with failing_at_once("none of the last 500 events of the asset .* tells how far a task has come"):
        reader.run()
    assert len(sandbox.control.request_log()) == sent


@pytest.mark.parametrize("start", ["now", "beginning"])
@pytest.mark.parametrize("trouble", ["buried", "deleted"])
def test_where_the_last_event_is_gone_its_calls_come_again(
    sandbox: Sandbox, webhook: str, start: str, trouble: str
) -> None:
    reader = Reader(StateStore(), start=start)
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == (["1"] if start == "beginning" else [])
    write_calls(sandbox, webhook, 2)
    if trouble == "deleted":
        reader.events.clear()
    for _ in range(500 if trouble == "buried" else 0):
        reader.add_event({}, task_id=None)
    assert reader.ids() == (["1", "2"] if start == "beginning" else ["2"])
    assert reader.ids() is None
    reader.events.clear()
    write_calls(sandbox, webhook, 3)
    with failing_at_once("its state store has one of other filters"):
        reader.run(statuses=["success"])
    assert reader.run()["calls"][-1]["id"] == "3"


def test_an_event_that_is_made_by_hand_has_no_place(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader()
    reader.run()
    forged = {**reader.events[-1].extra, "cursor": {"version": 1, "floor": 253402300799000000, "recent": {}}}
    reader.add_event(forged, task_id=None)
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]


def test_a_cursor_of_a_later_version_is_refused(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader()
    reader.run()
    reader.events[-1].extra["cursor"]["version"] = 99
    with failing_at_once("version"):
        reader.run()


@pytest.mark.parametrize("with_store", [True, False])
def test_a_journal_under_another_base_url_is_gone_on_with(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch, with_store: bool
) -> None:
    reader = Reader(StateStore() if with_store else None, start="beginning")
    write_calls(sandbox, webhook, 1)
    reader.run()
    moved = connection_json(sandbox).replace("127.0.0.1", "localhost")
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", moved)
    assert reader.ids() is None
    write_calls(sandbox, webhook, 2)
    extra = reader.run()
    assert ([each["id"] for each in extra["calls"]], extra["gap"]) == (["2"], "")
    assert "localhost" not in str(extra)


@pytest.mark.parametrize("numbers", [[], [-9], [-9, 5]], ids=str)
def test_another_journal_is_a_gap(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, numbers: list[int]
) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning")
    write_calls(sandbox, webhook, -9999, 1)
    reader.run()
    with Sandbox() as other:
        # One that is older than all that is known proves nothing of another journal.
        write_calls(other, webhook, *(number * 1000 for number in numbers))
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
        for _ in range(2):
            with failing_at_once(
                "the connection has another base URL now, and the last known call is not listed there"
            ):
                reader.run()
        # It is said until an event is stored that says it.
        for emit in (False, True):
            extra = reader.run(on_gap="continue", emit=emit)
            assert "the connection has another base URL now" in extra["gap"]
        assert "Webhook calls may be lost: the connection has another base URL now" in task_log.text
        write_calls(other, webhook, 9000)
        assert reader.ids() == ["9000"]


@pytest.mark.parametrize("with_store", [True, False])
def test_another_journal_is_a_gap_also_if_no_call_was_known(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, with_store: bool
) -> None:
    reader = Reader(StateStore() if with_store else None)
    assert reader.ids() == []
    with Sandbox() as other:
        write_calls(other, str(other.control.add_webhook(type=TYPE)["id"]), 1, 2)
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
        with failing_at_once("calls of the former one that were not read are lost"):
            reader.run()
        assert reader.ids(on_gap="continue") == ["1", "2"]
        assert reader.ids() is None


@pytest.mark.parametrize("with_store", [True, False])
@pytest.mark.parametrize("trouble", ["emptied", "moved"])
def test_after_a_gap_that_is_accepted_once_the_task_works_again(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch, with_store: bool, trouble: str
) -> None:
    clock = Clock(monkeypatch)
    reader = Reader(StateStore() if with_store else None, start="beginning")
    write_calls(sandbox, webhook, 1, 2)
    reader.run()
    assert reader.ids() is None
    with Sandbox() as other:
        if trouble == "moved":
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
        else:
            sandbox.control.reset()
        clock.ahead += 400 * DAY
        for _ in range(2):
            with failing_at_once("webhook calls may be lost"):
                reader.run()
        assert reader.run(on_gap="continue")["gap"]
        for on_gap in ("fail", "fail", "continue", "continue", "fail"):
            clock.ahead += 60
            assert reader.run(on_gap=on_gap) is None
        webhook_id = str((other if trouble == "moved" else sandbox).control.add_webhook(type=TYPE)["id"])
        write_calls(other if trouble == "moved" else sandbox, webhook_id, 9000)
        extra = reader.run()
        assert ([each["id"] for each in extra["calls"]], extra["gap"]) == (["9000"], "")


def test_each_gap_of_a_journal_that_keeps_too_little_is_said(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    for store in (None, StateStore()):
        reader = Reader(store, start="beginning", on_gap="continue")
        write_calls(sandbox, webhook, 0, createdAt=clock.iso(-1800))
        assert reader.ids() == ["0"]
        # What it writes is gone after an hour.
        sandbox.control.reset()
        for _ in range(3):
            clock.ahead += DAY
            extra = reader.run()
            assert (extra["count"], "may have been removed" in extra["gap"]) == (0, True)


def test_what_max_calls_held_back_and_is_removed_is_said(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    for number in range(60):
        write_calls(sandbox, webhook, number, createdAt=clock.iso(-3600 * (60 - number)))
    reader = Reader(StateStore(), start="beginning", max_calls=10)
    assert reader.ids() == list(map(str, range(10)))
    sandbox.control.reset()
    for number in range(20, 60):
        write_calls(sandbox, webhook, number, createdAt=clock.iso(-3600 * (60 - number)))
    clock.ahead += 20 * 3600
    with failing_at_once("may have been removed before they were read"):
        reader.run()


def test_without_a_store_a_gap_that_is_accepted_is_not_said_again_while_the_task_runs_often(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, createdAt=clock.iso(-30))
    reader.run()
    sandbox.control.reset()
    assert reader.run(on_gap="continue")["gap"]
    for _ in range(20):
        clock.ahead += 60
        # An event is as old as the cursor in it.
        age = clock.now().timestamp() - read_at(reader)
        reader.events[-1].timestamp = datetime.now(timezone.utc) - timedelta(seconds=age)
        extra = reader.run()
        assert extra is None or (extra["count"], extra["gap"]) == (0, "")


def test_another_task_with_other_filters_is_a_gap_and_changed_filters_are_not(
    sandbox: Sandbox, webhook: str, task_log: TaskLog
) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2)
    assert reader.ids(event_ids=["event-2"]) == ["2"]
    assert reader.ids() is None
    assert "The filters were changed." in task_log.text
    reader.events[-1].source_task_id = "another"
    with failing_at_once("task 'another' of DAG 'dag' emits events of the same asset with other filters"):
        reader.run()
    write_calls(sandbox, webhook, 3)
    extra = reader.run(on_gap="continue")
    assert (extra["count"], "'another'" in extra["gap"]) == (1, True)
    assert reader.ids() is None


def test_a_place_that_is_shared_with_another_task_is_warned_of(
    sandbox: Sandbox, webhook: str, task_log: TaskLog
) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1)
    reader.run()
    reader.run()
    assert "was emitted by" not in task_log.text
    reader.events[-1].source_dag_id = "copied"
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]
    warning = f"The last event of the asset {reader.asset.uri!r} was emitted by task 'task' of DAG 'copied'"
    assert task_log.text.count(warning) == 1
    assert "asset of its own (asset=...)" in task_log.text
    # Its own event is the last one now.
    reader.run()
    assert task_log.text.count("was emitted by") == 1


@pytest.mark.parametrize("has_store", [True, False])
def test_a_clock_that_was_set_back_and_put_right_hides_no_call(sandbox: Sandbox, has_store: bool) -> None:
    """The event's place is from before; what is written meanwhile is found only from a later one."""
    service = Service(-7200.0)
    service.service_clock = 0.0
    reader = Reader(StateStore() if has_store else None)
    with mock.patch.object(CustodyClient, "read_webhook_calls", lambda client, after, **_: _read_from(service, after)):
        assert reader.ids() == []
        service.add(service.now)
        assert reader.ids() == [service.calls[-1].id]
        for seconds in (60, 120):
            service.clock, service.service_clock = seconds, seconds - 3600
            assert not reader.ids()
        service.add(service.now)
        service.clock = service.service_clock = 180
        assert reader.ids() == [service.calls[-1].id]


def _read_from(service: Service, after: CallCursor | None) -> NewCalls:
    return NewCalls((), service.reader.read_position()) if after is None else service.read(after)
