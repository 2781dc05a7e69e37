"""The verdict on a service by its overview, in words. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from airflow_custody.client.text import count, sanitize
from airflow_custody.overview.models import Overview, RequestRow

Level = Literal["bad", "unknown", "warning", "good"]

_MAX_NAMED = 20
#: The sections of an overview, by their attributes, with their titles. Those of requests come from one listing.
SECTIONS = {
    "user": "user",
    "health": "health",
    "pending": "whitelisting requests",
    "recent": "whitelisting requests",
    "unknown": "whitelisting requests",
    "approvals": "pending approvals",
    "webhooks": "webhooks",
    "journal": "journal of webhook calls",
}
#: The optional sections: it is no error if the service says that it does not offer them.
_OPTIONAL = ("user", "approvals", "webhooks", "journal")


@dataclass(frozen=True)
class Finding:
    """
    A finding about a service.

    :param kind: whether something is wrong with the service, a section could not be read, somebody may have meant it,
        or all is well.
    :param level: its severity.
    :param part: its subject: the name of an overview's section, or empty for all of it.
    :param text: its text.
    :param request_ids: the whitelisting requests that it is about. Default: none.
    """

    kind: Literal["wrong", "unread", "note", "well"]
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
        return tuple(dict.fromkeys(each.text for each in self.findings if each.kind == kind))

    @property
    def ok(self) -> bool:
        """Whether all required sections could be read, and nothing is wrong."""
        return not self.texts("wrong") and not self.texts("unread")


def judge_overview(overview: Overview) -> Verdict:
    """
    Return the verdict on an overview: health, requests that do not verify or cannot be read or whose state is not
    known, webhooks that get no calls, sections that could not be read.

    :param overview: the overview.
    """
    return Verdict(tuple(_findings(overview)))


def _findings(overview: Overview) -> Iterator[Finding]:
    # Nothing is worse than an address in effect that nobody signed.
    yield from _of_requests(overview, "recent", "in effect")
    if (health := overview.health.value) is not None:
        yield Finding(*(("well", "good") if health.healthy else ("wrong", "bad")), "health", health.summary)
    yield from _unread(overview)
    yield from _of_requests(overview, "unknown", "status not known")
    yield from _of_requests(overview, "pending", "pending")
    for row in overview.pending.value.rows[:_MAX_NAMED] if overview.pending.value else ():
        if row.deletion_pending:
            text = f"the deletion of {_name(row)} is pending approval: it is in effect until then"
            yield Finding("note", "warning", "pending", text, (row.id,))
    for ids in overview.in_effect_twice[:_MAX_NAMED]:
        named = [sanitize(each, 40) for each in ids]
        text = f"whitelisting requests {', '.join(named[:-1])} and {named[-1]} are in effect for the same address"
        yield Finding("note", "warning", "recent", text, ids)
    if others := len(overview.in_effect_twice[_MAX_NAMED:]):
        yield Finding(
            "note", "warning", "recent", f"and requests for {count(others, 'other address', 'other addresses')}"
        )
    webhooks = overview.webhooks.value or ()
    # Somebody may have disabled one.
    for each in filter(lambda each: each.problem, webhooks[:_MAX_NAMED]):
        text = f"webhook {sanitize(each.id, 60)}: {each.problem}"
        yield Finding("wrong" if each.is_faulty else "note", "warning", "webhooks", text)
    if others := sum(each.is_faulty for each in webhooks[_MAX_NAMED:]):
        yield Finding("wrong", "warning", "webhooks", f"and {count(others, 'other webhook')} with such a problem")


def _unread(overview: Overview) -> Iterator[Finding]:
    """
    Yield the required sections that could not be read.

    Webhooks, their calls and approvals may be missing, if the service itself says that it does not offer them, or not
    to this user. Health and requests may not: if they cannot be read, the service does not count as healthy.
    """
    sections = {name: getattr(overview, name) for name in SECTIONS}
    if all(each.value is None for each in sections.values()):
        # All of them for one reason, which the first call gives.
        yield Finding("unread", "bad", "", overview.health.problem or "nothing was read")
        return
    for name, section in sections.items():
        if section.value is None and not (name in _OPTIONAL and section.not_offered):
            level: Level = "bad" if name == "health" else "warning"
            yield Finding("unread", level, name, f"{SECTIONS[name]}: {section.problem or 'it was not read'}")


def _of_requests(overview: Overview, part: str, where: str) -> Iterator[Finding]:
    view = getattr(overview, part).value
    if view is None:
        return
    named = [row for row in view.rows if row.is_faulty][:_MAX_NAMED]
    for row in named:
        why = row.problem.removeprefix(f"{_name(row)} ").removeprefix("is ") or "not verified"
        level: Level = "bad" if row.trust == "unverified" else "warning"
        yield Finding("wrong", level, part, f"{_name(row)} ({where}): {why}", (row.id,))
    if others := view.faulty - len(named):
        yield Finding("wrong", "warning", part, f"and {count(others, 'other request')} with such a problem")


def _name(row: RequestRow) -> str:
    return f"whitelisting request {sanitize(row.id, 40)}"
