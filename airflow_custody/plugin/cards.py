"""What a connection's card says first: how the service is, in one line. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

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
    from airflow_custody.plugin.cache import Reading
    from airflow_custody.plugin.positions import ReadPosition

Level = Literal["bad", "unknown", "warning", "good"]

#: The levels, worst first, and the words that stand next to their colours.
WORDS: dict[Level, str] = {"bad": "Trouble", "unknown": "No response", "warning": "Attention", "good": "Healthy"}
_WORST_FIRST = list(WORDS)
#: From when on a webhook call that Airflow has not read is worth a word.
UNREAD_FOR = timedelta(hours=1)

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
    :param position: how far Airflow has read its journal; None: not known.
    """

    conn_id: str
    overview: Overview | None
    findings: tuple[Finding, ...]
    position: ReadPosition | None = None

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

    @property
    def can_be_read(self) -> bool:
        """Whether there is anything to show of the service."""
        return self.overview is not None and _can_be_read(self.overview)

    @property
    def is_all_read(self) -> bool:
        """Whether Airflow has read the newest call of the journal."""
        journal = self.overview.journal.value if self.overview else None
        return bool(journal and self.position and self.position.knows(journal.newest_id, journal.newest_at))

    @property
    def may_have_more_webhooks(self) -> bool:
        """Whether the webhooks are the first ones of more: what is wrong comes first."""
        return self.overview is not None and self.overview.more_webhooks > 0

    def level_of(self, part: str) -> Level | None:
        """Return how a section of the overview is; None if there is nothing to praise and nothing to complain of."""
        found = next((each.level for each in self.findings if each.part == part), None)
        return found or ("good" if self._is_right(part) else None)

    def _is_right(self, part: str) -> bool:
        """Tell whether something is known to be right with a section, of which nothing is known to be wrong."""
        if self.overview is None:
            return False
        if part == "recent":
            recent = self.overview.recent.value
            return bool(recent and recent.rows and all(each.trust == "verified" for each in recent.rows))
        return bool(self.overview.webhooks.value) if part == "webhooks" else part == "journal" and self.is_all_read


def make_card(conn_id: str, reading: Reading[Overview], position: ReadPosition | None, now: datetime) -> Card:
    """
    Return the card of a connection.

    :param conn_id: id of the connection.
    :param reading: what was read of its service.
    :param position: how far Airflow has read its journal; None: not known.
    :param now: the time.
    """
    found = sorted(_findings(reading, position, now), key=lambda each: _WORST_FIRST.index(each.level))
    return Card(conn_id, reading.value, tuple(found), position)


def _findings(reading: Reading[Overview], position: ReadPosition | None, now: datetime) -> Iterator[Finding]:
    overview = reading.value
    if overview is None:
        if reading.late:
            text = reading.problem or "The service has not responded yet. Refresh this page in a moment."
            yield Finding("unknown", "", text)
        else:
            yield Finding("bad", "", reading.problem)
        return
    if reading.late:
        why = reading.problem or "The service has not responded yet to a new reading."
        yield Finding("unknown", "", f"{why} What is shown is older.")
    if not _can_be_read(overview):
        yield Finding("bad", "", f"Nothing of the service can be read: {overview.health.problem}")
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
    yield from _of_journal(overview, position, now)


def _can_be_read(overview: Overview) -> bool:
    return any(getattr(overview, name).value is not None for name in SECTIONS)


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


def _of_journal(overview: Overview, position: ReadPosition | None, now: datetime) -> Iterator[Finding]:
    journal = overview.journal.value
    if journal is None or position is None or journal.newest_at is None:
        return
    if position.knows(journal.newest_id, journal.newest_at):
        return
    unread_for = max(now - journal.newest_at, journal.newest_at - position.read_until)
    if unread_for > UNREAD_FOR and (position.read_at is None or now - position.read_at > UNREAD_FOR):
        yield Finding("warning", "journal", "Airflow has not read the newest webhook calls.")
