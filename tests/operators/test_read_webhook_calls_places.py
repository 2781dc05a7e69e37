"""Where reading webhook calls goes on: the last event, the state store, and what else may be there."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from airflow_runs import failing_at_once
from connections import connection_json
from journal_service import journal_service
from task_log import TaskLog
from webhook_reads import TYPE, Reader, StateStore, write_calls

from airflow_custody.client import CustodyError
from airflow_custody.client.webhooks.calls import BEGINNING, CallCursor
from airflow_custody.operators._call_place import STORE_KEY
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture
def webhook(sandbox: Sandbox) -> str:
    """Return the id of a webhook."""
    return str(sandbox.control.add_webhook(type=TYPE)["id"])


# --- the state store ----------------------------------------------------------------------------------------------


def test_a_reading_without_calls_is_kept_in_the_store(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning", event_ids=["event-1", "event-4"])
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    # Not beyond what is emitted for certain.
    assert CallCursor.from_json(store.get(STORE_KEY)["cursor"]) == BEGINNING
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
    assert kept.at < emitted.at
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
    assert "cannot be read (BrokenPipeError('away')): its last event will do" in task_log.text
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


@pytest.mark.parametrize("has_store", [True, False])
def test_what_the_filters_leave_out_makes_no_event_unless_only_that_can_keep_the_place(
    sandbox: Sandbox, webhook: str, has_store: bool
) -> None:
    reader = Reader(StateStore() if has_store else None, start="beginning", event_ids=["event-1"], max_calls=3)
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    for number in (2, 3):
        write_calls(sandbox, webhook, number)
        assert reader.ids() is None
    reader.events[-1].timestamp -= timedelta(days=1)
    assert reader.ids() == (None if has_store else [])
    assert reader.ids() is None
    write_calls(sandbox, webhook, 4, 5, 6, 7)
    assert reader.ids() == (None if has_store else [])
    assert reader.ids() is None
    # A quiet journal needs no event, however old the last one is.
    reader.events[-1].timestamp -= timedelta(days=1)
    reader.run()
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
    assert reader.run(statuses=["success"])["calls"][-1]["id"] == "3"


def test_an_event_that_is_made_by_hand_has_no_place(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 0)
    reader.run()
    forged = {**reader.events[-1].extra, "cursor": {"version": 2, "at": "9999-12-31T00:00:00Z", "seen": {}}}
    reader.add_event(forged, task_id=None)
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]


@pytest.mark.parametrize("version", [1, 99])
def test_a_cursor_of_another_version_is_refused(sandbox: Sandbox, webhook: str, version: int) -> None:
    reader = Reader()
    reader.run()
    reader.events[-1].extra["cursor"]["version"] = version
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


@pytest.mark.parametrize("has_store", [True, False])
@pytest.mark.parametrize("trouble", ["emptied", "moved"])
def test_after_a_gap_that_is_accepted_once_the_task_works_again(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch, has_store: bool, trouble: str
) -> None:
    reader = Reader(StateStore() if has_store else None, start="beginning")
    write_calls(sandbox, webhook, -9999, 1)
    reader.run()
    with Sandbox() as other:
        if trouble == "moved":
            write_calls(other, webhook, -9999, 5)
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(other))
        else:
            sandbox.control.reset()
        for _ in range(2):
            with failing_at_once("webhook calls may be lost: the newest call that was known is not listed any more"):
                reader.run()
        # It is said until an event is stored that says it.
        for emit in (False, True):
            assert "may have been removed" in reader.run(on_gap="continue", emit=emit)["gap"]
        for _ in range(2):
            assert reader.run() is None
        write_calls(other if trouble == "moved" else sandbox, webhook, 9000)
        extra = reader.run()
        assert ([each["id"] for each in extra["calls"]], extra["gap"]) == (["9000"], "")


def test_what_max_calls_held_back_and_is_removed_is_said(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(StateStore(), start="beginning", max_calls=10)
    write_calls(sandbox, webhook, *range(60))
    assert reader.ids() == list(map(str, range(10)))
    sandbox.control.configure(calls={"max_number": 40})
    with failing_at_once("may have been removed before they were read"):
        reader.run()


def test_another_task_with_other_filters_is_a_gap_and_changed_filters_are_not(
    sandbox: Sandbox, webhook: str, task_log: TaskLog
) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2)
    assert reader.ids(event_ids=["event-2"]) == ["2"]
    assert reader.ids() is None
    assert "The filters were changed." in task_log.text
    reader.events[-1].extra["task"] = ["dag", "another"]
    with failing_at_once("reads calls for the same asset with other filters"):
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
    reader.events[-1].extra["task"] = ["copied", "task"]
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]
    warning = f"The last event of the asset {reader.asset.uri!r} was emitted by task ['copied', 'task']"
    assert task_log.text.count(warning) == 1
    assert "asset of its own (asset=...)" in task_log.text
    # Its own event is the last one now.
    reader.run()
    assert task_log.text.count("was emitted by") == 1


@pytest.mark.parametrize("has_store", [True, False])
def test_a_clock_that_was_set_back_is_a_gap_and_hides_no_call(monkeypatch: pytest.MonkeyPatch, has_store: bool) -> None:
    """The event's place is from before; what is written meanwhile is found only from a later one."""
    with journal_service() as service:
        host = service.client.settings.base_url
        extra = {"conn_type": "custody", "host": host, "password": "token"}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(extra))
        service.clock = 10_000
        service.write(9_000, 9_999)
        reader = Reader(StateStore() if has_store else None)
        assert reader.ids() == []
        service.clock -= 3600
        with failing_at_once("the service's clock was set back"):
            reader.run()
        # What it now dates in the future comes again.
        assert reader.ids(on_gap="continue") == ["1"]
        for _ in range(3):
            service.clock += 100
            sent = service.write(service.clock)
            assert reader.ids() == sent
        # It is put right.
        service.clock = 10_100
        sent = service.write(service.clock)
        assert reader.ids() == sent
