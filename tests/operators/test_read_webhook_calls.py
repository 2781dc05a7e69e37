from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset
from airflow_runs import failing_at_once, new_dag
from task_log import TaskLog
from webhook_reads import TYPE, Reader, StateStore, new_asset, write_calls

from airflow_custody.assets import webhook_calls_asset
from airflow_custody.client import CustodyError
from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture
def webhook(sandbox: Sandbox) -> str:
    """Return the id of a webhook."""
    return str(sandbox.control.add_webhook(type=TYPE)["id"])


def test_each_run_goes_on_where_the_last_event_ends(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2, 3)
    extra = reader.run()
    assert [(each["id"], each["payload"]) for each in extra["calls"]] == [(n, {"requestId": n}) for n in "123"]
    assert (extra["count"], extra["late_ids"], extra["gap"], extra["more"]) == (3, [], "", False)
    assert reader.result == {"count": 3}
    assert reader.ids() is None
    write_calls(sandbox, webhook, 4, 5)
    assert reader.ids() == ["4", "5"]


def test_a_run_whose_event_was_not_stored_is_repeated(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(StateStore(), start="beginning")
    write_calls(sandbox, webhook, 1, 2)
    assert reader.ids() == ["1", "2"]
    write_calls(sandbox, webhook, 3)
    assert reader.ids(emit=False) == ["3"]
    write_calls(sandbox, webhook, 4)
    assert reader.ids() == ["3", "4"]


def test_the_first_run_from_now_stores_the_place(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader()
    write_calls(sandbox, webhook, 1, 2)
    assert reader.ids() == []
    assert reader.ids() is None
    write_calls(sandbox, webhook, 3)
    assert reader.ids() == ["3"]


def test_more_than_a_run_takes_is_left_to_the_next(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning", max_calls=2)
    write_calls(sandbox, webhook, 1, 2, 3)
    assert reader.run()["more"] is True
    extra = reader.run()
    assert ([each["id"] for each in extra["calls"]], extra["more"]) == (["3"], False)


def test_above_the_size_an_event_has_ids_only(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2, payload='"' + "x" * 40_000 + '"')
    extra = reader.run()
    assert (extra["count"], extra["call_ids"]) == (2, ["1", "2"])
    assert "calls" not in extra


def test_without_payload(sandbox: Sandbox, webhook: str) -> None:
    write_calls(sandbox, webhook, 1)
    (call,) = Reader(start="beginning", with_payload=False).run()["calls"]
    assert not call.get("payload")


# --- filters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda other: {"webhook_ids": [other]},
        lambda other: {"webhook_types": "currencyStatus.updated"},
        lambda other: {"event_ids": ["event-2"]},
        lambda other: {"statuses": ("failed",)},
    ],
)
def test_only_calls_that_match_are_emitted(sandbox: Sandbox, webhook: str, change: Any) -> None:
    other = sandbox.control.add_webhook(type="currencyStatus.updated", url="https://hooks.example.com/2")["id"]
    write_calls(sandbox, webhook, 1)
    write_calls(sandbox, other, 2, status="failed")
    write_calls(sandbox, webhook, 3)
    assert Reader(start="beginning", **change(other)).ids() == ["2"]


def test_calls_that_do_not_match_do_not_stop_those_that_do(sandbox: Sandbox, webhook: str) -> None:
    reader = Reader(start="beginning", event_ids=["event-9"], max_calls=2)
    write_calls(sandbox, webhook, *range(1, 12))
    # No store keeps how far it was read: an event does.
    assert [reader.ids() for _ in range(6)] == [[], [], [], [], ["9"], None]


def test_a_webhook_without_a_type_is_of_any_and_a_call_without_a_status_has_any(sandbox: Sandbox, webhook: str) -> None:
    bare = sandbox.control.add_webhook(type="", url="https://hooks.example.com/2")["id"]
    write_calls(sandbox, webhook, 1)
    write_calls(sandbox, bare, 2)
    write_calls(sandbox, webhook, 3, status=None)
    assert Reader(start="beginning", webhook_types=[TYPE]).ids() == ["1", "2", "3"]
    assert Reader(start="beginning", statuses=["failed"]).ids() == ["3"]


def test_a_filter_that_needs_the_listing_fails_without_it(sandbox: Sandbox, webhook: str) -> None:
    write_calls(sandbox, webhook, 1)
    sandbox.control.add_fault("status", method="GET", path="/webhooks", status=501, skip=1)
    with pytest.raises(CustodyError, match="list webhooks"):
        Reader(start="beginning", webhook_types=[TYPE]).run()


def test_a_filter_that_matches_no_webhook_is_named(sandbox: Sandbox, webhook: str, task_log: TaskLog) -> None:
    Reader(webhook_types=[TYPE, "no.such"]).run()
    assert "there is no webhook with the type no.such now." in task_log.text
    assert f"with the type {TYPE}" not in task_log.text


# --- gaps, and webhooks that may not write --------------------------------------------------------------------------


def test_a_journal_that_was_cut_off_fails_or_is_named(sandbox: Sandbox, webhook: str, task_log: TaskLog) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2)
    reader.run()
    sandbox.control.reset()
    webhook = sandbox.control.add_webhook(type=TYPE)["id"]
    sandbox.control.configure(listings={"webhook-calls": {"page_size": 1}})
    write_calls(sandbox, webhook, 9000, 9001)
    with failing_at_once("webhook calls may be lost: the newest call that was known is not listed"):
        reader.run()
    assert "on_gap='continue'" in task_log.text
    extra = reader.run(on_gap="continue")
    assert (extra["count"], extra["gap"][:10]) == (2, "the newest")
    assert reader.ids() is None


def test_webhooks_that_are_disabled_or_cool_down_are_reported(
    sandbox: Sandbox, webhook: str, task_log: TaskLog
) -> None:
    later = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
    disabled = sandbox.control.add_webhook(type=TYPE, url="https://hooks.example.com/2", status="disabled")["id"]
    sandbox.control.add_webhook(type=TYPE, url="https://hooks.example.com/3", timeout_until=later)
    past = {"timeout_until": "2020-01-01T00:00:00Z"}
    sandbox.control.add_webhook(type=TYPE, url="https://hooks.example.com/4", **past)
    reader = Reader()
    reader.run()
    assert f"Webhook {disabled} ({TYPE}) is disabled: it is not known whether" in task_log.text
    assert f"is enabled until {later}" in task_log.text


@pytest.mark.parametrize("status", [404, 501, 403, 500])
def test_where_webhooks_cannot_be_listed_calls_are_read_all_the_same(
    sandbox: Sandbox, webhook: str, status: int
) -> None:
    write_calls(sandbox, webhook, 1)
    sandbox.control.add_fault("status", method="GET", path="/webhooks", status=status, skip=1)
    reader = Reader(start="beginning")
    assert reader.ids() == ["1"]
    assert reader.result == {"count": 1}


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"start": "later"}, "start must be 'now' or 'beginning', not 'later'"),
        ({"on_gap": "skip"}, "on_gap must be 'fail' or 'continue'"),
        ({"webhook_ids": ["7"]}, "webhook_ids must be UUIDs"),
        ({"statuses": []}, "statuses is an empty list"),
    ],
    ids=str,
)
def test_a_wrong_argument_sends_nothing(sandbox: Sandbox, change: dict[str, Any], reason: str) -> None:
    with failing_at_once(reason):
        Reader().run(**change)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    "change", [{"max_calls": 0}, {"max_calls": True}, {"max_calls": "9"}, {"with_payload": 1}, {"asset": "a"}], ids=str
)
def test_a_wrong_setting_is_refused_when_the_dag_is_read(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))} must be"):
        CustodyReadWebhookCallsOperator(task_id="read", **change)


def test_without_a_plain_connection_id_the_asset_must_be_given() -> None:
    with pytest.raises(ValueError, match="must be the id of a connection, as text that is no template"):
        CustodyReadWebhookCallsOperator(task_id="read", custody_conn_id="{{ conn }}")


def test_the_asset_is_inlet_and_outlet_once() -> None:
    asset, other = new_asset(), new_asset()
    with new_dag():
        default = CustodyReadWebhookCallsOperator(task_id="default", custody_conn_id="custody_2")
        given = CustodyReadWebhookCallsOperator(task_id="given", asset=asset, outlets=[asset, other], inlets=other)
    assert default.inlets == default.outlets == [webhook_calls_asset("custody_2")]
    assert (given.inlets, given.outlets) == ([other, asset], [asset, other])
    assert default.max_active_tis_per_dag == 1


@pytest.mark.parametrize(
    ("numbers", "text"), [((), "No new webhook calls"), ((1,), "1 new webhook call"), ((1, 2), "2 new webhook calls")]
)
def test_how_many_calls_are_new(
    sandbox: Sandbox, webhook: str, task_log: TaskLog, numbers: tuple[int, ...], text: str
) -> None:
    reader = Reader()
    write_calls(sandbox, webhook, 0)
    if numbers:
        reader.run()
    write_calls(sandbox, webhook, *numbers)
    reader.run()
    assert f"{text}." in task_log.text


def test_the_asset_of_a_connection() -> None:
    assert webhook_calls_asset() == Asset(uri="custody://custody_default/webhook-calls")
    assert webhook_calls_asset("A/b c").uri == "custody://A%2Fb%20c/webhook-calls"
    for odd in ("", " ", "{{ x }}", "{% x %}", None, 5):
        with pytest.raises(ValueError, match="custody_conn_id"):
            webhook_calls_asset(odd)  # type: ignore[arg-type]
