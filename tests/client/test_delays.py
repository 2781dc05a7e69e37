"""Delays between tries, and repeated tries within a number of seconds."""

from __future__ import annotations

from itertools import islice

import pytest
from support.clocks import SkippingTime

from airflow_custody.client import delays
from airflow_custody.client.delays import growing_delay, growing_delays, tries_within


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SkippingTime:
    skipping = SkippingTime()
    monkeypatch.setattr(delays, "time", skipping)
    return skipping


def test_each_delay_is_twice_as_long_up_to_the_maximum() -> None:
    assert list(islice(growing_delays(first=0.5, maximum=3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_delay_after_any_number_of_tries_is_a_number() -> None:
    assert growing_delay(100_000, first=0.1, maximum=300.0) == 300.0


@pytest.mark.parametrize(
    ("seconds", "maximum", "expected"),
    [
        (0.0, 5.0, [0]),
        (9, 5.0, [0, 1, 3, 7, 9]),
        (15, 5.0, [0, 1, 3, 7, 12, 15]),
        # Constant delays.
        (3.5, 1.0, [0, 1, 2, 3, 3.5]),
    ],
)
def test_tries_begin_at_once_and_when_the_seconds_are_over(
    clock: SkippingTime, seconds: float, maximum: float, expected: list[float]
) -> None:
    assert [clock.skipped for _ in tries_within(seconds, maximum=maximum)] == pytest.approx(expected)


def test_the_last_try_begins_no_earlier_than_when_the_seconds_are_over(clock: SkippingTime) -> None:
    began = []
    for _ in tries_within(5.0):
        began.append(clock.skipped)
        clock.sleep(7.0)
    assert began == [0, 7]
