"""The command ``status``: a summary of the service."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.health import view_health
from airflow_custody.cli.output import Level, Mark, Output, as_state
from airflow_custody.client import CustodyClient
from airflow_custody.overview import for_people, read_overview
from airflow_custody.overview.models import STATES, TRUSTS
from airflow_custody.overview.verdict import LEVELS, SECTIONS, describe_state, judge_overview

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.verification.trust import ReportedState
    from airflow_custody.overview.models import (
        RequestRow,
        RequestsView,
        Section,
    )
    from airflow_custody.overview.verdict import Level as OverviewLevel

# The colours of the levels of an overview.
_COLOURS: dict[OverviewLevel, Level | None] = {
    "bad": "bad",
    "unknown": "warning",
    "warning": "warning",
    "waiting": "warning",
    "good": "good",
}
# The lists of requests in an overview, each with the state of its requests.
_REQUESTS: dict[str, ReportedState] = {"pending": "pending", "unknown": "unknown", "recent": "effective"}
# Text from other people, such as the label, comes last, so that it cannot imitate other columns.
_COLUMNS = (
    *("id", "state", "status", "trust", "signatures", "deletion_pending", "action", "created_at", "changed_at"),
    *("chain", "address", "legacy", "problem", "label"),
)


def show_status(args: Namespace, output: Output) -> int:
    """
    Show a summary of the service, with problems first: health, pending and recent whitelisting requests, other
    pending approvals, webhooks, and the newest webhook call. Nothing is changed.

    Its verdict is trouble, attention, waiting (requests have been pending for more than three days, or at least 50
    requests for more than an hour) or healthy.

    Exit codes: 0 no problem (pending requests and disabled webhooks are not problems); 2 the service is unhealthy, a
    request is not verified or not readable, a request's state is unknown, the service counts requests that it does not
    return (hidden), or a webhook is cooling down; 1 error, or no problem was found but a part could not be read.

    The page Custody in Airflow's UI shows the same.

    With pinned keys, all listed requests except rejected ones are verified. Requests that fail are listed first.

    If a part cannot be read, the other parts are still shown. If the service does not offer a part, this is not an
    error, except for health. If the user lacks the role for a part, it is left out, except for health and requests.

    All requests are read, with one call for each hundred. A call takes at most 10 s and is not repeated, even if
    --timeout and --max-retries allow more.

    JSON: {"ok", "level" (bad, warning, waiting or good), "wrong", "unread", "waiting" (texts), "read_at", "base_url",
    "pinned" (whether signatures are verified), "user", "health", "requests", "approvals", "webhooks", "journal"}. The
    last six are parts: {"value", "problem", "not_offered", "role_missing"}, where the value is null if the part could
    not be read. The value of health is the JSON of custody health without listed. The value of requests is {"pending",
    "recent", "unknown": each {"rows", "total", "faulty", "oldest_at"}, "in_effect_twice": lists of the ids of requests
    in effect for the same destination, "hidden": number}. Times are ISO 8601 text, or null. Texts in values come from
    the service and may be anything.
    """
    with open_client(args) as usual, CustodyClient.from_settings(for_people(usual.settings), usual.auth) as client:
        overview = read_overview(client)
    verdict = judge_overview(overview)
    wrong, unread = verdict.texts("wrong"), verdict.texts("unread")
    parts: dict[str, Section[Any]] = {name: getattr(overview, name) for name in SECTIONS}
    waiting = verdict.texts("waiting")
    data: dict[str, Any] = {
        "ok": verdict.ok,
        "level": verdict.level,
        "wrong": wrong,
        "unread": unread,
        "waiting": waiting,
        **asdict(overview),
    }
    if overview.requests.value is not None:
        # The list of all requests is for the page, and was not read.
        del data["requests"]["value"]["listed"]
    if (health := overview.health.value) is not None:
        data["health"]["value"] = health.to_json()
    # If a part could not be read, do not report that all is well.
    is_complete = all(part.value is not None for part in parts.values())
    where = f" at {overview.base_url}, at {overview.read_at:%Y-%m-%d %H:%M:%S} UTC"
    view = [
        *(Mark("WRONG", "bad", rest=f": {each}") for each in wrong),
        *(Mark("NOT READ", "bad", rest=f": {each}") for each in unread),
        Mark(LEVELS[verdict.level], _COLOURS[verdict.level], rest=where if is_complete else f" (not complete){where}"),
        *(Mark("NOTE", "warning", rest=f": {each}") for each in verdict.texts("note")),
        *(Mark("WAITING", "warning", rest=f": {each}") for each in waiting),
        {SECTIONS[name].upper(): _view_part(name, part) for name, part in parts.items() if not part.role_missing},
    ]
    output.data(data, view)
    if wrong:
        return CHANGES
    return NOTHING_TO_DO if verdict.ok else ERROR


def _view_part(name: str, part: Section[Any]) -> Any:
    """Return a part for people. If it could not be read, a line above it says why."""
    value = part.value
    if value is None:
        return "not offered" if part.not_offered else "not read"
    if name == "user":
        return {**vars(value), "roles": ", ".join(value.roles) or "none"}
    if name == "health":
        return view_health(value)
    if name == "requests":
        return dict(_view_requests(getattr(value, part), state) for part, state in _REQUESTS.items())
    if name == "approvals":
        return ", ".join(value.texts) or "none"
    if name == "webhooks":
        # Problems of webhooks are reported by the lines above.
        rows = [{"id": each.id, "type": each.type, "status": as_state(each.status), "url": each.url} for each in value]
        return rows or "none"
    return vars(value) if value.newest_id else "none"


def _view_requests(view: RequestsView, state: ReportedState) -> tuple[str, Any]:
    """Return the requests in a state, with their title."""
    title = STATES[state].upper()
    if not view.rows:
        return title, "none"
    number = f"{len(view.rows)} of {view.total}" if len(view.rows) < view.total else view.total
    rows = [
        {
            **{column: getattr(row, column) for column in _COLUMNS},
            "state": Mark(words, _COLOURS[level]),
            "status": as_state(row.status),
            "trust": as_state(TRUSTS[row.trust]),
            "signatures": describe_paths(row) or row.signatures,
        }
        for row in view.rows
        for level, words in [describe_state(row)]
    ]
    return f"{title} ({number})", rows


def describe_paths(row: RequestRow) -> str:
    """
    Return the present and the required signatures of each group, such as ``1/1 first, 0/1 second``.

    ``or`` separates the alternative combinations of groups that may sign the request.

    :param row: the request.
    """
    paths = [", ".join(f"{each.present}/{each.needed} {each.group}" for each in path) for path in row.paths]
    return " or ".join(paths)


def add_to(commands: Commands, help: str) -> None:
    """Add the command."""
    add_connection_options(add_command(commands, "status", help, show_status))
