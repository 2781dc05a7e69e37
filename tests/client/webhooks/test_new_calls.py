"""Reading the new calls in the journal: each call at least once, and a gap where calls may be lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.service.journal_service import START, JournalService, journal_service

from airflow_custody.client import CustodyClient, CustodyRequestError, CustodyResponseError
from airflow_custody.client.webhooks.calls import CallCursor
from airflow_custody.sandbox import Sandbox

TYPE = "requestStatus.updated"


@pytest.fixture
def position(sandbox: Sandbox, client: CustodyClient) -> CallCursor:
    """Return a cursor in a journal with a webhook and 150 calls, some within the last minutes."""
    sandbox.control.add_webhook(type=TYPE)
    sandbox.control.add_webhook_calls(150, age=1500, spacing=10)
    return client.read_webhook_calls(None).cursor


@pytest.fixture
def journal() -> Iterator[JournalService]:
    with journal_service() as service:
        yield service


def send(sandbox: Sandbox, number: int = 1, **options: Any) -> list[str]:
    return [sandbox.control.send_event(TYPE, {"number": each}, **options)[0]["id"] for each in range(number)]


def read(client: CustodyClient, cursor: CallCursor | None, **options: Any) -> tuple[list[str], CallCursor]:
    """Read the new calls. The cursor is converted to JSON and back."""
    found = client.read_webhook_calls(cursor, **options)
    assert found.gap == ""
    stored = CallCursor.from_json(json.loads(json.dumps(found.cursor.to_json())))
    assert stored == found.cursor
    return [each.id for each in found.calls], stored


def test_the_first_call_of_an_empty_journal_is_new_whatever_clock_dates_it(
    sandbox: Sandbox, client: CustodyClient
) -> None:
    sandbox.control.add_webhook(type=TYPE)
    _, cursor = read(client, None)
    sandbox.control.add_webhook_calls(1, age=1500)
    assert len(read(client, cursor)[0]) == 1


@pytest.mark.parametrize("behaviour", [{}, {"resolution": 100.0}, {"max_number": 160}], ids=str)
def test_each_call_is_new_once(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor, behaviour: dict[str, Any]
) -> None:
    sandbox.control.configure(calls=behaviour)
    sent = send(sandbox, 5)
    sandbox.control.clear_request_log()
    found, cursor = read(client, position)
    assert found == sent
    # The newest calls come first, so a few new calls take one request.
    assert [each["query"]["sortOrder"] for each in sandbox.control.request_log()] == [["DESC"]]
    assert read(client, cursor)[0] == []
    more = send(sandbox, 3)
    found, cursor = read(client, cursor, limit=2)
    assert found == more[:2]
    assert read(client, cursor)[0] == more[2:]


def test_late_calls_are_found(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    (first,) = send(sandbox)
    found, cursor = read(client, position)
    assert found == [first]
    (late,) = send(sandbox, age=200)
    (newest,) = send(sandbox)
    send(sandbox, age=400)
    new = client.read_webhook_calls(cursor)
    assert [each.id for each in new.calls] == [late, newest]
    assert new.late == {late}


def test_from_the_beginning_and_from_now(sandbox: Sandbox, client: CustodyClient, position: CallCursor) -> None:
    everything = [each.id for each in client.list_webhook_calls()]
    new = client.read_webhook_calls(None, start="beginning", limit=120)
    assert [each.id for each in new.calls] == everything[:120]
    assert new.more is True
    assert read(client, new.cursor)[0] == everything[120:]
    assert client.read_webhook_calls(None, start="beginning").cursor == position
    now = client.read_webhook_calls(None)
    assert now.calls == ()
    assert now.more is False
    assert now.gap == ""
    assert now.late == frozenset()


# --- gaps ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [{"max_number": 3}, {"max_age": 0.0}])
def test_a_journal_that_was_cut_off_is_a_gap_once(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor, kept: dict[str, Any]
) -> None:
    send(sandbox, 5)
    sandbox.control.configure(calls=kept)
    new = client.read_webhook_calls(position)
    assert "the newest known call is no longer listed" in new.gap
    assert len(new.calls) == kept.get("max_number", 0)
    sandbox.control.configure(calls={})
    assert read(client, new.cursor)[0] == []
    sent = send(sandbox)
    assert read(client, new.cursor)[0] == sent


@pytest.mark.parametrize(("seconds", "is_gap"), [(-250, False), (-3600, True)])
def test_a_clock_that_was_set_back(journal: JournalService, seconds: float, is_gap: bool) -> None:
    journal.clock = 10_000
    known = journal.write(5_000, 9_990)
    cursor = journal.client.read_webhook_calls(None).cursor
    journal.clock += seconds
    sent = journal.write(journal.clock - 1)
    new = journal.client.read_webhook_calls(cursor)
    assert ("the service's clock was set back" in new.gap) is is_gap
    assert [each.id for each in new.calls] == sent
    # The gap is reported once. Later calls are found, even when the clock is corrected.
    for clock in (journal.clock + 60, 10_000):
        journal.clock = clock
        sent = journal.write(clock)
        found, cursor = read(journal.client, new.cursor)
        assert [each for each in found if each not in known][-1:] == sent


def test_calls_that_are_dated_later_than_now_hide_no_others(journal: JournalService) -> None:
    journal.clock = 10_000
    journal.write(9_000, 10_200)
    cursor = journal.client.read_webhook_calls(None).cursor
    assert cursor.at <= START + timedelta(seconds=10_000)
    for _ in range(3):
        journal.clock += 100
        sent = journal.write(journal.clock)
        found, cursor = read(journal.client, cursor)
        assert found == sent


@settings(max_examples=30)
@given(st.data())
def test_each_call_is_read_once_whatever_comes_between(data: st.DataObject) -> None:
    """Calls come late, with one time stamp, and between two pages; a run is killed before it has stored its cursor."""
    with journal_service() as service:
        service.page = data.draw(st.integers(1, 4))
        seen: set[str] = set()
        cursor = service.client.read_webhook_calls(None).cursor

        def come() -> None:
            for _ in range(data.draw(st.integers(0, 3))):
                service.write(max(0.0, service.clock - data.draw(st.sampled_from([0, 0, 1, 150, 290]))))

        # Use fewer calls than fit on a page, because the reading would not end otherwise.
        service.between_pages = lambda: service.page > 2 and service.write(service.clock)
        for _ in range(data.draw(st.integers(1, 6))):
            service.clock += data.draw(st.sampled_from([0, 1, 100, 10_000_000]))
            come()
            new = service.client.read_webhook_calls(cursor, limit=data.draw(st.sampled_from([2, 100])))
            assert new.gap == ""
            assert not seen & {call.id for call in new.calls}
            if data.draw(st.booleans()):
                seen |= {call.id for call in new.calls}
                cursor = CallCursor.from_json(new.cursor.to_json())
        service.between_pages, more = None, True
        while more:
            new = service.client.read_webhook_calls(cursor)
            seen, cursor, more = seen | {call.id for call in new.calls}, new.cursor, new.more
        assert seen == service.calls.keys()


# --- what is not understood -----------------------------------------------------------------------------------------


AT = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        *(
            ([{"id": "odd", **created}], "call odd has no readable time stamp")
            for created in ({}, {"createdAt": "soon"}, {"createdAt": "0001-01-01T00:00:00Z"})
        ),
        ([{"id": each, "webhookId": "w", "createdAt": AT} for each in (5, "5")], "each once"),
        ([{"id": each, "webhookId": "w", "createdAt": f"2026-01-0{each}T00:00:00Z"} for each in "12"], "not listed by"),
    ],
    ids=["no time", "no readable time", "zero time", "one id for two", "no order"],
)
def test_calls_that_are_not_understood_stop_the_reading(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor, rows: list[dict[str, Any]], why: str
) -> None:
    for cursor in (position, None):
        sandbox.control.add_fault("status", status=200, body={"calls": rows})
        with pytest.raises(CustodyResponseError, match=why):
            client.read_webhook_calls(cursor)


def test_a_service_that_ignores_the_cursor_is_refused(
    sandbox: Sandbox, client: CustodyClient, position: CallCursor
) -> None:
    sandbox.control.configure(listings={"webhook-calls": {"ignored": ["cursor"]}})
    with pytest.raises(CustodyResponseError, match="lists only calls that were already listed") as caught:
        client.read_webhook_calls(None, start="beginning")
    assert caught.value.retryable


def test_another_start_sends_nothing(sandbox: Sandbox, client: CustodyClient) -> None:
    start: Any = "end"
    with pytest.raises(CustodyRequestError, match="nothing is sent"):
        client.read_webhook_calls(None, start=start)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"version": 99, "at": AT, "seen": {}},
        {"version": 2, "at": "soon", "seen": {}},
        {"version": 2, "at": AT, "seen": ["1"]},
    ],
    ids=str,
)
def test_a_stored_cursor_that_cannot_be_read_is_refused(data: Any) -> None:
    with pytest.raises(CustodyRequestError, match="the cursor of webhook calls cannot be used") as caught:
        CallCursor.from_json(data)
    assert caught.value.code == "record-unreadable"


@pytest.mark.parametrize("value", [[], [{"id": "7"}], {"calls": []}], ids=str)
def test_rows_under_another_name_are_no_empty_listing(sandbox: Sandbox, client: CustodyClient, value: Any) -> None:
    readings: list[Callable[[], Any]] = [
        lambda: client.read_webhook_calls(None),
        client.get_newest_webhook_call,
        lambda: list(client.list_webhooks()),
    ]
    for each in readings:
        sandbox.control.add_fault("status", status=200, body={"result": value, "cursor": {"hasNext": False}})
        with pytest.raises(CustodyResponseError, match="may have its rows elsewhere"):
            each()
    # The service leaves out empty values.
    sandbox.control.add_fault("status", status=200, body={"cursor": {"hasNext": False}, "total": "0"})
    assert client.read_webhook_calls(None).calls == ()
