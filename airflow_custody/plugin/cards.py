"""What a connection's card says first: how the service is, in one line. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_custody.overview.verdict import Finding, Level, judge_overview

if TYPE_CHECKING:
    from airflow_custody.overview.models import Overview
    from airflow_custody.plugin.readings import Reading

#: The levels, worst first, and the words that stand next to their colours.
WORDS: dict[Level, str] = {"bad": "Trouble", "unknown": "No response", "warning": "Attention", "good": "Healthy"}
_WORST_FIRST = list(WORDS)
#: Seconds from which on a service that is being read again does not respond.
SLOW_AFTER = 10.0

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class Card:
    """
    A connection as the page shows it.

    :param conn_id: id of the connection.
    :param overview: what was read; None if nothing was.
    :param findings: what there is to know about it, the worst first. Never empty.
    :param is_being_read: whether a new overview is awaited.
    """

    conn_id: str
    overview: Overview | None
    findings: tuple[Finding, ...]
    is_being_read: bool = False

    @property
    def level(self) -> Level:
        """How it is: as bad as the worst that there is to know."""
        return self.findings[0].level

    @property
    def word(self) -> str:
        """The level as people read it."""
        return WORDS[self.level]

    @property
    def verdict(self) -> str:
        """How it is, in one line."""
        return self.findings[0].text

    @property
    def order(self) -> tuple[int, str]:
        """Where the card comes on the page: trouble first."""
        return _WORST_FIRST.index(self.level), self.conn_id

    def level_of(self, part: str) -> Level | None:
        """Return how a section of the overview is; None if there is nothing to praise and nothing to complain of."""
        found = next((each.level for each in self.findings if each.part == part), None)
        if found or self.overview is None:
            return found
        recent = self.overview.recent.value
        is_right = {
            "recent": recent and recent.rows and all(each.trust == "verified" for each in recent.rows),
            "webhooks": self.overview.webhooks.value,
        }
        return "good" if is_right.get(part) else None


def make_card(conn_id: str, reading: Reading[Overview], now: datetime) -> Card:
    """
    Return the card of a connection.

    :param conn_id: id of the connection.
    :param reading: what was read of its service.
    :param now: the time.
    """
    found = sorted(_findings(reading, now), key=lambda each: _WORST_FIRST.index(each.level))
    sentences = tuple(replace(each, text=each.text[:1].upper() + each.text[1:]) for each in found)
    return Card(conn_id, reading.value, sentences, reading.awaited_for is not None)


def _findings(reading: Reading[Overview], now: datetime) -> Iterator[Finding]:
    if reading.problem:
        yield Finding("unread", "bad", "", describe_problem(reading, now))
    elif reading.value is None or (reading.awaited_for or 0) > SLOW_AFTER:
        yield Finding("unread", "unknown", "", describe_awaited(reading, now))
    if reading.value is not None:
        yield from judge_overview(reading.value).findings


def duration(seconds: float) -> str:
    """Return a time span in words, such as ``2 h 5 min``: its largest unit, and the next one if it is small."""
    rest = max(0, int(seconds))
    for (size, unit), (next_size, next_unit) in pairwise(_UNITS):
        if rest >= size:
            amount, smaller = rest // size, rest % size // next_size
            return f"{amount} {unit} {smaller} {next_unit}" if smaller and amount < 10 else f"{amount} {unit}"
    return f"{rest} s"


def describe_problem(reading: Reading[Any], now: datetime) -> str:
    """
    Return why the last read brought nothing, and how old what is shown is; empty if it brought what there is.

    :param reading: the latest reading.
    :param now: the time.
    """
    return f"{reading.problem} What is shown is {_age(reading, now)} old." if reading.value else reading.problem


def describe_awaited(reading: Reading[Any], now: datetime) -> str:
    """
    Return in words that a service has not responded yet, and how old what is shown is.

    :param reading: the latest reading.
    :param now: the time.
    """
    if reading.value is None:
        return "The service is being read, and has not responded yet. Refresh this page in a moment."
    return f"The service has not responded yet to a new reading: what is shown is {_age(reading, now)} old."


def _age(reading: Reading[Any], now: datetime) -> str:
    return duration((now - (reading.read_at or now)).total_seconds())
