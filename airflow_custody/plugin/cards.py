"""The cards of services: each has the verdict on a service, and the overviews that its connections read. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from airflow_custody.overview.verdict import LEVELS, Finding, Level, judge_overview
from airflow_custody.plugin.rendering import sentence

if TYPE_CHECKING:
    from airflow_custody.overview.models import Overview
    from airflow_custody.plugin.readings import Reading

_WORST_FIRST = list(LEVELS)
#: The sections of an overview whose data does not depend on the connection's user, if the user may see it at all.
_SHARED_SECTIONS = ("health", "requests", "webhooks", "journal")


@dataclass(frozen=True)
class ConnectionRow:
    """
    A connection to a service.

    :param conn_id: its id.
    :param reading: the latest reading of the service through this connection.
    :param level: ``good`` if the service can be read through this connection; ``unknown`` if there is no data from the
        last minute, and a newer reading is awaited.
    :param problem: why the service cannot be read; empty if it can.
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
        """
        The sort key of connections to one service.

        Working connections come first; among these, connections with pinned keys; and among these, connections that can
        read more sections.
        """
        overview = self.overview
        if overview is None:
            return bool(self.problem), True, 0, self.conn_id
        readable = [name for name in _SHARED_SECTIONS if getattr(overview, name).value is not None]
        return bool(self.problem), not overview.pinned, -len(readable), self.conn_id


@dataclass(frozen=True)
class CardFinding(Finding):
    """
    A finding about a service, and the connection that found it.

    :param conn_id: the id of the connection.
    """

    conn_id: str = ""


@dataclass(frozen=True)
class Card:
    """
    A service as the page shows it.

    :param connections: its connections, in the order of their rank. Never empty.
    :param overview: the overview, with each section from the first connection that can read it; None if nothing was
        read.
    :param sources: the id of the connection that each section comes from, by the section's name.
    :param findings: the findings about it, worst first. Never empty.
    """

    connections: tuple[ConnectionRow, ...]
    overview: Overview | None
    sources: Mapping[str, str]
    findings: tuple[CardFinding, ...]

    @property
    def title(self) -> str:
        """The ids of its connections."""
        return ", ".join(each.conn_id for each in self.connections)

    @property
    def url(self) -> str:
        """The base URL of the service; empty if it is unknown."""
        return self.connections[0].reading.service

    @property
    def tenant(self) -> str:
        """The id of the tenant; empty if it is unknown."""
        user = self.overview.user.value if self.overview else None
        return user.tenant_id if user else ""

    @property
    def is_awaited(self) -> bool:
        """Whether a connection of this card has no reading from the last minute, and its next reading is awaited."""
        return any(each.level == "unknown" for each in self.connections)

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return self.findings[0].level

    @property
    def word(self) -> str:
        """The word for the level."""
        return LEVELS[self.level]

    @property
    def order(self) -> tuple[int, str]:
        """The sort key of the card on the page: the worst level first."""
        return _WORST_FIRST.index(self.level), self.connections[0].conn_id

    def level_of(self, part: str) -> Level | None:
        """
        Return the level of a section of the overview, or of a part of its requests.

        :param part: the name of the section or part.
        :return: the level; None if no problem was found, but the state is not proved to be good now.
        """
        levels = [finding.level for finding in self.findings if finding.part == part]
        level: Level | None = levels[0] if levels else "good" if self._is_right(part) else None
        # Do not report a good level from an old reading, because it does not prove that the state is still good.
        return None if level == "good" and not self._is_current(part) else level

    def _is_current(self, part: str) -> bool:
        source = self.sources.get(part, self.sources["requests"])
        return any(each.conn_id == source and each.level == "good" for each in self.connections)

    def _is_right(self, part: str) -> bool:
        if self.overview is None:
            return False
        if part == "recent":
            requests = self.overview.requests.value
            rows = requests.recent.rows if requests else ()
            return bool(rows) and all(row.trust == "verified" for row in rows)
        return part == "webhooks" and bool(self.overview.webhooks.value)


class _ServiceKey(NamedTuple):
    """
    The key that identifies the service of a connection. Connections with equal keys share a card.

    :param url: the base URL; empty if it is unknown.
    :param owner: the tenant of the service. If the tenant is unknown, this is the id of the connection, because the
        connection may belong to any tenant. A connection without an overview has the owner of the only known service
        with the same URL; if there is no such service, or there are several, the owner is empty. If its URL is unknown,
        too, the owner is the id of the connection.
    """

    url: str
    owner: str


def make_cards(readings: Iterable[tuple[str, Reading[Overview]]], now: datetime) -> list[Card]:
    """
    Return the cards of services, worst level first.

    :param readings: ids of connections, each with the latest reading of its service.
    :param now: the time.
    """
    groups: dict[_ServiceKey, list[ConnectionRow]] = {}
    # Connections without an overview come last, so that they can join the card of another connection with the same base
    # URL.
    for conn_id, reading in sorted(readings, key=lambda pair: pair[1].value is None):
        service = _service_of(conn_id, reading, groups)
        level, problem = _state_of(reading, now)
        groups.setdefault(service, []).append(ConnectionRow(conn_id, reading, level, problem))
    cards = [_make_card(sorted(rows, key=lambda row: row.rank)) for rows in groups.values()]
    return sorted(cards, key=lambda card: card.order)


def _service_of(conn_id: str, reading: Reading[Overview], known: Iterable[_ServiceKey]) -> _ServiceKey:
    if reading.value is not None:
        user = reading.value.user.value
        owner = f"tenant {user.tenant_id}" if user and user.tenant_id else conn_id
        return _ServiceKey(reading.service, owner)
    if not reading.service:
        return _ServiceKey("", conn_id)
    same_url = [service for service in known if service.url == reading.service]
    return same_url[0] if len(same_url) == 1 else _ServiceKey(reading.service, "")


def _state_of(reading: Reading[Overview], now: datetime) -> tuple[Level, str]:
    if reading.problem:
        return "bad", reading.describe_problem(now)
    if reading.is_overdue(now):
        return "unknown", reading.describe_wait(now)
    return "good", ""


def _make_card(connections: Sequence[ConnectionRow]) -> Card:
    """Return the card of a service, with each shared section from the first connection that can read it."""
    overviews = {connection.conn_id: connection.overview for connection in connections if connection.overview}
    sources = dict.fromkeys(_SHARED_SECTIONS, connections[0].conn_id)
    sections = {}
    for name in sources:
        for conn_id, overview in overviews.items():
            if getattr(overview, name).value is not None:
                sources[name], sections[name] = conn_id, getattr(overview, name)
                break
    merged = replace(next(iter(overviews.values())), **sections) if overviews else None
    findings = sorted(
        _findings(connections, merged, sources["requests"]), key=lambda finding: _WORST_FIRST.index(finding.level)
    )
    return Card(tuple(connections), merged, sources, tuple(findings))


def _findings(
    connections: Sequence[ConnectionRow], overview: Overview | None, requests_from: str
) -> Iterator[CardFinding]:
    """
    Yield the findings of all connections.

    Each text is reported once. A problem is reported even if only one of the connections finds it. How long requests
    have been pending is reported only by the connection that the requests come from, because the others counted at
    another moment.

    :param connections: the connections to a service.
    :param overview: the overview of the service.
    :param requests_from: the id of the connection that the requests of the overview come from.
    """
    some_work = any(not connection.problem for connection in connections)
    reported: set[str] = set()
    for connection in connections:
        if connection.problem:
            level: Level = "warning" if some_work else connection.level
            prefix = "" if len(connections) == 1 else f"{connection.conn_id}: "
            yield CardFinding("unread", level, "", f"{prefix}{connection.problem}", conn_id=connection.conn_id)
        if connection.overview is None:
            continue
        # If a connection is broken, its health data comes from its last successful read, so it is out of date.
        is_old = bool(connection.problem) and some_work
        for finding in judge_overview(connection.overview).findings:
            text = sentence(finding.text)
            if finding.kind == "waiting" and connection.conn_id != requests_from:
                continue
            if text in reported or _is_outdated(finding, overview, is_old=is_old):
                continue
            reported.add(text)
            yield CardFinding(**{**vars(finding), "text": text}, conn_id=connection.conn_id)


def _is_outdated(finding: Finding, overview: Overview | None, *, is_old: bool) -> bool:
    """
    Return whether another connection has newer data about a finding.

    :param finding: the finding.
    :param overview: the overview of the service, with each section from a connection that can read it.
    :param is_old: whether the finding's connection is broken, and another connection works.
    """
    if finding.part == "health" and is_old:
        return True
    is_unread = finding.kind == "unread" and finding.part in _SHARED_SECTIONS
    return is_unread and overview is not None and getattr(overview, finding.part).value is not None
