"""Reading what is new in the sandbox's journal of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_custody.client import CustodyClient, CustodyPermissionError, CustodyRequestError, CustodyResponseError
from airflow_custody.client.webhooks import reading
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.sandbox import Sandbox

TYPE = "requestStatus.updated"


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


@pytest.fixture
def position(sandbox: Sandbox, client: CustodyClient) -> CallCursor:
    """Return a cursor in a journal with a webhook and 150 calls, some within the last minutes."""
    sandbox.control.add_webhook(type=TYPE)
    sandbox.control.add_webhook_calls(150, age=1500, spacing=10)
    return client.read_webhook_calls(None).cursor


def send(sandbox: Sandbox, number: int = 1, **options: Any) -> list[str]:
    return [sandbox.control.send_event(TYPE, {"number": each}, **options)[0]["id"] for each in range(number)]


def read(client: CustodyClient, cursor: CallCursor, **options: Any) -> tuple[list[str], CallCursor]:
    found = client.read_webhook_calls(cursor, **options)
    return [each.id for each in found.calls], found.cursor


READINGS: list[dict[str, Any]] = [
    {},
    {"paging": "keyset"},
    {"ids": "uuid"},
    {"resolution": 3600.0},
    {"resolution": 0.01, "paging": "keyset", "ids": "uuid"},
    {"max_age": 1000},
    {"max_number": 160},
]


@pytest.mark.parametrize("behaviour", READINGS, ids=str)
def test_each_call_is_new_once(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor, behaviour: dict[str, Any]
) -> None:
    sandbox.control.configure(calls=behaviour)
    if "resolution" in behaviour:
        position = client.read_webhook_calls(None).cursor
        # Their time stamps would be older than the newest known one by more than the overlap.
        sandbox.control.reset()
        sandbox.control.add_webhook(type=TYPE)
        sandbox.control.configure(calls=behaviour)
        position = client.read_webhook_calls(None).cursor
    sent = send(sandbox, 5)
    found, cursor = read(client, position)
    assert found == sent
    assert read(client, cursor)[0] == []
    more = send(sandbox, 3)
    found, cursor = read(client, cursor, limit=2)
    assert found == more[:2]
    assert read(client, cursor)[0] == more[2:]


def test_few_new_calls_take_one_request(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    sent = send(sandbox, 3)
    sandbox.control.clear_request_log()
    assert read(client, position)[0] == sent
    (request,) = sandbox.control.request_log()
    assert request["query"]["sortOrder"] == ["DESC"]


def test_late_calls_are_found(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    (first,) = send(sandbox)
    found, cursor = read(client, position)
    assert found == [first]
    (late,) = send(sandbox, age=200)
    (newest,) = send(sandbox)
    (too_late,) = send(sandbox, age=400)
    new = client.read_webhook_calls(cursor)
    assert [each.id for each in new.calls] == [late, newest]
    assert new.late == {late}
    assert too_late not in [each.id for each in client.list_webhook_calls(after=new.cursor)]


def test_more_pages_are_read_twice(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    ids = sandbox.control.add_webhook_calls(250, age=100, spacing=0.1)
    sandbox.control.clear_request_log()
    found, _ = read(client, position, limit=200)
    assert found == ids[:200]
    assert len(sandbox.control.request_log()) == 6


def test_from_the_beginning_and_from_now(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    everything = [each.id for each in client.list_webhook_calls()]
    new = client.read_webhook_calls(None, start="beginning", limit=120)
    assert ([each.id for each in new.calls], new.more) == (everything[:120], True)
    assert read(client, new.cursor)[0] == everything[120:]
    assert client.read_webhook_calls(None, start="beginning").cursor.covers(position)
    now = client.read_webhook_calls(None)
    assert (now.calls, now.more, now.gap, now.late) == ((), False, "", frozenset())


def test_the_first_call_ever(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_webhook(type=TYPE)
    position = client.read_webhook_calls(None).cursor
    sent = send(sandbox)
    assert read(client, position)[0] == sent


def test_a_call_without_a_time_stamp(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    for created in ({}, {"createdAt": "soon"}, {"createdAt": "0001-01-01T00:00:00Z"}, {"createdAt": 5}):
        sandbox.control.add_webhook_call(id=f"odd {created}", **created)
    (sent,) = send(sandbox)
    found, cursor = read(client, position)
    assert sent in found
    assert len(found) == 4
    assert read(client, cursor)[0] == []


def test_the_clock_of_the_service_is_read_from_its_responses(client: CustodyClient) -> None:
    sent = client._call_pages()("DESC", None).date
    assert sent is not None
    assert abs(datetime.now(timezone.utc) - sent) < timedelta(minutes=1)


def test_ids_that_are_a_number_and_the_same_as_text_are_not_one_call(sandbox: Sandbox, client: CustodyClient) -> None:
    calls = [{"id": 5, "webhookId": "w"}, {"id": "5", "webhookId": "v"}]
    sandbox.control.add_fault("status", status=200, body={"calls": calls})
    with pytest.raises(CustodyResponseError, match="for two calls"):
        client.read_webhook_calls(None, start="beginning")


def test_all_new_calls_are_listed_however_long_they_are(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_RETURNED_LENGTH", 300)
    sent = send(sandbox, 7)
    assert len(client.read_webhook_calls(position).calls) < 7
    assert [each.id for each in client.list_webhook_calls(after=position)] == sent


def test_a_service_that_ignores_the_order_is_refused(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor
) -> None:
    send(sandbox)
    sandbox.control.configure(calls={"order": "written"})
    (late,) = send(sandbox, age=100)
    for attempt in (position, None):
        with pytest.raises(CustodyResponseError, match="not listed by their time stamps"):
            client.read_webhook_calls(attempt)
    sandbox.control.configure(calls={})
    assert late in read(client, position)[0]
    sandbox.control.configure(listings={"webhook-calls": {"ignored": ["sortOrder"]}})
    with pytest.raises(CustodyResponseError, match="the oldest first, as was asked for"):
        client.read_webhook_calls(None, start="beginning")


def test_a_service_that_ignores_the_cursor_is_refused(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor
) -> None:
    sandbox.control.configure(listings={"webhook-calls": {"ignored": ["cursor"]}})
    with pytest.raises(CustodyResponseError, match="does not advance") as caught:
        client.read_webhook_calls(CallCursor(0, {}))
    assert caught.value.retryable


@pytest.mark.parametrize("kept", [{"max_number": 3}, {"max_age": 0.0}])
def test_a_journal_that_was_cut_off(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor, kept: dict[str, Any]
) -> None:
    send(sandbox, 5)
    sandbox.control.configure(calls=kept)
    lagging = CallCursor(position.floor, position.recent)
    assert "may have been removed" in client.read_webhook_calls(lagging).gap


def test_filters(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    other = sandbox.control.add_webhook(type=TYPE)["id"]
    first, second = (each["id"] for each in sandbox.control.send_event(TYPE, {}, event_id="e"))
    sandbox.control.send_event(TYPE, "text", status="failed")

    def after(**filters: Any) -> list[Any]:
        return [each.payload for each in client.list_webhook_calls(after=position, **filters)]

    assert after() == [{}, {}, "text", "text"]
    assert after(webhook_id=other) == [{}, "text"]
    assert after(event_id="e") == [{}, {}]
    assert after(status="failed") == ["text", "text"]
    assert [each.id for each in client.list_webhook_calls(event_id="e")] == [first, second]


@pytest.mark.parametrize(
    ("after", "options"),
    [
        ({"version": 1}, {}),
        (None, {"start": "end"}),
        (None, {"limit": 0}),
        (None, {"limit": True}),
        (None, {"limit": "5"}),
    ],
)
def test_what_cannot_be_read(sandbox: Sandbox, client: CustodyClient, after: Any, options: dict[str, Any]) -> None:
    with pytest.raises(CustodyRequestError, match="nothing was sent"):
        client.read_webhook_calls(after, **options)
    assert sandbox.control.request_log() == []


def test_either_of_two_roles_is_enough(sandbox: Sandbox) -> None:
    hook = sandbox.control.add_webhook()["id"]
    reader = sandbox.control.add_token(["AdminReadOnly"])
    with CustodyClient(sandbox.url, reader, max_retries=0) as client:
        assert [each["id"] for each in client.list_webhooks()] == [hook]
        assert client.read_webhook_calls(None).calls == ()
        with pytest.raises(CustodyPermissionError, match="needs the role Admin") as caught:
            client.set_webhook_status(hook, "disabled")
        assert caught.value.required_roles == ("Admin",)
        with pytest.raises(CustodyPermissionError):
            client.delete_webhook(hook)
    with CustodyClient(sandbox.url, sandbox.control.add_token(["TPUser"]), max_retries=0) as client:
        with pytest.raises(CustodyPermissionError, match="needs the role Admin or AdminReadOnly") as caught:
            client.read_webhook_calls(None)
        assert caught.value.required_roles == ("Admin or AdminReadOnly",)


@pytest.mark.parametrize("rows", ["webhookCalls", "result"])
@pytest.mark.parametrize("value", [[], [{"id": "7"}], {"calls": []}], ids=str)
def test_rows_under_another_name_are_no_empty_listing(
    sandbox: Sandbox, client: CustodyClient, rows: str, value: Any
) -> None:
    readings: list[Callable[[], Any]] = [
        lambda: client.read_webhook_calls(None),
        client.get_newest_webhook_call,
        lambda: list(client.list_webhooks()),
    ]
    for each in readings:
        sandbox.control.add_fault("status", status=200, body={rows: value, "cursor": {"hasNext": False}})
        with pytest.raises(CustodyResponseError, match="may have its rows elsewhere"):
            each()
    # The service leaves out what is empty.
    sandbox.control.add_fault("status", status=200, body={"cursor": {"hasNext": False}, "total": "0"})
    assert client.read_webhook_calls(None).calls == ()
