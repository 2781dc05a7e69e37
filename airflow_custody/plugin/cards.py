"""The cards of services, each with the state of the service in one line. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
#: Seconds after which a service that is being read again counts as not responding.
SLOW_AFTER = 10.0
#: The sections that are the same for all users who may see them.
_SHARED = ("health", "requests", "webhooks", "journal")

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class ConnectionRow:
    """
    A connection to a service.

    :param conn_id: its id.
    :param reading: the latest reading of the service with it.
    :param level: the level of reading the service with it: ``good`` if that works.
    :param problem: why that does not work; empty if it does.
    """

    conn_id: str
    reading: Reading[Overview]
    level: Level
    problem: str

    @property
    def overview(self) -> Overview | None:
        """The overview; None if none was read."""
        return self.reading.value

    @property
    def rank(self) -> tuple[bool, bool, int, str]:
        """The sort key: first what was read well, with pinned keys, and the user who may see most."""
        seen = [] if self.overview is None else [getattr(self.overview, name).value is not None for name in _SHARED]
        return bool(self.problem), not (self.overview and self.overview.pinned), -sum(seen), self.conn_id


@dataclass(frozen=True)
class Card:
    """
    A service as the page shows it.

    :param connections: its connections, those that see most first. Never empty.
    :param overview: the overview, each section by the first connection that can read it; None if nothing was read.
    :param sources: the id of the connection that a section comes from, by the section's name.
    :param findings: the findings about it, the worst first, each with the id of its connection. Never empty.
    """

    connections: tuple[ConnectionRow, ...]
    overview: Overview | None
    sources: Mapping[str, str]
    findings: tuple[tuple[str, Finding], ...]

    @property
    def title(self) -> str:
        """The base URL of the service; where it is not known, the id of the connection."""
        return self.connections[0].reading.service or self.connections[0].conn_id

    @property
    def tenant(self) -> str:
        """The id of the tenant; empty if it is not known."""
        user = self.overview.user.value if self.overview else None
        return user.tenant_id if user else ""

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return self.findings[0][1].level

    @property
    def word(self) -> str:
        """The level in a word for people."""
        return WORDS[self.level]

    @property
    def order(self) -> tuple[int, str]:
        """The sort key of the card on the page: trouble first."""
        return _WORST_FIRST.index(self.level), self.connections[0].conn_id

    def level_of(self, part: str) -> Level | None:
        """Return the level of a section of the overview, or of a part of its requests; None if it has none."""
        found = next((each.level for _, each in self.findings if each.part == part), None)
        if found or self.overview is None:
            return found
        recent = self.overview.requests.value.recent.rows if self.overview.requests.value else ()
        is_right = {
            "recent": recent and all(each.trust == "verified" for each in recent),
            "webhooks": self.overview.webhooks.value,
        }
        return "good" if is_right.get(part) else None


def make_cards(readings: Iterable[tuple[str, Reading[Overview]]], now: datetime) -> list[Card]:
    """
    Return the cards of services, trouble first.

    :param readings: ids of connections, each with the latest reading of its service.
    :param now: the time.
    """
    groups: dict[tuple[str, str], list[ConnectionRow]] = {}
    # Those of which nothing is known but the base URL come last.
    for conn_id, reading in sorted(readings, key=lambda each: each[1].value is None):
        key = _service_of(conn_id, reading, groups)
        groups.setdefault(key, []).append(ConnectionRow(conn_id, reading, *_state_of(reading, now)))
    cards = [_make_card(sorted(each, key=lambda row: row.rank)) for each in groups.values()]
    return sorted(cards, key=lambda card: card.order)


def _service_of(conn_id: str, reading: Reading[Overview], known: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the base URL and the tenant of a service. A tenant that is not known may be any, and shares no card."""
    if reading.value is None and reading.service:
        tenants = [each for url, each in known if url == reading.service]
        return reading.service, tenants[0] if len(tenants) == 1 else ""
    if reading.value is None:
        return "", conn_id
    user = reading.value.user.value
    return reading.service, f"tenant {user.tenant_id}" if user and user.tenant_id else conn_id


def _state_of(reading: Reading[Overview], now: datetime) -> tuple[Level, str]:
    if reading.problem:
        return "bad", describe_problem(reading, now)
    is_slow = (reading.awaited_for or 0) > SLOW_AFTER
    if is_slow or reading.value is None:
        return "unknown", describe_awaited(reading, now)
    return "good", ""


def _make_card(connections: Sequence[ConnectionRow]) -> Card:
    overviews = {each.conn_id: each.overview for each in connections if each.overview}
    sources = {}
    for name in _SHARED:
        seeing = [conn_id for conn_id, each in overviews.items() if getattr(each, name).value is not None]
        sources[name] = next(iter([*seeing, connections[0].conn_id]))
    overview = None
    if overviews:
        parts = {name: getattr(overviews[conn_id], name) for name, conn_id in sources.items() if conn_id in overviews}
        overview = replace(next(iter(overviews.values())), **parts)
    found = sorted(_findings(connections, overview), key=lambda each: _WORST_FIRST.index(each[1].level))
    return Card(tuple(connections), overview, sources, tuple(found))


def _findings(connections: Sequence[ConnectionRow], overview: Overview | None) -> Iterator[tuple[str, Finding]]:
    """
    Yield the findings of all connections, with their ids.

    Each text is reported once. What is wrong is reported, whichever user sees it.
    """
    some_work = any(not each.problem for each in connections)
    reported: set[str] = set()
    for connection in connections:
        if connection.problem:
            level = "warning" if some_work else connection.level
            prefix = "" if len(connections) == 1 else f"{connection.conn_id}: "
            yield connection.conn_id, Finding("unread", level, "", f"{prefix}{connection.problem}")
        if connection.overview is None:
            continue
        # The health that a broken connection has read is only the last known one.
        is_old = bool(connection.problem) and some_work
        for finding in judge_overview(connection.overview).findings:
            text = finding.text[:1].upper() + finding.text[1:]
            if text in reported or _is_outdated(finding, overview, is_old=is_old):
                continue
            reported.add(text)
            yield connection.conn_id, replace(finding, text=text)


def _is_outdated(finding: Finding, overview: Overview | None, *, is_old: bool) -> bool:
    """
    Tell whether another connection knows better.

    :param finding: the finding.
    :param overview: the overview of the service, each section by a connection that can read it.
    :param is_old: whether the finding's connection is broken, and another one works.
    """
    if finding.part == "health" and is_old:
        return True
    is_unread = finding.kind == "unread" and finding.part in _SHARED
    return is_unread and overview is not None and getattr(overview, finding.part).value is not None


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
    Describe why the last read failed, and the age of the reading that is shown; empty if it succeeded.

    :param reading: the latest reading.
    :param now: the time.
    """
    return f"{reading.problem} What is shown is {_age(reading, now)} old." if reading.value else reading.problem


def describe_awaited(reading: Reading[Any], now: datetime) -> str:
    """
    Describe that a service has not responded yet, and the age of the reading that is shown.

    :param reading: the latest reading.
    :param now: the time.
    """
    if reading.value is None:
        return "The service is being read, and has not responded yet. Refresh this page in a moment."
    return f"The service has not responded yet to a new reading: what is shown is {_age(reading, now)} old."


def _age(reading: Reading[Any], now: datetime) -> str:
    return duration((now - (reading.read_at or now)).total_seconds())
