"""The command that shows what a person needs to know of a service at a glance."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, Command, option
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client
from airflow_custody.cli.output import Output
from airflow_custody.client.text import count, count_of, read_number, sanitize
from airflow_custody.client.text_table import format_table

if TYPE_CHECKING:
    from airflow_custody.overview.models import Overview, RequestRow, RequestsView, Section

#: Those of ``airflow_custody.overview``.
DEFAULT_MAX_LISTED = 5_000
DEFAULT_DEADLINE = 30
_MAX_LISTED = 1_000_000
_MAX_ROWS = 50
_MAX_CELL = 100
_MAX_LINE = 600
_TRUST = {"verified": "verified", "unverified": "UNVERIFIED", "unsigned": "no signatures", "not checked": "not checked"}


def show_status(args: Namespace, output: Output) -> int:
    """
    Show what a person needs to know of a service at a glance, what is wrong first: its health,
    the whitelisting requests that are pending approval and those that took effect last, what else
    the user may approve, the webhooks, and the newest webhook call. What the page Custody in
    Airflow's UI says of a service, except for how far Airflow has read its webhook calls. It
    changes nothing.

    With pinned keys, all requests that are listed are verified, except for rejected ones, and those
    that fail are shown first.

    A part that cannot be read hides no other. Webhooks, their calls and what the user may approve
    may be missing: that the service does not offer them, or not to this user, is no error. Health
    and requests may not.

    A call takes 10 s at most and is not repeated, whatever --timeout and --max-retries say; no call
    begins after 30 s, or --deadline.

    Exit codes: 0 all well, also if requests are pending or a webhook is disabled; 2 the service is
    not healthy, a request does not verify, cannot be read or has a status that is not known or
    contradicts where it is listed, or a webhook is cooling down; 1 error, also if nothing is wrong
    and a part could not be read.

    JSON: {"ok", "wrong", "unread", "read_at", "base_url", the parts "health", "pending", "recent",
    "unknown", "approvals", "webhooks", "journal", and the numbers "rejected", "more_webhooks" and
    "more_faulty_webhooks": those above 200, and what is wrong among them}. Each part is {"value",
    "problem", "not_offered", "not_permitted"}; the value is null if it could not be read. Times are
    ISO 8601 text, null where there is none. Texts in it are the service's, and may be anything.
    """
    from airflow_custody.overview import read_overview
    from airflow_custody.overview.budget import for_people
    from airflow_custody.overview.verdict import judge_overview, to_json

    with open_client(args, for_people) as client:
        overview = read_overview(client, deadline=args.deadline, max_listed=args.max_listed)
    verdict = judge_overview(overview)
    output.data(to_json(overview), status_lines(overview))
    if verdict.wrong:
        return CHANGES
    return ERROR if verdict.unread else NOTHING_TO_DO


def status_lines(overview: Overview) -> Iterator[str]:
    """Yield an overview as lines of plain text."""
    from airflow_custody.overview.verdict import describe_deletions, judge_overview

    verdict = judge_overview(overview)
    for each in verdict.wrong:
        yield f"WRONG: {sanitize(each, _MAX_LINE)}"
    for each in verdict.unread:
        yield f"NOT READ: {sanitize(each, _MAX_LINE)}"
    if deletions := describe_deletions(overview):
        yield f"PENDING: {sanitize(deletions, _MAX_LINE)}"
    where = f"{sanitize(overview.base_url)}, at {_time(overview.read_at)}"
    yield f"all well at {where}" if verdict.ok else f"not all well at {where}"
    for title, section, lines in (
        ("HEALTH", overview.health, _health),
        ("PENDING", overview.pending, _pending),
        ("STATUS NOT KNOWN", overview.unknown, _unknown),
        ("LATEST IN EFFECT", overview.recent, _recent),
        ("PENDING THIS USER'S APPROVAL", overview.approvals, _approvals),
        ("WEBHOOKS", overview.webhooks, _webhooks),
        ("NEWEST WEBHOOK CALL", overview.journal, _journal),
    ):
        if title == "STATUS NOT KNOWN" and not (overview.unknown.value and overview.unknown.value.rows):
            # Seldom; that it could not be read stands above.
            continue
        yield ""
        yield title
        yield from _part(section, lines, overview.read_at)
        if title == "LATEST IN EFFECT" and overview.rejected:
            yield f"  {count(overview.rejected, 'rejected request')} not shown"
        if title == "WEBHOOKS" and overview.more_webhooks:
            yield f"  {count(overview.more_webhooks, 'other webhook')} not shown"


def _part(section: Section[Any], lines: Any, now: datetime) -> Iterator[str]:
    if section.value is None:
        why = "not permitted" if section.not_permitted else "not offered" if section.not_offered else "not read"
        yield f"  {why}: {sanitize(section.problem, _MAX_LINE)}"
        return
    for line in lines(section.value, now):
        yield f"  {line}"


def _health(health: Any, now: datetime) -> Iterator[str]:
    age = f"; the oldest result is {_age(health.oldest_at, now)} old" if health.oldest_at is not None else ""
    if health.oldest_at is None and health.total:
        age = "; how old the oldest result is, is not known: not all checks say readably when they last ran"
    if health.unhealthy:
        yield f"NOT HEALTHY: {count_of(health.unhealthy, health.total, 'check')} not healthy{age}"
    else:
        yield f"{'healthy' if health.healthy else 'NOT HEALTHY'}: {count(health.total, 'check')}{age}"
    for problem in health.problems:
        yield sanitize(problem, _MAX_LINE)
    rows = [(each.group, each.component, each.check, each.status, each.problem) for each in health.checks]
    rows = [row for row in rows if row[-1]]
    if rows:
        yield from _table(("GROUP", "COMPONENT", "CHECK", "STATUS", "PROBLEM"), rows)
    yield from _table(
        ("GROUP", "CHECKS", "NOT HEALTHY"), [(each.group, each.total, each.unhealthy or "-") for each in health.groups]
    )


def _pending(view: RequestsView, now: datetime) -> Iterator[str]:
    total = f"at least {len(view.rows)}" if view.total is None else str(view.total or "none")
    yield f"{total} pending approval" + (
        f"; {len(view.rows)} shown" if view.total not in (None, len(view.rows)) else ""
    )
    if view.note:
        yield sanitize(view.note, _MAX_LINE)
    if view.rows:
        yield from _table(
            ("ID", "AGE", "CHAIN", "ADDRESS", "LABEL", "SIGNATURES", "VERIFIED"),
            [
                (row.id, _age(_since(row), now), row.chain, row.address, row.label, _signatures(row), _trust(row))
                for row in view.rows
            ],
        )


def _unknown(view: RequestsView, now: datetime) -> Iterator[str]:
    yield from _table(
        ("ID", "STATUS", "SINCE", "CHAIN", "ADDRESS", "LABEL", "VERIFIED"),
        [
            (row.id, row.status, _age(row.changed_at, now), row.chain, row.address, row.label, _trust(row))
            for row in view.rows
        ],
    )


def _recent(view: RequestsView, now: datetime) -> Iterator[str]:
    if not view.rows:
        yield "none"
        return
    yield from _table(
        ("ID", "SINCE", "CHAIN", "ADDRESS", "LABEL", "VERIFIED"),
        [(row.id, _age(row.changed_at, now), row.chain, row.address, row.label, _trust(row)) for row in view.rows],
    )


def _approvals(approvals: Any, now: datetime) -> Iterator[str]:
    # Who may sign, the service decides: the groups of the table above do not show who is in them.
    yield f"the service counts {', '.join(approvals.texts)}" if approvals.total else "nothing, as the service counts"


def _webhooks(webhooks: Any, now: datetime) -> Iterator[str]:
    if not webhooks:
        yield "none"
        return
    yield from _table(
        ("ID", "TYPE", "STATUS", "URL", "PROBLEM"),
        [(each.id, each.type, each.status, each.url, each.problem) for each in webhooks],
    )


def _journal(journal: Any, now: datetime) -> Iterator[str]:
    if not journal.newest_id:
        yield "none"
    else:
        age = f"{_age(journal.newest_at, now)} ago" if journal.newest_at else "without a date"
        yield f"{sanitize(journal.newest_id, 60)}, {age}"


def _signatures(row: RequestRow) -> str:
    """Return how many signatures of how many: ``1/1 first, 0/1 second``; ways to approve are joined by ``or``."""
    ways = [
        ", ".join(f"{'?' if each.present is None else each.present}/{each.needed} {each.group}" for each in path)
        for path in row.paths
    ]
    return " or ".join(ways) or str(row.signatures)


def _trust(row: RequestRow) -> str:
    # Why it is not, the first lines say.
    words = "UNREADABLE" if row.problem and not row.address else _TRUST[row.trust]
    if row.state == "pending" and row.problem and row.trust != "unverified" and row.address:
        words = f"{words}; status {row.status}"
    if row.legacy:
        words = f"{words}; legacy form"
    if row.deletion_pending:
        return f"{words}; deletion pending, in effect"
    return f"{words}; action {row.action}" if row.action else words


def _since(row: RequestRow) -> datetime | None:
    """Return since when a request is pending; of a deletion, that of its last change."""
    return row.changed_at if row.deletion_pending else row.created_at


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield from format_table(header, rows[:_MAX_ROWS], max_width=_MAX_CELL).splitlines()
    if len(rows) > _MAX_ROWS:
        yield f"and {count(len(rows) - _MAX_ROWS, 'more row')}: -o json has more"


def _time(date: datetime) -> str:
    return f"{date:%Y-%m-%d %H:%M:%S} UTC"


def _age(date: datetime | None, now: datetime) -> str:
    """Return how long ago something was, in its largest unit."""
    if date is None:
        return "unknown"
    seconds = max(0, int((now - date).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _number(text: str) -> int:
    found = read_number(text, _MAX_LISTED)
    if not found:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {_MAX_LISTED}")
    return found


COMMAND = Command(
    "status",
    "Show what a person needs to know of a service at a glance",
    show_status,
    (
        option(
            "--max-listed",
            metavar="N",
            type=_number,
            default=DEFAULT_MAX_LISTED,
            help="how many whitelisting requests are read, in a call for each hundred; of more, only those are shown "
            f"that the user may approve, and it is an error. Default: {DEFAULT_MAX_LISTED}",
        ),
        option(
            "--deadline",
            metavar="SECONDS",
            type=_number,
            default=DEFAULT_DEADLINE,
            help=f"for all of it. Default: {DEFAULT_DEADLINE}",
        ),
        *CONNECTION_OPTIONS,
    ),
)
