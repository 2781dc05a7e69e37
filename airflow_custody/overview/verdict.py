"""The verdict on a service, based on its overview. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from airflow_custody.client.text import count, sanitize
from airflow_custody.client.timestamps import describe_duration
from airflow_custody.client.whitelist.hidden import describe_hidden
from airflow_custody.overview.models import STATES, Overview, RequestRow, RequestsView

if TYPE_CHECKING:
    from airflow_custody.client.verification.trust import ReportedState

Level = Literal["bad", "unknown", "warning", "waiting", "good"]

#: The words for the levels of a service, worst first.
LEVELS: dict[Level, str] = {
    "bad": "Trouble",
    "unknown": "No response",
    "warning": "Attention",
    "waiting": "Waiting",
    "good": "Healthy",
}
_WORST_FIRST = list(LEVELS)
#: The level of a service is ``waiting`` if its oldest pending request is older than this. The time is longer than a
#: weekend, because approvers may be away over a weekend.
LONG = timedelta(days=3)
#: If at least this many requests are pending, one hour is already too long, because the tasks or users that sign so
#: many requests would have begun by then.
MANY, LONG_FOR_MANY = 50, timedelta(hours=1)

#: The titles of the sections of an overview, by attribute.
SECTIONS = {
    "user": "user",
    "health": "health",
    "requests": "whitelisting requests",
    "approvals": "pending this user's approval",
    "webhooks": "webhooks",
    "journal": "newest webhook call",
}
# The sections that every service must offer, and the sections for which every user must have a role.
_MUST_BE_OFFERED = ("health",)
_NEEDS_ROLE = ("health", "requests")


@dataclass(frozen=True)
class Finding:
    """
    A finding about a service.

    :param kind: ``wrong`` (a problem), ``unread`` (a section could not be read), ``note`` (possibly intended),
        ``waiting`` (requests have been pending for long) or ``well``.
    :param level: its severity.
    :param part: its subject: the name of a section of the overview, or of a part of its requests; empty for the whole
        overview.
    :param text: its text.
    :param request_ids: the ids of the whitelisting requests concerned. Default: none.
    """

    kind: Literal["wrong", "unread", "note", "waiting", "well"]
    level: Level
    part: str
    text: str
    request_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """
    The verdict on a service.

    :param findings: the findings, the worst sections first.
    """

    findings: tuple[Finding, ...]

    def texts(self, kind: str) -> tuple[str, ...]:
        """Return the texts of the findings of a kind."""
        return tuple(each.text for each in self.findings if each.kind == kind)

    @property
    def ok(self) -> bool:
        """Whether all required sections could be read, and nothing is wrong."""
        return not self.texts("wrong") and not self.texts("unread")

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        return min((each.level for each in self.findings), key=_WORST_FIRST.index, default="unknown")


def judge_overview(overview: Overview) -> Verdict:
    """
    Return the verdict on an overview.

    The findings are about health; requests that are unverified, unreadable or hidden, or have an unknown state;
    requests that have been pending for long; webhooks that receive no calls; and sections that could not be read.

    :param overview: the overview.
    """
    return Verdict(tuple(_findings(overview)))


def _findings(overview: Overview) -> Iterator[Finding]:
    requests = overview.requests.value
    # Begin with requests in effect, because an unverified address in effect is the worst problem.
    if requests is not None:
        yield from _of_requests(requests.recent, "recent", "effective")
    if (health := overview.health.value) is not None:
        yield Finding(*(("well", "good") if health.healthy else ("wrong", "bad")), "health", health.summary())
    yield from _unread(overview)
    if requests is not None:
        if requests.hidden:
            yield Finding("wrong", "warning", "requests", describe_hidden(requests.hidden))
        yield from _of_requests(requests.unknown, "unknown", "unknown")
        yield from _of_requests(requests.pending, "pending", "pending")
        for row in filter(lambda row: row.deletion_pending, requests.pending.rows):
            text = f"the deletion of {_name(row)} is pending approval; the address stays whitelisted until then"
            yield Finding("note", "warning", "pending", text, (row.id,))
        for ids in requests.in_effect_twice:
            named = [sanitize(each, 40) for each in ids]
            text = f"whitelisting requests {', '.join(named[:-1])} and {named[-1]} are in effect for the same address"
            yield Finding("note", "warning", "recent", text, ids)
        yield from _waiting(requests.pending, overview.read_at)
    for each in filter(lambda each: each.problem, overview.webhooks.value or ()):
        # A disabled webhook is only a note, because it may have been disabled on purpose.
        text = f"webhook {sanitize(each.id, 60)}: {each.problem}"
        yield Finding("wrong" if each.is_faulty else "note", "warning", "webhooks", text)


def _unread(overview: Overview) -> Iterator[Finding]:
    """
    Yield the sections that could not be read.

    Some services offer only the documented operations, so there is no finding about a section, other than health, that
    the service itself says it does not offer. There is also no finding if the user lacks a role for a section, other
    than health and requests.
    """
    sections = {name: getattr(overview, name) for name in SECTIONS}
    if all(each.value is None for each in sections.values()):
        # If no section could be read, report the problem once, because all sections have the same cause.
        yield Finding("unread", "bad", "", overview.health.problem)
        return
    for name, section in sections.items():
        is_fine = (section.not_offered and name not in _MUST_BE_OFFERED) or (
            section.role_missing and name not in _NEEDS_ROLE
        )
        if section.value is None and not is_fine:
            level: Level = "bad" if name == "health" else "warning"
            yield Finding("unread", level, name, f"{SECTIONS[name]}: {section.problem}")


def _waiting(pending: RequestsView, now: datetime) -> Iterator[Finding]:
    """Yield a finding if requests have been pending for long, or if the date of the oldest request is unknown."""
    is_many = pending.total >= MANY
    requests = (
        f"{count(pending.total, 'whitelisting request')} {'is' if pending.total == 1 else 'are'} pending approval"
    )
    if pending.oldest_at is None:
        if is_many:
            yield Finding("waiting", "waiting", "pending", f"{requests}; the date of the oldest is unknown")
        return
    age = now - pending.oldest_at
    if age >= (LONG_FOR_MANY if is_many else LONG):
        since = describe_duration(age.total_seconds())
        text = f"{requests} for {since}" if pending.total == 1 else f"{requests}, the oldest for {since}"
        yield Finding("waiting", "waiting", "pending", text)


def _of_requests(view: RequestsView, part: str, state: ReportedState) -> Iterator[Finding]:
    named = [row for row in view.rows if row.is_faulty]
    for row in named:
        is_unverified = row.trust == "unverified"
        level: Level = "bad" if is_unverified else "warning"
        problem = ": ".join(filter(None, ["not verified" if is_unverified else "", row.problem]))
        yield Finding("wrong", level, part, f"{_name(row)} ({STATES[state]}): {problem}", (row.id,))
    if others := view.faulty - len(named):
        yield Finding("wrong", "warning", part, f"and {count(others, 'more request')} with problems")


def _name(row: RequestRow) -> str:
    return f"whitelisting request {sanitize(row.id, 40)}"


_STATE_LEVELS: dict[ReportedState, Level] = {
    "effective": "good",
    "pending": "waiting",
    "rejected": "warning",
    "unknown": "unknown",
}


def describe_state(row: RequestRow) -> tuple[Level, str]:
    """
    Return a request's state for people: its level, and its words, such as ``in effect, not verified``.

    :param row: the request.
    """
    level, words = _STATE_LEVELS[row.state], STATES[row.state]
    if row.state == "effective" and row.trust != "verified":
        # Without verified signatures, it is not proved that the request is in effect, so its level is not good.
        level = "unknown"
    if row.judged == "missing":
        return "unknown", STATES["missing"]
    if row.trust == "unverified":
        return "bad", f"{words}, {STATES['unverified']}"
    if row.judged == "unreadable":
        return "warning", f"{words}, {STATES['unreadable']}"
    if row.deletion_pending:
        return "warning", f"{words}, deletion pending"
    if row.problem and row.state in ("effective", "pending"):
        return "warning", f"{words}, with a problem"
    return level, words
