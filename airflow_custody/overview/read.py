"""Reading an overview section by section, so that an unreadable one does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.health.verdict import HealthCriteria, judge
from airflow_custody.client.text import read_number, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES, RequestState
from airflow_custody.client.webhooks.state import cooling_until, has_status
from airflow_custody.client.webhooks.urls import without_secrets
from airflow_custody.client.whitelist.listing import Listing, fetch_for_approval, fetch_listing
from airflow_custody.overview.budget import Budget, Describe, describe_problem, read_section
from airflow_custody.overview.models import (
    CheckRow,
    GroupHealth,
    HealthView,
    JournalView,
    Overview,
    RequestsView,
    Section,
    WebhookRow,
)
from airflow_custody.overview.rows import bound, make_row, with_paths

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health.models import HealthCheck
    from airflow_custody.client.webhooks.models import WireWebhook
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

#: Seconds for all of an overview.
DEFAULT_DEADLINE = 30.0
#: Maximum numbers of rows in an overview.
MAX_PENDING = 200
MAX_RECENT = 20
MAX_UNKNOWN = 50
MAX_WEBHOOKS = 200
#: Maximum number of requests to read, in a call for each hundred.
MAX_LISTED = 5_000
_MAX_ROWS: dict[RequestState, int] = {"pending": MAX_PENDING, "effective": MAX_RECENT, "unknown": MAX_UNKNOWN}
_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_EVER = datetime.min.replace(tzinfo=timezone.utc)


def read_overview(
    client: CustodyClient,
    *,
    deadline: float = DEFAULT_DEADLINE,
    max_listed: int = MAX_LISTED,
    describe: Describe = describe_problem,
) -> Overview:
    """
    Read an overview of a service, one section after another. It changes nothing.

    A section that cannot be read has a ``problem``; nothing is raised. The signatures of all requests that are listed,
    except for rejected ones, are verified if keys are pinned. The shown fields of a request are those of the text that
    its hash covers.

    :param client: the client. Its time-out and its retries hold for each call: see
        :func:`~airflow_custody.overview.budget.for_people`.
    :param deadline: seconds for all of it. A section that has not begun by then is not read, and says so. Default 30.
    :param max_listed: maximum number of whitelisting requests to read, in a call for each hundred: the service cannot
        list only pending or only recent ones. Of a larger whitelist, only the pending ones are shown that the client's
        user may approve, and the other sections of requests have a ``problem``. Default 5,000.
    :param describe: describes why a section could not be read. Default: by the error's own text.
    :return: the overview.
    """
    budget = Budget(deadline)
    section = partial(read_section, describe=describe)
    now = datetime.now(timezone.utc)
    with client.check_calls(lambda operation: budget.check()):
        health = section(lambda: _health(client.list_health_checks(), now))
        requests = section(lambda: _requests(client, budget, max_listed, describe))
        approvals = section(client.get_pending_approvals)
        webhooks = section(lambda: _webhooks(client.list_webhooks(), now))
        journal = section(lambda: _journal(client))
    # They are of one listing.
    unread = dict.fromkeys(("pending", "recent", "unknown"), requests)
    left_out = (webhooks.value or ())[MAX_WEBHOOKS:]
    return Overview(
        read_at=now,
        base_url=client.settings.base_url,
        health=health,
        approvals=approvals,
        webhooks=replace(webhooks, value=webhooks.value[:MAX_WEBHOOKS]) if webhooks.value else webhooks,
        more_webhooks=len(left_out),
        more_faulty_webhooks=sum(each.is_faulty for each in left_out),
        journal=journal,
        **(unread if requests.value is None else requests.value),
    )


# --- health ------------------------------------------------------------------------------------------------


def _health(checks: list[HealthCheck], now: datetime) -> HealthView:
    verdict = judge(checks, HealthCriteria(), now)
    problems = {id(each.check): each.reason for each in verdict.problems if each.check is not None}
    rows = [
        CheckRow(
            group=bound(each.listed_under),
            component=bound(each.component_name),
            check=bound(each.health_check),
            healthy=id(each) not in problems,
            status=bound(each.status),
            problem=problems.get(id(each), ""),
            updated_at=each.last_update_date,
        )
        for each in checks
    ]
    rows.sort(key=lambda row: (row.healthy, row.group, row.component, row.check))
    groups = [GroupHealth(bound(name), each.total, each.unhealthy) for name, each in verdict.groups.items()]
    groups.sort(key=lambda group: (group.unhealthy == 0, group.group))
    return HealthView(
        healthy=verdict.healthy,
        summary=verdict.summary(),
        checks=tuple(rows),
        groups=tuple(groups),
        problems=tuple(each.reason for each in verdict.problems if each.check is None),
        total=verdict.total,
        unhealthy=verdict.unhealthy,
        oldest_at=verdict.oldest_update,
    )


# --- whitelisting requests ---------------------------------------------------------------------------------


def _requests(client: CustodyClient, budget: Budget, max_listed: int, describe: Describe) -> dict[str, Any]:
    """Return the sections about requests, by the names of the overview's attributes."""
    total = client.count_whitelist_requests()
    if total is not None and total > max_listed:
        return _of_large(client, budget, total, describe)
    listing = fetch_listing(client, sleep=budget.sleep)
    found: dict[str, list[WhitelistEnvelope]] = {"pending": [], "unchanged": [], "differs": [], "rejected": []}
    for each in listing.envelopes:
        found[listing.state_of(each, EFFECTIVE_STATUSES, REJECTED_STATUSES)].append(each)
    view = partial(_view, listing=listing, budget=budget)
    return {
        "pending": Section(view([*found["pending"], *listing.deletions], "pending")),
        "recent": Section(view(found["unchanged"], "effective")),
        "unknown": Section(view(found["differs"], "unknown")),
        "rejected": len(found["rejected"]),
    }


def _of_large(client: CustodyClient, budget: Budget, listed: int, describe: Describe) -> dict[str, Any]:
    """Return the sections about requests without reading all of a large whitelist."""
    too_many = f"The service lists {listed} requests, too many to read here"
    unread: Section[RequestsView] = Section(problem=f"{too_many}. Use 'custody status --max-listed {listed}'.")

    def pending() -> RequestsView:
        listing = fetch_for_approval(client)
        view = _view([*listing.envelopes, *listing.deletions], "pending", listing=listing, budget=budget)
        # The number of requests that only others may approve is not known.
        note = f"{too_many}: only those are shown that the connection's user may approve."
        return replace(view, total=None, note=note, oldest_at=None)

    return {"pending": read_section(pending, describe), "recent": unread, "unknown": unread}


def _view(
    envelopes: Iterable[WhitelistEnvelope], state: RequestState, *, listing: Listing, budget: Budget
) -> RequestsView:
    """
    Return the requests of one state, first those that cannot be verified or read, whatever their dates.

    :param envelopes: the requests.
    :param state: their state.
    :param listing: the listing that they are in.
    :param budget: the time limit.
    """
    deleted = {each.id for each in listing.deletions}
    found = []
    for envelope in sorted(envelopes, key=_age_order if state == "pending" else _last_change):
        budget.check()
        doubt = listing.doubt(envelope, EFFECTIVE_STATUSES, REJECTED_STATUSES) if state == "pending" else ""
        row = make_row(envelope, state, listing.verifier, doubt=doubt, deletion_pending=envelope.id in deleted)
        found.append((row, envelope))
    if state != "pending":
        found.reverse()
    found.sort(key=lambda each: (each[0].trust != "unverified", not each[0].is_faulty))
    shown, others = found[: _MAX_ROWS[state]], found[_MAX_ROWS[state] :]
    # The service does not say when a deletion was requested.
    dates = [row.created_at for row, _ in found if not row.deletion_pending]
    known = [each for each in dates if each is not None]
    return RequestsView(
        tuple(with_paths(*each, listing.verifier) if state == "pending" else each[0] for each in shown),
        total=len(found),
        more_faulty=sum(row.is_faulty for row, _ in others),
        oldest_at=min(known) if known and len(known) == len(dates) else None,
    )


def _age_order(envelope: WhitelistEnvelope) -> tuple[datetime, int]:
    return envelope.created_at or _NEVER, read_number(envelope.id, MAX_ID) or 0


def _last_change(envelope: WhitelistEnvelope) -> tuple[datetime, int]:
    dates = (parse_timestamp(trail.get("date")) for trail in envelope.trails)
    return max(filter(None, dates), default=_EVER), read_number(envelope.id, MAX_ID) or 0


# --- webhooks ----------------------------------------------------------------------------------------------


def _webhooks(webhooks: Iterable[WireWebhook], now: datetime) -> tuple[WebhookRow, ...]:
    """Return all webhooks: faulty ones first, then those that somebody may have disabled, then the others."""
    rows = [_webhook_row(each, now) for each in webhooks]
    return tuple(sorted(rows, key=lambda row: (not row.is_faulty, not row.problem, row.type, row.url)))


def _webhook_row(webhook: WireWebhook, now: datetime) -> WebhookRow:
    return WebhookRow(
        id=bound(webhook["id"]),
        type=bound(webhook.get("type")),
        url=bound(without_secrets(webhook.get("url"))),
        status=bound(webhook.get("status")),
        timeout_until=parse_timestamp(webhook.get("timeoutUntil")),
        problem=_webhook_problem(webhook, now),
        disabled=has_status(webhook, "disabled"),
    )


def _webhook_problem(webhook: WireWebhook, now: datetime) -> str:
    if has_status(webhook, "disabled"):
        return "It is disabled: nothing is delivered."
    if until := cooling_until(webhook, now):
        return f"It is cooling down until {until}, as deliveries failed."
    if not webhook.get("status"):
        return "The service does not say its status."
    if has_status(webhook, "enabled"):
        return ""
    return f"Its status is {sanitize(webhook['status'], 60)!r}, which is not known."


def _journal(client: CustodyClient) -> JournalView:
    newest = client.get_newest_webhook_call()
    if newest is None:
        return JournalView()
    return JournalView(newest_at=newest.created_at, newest_id=bound(newest.id))
