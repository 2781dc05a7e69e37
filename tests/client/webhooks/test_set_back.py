"""A clock of the service that is set back, as its responses show: no call is lost without a gap."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pytest
from journal_service import START, Service

from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.client.webhooks.models import WebhookCall

HOUR = 3600.0
DAY = 86_400.0


class Journal(Service):
    """
    A journal that removes what is dated first, by its age or number, before its clock is set and it is read.

    :param age: how long a call is kept, in seconds; None: for good.
    :param number: how many calls are kept; None: all.
    :param in_order_of_ids: whether those are removed first that were written first, if it is by number.
    """

    def __init__(
        self, *created: float, age: float | None = None, number: int | None = None, in_order_of_ids: bool = False
    ) -> None:
        super().__init__(*created)
        self._age, self._number = age, number
        self._first = _written if in_order_of_ids else _dated
        self.service_clock = 0.0
        self.clean()

    def pass_time(self, seconds: float) -> None:
        self.clock += seconds
        self.service_clock = self.now + seconds

    def set_clock(self, ahead: float) -> None:
        self.clean()
        self.service_clock = self.clock + ahead
        self.clean()

    def write(self, number: int = 1, every: float = 0.0) -> None:
        for _ in range(number):
            self.pass_time(every)
            self.add(self.now)
        self.clean()

    def clean(self) -> None:
        if self._age is not None:
            self.remove_older(self._age)
        if self._number is not None:
            self.calls = sorted(self.calls, key=self._first)[-self._number :]

    def ids(self) -> set[str]:
        self.clean()
        return {each.id for each in self.calls}


def _written(call: WebhookCall) -> tuple[float, int]:
    return 0, int(call.id.split()[0])


def _dated(call: WebhookCall) -> tuple[float, int]:
    return (call.created_at or START).timestamp(), _written(call)[1]


def busy(*, age: float | None = None, number: int | None = None) -> Journal:
    """Return a journal that has had 100 calls in its ten minutes."""
    return Journal(*(6.0 * each - 600 for each in range(1, 101)), age=age, number=number)


@pytest.mark.parametrize("unread", [0, 5])
@pytest.mark.parametrize("back", [600.0, HOUR, DAY])
def test_what_is_written_while_it_is_behind_and_removed_as_it_is_put_right_is_a_gap(back: float, unread: int) -> None:
    service = busy(age=1800.0)
    cursor = service.read(service.reader.read_position()).cursor
    service.write(unread)
    service.pass_time(30)
    service.set_clock(-back)
    cursor = service.read(cursor).cursor
    service.write(150, 0.1)
    service.set_clock(0)
    written = {each.id for each in service.calls if _written(each) >= (0, 100 + unread)}
    found = service.read(cursor)
    assert written <= {each.id for each in found.calls} if back == 600 else (not written and "set back" in found.gap)
    # The clock is right, and the newest known call is not later.
    for _ in range(3):
        service.pass_time(30)
        found = service.read(found.cursor)
        assert (found.calls, found.gap) == ((), "")


@pytest.mark.parametrize(
    ("number", "back", "burst", "seconds"),
    [(100, 600.0, 150, 60.0), (1000, HOUR, 5000, 3000.0), (1000, HOUR, 1500, 1.0)],
)
def test_what_is_removed_before_calls_that_are_dated_later_is_a_gap(
    number: int, back: float, burst: int, seconds: float
) -> None:
    service = busy(number=number)
    cursor = service.read(service.reader.read_position()).cursor
    service.pass_time(40)
    service.set_clock(-back)
    cursor = service.read(cursor).cursor
    service.write(burst, seconds / burst)
    found = service.read(cursor)
    assert len(found.calls) < burst
    assert "set back" in found.gap
    # As often as it happens.
    service.write(burst, seconds / burst)
    assert service.read(found.cursor).gap


@pytest.mark.parametrize("ahead", [-600.0, -HOUR, -DAY])
def test_a_journal_with_older_calls_makes_no_gap(ahead: float) -> None:
    service = Journal(-3 * DAY, -DAY - 600, -30.0, -20.0, -10.0)
    cursor = service.reader.read_position()
    service.set_clock(ahead)
    for number in range(5):
        service.pass_time(60)
        service.write(number % 2)
        found = service.read(cursor)
        assert (found.gap, found.cursor.is_set_back) == ("", True)
        cursor = found.cursor
    service.pass_time(-ahead)
    found = service.read(cursor)
    assert (found.gap, found.cursor.is_set_back) == ("", False)


def test_a_journal_without_older_calls_is_a_gap_until_a_call_is_known_that_vouches() -> None:
    service = busy()
    cursor = service.reader.read_position()
    service.set_clock(-DAY)
    for _ in range(3):
        service.pass_time(60)
        found = service.read(cursor)
        assert "set back" in found.gap
        cursor = CallCursor.from_json(found.cursor.to_json())
    service.write()
    found = service.read(cursor)
    assert (len(found.calls), bool(found.gap)) == (1, True)
    for _ in range(3):
        service.pass_time(60)
        service.write(2)
        found = service.read(found.cursor)
        assert (len(found.calls), found.gap) == (2, "")


@pytest.mark.parametrize("limit", [1, 10_000])
def test_known_calls_that_are_later_than_can_be_vouch_for_none(limit: int) -> None:
    # The service was ahead of this machine, and is right now: what it has dated later is known by its id alone.
    service = Journal(number=50)
    service.set_clock(DAY)
    service.write(50, 1.0)
    cursor = service.reader.read_position()
    service.set_clock(0)
    cursor = service.read(cursor, limit).cursor
    assert (cursor.recent, len(cursor.undated), cursor.is_set_back) == ({}, 50, True)
    service.write(20, 1.0)
    found = service.read(cursor, limit)
    assert (found.calls, "set back" in found.gap) == ((), True)


def test_an_empty_journal_makes_no_gap() -> None:
    service = Journal()
    cursor = service.reader.read_position()
    for ahead in (-HOUR, -DAY, -DAY + 600, -2 * DAY):
        service.pass_time(60)
        service.set_clock(ahead)
        found = service.read(cursor)
        assert found.gap == ""
        cursor = found.cursor
    service.write(5)
    found = service.read(cursor)
    assert (len(found.calls), found.gap) == (5, "")


def _choose(choose: random.Random, *, in_order_of_ids: bool) -> Journal:
    kept: Callable[[], tuple[float | None, int | None]] = choose.choice(
        [
            lambda: (choose.choice([600.0, 1800.0, 2 * HOUR, DAY]), None),
            lambda: (None, choose.choice([3, 30, 90])),
            lambda: (choose.choice([1800.0, DAY]), choose.choice([30, 90])),
        ]
    )
    age, number = kept()
    span = choose.choice([60.0, 600.0, 2 * HOUR, 3 * DAY])
    before = sorted(-choose.random() * span for _ in range(choose.choice([1, 5, 40, 90])))
    return Journal(*(float(int(at)) for at in before), age=age, number=number, in_order_of_ids=in_order_of_ids)


@pytest.mark.parametrize("limit", [5, 10_000])
def test_nothing_is_lost_without_a_gap_whatever_the_clock_is_set_to(limit: int) -> None:
    """Clocks are set back and forth, each time before a reading; what is removed unread is said by the next one."""
    gaps = 0
    for seed in [*range(30), 136, 229]:
        choose = random.Random(seed)
        # Where the first ids are removed, what was held back before the clock was set back is, before what came since.
        service = _choose(choose, in_order_of_ids=limit > 1000 and seed % 4 == 0)
        own = ahead = choose.choice([0.0, 0.0, 200.0, -200.0, HOUR, -HOUR])
        service.set_clock(ahead)
        service.calls = [
            WebhookCall(each.id, "w", created_at=each.created_at and each.created_at + timedelta(seconds=ahead))
            for each in service.calls
        ]
        service.clean()
        cursor = service.reader.read_position()
        seen = service.ids()
        step = choose.choice([10.0, 60.0, 300.0, HOUR])
        for _ in range(25):
            was_empty, unread, first = not service.ids(), service.ids() - seen, service.number
            number = choose.choice([0, 0, 1, 5, 20, 100])
            elapsed = step * choose.choice([0.1, 1, 1, 1, 5])
            set_after = choose.randint(0, number)
            service.write(set_after, elapsed / (number + 1))
            if choose.random() < 0.2:
                ahead = choose.choice(
                    [own, ahead - 130, ahead - 600, ahead - HOUR, ahead + 600, ahead + HOUR, own - DAY]
                )
                service.set_clock(ahead)
            service.write(number - set_after, elapsed / (number + 1))
            service.pass_time(elapsed / (number + 1))
            service.clean()
            found = service.read(cursor, limit)
            cursor = found.cursor
            seen |= {each.id for each in found.calls}
            written = {str(each) for each in range(first, service.number)}
            ids = {each.split()[0] for each in service.ids() | seen}
            lost = ({each.split()[0] for each in unread} | written) - ids
            gaps += bool(found.gap)
            assert found.gap or not lost or was_empty, (seed, sorted(lost))
        # What is listed is read.
        while found.more:
            service.pass_time(1)
            found = service.read(found.cursor)
            seen |= {each.id for each in found.calls}
        assert service.ids() <= seen, seed
    assert gaps
