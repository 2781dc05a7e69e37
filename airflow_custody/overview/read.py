"""Reads an overview; an unreadable section does not affect the other sections."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeVar

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.health.verdict import HealthCriteria, judge
from airflow_custody.client.secrets import without_secrets
from airflow_custody.client.text import read_number, sanitize
from airflow_custody.client.webhooks.models import cooling_until, has_status
from airflow_custody.client.whitelist.matching import find_duplicates
from airflow_custody.client.whitelist.request import Request, judge_request
from airflow_custody.client.whitelist.snapshot import read_snapshot
from airflow_custody.overview.models import (
    JournalView,
    Overview,
    RequestRow,
    Requests,
    RequestsView,
    Section,
    UserView,
    WebhookRow,
)
from airflow_custody.overview.request import bound, make_row, signing_paths

if TYPE_CHECKING:
    from airflow_custody.client import ClientSettings, CustodyClient
    from airflow_custody.client.verification.trust import ReportedState
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.webhooks.models import WireWebhook
    from airflow_custody.client.whitelist.snapshot import Snapshot
    from airflow_custody.overview.models import SignatureCounts

T = TypeVar("T")

#: Maximum numbers of rows in an overview.
_MAX_ROWS: dict[ReportedState, int] = {"pending": 200, "effective": 20, "unknown": 50}
#: Maximum number of characters of each text of a request in the list of all requests, which the page keeps in memory.
_MAX_LISTED_TEXT = 600
#: Maximum time-out of one call, in seconds. It is short because users who look at a page wait less long than tasks.
MAX_TIMEOUT = 10.0
#: Maximum response size, in bytes. Parsing a response blocks all other threads of the process.
MAX_RESPONSE_BYTES = 8 * 1024 * 1024


def for_people(settings: ClientSettings) -> ClientSettings:
    """
    Return client settings for interactive use.

    Calls have a short time-out and no retries, and the size of responses is limited.

    :param settings: the connection's settings.
    """
    return replace(
        settings,
        timeout=min(settings.timeout, MAX_TIMEOUT),
        max_retries=0,
        max_response_bytes=min(settings.max_response_bytes, MAX_RESPONSE_BYTES),
    )


def read_overview(
    client: CustodyClient,
    *,
    max_listed: int | None = None,
    keep_all: bool = False,
    describe: Callable[[CustodyError], str] = lambda error: error.shorten(600),
) -> Overview:
    """
    Read an overview of a service, without changing anything.

    The sections are read one after another. A section that cannot be read has a ``problem``, and no
    :class:`CustodyError` is raised. If keys are pinned, the signatures of all listed requests except rejected ones are
    verified. The fields of a request are read from the text that its hash covers.

    :param client: the client. Its time-out and retries apply to each call: see :func:`for_people`.
    :param max_listed: maximum number of whitelisting requests to read. Each call lists a hundred of them, and the
        service cannot list only pending or only recent ones. If there are more than the maximum, none is read.
        Default: no maximum.
    :param keep_all: whether the overview lists every request, and not only the first of each kind. Default False.
    :param describe: describes why a section could not be read. Default: the error's own text.
    :return: the overview.
    """

    def section(read: Callable[[], T | None], if_none: str = "") -> Section[T]:
        try:
            value = read()
            return Section(value, if_none if value is None else "")
        except CustodyError as error:
            # ``not_offered`` is only set for a response of the service itself: a gateway's rejection does not mean that
            # the service lacks the operation.
            return Section(
                problem=describe(error),
                not_offered=error.not_offered_by_service,
                role_missing=error.is_missing_role,
            )

    def read_requests() -> Requests | None:
        is_small = max_listed is None or (client.count_whitelist_requests() or 0) <= max_listed
        return _requests(read_snapshot(client), keep_all=keep_all) if is_small else None

    now = datetime.now(timezone.utc)
    too_many = f"There are more than {max_listed} requests, too many to read here. 'custody status' reads all of them."
    return Overview(
        read_at=now,
        base_url=client.settings.base_url,
        pinned=client.verifier is not None,
        user=section(lambda: _user(client)),
        health=section(lambda: judge(client.list_health_checks(), HealthCriteria(), now)),
        requests=section(read_requests, too_many),
        approvals=section(client.get_pending_approvals),
        webhooks=section(lambda: _webhooks(client.list_webhooks(), now)),
        journal=section(lambda: _journal(client)),
    )


def _user(client: CustodyClient) -> UserView:
    user = client.get_current_user()
    return UserView(
        name=bound(user.get("externalUserId") or user.get("id")),
        tenant_id=bound(user.get("tenantId")),
        roles=tuple(map(bound, user.get("roles") or ())),
    )


def _requests(snapshot: Snapshot, *, keep_all: bool) -> Requests:
    found: dict[ReportedState, list[Request]] = {"pending": [], "effective": [], "unknown": [], "rejected": []}
    for each in snapshot:
        found[each.reported].append(each)
        if each.deletion_pending and each.for_approval is not None:
            # List a request whose deletion is pending twice: it is in effect, and its deletion needs approval.
            pending = judge_request(each.for_approval, "pending", snapshot.verifier)
            found["pending"].append(replace(pending, deletion_pending=True))
    effective = sorted(found["effective"], key=lambda each: read_number(each.id, MAX_ID) or 0)
    return Requests(
        pending=_view(found["pending"], "pending", snapshot.verifier),
        recent=_view(found["effective"], "effective", snapshot.verifier),
        unknown=_view(found["unknown"], "unknown", snapshot.verifier),
        in_effect_twice=tuple(find_duplicates(effective)),
        hidden=snapshot.hidden,
        listed=_list_all(snapshot) if keep_all else (),
    )


def _list_all(snapshot: Snapshot) -> tuple[RequestRow, ...]:
    """Return a row for each request, the newest first."""
    # Most requests need the same signatures. To save memory, equal tuples of signature counts are stored only once.
    kept: dict[object, tuple[tuple[SignatureCounts, ...], ...]] = {}
    rows = []
    for each in snapshot:
        row = make_row(each, snapshot.verifier)
        paths = signing_paths(each, snapshot.verifier) if row.state == "pending" and row.address else ()
        values = {each.name: getattr(row, each.name) for each in fields(row)}
        short = {name: value[:_MAX_LISTED_TEXT] for name, value in values.items() if isinstance(value, str)}
        rows.append(RequestRow(**{**values, **short, "paths": kept.setdefault(paths, paths)}))
    return tuple(sorted(rows, key=lambda row: read_number(row.id, MAX_ID) or 0, reverse=True))


def _view(requests: Iterable[Request], state: ReportedState, verifier: Verifier | None) -> RequestsView:
    """
    Return the requests of one state, in display order.

    Unverified requests come first, then other faulty requests, then all others. Within each of these parts, pending
    requests begin with the oldest, and requests in another state begin with the newest.
    """

    def order(found: tuple[RequestRow, Request]) -> tuple[bool, bool, float, int]:
        row, _ = found
        when, sign = (row.created_at, 1) if state == "pending" else (row.changed_at, -1)
        number = read_number(row.id, MAX_ID) or 0
        age = sign * when.timestamp() if when else math.inf
        return row.trust != "unverified", not row.is_faulty, age, sign * number

    rows = [(make_row(each, verifier), each) for each in requests]
    rows.sort(key=order)
    # Leave out pending deletions, because the service does not report when a deletion was requested.
    dates = [row.created_at for row, _ in rows if not row.deletion_pending]
    return RequestsView(
        tuple(
            replace(row, paths=signing_paths(each, verifier)) if state == "pending" and row.address else row
            for row, each in rows[: _MAX_ROWS[state]]
        ),
        total=len(rows),
        faulty=sum(row.is_faulty for row, _ in rows),
        oldest_at=None if None in dates else min(filter(None, dates), default=None),
    )


def _webhooks(webhooks: Iterable[WireWebhook], now: datetime) -> tuple[WebhookRow, ...]:
    """Return all webhooks: faulty, then disabled, then working ones."""
    rows = [
        WebhookRow(
            id=bound(each["id"]),
            type=bound(each.get("type")),
            url=bound(without_secrets(each.get("url"))),
            status=bound(each.get("status")),
            problem=_webhook_problem(each, now),
            disabled=has_status(each, "disabled"),
        )
        for each in webhooks
    ]
    return tuple(sorted(rows, key=lambda row: (not row.is_faulty, not row.problem, row.type, row.url)))


def _webhook_problem(webhook: WireWebhook, now: datetime) -> str:
    if has_status(webhook, "disabled"):
        return "It is disabled: nothing is delivered."
    if until := cooling_until(webhook, now):
        return f"It is cooling down until {until}, because deliveries failed."
    if has_status(webhook, "enabled"):
        return ""
    return f"Its status is not recognized: {sanitize(webhook.get('status') or '', 60)!r}."


def _journal(client: CustodyClient) -> JournalView:
    newest = client.get_newest_webhook_call()
    return JournalView() if newest is None else JournalView(newest.created_at, bound(newest.id))
