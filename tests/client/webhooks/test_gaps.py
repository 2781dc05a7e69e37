"""What is removed from the journal before it is read is said, and what cannot have been removed is not."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from journal_service import Service

from airflow_custody.client.webhooks.models import WebhookCall

HOUR = 3600.0
DAY = 86_400.0
KEPT = 7 * DAY


def ids(calls: tuple[WebhookCall, ...]) -> list[str]:
    return [each.id for each in calls]


class TestWhatALimitHoldsBack:
    @pytest.mark.parametrize("start", ["position", "beginning", "late"])
    def test_is_said_if_it_is_removed(self, start: str) -> None:
        service = Service(*([-6 * DAY, -6 * DAY + 1] if start != "beginning" else []))
        service.clock = -5 * DAY if start == "position" else 0.0
        position = service.reader.read_position()
        service.add(*(-5 * DAY + number for number in range(1, 60)))
        service.clock = 0.0
        first = service.reader.read_from_beginning(10) if start == "beginning" else service.read(position, 10)
        assert (len(first.calls), first.more, first.gap) == (10, True, "")
        # It keeps all for a week, and has always done so.
        service.clock = 3 * DAY
        service.remove_older(KEPT)
        service.add(3 * DAY)
        second = service.read(first.cursor)
        assert len(second.calls) == 1
        assert "may have been removed" in second.gap

    def test_is_read_on_with_in_silence(self) -> None:
        service = Service(-DAY)
        cursor = service.reader.read_position()
        service.add(*(-DAY + number for number in range(1, 60)))
        seen, more = 0, True
        while more:
            service.clock += HOUR
            found = service.read(cursor, 10)
            assert found.gap == ""
            cursor, more, seen = found.cursor, found.more, seen + len(found.calls)
        assert seen == 59


class TestAfterAGap:
    def test_each_later_one_is_said_too(self) -> None:
        # Kept for an hour, read once a day.
        service = Service(-1200.0, -600.0)
        cursor = service.reader.read_position()
        for day in range(1, 6):
            service.clock = day * DAY
            service.add(service.clock - DAY / 2)
            service.remove_older(HOUR)
            found = service.read(cursor)
            assert (found.calls, "may have been removed" in found.gap) == ((), True)
            cursor = found.cursor

    @pytest.mark.parametrize("seconds", [10, 300])
    def test_it_is_not_said_again_where_nothing_is_lost(self, seconds: int) -> None:
        service = Service(-20.0)
        cursor = service.reader.read_position()
        service.calls = []
        gaps = []
        for _ in range(20):
            service.clock += seconds
            found = service.read(cursor)
            cursor = found.cursor
            gaps.append(found.gap)
        assert gaps[0]
        assert not any(gaps[1:])

    def test_what_is_still_listed_vouches_for_the_later_ones(self) -> None:
        service = Service(-3 * DAY, -2 * DAY, 0.0)
        cursor = service.reader.read_position()
        # The newest is removed, out of turn.
        del service.calls[2]
        for number in range(5):
            service.clock += DAY / 4
            found = service.read(cursor)
            assert bool(found.gap) is (number == 0)
            cursor = found.cursor
        service.add(service.clock)
        found = service.read(cursor)
        assert (len(found.calls), found.gap, found.cursor.gap_reported) == (1, "", False)


class TestAfterAnEmptyJournal:
    """A journal that became empty does not keep a number of calls."""

    @pytest.mark.parametrize(("kept", "every", "step"), [(2, 3, 300.0), (7, 10, HOUR), (7, 8, DAY)])
    @pytest.mark.parametrize("number", [1, 5])
    def test_calls_that_are_rarer_than_they_are_kept_make_no_gap(
        self, kept: int, every: int, step: float, number: int
    ) -> None:
        service = Service(-DAY)
        cursor = service.reader.read_position()
        seen = 0
        for reading in range(1, int(3 * every * DAY / step) + 1):
            service.clock += step
            if reading % int(every * DAY / step) == 0:
                service.add(*[service.clock - 5] * number)
            service.remove_older(kept * DAY)
            found = service.read(cursor)
            assert found.gap == ""
            cursor, seen = found.cursor, seen + len(found.calls)
        assert seen == 3 * number

    @pytest.mark.parametrize(("number", "gap"), [(100, False), (500, False), (1000, True)])
    @pytest.mark.parametrize("is_known", [False, True])
    def test_many_calls_at_once_make_none(self, number: int, gap: bool, is_known: bool) -> None:
        service = Service(*([-DAY] if is_known else []))
        cursor = service.reader.read_position()
        service.clock, service.calls = DAY / 2, []
        cursor = service.read(cursor).cursor
        service.add(*(service.clock + each / 10 for each in range(number)))
        service.clock += 300
        found = service.read(cursor)
        assert (len(found.calls), bool(found.gap)) == (number, gap)


class TestAnotherJournal:
    @pytest.mark.parametrize("other", [0, 20])
    def test_is_said_once_if_it_lists_older_calls_or_none(self, other: int) -> None:
        service = Service(*(-20_000.0 * number for number in range(50, -1, -1)))
        cursor = service.reader.read_position()
        service.add(60.0)
        # The token of another tenant.
        service.calls, service.clock = [], 120.0
        service.add(*(-20_000.0 * number - 7 for number in range(other, 0, -1)))
        found = service.read(cursor)
        assert "another journal (that of another tenant" in found.gap
        for _ in range(3):
            service.clock += 60
            found = service.read(found.cursor)
            assert found.gap == ""
        service.add(service.clock)
        assert len(service.read(found.cursor).calls) == 1


class TestClocks:
    @pytest.mark.parametrize(("ahead", "later"), [(590, 300), (590, 240), (3600, 3400), (7200, 7200), (7200, 60)])
    @pytest.mark.parametrize("is_own", [False, True])
    def test_what_is_written_after_the_service_was_set_back_is_found(
        self, ahead: float, later: float, is_own: bool
    ) -> None:
        service = Service()
        # Either it was wrong before, or it is wrong now.
        service.service_clock = 0.0 if is_own else ahead
        service.add(*(service.now - number for number in range(5, 0, -1)))
        cursor = service.reader.read_position()
        service.service_clock = -ahead if is_own else 0.0
        expected = []
        for _ in range(0, int(later), 10):
            service.clock += 10
            service.service_clock += 10
            service.add(service.now)
            expected.append(service.calls[-1].id)
        found = service.read(cursor)
        assert ids(found.calls) == expected
        assert service.read(found.cursor).calls == ()

    @pytest.mark.parametrize(
        "ahead",
        [
            [0.0] * 5 + [-600.0] * 20,
            [0.0] * 5 + [-3600.0] * 80,
            [3600.0] * 5 + [-600.0] * 80,
            [-3600.0] * 5 + [-7200.0] * 80,
            [-110.0 * number for number in range(20)],
            [2000 - 110.0 * number for number in range(20)],
            [0.0, -500.0] * 10,
        ],
        ids=lambda ahead: f"{ahead[0]:.0f} to {ahead[-1]:.0f}",
    )
    def test_what_is_written_while_the_service_is_behind_is_found(self, ahead: list[float]) -> None:
        service = Service()
        service.service_clock = ahead[0]
        # One that is dated before whatever the clock is set back to.
        service.add(service.now - 5 * HOUR, *(service.now - number for number in range(5, 0, -1)))
        cursor = service.reader.read_position()
        for number, each in enumerate(ahead):
            service.clock = 60.0 * number + 30
            service.service_clock = service.clock + each
            service.add(service.now)
            service.clock += 30
            service.service_clock += 30
            found = service.read(cursor)
            assert service.calls[-1].id in ids(found.calls)
            assert found.gap == ""
            cursor = found.cursor
        assert service.read(cursor).calls == ()

    def test_what_responses_take_does_not_repeat_calls(self) -> None:
        service = Service(*(-10.0 * number for number in range(100, 0, -1)))
        service.service_clock = 30.0
        cursor = service.reader.read_position()
        for ahead in (-60, 30, -60):
            service.clock += 10
            service.service_clock = service.clock + ahead
            found = service.read(cursor)
            assert (found.calls, found.gap) == ((), "")
            cursor = found.cursor

    def test_a_date_that_is_ahead_of_the_calls_makes_nothing_kept_for_longer(self) -> None:
        service = Service(*(-HOUR * number for number in range(30, 0, -1)))
        service.service_clock = 365 * DAY
        cursor = service.reader.read_position()
        assert cursor.kept_for == 30 * HOUR - 300
        service.clock, service.service_clock = 30 * DAY, 395 * DAY
        service.calls = []
        assert "may have been removed" in service.read(cursor).gap

    def test_one_odd_date_is_no_gap(self) -> None:
        service = Service(-30 * DAY, -29 * DAY)
        service.service_clock = 0.0
        cursor = service.reader.read_position()
        service.clock, service.service_clock = 60, 365 * DAY
        cursor = service.read(cursor).cursor
        service.clock, service.service_clock = 2 * DAY, 2 * DAY
        service.remove_older(30.5 * DAY)
        service.calls = []
        found = service.read(cursor)
        assert (found.calls, found.gap) == ((), "")


def test_a_service_that_begins_to_drop_fractions_makes_no_gap() -> None:
    service = Service(*(number + 0.5 for number in range(-5, 0)))
    cursor = service.reader.read_position()
    service.calls = [
        replace(each, created_at=each.created_at and each.created_at.replace(microsecond=0)) for each in service.calls
    ]
    service.add(*map(float, range(1, 200)))
    service.clock = 300.0
    found = service.read(cursor)
    assert (len(found.calls), found.gap) == (199, "")


@pytest.mark.parametrize("limit", [5, 10_000])
def test_a_lawful_journal_loses_nothing_without_a_word(limit: int) -> None:
    """
    The oldest are removed, by age or number. What was removed unread is said; what is listed is read.

    Only what becomes empty by age is not taken to keep a small number, too.
    """
    for seed in range(60):
        choose = random.Random(seed)
        kept = choose.choice([600, HOUR, 6 * HOUR, DAY, 7 * DAY])
        number = choose.choice([None, None, 3, 50, 99, 100, 150])
        step = choose.choice([30, 300, HOUR, 6 * HOUR, DAY])
        service = Service(*sorted(-choose.random() * kept for _ in range(choose.randint(1, 150))))
        service.service_clock = ahead = choose.choice([0.0, 200.0, -200.0, -4000.0])
        service.calls = [
            replace(each, created_at=each.created_at and each.created_at + timedelta(seconds=ahead))
            for each in service.calls
        ][-(number or 1000) :]
        cursor = service.reader.read_position()
        seen = set(ids(tuple(service.calls)))
        for _ in range(12):
            before, was_empty = service.number, not service.calls
            service.clock += (elapsed := step * choose.choice([0.1, 1, 1, 1, 5, 30]))
            service.service_clock += elapsed
            service.add(*sorted(service.now - choose.random() * elapsed for _ in range(choose.randint(0, 20))))
            written = {each.id for each in service.calls if int(each.id.split()[0]) >= before}
            unread = {each.id for each in service.calls} - seen
            service.remove_older(kept)
            service.calls = sorted(service.calls, key=lambda each: str(each.created_at))[-(number or 10_000) :]
            found = service.read(cursor, limit)
            cursor = found.cursor
            seen |= set(ids(found.calls))
            lost = (unread | written) - seen - {each.id for each in service.calls}
            assert found.gap or not lost or was_empty, (seed, lost)
            seen |= lost


@pytest.mark.parametrize("back", [500, HOUR])
def test_what_is_written_while_the_service_is_behind_and_removed_is_a_gap(back: float) -> None:
    # Those that are known are dated later, and listed for longer.
    service = Service(*(-10.0 * number for number in range(100, 0, -1)))
    service.service_clock = 0.0
    cursor = service.reader.read_position()
    service.clock, service.service_clock = 60.0, 60.0 - back
    cursor = service.read(cursor).cursor
    service.add(service.now)
    service.clock, service.service_clock = 1000.0, 1000.0
    service.remove_older(1020)
    found = service.read(cursor)
    assert service.calls
    assert "the service's clock was set back" in found.gap
    # It is said once.
    service.clock = service.service_clock = 1060.0
    assert service.read(found.cursor).gap == ""


def test_a_lawful_journal_that_is_read_often_is_no_gap() -> None:
    """Whatever becomes of the calls that are known: what is removed has been read."""
    for seed in range(40):
        choose = random.Random(seed)
        kept = choose.choice([DAY, 7 * DAY])
        number = choose.choice([None, 150])
        service = Service(*sorted(-choose.random() * kept for _ in range(choose.choice([1, 3, 30, 300]))))
        service.calls = service.calls[-(number or 1000) :]
        cursor = service.reader.read_position()
        for _ in range(60):
            service.clock += kept / 40 * choose.random()
            service.add(*sorted(service.clock - choose.random() * 60 for _ in range(choose.choice([0, 0, 0, 1, 20]))))
            service.remove_older(kept)
            service.calls = sorted(service.calls, key=lambda each: str(each.created_at))[-(number or 10_000) :]
            met = cursor.kept_for > kept / 20
            found = service.read(cursor, choose.choice([20, 10_000]))
            # A journal that is young has not shown yet for how long it keeps calls.
            assert not (found.gap and met), seed
            cursor = found.cursor
