"""What a connection's card says first: how the service is, in one line. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.text import count
from airflow_custody.overview.verdict import (
    SECTIONS,
    deleted_rows,
    describe_deletions,
    describe_fault,
    describe_unknown,
    unread_sections,
)

if TYPE_CHECKING:
    from airflow_custody.overview.models import HealthView, Overview, RequestsView, Section
    from airflow_custody.plugin.readings import Reading

Level = Literal["bad", "unknown", "warning", "good"]

#: The levels, worst first, and the words that stand next to their colours.
WORDS: dict[Level, str] = {"bad": "Trouble", "unknown": "No response", "warning": "Attention", "good": "Healthy"}
_WORST_FIRST = list(WORDS)
#: Seconds from which on a service that is being read again does not respond.
SLOW_AFTER = 10.0

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_MAX_NAMED = 2
_MAX_LINKS = 3
_UNREADABLE = {
    **{name: f"This cannot be read: {words}." for name, words in SECTIONS.items()},
    "pending": "The requests that are pending cannot be read.",
    "recent": "What took effect lately cannot be read.",
    "webhooks": "The webhooks cannot be read.",
    "journal": "The journal of webhook calls cannot be read.",
}


@dataclass(frozen=True)
class Finding:
    """
    Something to know about a service.

    :param level: how bad it is.
    :param part: what it is about: the name of an overview's section, or empty for all of it.
    :param text: what it is, in one line.
    :param request_ids: the whitelisting requests that it is about; of many, the first 3.
    """

    level: Level
    part: str
    text: str
    request_ids: tuple[str, ...] = ()


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
    return Card(conn_id, reading.value, tuple(found), reading.awaited_for is not None)


def _findings(reading: Reading[Overview], now: datetime) -> Iterator[Finding]:
    if reading.problem:
        yield Finding("bad", "", describe_problem(reading, now))
    elif reading.value is None or (reading.awaited_for or 0) > SLOW_AFTER:
        yield Finding("unknown", "", describe_awaited(reading, now))
    if (overview := reading.value) is None:
        return
    # Nothing is worse than an address in effect that nobody signed.
    yield from _of_requests(overview.recent, "recent", "in effect")
    unread = unread_sections(overview)
    for part, problem in unread.items():
        if part == "unknown" and "recent" in unread:
            # Both are of one listing.
            continue
        if part == "health":
            yield Finding("bad", part, f"Its health cannot be read: {problem}")
        else:
            yield Finding("warning", part, _UNREADABLE[part])
    yield from _of_health(overview.health)
    yield from _of_requests(overview.pending, "pending", "pending")
    if deletions := describe_deletions(overview):
        ids = tuple(row.id for row in deleted_rows(overview)[:_MAX_LINKS])
        yield Finding("warning", "pending", f"{deletions[0].upper()}{deletions[1:]}.", ids)
    yield from _of_requests(overview.unknown, "unknown", "with a status that is not known")
    if overview.unknown.value is not None and overview.unknown.value.total:
        text = describe_unknown(overview.unknown.value)
        yield Finding("warning", "unknown", f"{text[0].upper()}{text[1:]}.")
    if wrong := [each for each in overview.webhooks.value or () if each.problem]:
        others = len(wrong) - 1 + overview.more_faulty_webhooks
        more = f" (and {others} more)" if others else ""
        yield Finding("warning", "webhooks", f"Webhook {wrong[0].id}: {wrong[0].problem}{more}")


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


def _of_health(section: Section[HealthView]) -> Iterator[Finding]:
    health = section.value
    if health is None:
        return
    if health.healthy:
        yield Finding("good", "health", f"All {health.total} checks are healthy." if health.total > 1 else "Healthy.")
    elif health.problems:
        yield Finding("bad", "health", f"Not healthy: {health.problems[0]}")
    else:
        wrong = [each for each in health.checks if not each.healthy]
        named = ", ".join(" / ".join(filter(None, (e.group, e.component, e.check))) for e in wrong[:_MAX_NAMED])
        more = f" and {health.unhealthy - _MAX_NAMED} more" if health.unhealthy > _MAX_NAMED else ""
        if len(wrong) == 1:
            more = f", {wrong[0].problem}"
        verb = "is" if health.unhealthy == 1 else "are"
        text = f"{health.unhealthy} of {count(health.total, 'check')} {verb} not healthy: {named}{more}"
        yield Finding("bad", "health", text)


def _of_requests(section: Section[RequestsView], part: str, which: str) -> Iterator[Finding]:
    view = section.value
    if view is None or not view.faulty:
        return
    # Those that are not verified come first.
    ids = tuple(each.id for each in view.rows if each.is_faulty)[:_MAX_LINKS]
    if any(each.trust == "unverified" for each in view.rows):
        text = f"The signatures of {count(view.faulty, 'request')} {which} could not be verified."
        yield Finding("bad", part, text, ids)
    elif view.faulty == 1 and (row := next((each for each in view.rows if each.is_faulty), None)):
        yield Finding("warning", part, f"Request {row.id} ({which}): {describe_fault(row)}", ids)
    else:
        text = f"{count(view.faulty, 'request')} {which} cannot be read as a whole, or contradict themselves."
        yield Finding("warning", part, text, ids)
