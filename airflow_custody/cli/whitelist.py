"""The commands on whitelists."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import (
    CHANGES,
    ERROR,
    NOTHING_TO_DO,
    Parser,
    add_command,
    add_group,
    add_rejected_status,
    flag_of,
)
from airflow_custody.cli.connection import add_connection_options, open_client, usage_error
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.status import describe_paths
from airflow_custody.cli.verify import verify
from airflow_custody.client.arguments import check_text
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.whitelist.files.reading import (
    MAX_FILE_BYTES,
    count_faults,
    parse_whitelist,
    read_whitelist_file,
)
from airflow_custody.client.whitelist.files.writing import dump_snapshot, whitelist_schema
from airflow_custody.client.whitelist.ids import check_request_id
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plans.plan import PlanLimits, advice_on_differences, check_only
from airflow_custody.client.whitelist.plans.planner import PlanSettings, check_ignored, make_plan
from airflow_custody.client.whitelist.plans.report import plan_to_json, plan_to_markdown, plan_to_text
from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name
from airflow_custody.client.whitelist.status_words import EFFECTIVE_STATUSES, REJECTED_STATUSES, StatusWords
from airflow_custody.overview import read_request

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.whitelist.files.reading import WhitelistFile
    from airflow_custody.client.whitelist.snapshot import Snapshot
    from airflow_custody.client.whitelist.status_words import StatusWords

#: The limits of ``PlanLimits``, each an option of the same name; with its type and what it says.
LIMITS: dict[str, tuple[Callable[[str], Any], str]] = {
    "max_creates": (int, "maximum number of creations. Default: 100"),
    "max_deletes": (int, "maximum number of deletions. Default: 10"),
    "max_delete_percent": (float, "the same in per cent of the service's requests. Default: 30"),
}
# What is shown of the row; address and label stand in the payload only.
_OF_ROW = (
    *("id", "state", "status", "trust", "problem", "legacy", "deletion_pending", "action"),
    *("created_at", "changed_at", "paths"),
)
_IN_WORDS = {"effective": "in effect", "unknown": "in a state that is not known"}


# --- files --------------------------------------------------------------------------------------------------


def validate(args: Namespace, output: Output) -> int:
    """
    Check whitelist files, and print all that is wrong with them, each fault behind its file. Needs
    no connection.

    Addresses that could not be checked are not errors; their number is printed on standard error,
    too.

    Exit codes: 0 nothing is wrong, 1 something is, or a file cannot be read.

    JSON: a list, for each file {"file", "valid", "rows" (their number; null if it is not valid),
    "unchecked" (the number of addresses that could not be checked; null likewise), "sha256" (of
    the file; null likewise), "faults" (a list of texts)}.
    """
    found: list[dict[str, Any]] = []
    lines: list[str] = []
    for name in args.files:
        try:
            file = _read_file(args, name)
            data = {"valid": True, "rows": len(file.rows), "unchecked": file.unchecked, "sha256": file.sha256}
            faults: list[str] = []
            if file.unchecked_text:
                message(f"{name}: {file.unchecked_text}")
        except WhitelistFileError as error:
            data = {"valid": False, "rows": None, "unchecked": None, "sha256": None}
            faults = [sanitize(each, 1000) for each in error.faults]
            lines += _fault_lines(name, error)
            message(f"{name}: {count_faults(error.faults)} {label(error.code)}")
        found.append({"file": name, **data, "faults": faults})
    valid = [each for each in found if each["valid"]]
    output.data(found, [*lines, valid])
    return NOTHING_TO_DO if len(valid) == len(found) else ERROR


def _read_file(args: Namespace, name: str) -> WhitelistFile:
    """Return a whitelist file, or what standard input has."""
    if name != "-":
        return read_whitelist_file(name, check_addresses=args.check_addresses)
    if args.format is None:
        raise usage_error("--format is missing: standard input has no name that tells", "Give yaml, json or csv.")
    if getattr(args, "token_stdin", False):
        raise usage_error("--token-stdin: the file is read from standard input already", "Set CUSTODY_TOKEN instead.")
    data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if sys.stdin is not None else b""
    return parse_whitelist(data, args.format, name=name, check_addresses=args.check_addresses)


def _fault_lines(name: str, error: WhitelistFileError) -> list[str]:
    # What cannot be read is named by its path already.
    return [sanitize(each if each.startswith(f"{name}: ") else f"{name}: {each}", 1000) for each in error.faults]


def print_schema(args: Namespace, output: Output) -> int:
    """
    Print the JSON Schema of a whitelist file, with which editors complete and check it. Needs
    no connection.

    Exit codes: 0 printed, 1 error.
    """
    output.text(json.dumps(whitelist_schema(), indent=2))
    return NOTHING_TO_DO


# --- the plan -----------------------------------------------------------------------------------------------


def plan(args: Namespace, output: Output) -> int:
    """
    Compare a whitelist file with what the service has, and print what applying it would do.
    Nothing is changed. CustodyApplyWhitelistPlanOperator applies a plan, by its hash. With pinned
    keys, what signatures do not prove is unverified, which is a change, and only named.

    Exit codes: 0 nothing to do, 2 the service does not have what the file says, 1 error, or the
    plan is over a limit; it is printed in full then, too.

    JSON: {"plan_hash", "service", "file", "pinned": {"keys", "minimum"} (null: nothing is
    verified), "counts": {STATE: number}, "has_changes", "ignored" (ids), "only" (lists of values),
    "rows": [{"state", "action", "where", "id", "status", "fields", "shown", "note", "others" (ids),
    "request"}], "over_limits" (a list of texts)}. States are create, replace, pending, unchanged,
    differs, duplicate, undeclared, rejected, unreadable, unverified; actions create, delete and
    null.
    """
    words = _words(args)
    only: dict[str, list[str]] = {}
    for name, _, value in (each.partition("=") for each in args.only or ()):
        only.setdefault(name, []).append(value)
    only = check_only(only) if only else {}
    try:
        file = _read_file(args, args.file)
    except WhitelistFileError as error:
        for each in _fault_lines(args.file, error):
            message(each)
        # The faults are told: what is left is how many there are.
        error.message = f"{args.file}: {count_faults(error.faults)}; the service was not asked"
        raise
    if file.unchecked_text:
        message(file.unchecked_text)
    # What is not given has the limits' own defaults.
    limits = PlanLimits(**{name: getattr(args, name) for name in (*LIMITS, "must_keep") if hasattr(args, name)})
    settings = PlanSettings(
        prune=args.prune,
        replace=args.replace,
        only=only,
        accept_fields=args.accept_fields or (),
        ignore=check_ignored(args.ignore or ()),
    )
    service, snapshot = _fetch(args, words)
    found = make_plan(file.rows, snapshot, settings, service=service, name=file.name)
    faults = limits.faults(found)
    if output.form == "json":
        output.data({**plan_to_json(found), "over_limits": list(faults)})
    elif output.form == "markdown":
        output.text(plan_to_markdown(found))
    else:
        output.signed(plan_to_text(found, all_rows=args.all))
    if advice := advice_on_differences(found, replace=args.replace):
        message(advice)
    for each in faults:
        message(f"the plan is over a limit: {each}")
    if faults:
        return ERROR
    return CHANGES if found.has_changes else NOTHING_TO_DO


def _words(args: Namespace) -> StatusWords:
    """Return the status words of the options."""
    if args.any_status and args.effective_statuses:
        raise usage_error("--any-status and --effective-status are both given", "Give one of them.")
    effective = None if args.any_status else args.effective_statuses or EFFECTIVE_STATUSES
    return StatusWords.read(effective, args.rejected_statuses or REJECTED_STATUSES)


def _fetch(args: Namespace, words: StatusWords) -> tuple[str, Snapshot]:
    """Return the service's name in a plan, and all that it lists."""
    with open_client(args) as client:
        return service_name(client), read_snapshot(client, words)


# --- what the service has -----------------------------------------------------------------------------------


def dump(args: Namespace, output: Output) -> int:
    """
    Print the service's whitelist as a file, in YAML: how one starts. Requests that are pending
    approval are in it, with a comment; rejected ones are not. Of several requests for one
    destination the file has one, and names the others in a comment. With pinned keys, what
    signatures do not prove is missing.

    Exit codes: 0 the file has all that is at the service; 1 something is missing or cannot be
    written exactly: it is named on standard error and at the top of the file. Do not plan with
    --prune from such a file: what is missing in it would be deleted.
    """
    service, snapshot = _fetch(args, _words(args))
    dumped = dump_snapshot(snapshot, service, args.accept_fields or ())
    output.text(dumped.text)
    for each in (*dumped.notes, *dumped.faults):
        message(each)
    return ERROR if dumped.faults else NOTHING_TO_DO


# --- one request --------------------------------------------------------------------------------------------


def show(args: Namespace, output: Output) -> int:
    """
    Show one whitelisting request: its state, its payload, its signatures, its trail. With pinned
    keys it says whether signatures prove that it is whitelisted, and by whom; without, nothing is
    verified. It is what the request's page in Airflow's UI shows.

    Exit codes: 0 shown; 1 there is no such request, its payload cannot be used (it is not shown
    then), or another error.

    JSON: {"id", "state" (effective, pending, rejected, unknown), "status" (as the service sent it),
    "trust" (verified; unsigned: nobody has signed it; unverified; not checked: no keys are pinned,
    or it was rejected), "verification" (what is proved, or why nothing is), "problem", "legacy",
    "deletion_pending", "action", "created_at", "changed_at", "paths" (the ways to sign it:
    [[{"group", "present", "needed"}]]), "payload" (if it is verified, what is signed and nothing
    else), "around" (what the service says beside the payload), "signatures": [{"user", "comment",
    "valid", "problem"}], "trail": [{"at", "user", "action", "comment"}]}. Each value of the payload
    is a text.
    """
    with open_client(args) as client:
        view = read_request(client, args.id)
    data = asdict(view)
    row = data.pop("row")
    data = {**{name: row[name] for name in _OF_ROW}, **data}
    # What is not proved must not look as if it were.
    is_proved = (view.row.state, view.row.trust) == ("effective", "verified")
    shown = {**data, "trust": "UNVERIFIED" if view.row.trust == "unverified" else view.row.trust}
    shown |= {"paths": describe_paths(view.row)}
    shown["payload" if is_proved else "payload, not verified"] = shown.pop("payload")
    for name in ("around", "signatures", "trail"):
        shown[f"{name}, as the service shows {'them' if name == 'signatures' else 'it'}"] = shown.pop(name)
    output.data(data, shown)
    if not view.payload:
        message(view.row.problem)
        return ERROR
    return NOTHING_TO_DO


def delete(args: Namespace, output: Output) -> int:
    """
    Delete one whitelisting request, in effect or not. Shows it and asks first; --yes does not ask.
    An address in effect can no longer be used, unless another request for it is in effect. The
    user needs the role WhitelistedAddressCreator.

    Exit codes: 0 deleted, or there is no such request; 1 error, or the answer was not yes.

    JSON: {"id", "deleted" (false: it did not exist, or the answer was not yes), "state" (before:
    effective, pending, rejected, unknown; null: it did not exist), "chain", "address", "label"
    (each null likewise)}.
    """
    request_id, comment = check_request_id(args.id, "ID"), check_text("--comment", args.comment)
    if not args.yes and not (sys.stdin and sys.stdin.isatty()):
        raise usage_error("this asks before it deletes, and standard input is not a terminal", "Give --yes.")
    data = {"id": request_id, "deleted": False, **dict.fromkeys(("state", "chain", "address", "label"))}
    with open_client(args) as client:
        if status_if_exists(client, request_id) is None:
            message(f"request {request_id} does not exist: nothing to do")
            output.data(data)
            return NOTHING_TO_DO
        row = read_request(client, request_id).row
        data |= {"state": row.state, "chain": row.chain, "address": row.address, "label": row.label}
        if not args.yes:
            for name, value in (("label", row.label), ("chain", row.chain), ("address", row.address)):
                message(f"{name}: {escape(value[:300])}")
            question = (
                f"Delete request {request_id}, {_IN_WORDS.get(row.state, row.state)}, at {client.settings.base_url}?"
            )
            print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                message("nothing was deleted")
                output.data(data)
                return ERROR
        client.delete_whitelist_request(request_id, comment)
    output.data({**data, "deleted": True})
    return NOTHING_TO_DO


# --- options ------------------------------------------------------------------------------------------------


def _number(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(value: str) -> Any:
        if value == "none":
            return None
        try:
            number = kind(value)
        except ValueError:
            number = -1
        if not 0 <= number < 1e12:
            raise ArgumentTypeError(f"must be a {'whole ' if kind is int else ''}number of at least 0, or none")
        return number

    return parse


def _add_file(parser: Parser, name: str, **keywords: Any) -> None:
    text = "a whitelist file in YAML, JSON or CSV; -: standard input"
    parser.add_argument(name, metavar="FILE", help=text, **keywords)
    text = "format of standard input"
    parser.add_argument("--format", choices=("yaml", "json", "csv"), help=text)
    parser.add_argument(
        "--check-addresses",
        action=BooleanOptionalAction,
        default=True,
        help="whether addresses are checked against the rules of their chains. Default: yes",
    )


def _add_listing_options(parser: Parser) -> None:
    text = (
        "key of a payload that may have a value that a file cannot say; or envelope.action, for an unknown word there"
    )
    parser.add_argument("--accept-field", dest="accept_fields", metavar="KEY", action="append", help=text)
    text = "status word of requests in effect. Default: approved"
    parser.add_argument("--effective-status", dest="effective_statuses", metavar="WORD", action="append", help=text)
    text = "a request that is not pending is in effect"
    parser.add_argument("--any-status", action="store_true", help=text)
    add_rejected_status(parser)
    add_connection_options(parser)


def add_to(commands: Commands, help: str) -> None:
    """Add the commands to the parser of all."""
    group = add_group(commands, "whitelist", help)
    _add_file(add_command(group, "validate", "Check whitelist files", validate), "files", nargs="+")
    outputs = ("table", "json", "markdown")
    parser = add_command(group, "plan", "Compare a whitelist file with what the service has", plan, outputs)
    _add_file(parser, "file")
    parser.add_argument(
        "--prune", action="store_true", help="plan to delete what the file does not have, and duplicates"
    )
    text = "plan a new request for a row whose request in effect differs, and delete the old one after that"
    parser.add_argument("--replace", action="store_true", help=text)
    text = "plan only what has this blockchain, customer_id or visibility_group_id"
    parser.add_argument("--only", metavar="KEY=VALUE", action="append", help=text)
    parser.add_argument("--all", action="store_true", help="show unchanged rows, too")
    for name, (kind, text) in LIMITS.items():
        parser.add_argument(flag_of(name), type=_number(kind), default=SUPPRESS, metavar="N", help=f"{text}; or none")
    text = "address or label that must be in the file"
    parser.add_argument("--must-keep", dest="must_keep", metavar="TEXT", action="append", help=text, default=SUPPRESS)
    text = "id of a request that may be a row's, and that stops no row all the same, as a person has looked at it"
    parser.add_argument("--ignore", dest="ignore", metavar="ID", action="append", help=text)
    _add_listing_options(parser)
    _add_listing_options(add_command(group, "dump", "Print the service's whitelist as a file", dump, ()))
    parser = add_command(group, "show", "Show one whitelisting request", show)
    parser.add_argument("id", metavar="ID", help="id of the request")
    add_connection_options(parser)
    parser = add_command(group, "delete", "Delete one whitelisting request, after a question", delete)
    parser.add_argument("id", metavar="ID", help="id of the request")
    parser.add_argument("--comment", metavar="TEXT", required=True, help="why, for the service's history")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_connection_options(parser)
    parser = add_command(group, "verify", "Verify the service's whitelist by signatures", verify)
    parser.add_argument("--id", dest="ids", metavar="ID", action="append", help="id of a request. Default: all")
    add_rejected_status(parser)
    text = "print what it takes to verify again, too; needs -o json"
    parser.add_argument("--evidence", action="store_true", help=text)
    text = "verify the evidence in such a file, a path or the URL of an object storage; no service is asked"
    parser.add_argument("--from", dest="file", metavar="FILE", help=text)
    add_connection_options(parser)
    add_command(group, "schema", "Print the JSON Schema of a whitelist file", print_schema, ())
