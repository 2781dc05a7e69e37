"""What is wrong by an overview, and the overview as plain data. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from airflow_custody.client.text import count, sanitize
from airflow_custody.overview.models import Overview, RequestRow, RequestsView, Section

_MAX_NAMED = 20
_MAX_WORDS = 3
#: The sections of an overview, by their attributes, and what people call them.
SECTIONS = {
    "health": "health",
    "pending": "pending requests",
    "recent": "latest requests in effect",
    "unknown": "requests whose status is not known",
    "approvals": "pending approvals",
    "webhooks": "webhooks",
    "journal": "journal of webhook calls",
}
#: Those that a service, or a user, may do without: it is no error that the service says that it does not offer them.
_OPTIONAL = ("approvals", "webhooks", "journal")


@dataclass(frozen=True)
class Verdict:
    """
    What is wrong by an overview.

    :param wrong: what is wrong with the service, in words, the worst first.
    :param unread: the sections that could not be read, and why: see :func:`unread_sections`.
    """

    wrong: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all could be read, and nothing is wrong."""
        return not self.wrong and not self.unread


def judge_overview(overview: Overview) -> Verdict:
    """
    Return what is wrong by an overview: health, requests that do not verify or cannot be read or whose status is not
    known or contradicts where they are listed, webhooks that get no calls although nobody disabled them.

    :param overview: the overview.
    """
    unread = tuple(_unread(overview))
    return Verdict(tuple(_wrong(overview)), unread)


def unread_sections(overview: Overview) -> dict[str, str]:
    """
    Return the sections that could not be read although they must be, by name, and why.

    Webhooks, their calls and approvals may be missing, if the service itself says that it does not offer them, or not
    to this user. Health and requests may not: what cannot be read is not well.

    :param overview: the overview.
    """
    found = {}
    for name in SECTIONS:
        section: Section[Any] = getattr(overview, name)
        if section.value is None and not (name in _OPTIONAL and section.not_offered):
            found[name] = section.problem or "it was not read"
    return found


def to_json(overview: Overview) -> dict[str, Any]:
    """
    Return an overview as plain JSON data: the fields of the models by their names, times as ISO 8601 text; and ``ok``,
    ``wrong`` and ``unread``, the verdict.
    """
    verdict = judge_overview(overview)
    found = {"ok": verdict.ok, "wrong": verdict.wrong, "unread": verdict.unread, **asdict(overview)}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=datetime.isoformat))
    return plain


def _wrong(overview: Overview) -> Iterator[str]:
    if overview.health.value is not None and not overview.health.value.healthy:
        yield overview.health.value.summary
    groups = ((overview.recent, "in effect"), (overview.unknown, "status not known"), (overview.pending, "pending"))
    named = [each for section, words in groups for each in _faulty(section, words)][:_MAX_NAMED]
    yield from named
    if others := sum(each.value.faulty for each, _ in groups if each.value is not None) - len(named):
        yield f"and {count(others, 'other request')} with such a problem"
    if overview.unknown.value is not None and overview.unknown.value.total:
        yield describe_unknown(overview.unknown.value)
    for webhook in overview.webhooks.value or ():
        if webhook.is_faulty:
            yield f"webhook {sanitize(webhook.id, 60)}: {webhook.problem}"
    if overview.more_faulty_webhooks:
        yield f"and {count(overview.more_faulty_webhooks, 'other webhook')} with such a problem"


def describe_deletions(overview: Overview) -> str:
    """Return in words which deletions of addresses in effect are pending; empty: none of those that are shown."""
    ids = [row.id for row in deleted_rows(overview)]
    named = ", ".join(sanitize(each, 40) for each in ids[:_MAX_WORDS]) + (", ..." if len(ids) > _MAX_WORDS else "")
    if len(ids) == 1:
        return f"the deletion of whitelisting request {named} is pending approval: it is in effect until then"
    if not ids:
        return ""
    requests = count(len(ids), "whitelisting request")
    return f"the deletion of {requests} ({named}) is pending approval: they are in effect until then"


def deleted_rows(overview: Overview) -> list[RequestRow]:
    """Return the requests in effect whose deletion is pending, of those that are shown as pending."""
    return [row for row in overview.pending.value.rows if row.deletion_pending] if overview.pending.value else []


def describe_unknown(view: RequestsView) -> str:
    """Return in words what is wrong with requests whose status is not known."""
    words = sorted({sanitize(row.status, 40) for row in view.rows})
    named = ", ".join(repr(each) for each in words[:_MAX_WORDS]) + (", ..." if len(words) > _MAX_WORDS else "")
    return (
        f"the status of {count(view.total or len(view.rows), 'whitelisting request')} is not known ({named}): whether "
        "they are in effect is not known"
    )


def _faulty(section: Section[RequestsView], where: str) -> Iterator[str]:
    for row in section.value.rows if section.value is not None else ():
        if row.is_faulty:
            yield f"whitelisting request {sanitize(row.id, 40)} ({where}): {describe_fault(row)}"


def describe_fault(row: RequestRow) -> str:
    """Return in words what is wrong with a request, after its id."""
    start = f"whitelisting request {sanitize(row.id, 40)} "
    return row.problem.removeprefix(start) or "it is not verified"


def _unread(overview: Overview) -> Iterator[str]:
    unread = unread_sections(overview)
    if len(unread) == len(SECTIONS):
        # For one reason, which the first call says.
        yield overview.health.problem
        return
    said: set[str] = set()
    for name, problem in unread.items():
        # Some are of one listing.
        if name not in ("recent", "unknown") or problem not in said:
            yield f"{SECTIONS[name]}: {problem}"
        said.add(problem)
