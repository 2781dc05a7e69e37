"""Reading webhook calls in several runs: where each run continues, what it emits, and which calls may be lost."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.airflow.airflow_runs import failing_at_once, new_dag
from support.airflow.task_log import TaskLog
from support.airflow.webhook_reads import TYPE, Reader, StateStore, new_asset, write_calls

from airflow_custody.assets import webhook_calls_asset
from airflow_custody.client import CustodyError
from airflow_custody.client.webhooks.calls import CallCursor
from airflow_custody.operators import _call_reading
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")


def test_each_run_goes_on_where_the_last_event_ends(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2, 3)
    extra = reader.run()
    assert [(each["id"], each["payload"]) for each in extra["calls"]] == [(n, {"requestId": n}) for n in "123"]
    assert extra["count"] == 3
    assert reader.result == {"count": 3}
    assert reader.ids() is None
    write_calls(sandbox, webhook, 4, 5)
    assert reader.ids() == ["4", "5"]


# --- filters ------------------------------------------------------------------------------------------------------


def test_only_calls_that_match_are_emitted(sandbox: Sandbox, webhook: str) -> None:
    other = sandbox.control.add_webhook(type="currencyStatus.updated", url="https://hooks.example.com/2")["id"]
    write_calls(sandbox, webhook, 1)
    write_calls(sandbox, other, 2, status="failed")
    write_calls(sandbox, webhook, 3)
    each_alone: list[dict[str, Any]] = [
        {"webhook_ids": [other]},
        {"webhook_types": "currencyStatus.updated"},
        {"event_ids": ["event-2"]},
        {"statuses": ("failed",)},
    ]
    for filters in each_alone:
        (call,) = Reader(start="beginning", with_payload=False, **filters).run()["calls"]
        assert call["id"] == "2"
        assert call.get("payload") is None


# --- gaps, and webhooks that may not write --------------------------------------------------------------------------


@pytest.mark.parametrize("has_store", [True, False])
def test_a_journal_that_was_cut_off_fails_or_is_named(sandbox: Sandbox, webhook: str, has_store: bool) -> None:
    reader = Reader(StateStore() if has_store else None, start="beginning")
    write_calls(sandbox, webhook, -9999, 1)
    reader.run()
    sandbox.control.reset()
    for _ in range(2):
        with failing_at_once("webhook calls may be lost: the newest known call is no longer listed") as lost:
            reader.run()
        assert "on_gap='continue'" in str(lost.value)
    # The gap is reported until an event that describes it is stored.
    for emit in (False, True):
        assert "may have been removed" in reader.run(on_gap="continue", emit=emit)["gap"]
    for _ in range(2):
        assert reader.run() is None
    write_calls(sandbox, webhook, 9000)
    extra = reader.run()
    assert [each["id"] for each in extra["calls"]] == ["9000"]
    assert extra["gap"] == ""


def test_webhooks_that_are_disabled_or_cool_down_are_reported(sandbox: Sandbox, task_log: TaskLog) -> None:
    add = sandbox.control.add_webhook
    works = add(type=TYPE, url="https://hooks.example.com/1", timeout_until="2020-01-01T00:00:00Z")["id"]
    disabled = add(type=TYPE, url="https://hooks.example.com/2", status="disabled")["id"]
    cooling = add(type=TYPE, url="https://hooks.example.com/3", timeout_until="2999-01-01T00:00:00Z")["id"]
    Reader(webhook_types=[TYPE, "no.such"]).run()
    log = task_log.text
    assert "no webhook has the type no.such." in log
    assert f"Webhook {disabled} ({TYPE}) is disabled" in log
    assert f"Webhook {cooling} ({TYPE}) is TIMEOUT, cooling down until 2999-01-01 00:00:00 UTC" in log
    assert works not in log


@pytest.mark.parametrize("status", [404, 500])
def test_where_webhooks_cannot_be_listed_calls_are_read_unless_a_filter_needs_the_listing(
    sandbox: Sandbox, webhook: str, status: int
) -> None:
    write_calls(sandbox, webhook, 1)
    fault: dict[str, Any] = {"kind": "status", "method": "GET", "path": "/webhooks", "status": status, "skip": 1}
    sandbox.control.add_fault(**fault)
    assert Reader(start="beginning").ids() == ["1"]
    sandbox.control.add_fault(**fault)
    with pytest.raises((CustodyError, CustodyFailException), match="list webhooks"):
        Reader(start="beginning", webhook_types=[TYPE]).run()


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"start": "later"}, "start must be 'now' or 'beginning', not 'later'"),
        ({"on_gap": "skip"}, "on_gap must be 'fail' or 'continue'"),
        ({"webhook_ids": ["7"]}, "webhook_ids must be UUIDs"),
    ],
    ids=str,
)
def test_a_wrong_argument_sends_nothing(sandbox: Sandbox, change: dict[str, Any], reason: str) -> None:
    with failing_at_once(reason):
        Reader().run(**change)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"with_payload": 1}, "with_payload must be"),
        ({"custody_conn_id": "{{ conn }}"}, "must be the id of a connection, and not a template"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused_when_the_dag_is_read(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CustodyReadWebhookCallsOperator(task_id="read", **change)


def test_the_asset_is_inlet_and_outlet_once() -> None:
    asset, other = new_asset(), new_asset()
    with new_dag():
        default = CustodyReadWebhookCallsOperator(task_id="default", custody_conn_id="custody_2")
        given = CustodyReadWebhookCallsOperator(task_id="given", asset=asset, outlets=[asset, other], inlets=other)
    assert default.inlets == default.outlets == [webhook_calls_asset("custody_2")]
    assert given.inlets == [other, asset]
    assert given.outlets == [asset, other]
    assert default.max_active_tis_per_dag == 1


# --- the position -------------------------------------------------------------------------------------------------


def test_filtered_calls_make_no_event_unless_the_last_one_is_old_or_there_are_many(
    sandbox: Sandbox, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(start="beginning", event_ids=["event-1"], max_calls=3)
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    for number in (2, 3):
        write_calls(sandbox, webhook, number)
        assert reader.ids() is None
    # Emit an event regularly, even without calls, because Airflow's clean-up must never find only an old event.
    for _ in range(2):
        reader.events[-1].timestamp -= timedelta(days=1)
        assert reader.ids() == []
        assert reader.ids() is None
    write_calls(sandbox, webhook, 4, 5, 6, 7)
    assert reader.ids() == []
    monkeypatch.setattr(_call_reading, "_MAX_REPEATED", 2)
    assert reader.ids() is None
    write_calls(sandbox, webhook, 8)
    assert reader.ids() == []
    assert reader.ids() is None


def test_a_place_that_is_buried_under_other_events_is_not_guessed(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(StateStore())
    reader.run()
    sent = len(sandbox.control.request_log())
    for _ in range(500):
        reader.add_event({}, task_id=None)
    with failing_at_once("none of the last 500 events of the asset .* stores a position of the task dag/task"):
        reader.run()
    assert len(sandbox.control.request_log()) == sent


def test_a_position_that_was_deleted_is_a_gap(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(StateStore())
    for _ in range(2):
        reader.run()
    reader.events.clear()
    write_calls(sandbox, webhook, 1)
    with failing_at_once("the last event of this task, dag/task, is no longer in Airflow's database"):
        reader.run()
    extra = reader.run(on_gap="continue", start="beginning")
    assert [each["id"] for each in extra["calls"]] == ["1"]
    assert "is no longer in" in extra["gap"]
    assert reader.ids() is None


def test_a_first_run_that_was_killed_is_no_gap(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(StateStore(), start="beginning")
    write_calls(sandbox, webhook, 1)
    for emit in (False, True):
        extra = reader.run(emit=emit)
        assert [each["id"] for each in extra["calls"]] == ["1"]
        assert extra["gap"] == ""


def test_a_value_in_the_state_store_moves_no_position(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning")
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    write_calls(sandbox, webhook, 2)
    for key in ("custody_read_webhook_calls", "custody_read_webhook_calls:dag/task"):
        store.set(key, {**reader.events[-1].extra, "cursor": KNOWS_ALL, "event": reader.events[-1].id})
    assert reader.ids() == ["2"]


def test_trouble_with_the_store_does_no_harm_where_an_event_has_the_position(
    sandbox: Sandbox, webhook: str, task_log: TaskLog
) -> None:
    store = StateStore()
    reader = Reader(store, start="beginning")
    write_calls(sandbox, webhook, 1)
    assert reader.ids() == ["1"]
    store.failure = BrokenPipeError("away")
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]
    assert "The asset's state store cannot be written (BrokenPipeError)." in task_log.text


def test_without_a_position_a_broken_store_is_retried(sandbox: Sandbox, webhook: str) -> None:
    store = StateStore()
    store.failure = RuntimeError("away")
    with pytest.raises(CustodyError, match="the place to continue is unknown") as caught:
        Reader(store).run()
    assert caught.value.retryable
    assert sandbox.control.request_log() == []


def test_changed_filters_are_no_gap(sandbox: Sandbox, webhook: str, task_log: TaskLog) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2)
    assert reader.ids(event_ids=["event-2"]) == ["2"]
    write_calls(sandbox, webhook, 3)
    assert reader.ids() == ["3"]
    assert task_log.text.count("The filters have changed.") == 1


# --- events of other tasks -------------------------------------------------------------------------------------------

#: A cursor that makes a reader skip all calls so far.
KNOWS_ALL = CallCursor(datetime.now(timezone.utc)).to_json()
OTHERS = {
    "another task": {"task_id": "other"},
    "another DAG's name in a task's id": {"task_id": "b.task", "dag_id": "a"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("has_store", [True, False])
def test_a_position_of_another_task_is_not_believed(
    sandbox: Sandbox, webhook: str, other: dict[str, str], has_store: bool
) -> None:
    reader = Reader(StateStore() if has_store else None, start="beginning")
    write_calls(sandbox, webhook, 1)
    made_up = {**reader.run(), "task": ["dag", "task"], "cursor": KNOWS_ALL}
    reader.add_event(made_up, **other)
    write_calls(sandbox, webhook, 2)
    assert reader.ids() == ["2"]
    reader.add_event(made_up, **other)
    assert reader.ids() is None


def test_a_first_run_among_positions_of_others_is_a_gap_that_names_them(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1)
    # Events without a position, and events without a task, do not show that this task was renamed.
    reader.add_event({"odd": 1}, task_id="other")
    reader.add_event({"cursor": KNOWS_ALL, "filters": {}}, task_id=None)
    assert reader.ids(emit=False) == ["1"]
    reader.add_event({"cursor": KNOWS_ALL, "filters": {}}, task_id="other")
    with failing_at_once("this task, dag/task, has no position, but .* positions of dag/other") as caught:
        reader.run()
    assert "name the old task in continue_from" in str(caught.value)
    extra = reader.run(on_gap="continue")
    assert [each["id"] for each in extra["calls"]] == ["1"]
    assert "dag/other" in extra["gap"]
    assert reader.ids() is None


def test_a_renamed_task_continues_where_its_old_name_ended(sandbox: Sandbox, webhook: str) -> None:
    old = Reader(start="beginning")
    write_calls(sandbox, webhook, 1)
    last = old.run()
    reader = Reader(start="beginning")
    with failing_at_once("the asset has no event with its position"):
        reader.run(continue_from="dag/old")
    reader.add_event(last, task_id="old")
    for _ in range(500):
        reader.add_event({"odd": 1}, task_id="other")
    reader.add_event(last, task_id="old")
    # From now on, the task has its own position, even if there are no new calls.
    assert reader.ids(continue_from="dag/old") == []
    reader.add_event({**last, "cursor": KNOWS_ALL}, task_id="old")
    write_calls(sandbox, webhook, 2)
    assert reader.ids(continue_from="dag/old") == ["2"]
