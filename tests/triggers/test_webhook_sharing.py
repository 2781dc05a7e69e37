"""What watchers of webhook calls take over from their shared poll: what is new, and never what is missing to others."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from airflow_runs import AIRFLOW
from journal_service import START, Service

from airflow_custody.client.timestamps import unix_micros
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.client.webhooks.results import NewCalls

if AIRFLOW < (3, 3):
    pytest.skip("Airflow cannot acknowledge events", allow_module_level=True)

from airflow_custody.triggers._journal import SharedReading, Webhooks
from airflow_custody.triggers._watcher import make_portions, share

HOUR = 3600.0
DAY = 24 * HOUR
KEPT = 6 * HOUR


def poll(service: Service, known: CallCursor, *, limit: int = 100_000) -> SharedReading:
    return SharedReading(2, "service", known, service.read(known, limit), Webhooks())


def stored(cursor: CallCursor) -> CallCursor:
    """Return what a restarted watcher loads."""
    return CallCursor.from_json(cursor.to_json())


def take(service: Service, cursor: CallCursor, reading: SharedReading) -> NewCalls:
    """Return what a watcher hands on."""
    return share(cursor, reading) or service.read(cursor)


def quiet_service() -> tuple[Service, CallCursor]:
    """Return a service with one call, and a cursor that knows it; the call has become old, and was removed."""
    service = Service(-60.0)
    service.service_clock = 0.0
    cursor = service.reader.read_position()
    for _ in range(13):
        pass_time(service, HOUR / 2)
        cursor = service.read(cursor).cursor
    assert not service.calls
    return service, cursor


def pass_time(service: Service, seconds: float) -> None:
    service.clock += seconds
    service.service_clock = service.clock
    service.remove_older(KEPT)


def write_and_remove(service: Service) -> None:
    """Write calls that are removed before anybody can read them."""
    pass_time(service, HOUR)
    service.add(service.now)
    pass_time(service, 11 * HOUR)
    assert not service.calls


class TestGaps:
    def test_a_poll_that_began_on_an_empty_journal_judges_for_itself_alone(self) -> None:
        service, cursor = quiet_service()
        # The triggerer was restarted.
        known = service.reader.read_position()
        pass_time(service, 60)
        cursor = take(service, stored(cursor), poll(service, known)).cursor
        known = service.read(known).cursor
        write_and_remove(service)
        reading = poll(service, known)
        assert reading.new.gap == ""
        assert "may have been removed" in take(service, cursor, reading).gap

    @pytest.mark.parametrize("listed", [0, 1])
    def test_who_was_paused_does_not_take_over_that_nothing_is_missing(self, listed: int) -> None:
        service, cursor = quiet_service()
        paused = stored(cursor)
        write_and_remove(service)
        found = service.read(cursor)
        assert "may have been removed" in found.gap
        pass_time(service, 60)
        service.add(*[service.now] * listed)
        reading = poll(service, found.cursor)
        assert reading.new.gap == ""
        assert "may have been removed" in take(service, paused, reading).gap

    @pytest.mark.parametrize("is_empty", [False, True])
    def test_an_old_cursor_does_not_become_a_fresh_one(self, is_empty: bool) -> None:
        service = Service() if is_empty else Service(-HOUR)
        service.service_clock = 0.0
        cursor = service.reader.read_position()
        pass_time(service, 3 * DAY)
        reading = poll(service, service.reader.read_position())
        assert share(stored(cursor), reading) is None
        assert "may have been removed" in service.read(cursor).gap

    def test_a_watcher_whose_newest_call_is_listed_needs_no_reading_of_its_own(self) -> None:
        service = Service(-HOUR, -30.0)
        service.service_clock = 0.0
        cursor = service.reader.read_position()
        pass_time(service, HOUR)
        known = service.reader.read_position()
        pass_time(service, 60)
        service.add(service.now)
        reading = poll(service, known)
        shared = share(stored(cursor), reading)
        assert shared is not None
        assert [call.id for call in shared.calls] == [service.calls[-1].id]
        # From here on the two are one.
        assert shared.cursor is reading.new.cursor

    def test_nor_does_one_that_knows_that_the_journal_is_empty(self) -> None:
        service, cursor = quiet_service()
        known = service.reader.read_position()
        for _ in range(5):
            pass_time(service, 60)
            reading = poll(service, known)
            shared = share(cursor, reading)
            assert shared is not None
            cursor, known = shared.cursor, reading.new.cursor
            assert cursor.complete_at == known.complete_at
        assert cursor.kept_for > known.kept_for


def test_what_is_shared_is_what_the_watcher_would_have_read() -> None:
    compared = 0
    for seed in range(15):
        choose = random.Random(seed)
        service = Service(*sorted(-choose.random() * KEPT for _ in range(choose.choice([0, 1, 5, 50]))))
        service.service_clock = 0.0
        cursors = [service.reader.read_position()] * 3
        known = cursors[0]
        for _ in range(30):
            seconds = choose.choice([10, 60, 600, KEPT * choose.random()])
            times = [choose.random() * seconds for _ in range(choose.choice([0, 0, 1, 5, 150]))]
            service.add(*(service.clock + each - 100 * (choose.random() < 0.1) for each in times))
            pass_time(service, seconds)
            if choose.random() < 0.1:
                known = service.reader.read_position()
            reading = poll(service, known, limit=choose.choice([100_000, 20]))
            known = reading.new.cursor
            for number, cursor in enumerate(cursors):
                if choose.random() < 0.3:
                    # Paused.
                    continue
                shared, own = share(cursor, reading), service.read(cursor)
                if shared is not None and not reading.new.more:
                    compared += 1
                    assert shared.gap == own.gap, seed
                    assert shared.calls == own.calls
                    assert own.cursor.covers(shared.cursor)
                    # It may have seen older calls.
                    assert shared.cursor.kept_for >= own.cursor.kept_for
                    assert replace(shared.cursor, kept_for=own.cursor.kept_for).detects_gaps_like(own.cursor)
                cursors[number] = (shared or own).cursor
    assert compared > 250


class TestClockSetBack:
    def test_a_watcher_reads_by_itself_what_was_written_since(self) -> None:
        service = Service(-HOUR, -30.0)
        service.service_clock = 0.0
        cursor = service.reader.read_position()
        known = replace(cursor)
        service.clock, service.service_clock = 60.0, 60 - HOUR
        reading = poll(service, known)
        assert share(stored(cursor), reading) is None
        assert share(known, reading) is reading.new

    def test_so_does_one_that_knows_more_than_was_shared(self) -> None:
        service = Service()
        service.clock = service.service_clock = 2000.0
        known = replace(service.reader.read_position(), floor=unix_micros(START) + 1_000_000_000)
        later = replace(known, floor=known.floor + 700_000_000)
        service.clock, service.service_clock = 2700.0, 2100.0
        reading = poll(service, known)
        assert share(later, reading) is None
        # Also one that knows as much: whether what is missing can be told is judged for itself.
        assert share(replace(known), reading) is None
        assert share(known, reading) is reading.new

    def test_what_is_fired_poll_by_poll_goes_on_from_the_time_that_the_service_has_now(self) -> None:
        service = Service(-30.0)
        service.service_clock = 0.0
        cursor = service.reader.read_position()
        service.clock, service.service_clock = 60.0, 60 - HOUR
        service.add(*(service.now + 0.01 * number for number in range(6_000)))
        new = service.read(cursor)
        first, *rest = make_portions(cursor, new, new.calls, with_payload=False)
        assert rest
        # Killed between the two; and the clock is put right.
        service.clock = service.service_clock = 120.0
        fired = {call["id"] for event in first.events for call in event["calls"]}
        again = {call.id for call in service.read(first.cursor).calls}
        assert fired | again == {call.id for call in service.calls[1:]}
