"""The command that shows what a person needs to know of a service at a glance."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output
from airflow_custody.client.text import read_number

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands

#: Those of ``airflow_custody.overview``.
DEFAULT_MAX_LISTED = 5_000
DEFAULT_DEADLINE = 30
_MAX_LISTED = 1_000_000
_TITLES = {
    "health": "HEALTH",
    "pending": "PENDING",
    "unknown": "STATUS NOT KNOWN",
    "recent": "LATEST IN EFFECT",
    "approvals": "PENDING THIS USER'S APPROVAL",
    "webhooks": "WEBHOOKS",
    "journal": "NEWEST WEBHOOK CALL",
}
_CHECK = ("group", "component", "check", "status", "problem")
_REQUEST = ("id", "status", "trust", "signatures", "deletion_pending", "action", "created_at", "changed_at")
# What other people wrote comes last.
_TEXTS = ("chain", "address", "legacy", "problem", "label")


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
    not healthy, a request does not verify, cannot be read or is in a state that the service does not
    say, or a webhook is cooling down; 1 error, also if nothing is wrong and a part could not be read.

    JSON: {"ok", "wrong", "unread", "read_at", "base_url", the parts "health", "pending", "recent",
    "unknown", "approvals", "webhooks", "journal", and the numbers "rejected", "more_webhooks" and
    "more_faulty_webhooks": those above 200, and what is wrong among them}. Each part is {"value",
    "problem", "not_offered", "not_permitted"}; the value is null if it could not be read. Times are
    ISO 8601 text, null where there is none. Texts in it are the service's, and may be anything.
    """
    from airflow_custody.overview import for_people, read_overview
    from airflow_custody.overview.verdict import judge_overview, to_json

    with open_client(args, for_people) as client:
        overview = read_overview(client, deadline=args.deadline, max_listed=args.max_listed)
    verdict, data = judge_overview(overview), to_json(overview)
    where = f"all well at {data['base_url']}, at {data['read_at']}"
    view = [
        *(f"WRONG: {each}" for each in data["wrong"]),
        *(f"NOT READ: {each}" for each in data["unread"]),
        where if data["ok"] else f"not {where}",
        *(f"NOTE: {each}" for each in verdict.texts("note")),
        {title: _part(name, data[name]) for name, title in _TITLES.items()},
        {name: data[name] for name in ("rejected", "more_webhooks") if data[name]},
    ]
    output.data(data, view)
    return CHANGES if data["wrong"] else NOTHING_TO_DO if data["ok"] else ERROR


def _part(name: str, section: Mapping[str, Any]) -> Any:
    """Return what people see of a part; of its requests and checks the columns that they need."""
    value = section["value"]
    if value is None:
        why = "not permitted" if section["not_permitted"] else "not offered" if section["not_offered"] else "not read"
        return f"{why}: {section['problem']}"
    if name == "health":
        faulty = [{column: each[column] for column in _CHECK} for each in value["checks"] if each["problem"]]
        oldest = value["oldest_at"] or "not known, as not all checks say readably when they last ran"
        return [value["summary"], f"oldest result: {oldest}", faulty, value["groups"]]
    if name in ("pending", "recent", "unknown"):
        rows = [{column: _cell(row, column) for column in (*_REQUEST, *_TEXTS)} for row in value["rows"]]
        total = f"at least {len(rows)}" if value["total"] is None else value["total"] or "none"
        return [str(total), value["note"], rows]
    if name == "approvals":
        # Its last is how many were counted at most.
        value = {kind: number for kind, number in value.items() if number and kind != "limit"}
    if name == "journal" and not value["newest_id"]:
        return "none"
    return value or "none"


def _cell(row: Mapping[str, Any], column: str) -> Any:
    if column.endswith("_at"):
        return (row[column] or "")[:16]
    return describe_paths(row["paths"]) or row[column] if column == "signatures" else row[column]


def describe_paths(paths: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """
    Return how many signatures there are of how many: ``1/1 first, 0/1 second``.

    :param paths: the ways to approve a request, as JSON has them; they are joined by ``or``.
    """
    return " or ".join(
        ", ".join(
            f"{'?' if each['present'] is None else each['present']}/{each['needed']} {each['group']}" for each in path
        )
        for path in paths
    )


def _number(text: str) -> int:
    if found := read_number(text, _MAX_LISTED):
        return found
    raise ArgumentTypeError(f"{text!r} is no number from 1 to {_MAX_LISTED}")


def add_to(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "status", "Show what a person needs to know of a service at a glance", show_status)
    parser.add_argument(
        "--max-listed",
        metavar="N",
        type=_number,
        default=DEFAULT_MAX_LISTED,
        help="how many whitelisting requests are read, in a call for each hundred; of more, only those are shown "
        f"that the user may approve, and it is an error. Default: {DEFAULT_MAX_LISTED}",
    )
    text = f"for all of it. Default: {DEFAULT_DEADLINE}"
    parser.add_argument("--deadline", metavar="SECONDS", type=_number, default=DEFAULT_DEADLINE, help=text)
    add_connection_options(parser)
