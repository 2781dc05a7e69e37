"""What there is to know of a service by its overview, in words, and the overview as plain data. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from airflow_custody.client.text import count, sanitize
from airflow_custody.overview.models import Overview, RequestsView

Level = Literal["bad", "unknown", "warning", "good"]

_MAX_NAMED = 20
_MAX_WORDS = 3
#: The sections of an overview, by their attributes, and what people call them. Those of requests are of one listing.
SECTIONS = {
    "health": "health",
    "pending": "whitelisting requests",
    "recent": "whitelisting requests",
    "unknown": "whitelisting requests",
    "approvals": "pending approvals",
    "webhooks": "webhooks",
    "journal": "journal of webhook calls",
}
#: Those that a service, or a user, may do without: it is no error that the service says that it does not offer them.
_OPTIONAL = ("approvals", "webhooks", "journal")


@dataclass(frozen=True)
class Finding:
    """
    Something to know about a service.

    :param kind: whether something is wrong with the service, a section could not be read, somebody may have meant it,
        or all is well.
    :param level: how bad it is.
    :param part: what it is about: the name of an overview's section, or empty for all of it.
    :param text: what it is.
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
    What there is to know of a service.

    :param findings: all of it, for each section.
    """

    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with the service, in words, the worst first."""
        return self._texts("wrong")

    @property
    def unread(self) -> tuple[str, ...]:
        """The sections that could not be read although they must be, and why."""
        return self._texts("unread")

    @property
    def ok(self) -> bool:
        """Whether all could be read, and nothing is wrong."""
        return not self.wrong and not self.unread

    def _texts(self, kind: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.text for each in self.findings if each.kind == kind))


def judge_overview(overview: Overview) -> Verdict:
    """
    Return what there is to know by an overview: health, requests that do not verify or cannot be read or whose status
    is not known or contradicts where they are listed, webhooks that get no calls, sections that could not be read.

    :param overview: the overview.
    """
    return Verdict(tuple(_findings(overview)))


def to_json(overview: Overview) -> dict[str, Any]:
    """
    Return an overview as plain JSON data: the fields of the models by their names, times as ISO 8601 text; and ``ok``,
    ``wrong`` and ``unread``, the verdict.
    """
    verdict = judge_overview(overview)
    found = {"ok": verdict.ok, "wrong": verdict.wrong, "unread": verdict.unread, **asdict(overview)}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=datetime.isoformat))
    return plain


def describe_deletions(overview: Overview) -> str:
    """Return in words which deletions of addresses in effect are pending; empty: none of those that are shown."""
    ids = _deletions(overview)
    if not ids:
        return ""
    named = ", ".join(sanitize(each, 40) for each in ids[:_MAX_WORDS]) + (", ..." if len(ids) > _MAX_WORDS else "")
    if len(ids) == 1:
        return f"the deletion of whitelisting request {named} is pending approval: it is in effect until then"
    return (
        f"the deletion of {len(ids)} whitelisting requests ({named}) is pending approval: they are in effect until then"
    )


def _deletions(overview: Overview) -> tuple[str, ...]:
    return (
        tuple(row.id for row in overview.pending.value.rows if row.deletion_pending) if overview.pending.value else ()
    )


def _findings(overview: Overview) -> Iterator[Finding]:
    # Nothing is worse than an address in effect that nobody signed.
    yield from _of_requests(overview.recent.value, "recent", "in effect")
    if (health := overview.health.value) is not None and health.healthy:
        yield Finding("well", "good", "health", health.summary)
    elif health is not None:
        yield Finding("wrong", "bad", "health", health.summary)
    yield from _unread(overview)
    yield from _of_requests(overview.unknown.value, "unknown", "status not known")
    if overview.unknown.value is not None and overview.unknown.value.rows:
        yield Finding("wrong", "warning", "unknown", _describe_unknown(overview.unknown.value))
    yield from _of_requests(overview.pending.value, "pending", "pending")
    if deletions := describe_deletions(overview):
        yield Finding("note", "warning", "pending", deletions, _deletions(overview)[:_MAX_WORDS])
    yield from _of_webhooks(overview)


def _unread(overview: Overview) -> Iterator[Finding]:
    """
    Yield the sections that could not be read although they must be.

    Webhooks, their calls and approvals may be missing, if the service itself says that it does not offer them, or not
    to this user. Health and requests may not: what cannot be read is not well.
    """
    sections = {name: getattr(overview, name) for name in SECTIONS}
    if all(each.value is None for each in sections.values()):
        # For one reason, which the first call says.
        yield Finding("unread", "bad", "", overview.health.problem or "nothing was read")
        return
    for name, section in sections.items():
        if section.value is None and not (name in _OPTIONAL and section.not_offered):
            level: Level = "bad" if name == "health" else "warning"
            yield Finding("unread", level, name, f"{SECTIONS[name]}: {section.problem or 'it was not read'}")


def _of_requests(view: RequestsView | None, part: str, where: str) -> Iterator[Finding]:
    if view is None or not view.faulty:
        return
    named = [row for row in view.rows if row.is_faulty][:_MAX_NAMED]
    for row in named:
        request = f"whitelisting request {sanitize(row.id, 40)}"
        why = row.problem.removeprefix(f"{request} ") or "it is not verified"
        level: Level = "bad" if row.trust == "unverified" else "warning"
        yield Finding("wrong", level, part, f"{request} ({where}): {why}", (row.id,))
    if others := view.faulty - len(named):
        yield Finding("wrong", "warning", part, f"and {count(others, 'other request')} with such a problem")


def _describe_unknown(view: RequestsView) -> str:
    words = sorted({sanitize(row.status, 40) for row in view.rows})
    named = ", ".join(repr(each) for each in words[:_MAX_WORDS]) + (", ..." if len(words) > _MAX_WORDS else "")
    requests = count(view.total or len(view.rows), "whitelisting request")
    return f"the status of {requests} is not known ({named}): whether they are in effect is not known"


def _of_webhooks(overview: Overview) -> Iterator[Finding]:
    faulty = [each for each in overview.webhooks.value or () if each.problem]
    for each in faulty[:_MAX_NAMED]:
        text = f"webhook {sanitize(each.id, 60)}: {each.problem}"
        # Somebody may have disabled it.
        yield Finding("wrong" if each.is_faulty else "note", "warning", "webhooks", text)
    others = sum(each.is_faulty for each in faulty[_MAX_NAMED:]) + overview.more_faulty_webhooks
    if others:
        yield Finding("wrong", "warning", "webhooks", f"and {count(others, 'other webhook')} with such a problem")
