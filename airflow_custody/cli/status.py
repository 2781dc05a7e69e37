"""The command that shows what a person needs to know of a service at a glance."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output
from airflow_custody.client import CustodyClient
from airflow_custody.overview import for_people, read_overview
from airflow_custody.overview.verdict import SECTIONS, judge_overview

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.overview.models import RequestRow, RequestsView

_REQUESTS = {"pending": "PENDING", "unknown": "STATUS NOT KNOWN", "recent": "LATEST IN EFFECT"}
# What other people wrote comes last.
_COLUMNS = (
    *("id", "status", "trust", "signatures", "deletion_pending", "action", "created_at", "changed_at"),
    *("chain", "address", "legacy", "problem", "label"),
)


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
    may be missing: that the service does not offer them, or not to this user, is no error, and they
    are left out. Health and requests may not.

    All requests are read, in a call for each hundred. A call takes 10 s at most and is not repeated,
    whatever --timeout and --max-retries say.

    Exit codes: 0 all well, also if requests are pending or a webhook is disabled; 2 the service is
    not healthy, a request does not verify, cannot be read or is in a state that the service does not
    say, or a webhook is cooling down; 1 error, also if nothing is wrong and a part could not be read.

    JSON: {"ok", "wrong", "unread", "read_at", "base_url", "pinned" (whether signatures are verified),
    the parts "user", "health", "requests", "approvals", "webhooks", "journal"}. Each part is
    {"value", "problem", "not_offered"}; the value is null if it could not be read. That of health
    is the JSON of custody health, without what is listed; that of requests is {"pending", "recent",
    "unknown": each {"rows", "total", "faulty", "oldest_at"}, "in_effect_twice": groups of ids of
    requests that are in effect for the same destination}. Times are ISO 8601 text, null where there
    is none. Texts in it are the service's, and may be anything.
    """
    with open_client(args) as usual, CustodyClient.from_settings(for_people(usual.settings), usual.auth) as client:
        overview = read_overview(client)
    verdict = judge_overview(overview)
    wrong, unread = verdict.texts("wrong"), verdict.texts("unread")
    offered = {name: getattr(overview, name) for name in SECTIONS if not getattr(overview, name).not_offered}
    data: dict[str, Any] = {"ok": verdict.ok, "wrong": wrong, "unread": unread, **asdict(overview)}
    if (health := overview.health.value) is not None:
        data["health"]["value"] = health.to_json()
    where = f"all well at {overview.base_url}, at {overview.read_at:%Y-%m-%d %H:%M:%S} UTC"
    view = [
        *(f"WRONG: {each}" for each in wrong),
        *(f"NOT READ: {each}" for each in unread),
        where if verdict.ok else f"not {where}",
        *(f"NOTE: {each}" for each in verdict.texts("note")),
        {SECTIONS[name].upper(): _part(name, section.value) for name, section in offered.items()},
    ]
    output.data(data, view)
    return CHANGES if wrong else NOTHING_TO_DO if verdict.ok else ERROR


def _part(name: str, value: Any) -> Any:
    """Return what people see of a part; of its requests the columns that they need."""
    if value is None:
        # The problem of a part that must be there stands above.
        return "not read"
    if name == "user":
        return {**vars(value), "roles": ", ".join(value.roles) or "none"}
    if name == "health":
        return [value.headline(), *value.details()]
    if name == "requests":
        return {title: _requests(getattr(value, part)) for part, title in _REQUESTS.items()}
    if name == "approvals":
        return ", ".join(value.texts) or "none"
    if name == "webhooks":
        return [*map(vars, value)] or "none"
    return vars(value) if value.newest_id else "none"


def _requests(view: RequestsView) -> list[Any]:
    rows = [{**vars(row), "signatures": describe_paths(row) or row.signatures} for row in view.rows]
    return [str(view.total or "none"), [{column: row[column] for column in _COLUMNS} for row in rows]]


def describe_paths(row: RequestRow) -> str:
    """
    Return how many signatures a request has of how many: ``1/1 first, 0/1 second``; ways to sign it are joined by
    ``or``.

    :param row: the request.
    """
    return " or ".join(", ".join(f"{each.present}/{each.needed} {each.group}" for each in path) for path in row.paths)


def add_to(commands: Commands, help: str) -> None:
    """Add the command to the parser of all."""
    add_connection_options(add_command(commands, "status", help, show_status))
