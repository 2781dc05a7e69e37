"""The commands ``whitelist``."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import (
    CHANGES,
    ERROR,
    NOTHING_TO_DO,
    Parser,
    add_command,
    add_group,
    flag_of,
    usage_error,
)
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Mark, Output, as_state, message
from airflow_custody.cli.status import describe_paths
from airflow_custody.cli.verify import verify
from airflow_custody.client.arguments import check_text
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyRequestError, WhitelistFileError
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.whitelist.chains import check_chains
from airflow_custody.client.whitelist.files.reading import (
    MAX_FILE_BYTES,
    count_faults,
    parse_whitelist,
    read_whitelist_file,
)
from airflow_custody.client.whitelist.files.writing import whitelist_schema
from airflow_custody.client.whitelist.ids import check_request_id
from airflow_custody.client.whitelist.operations import status_if_exists
from airflow_custody.client.whitelist.plans.dump import dump_snapshot
from airflow_custody.client.whitelist.plans.plan import PlanLimits, advice_on_differences, check_only
from airflow_custody.client.whitelist.plans.planner import PlanSettings, check_ignored, make_plan
from airflow_custody.client.whitelist.plans.report import plan_to_json, plan_to_markdown, plan_to_text
from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name
from airflow_custody.overview import read_request
from airflow_custody.overview.verdict import describe_state

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.whitelist.files.reading import WhitelistFile
    from airflow_custody.client.whitelist.plans.plan import WhitelistPlan
    from airflow_custody.overview.models import RequestRow

#: The limits in ``PlanLimits``. Each has an option with the same name, and with this type and help.
LIMITS: dict[str, tuple[Callable[[str], Any], str]] = {
    "max_creates": (int, "maximum number of creations. Default: 100"),
    "max_deletes": (int, "maximum number of deletions. Default: 10"),
    "max_delete_percent": (float, "maximum percentage of deletions. Default: 30"),
}
# The fields of a request's row that are shown. Address and label are left out, because the payload contains them.
_ROW_FIELDS = (
    *("id", "state", "status", "trust", "problem", "legacy", "deletion_pending", "action"),
    *("created_at", "changed_at", "paths"),
)


# --- files --------------------------------------------------------------------------------------------------


def validate(args: Namespace, output: Output) -> int:
    """
    Check whitelist files, and print every mistake with its file. No connection is needed.

    Exit codes: 0 all files are correct; 1 a file has a mistake, or cannot be read.

    Addresses that cannot be checked are not mistakes. Their number is printed on standard error.

    JSON: a list with {"file", "valid", "rows" (number of rows), "unchecked" (number of addresses that could not be
    checked), "sha256" (of the file), "faults" (list of texts)} for each file. The numbers and the hash are null if
    the file is not valid.
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
    output.data(found, [*lines, [{**each, "valid": as_state("yes")} for each in valid]])
    return NOTHING_TO_DO if len(valid) == len(found) else ERROR


def _read_file(args: Namespace, name: str) -> WhitelistFile:
    """Return the whitelist in a file or from standard input."""
    if name != "-":
        return read_whitelist_file(name, check_addresses=args.check_addresses)
    if args.format is None:
        raise usage_error("--format is missing: standard input has no file name", "Set it to yaml, json or csv.")
    if getattr(args, "token_stdin", False):
        raise usage_error("--token-stdin: standard input is already used for the file", "Set CUSTODY_TOKEN instead.")
    data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if sys.stdin is not None else b""
    return parse_whitelist(data, args.format, name=name, check_addresses=args.check_addresses)


def _fault_lines(name: str, error: WhitelistFileError) -> list[str]:
    # The fault of a file that cannot be read already has the path.
    return [sanitize(each if each.startswith(f"{name}: ") else f"{name}: {each}", 1000) for each in error.faults]


def print_schema(args: Namespace, output: Output) -> int:
    """
    Print the JSON Schema of whitelist files. Editors use it to complete and check the files. No connection is needed.

    Exit codes: 0 printed, 1 error.
    """
    output.text(json.dumps(whitelist_schema(), indent=2))
    return NOTHING_TO_DO


# --- the plan -----------------------------------------------------------------------------------------------


def plan(args: Namespace, output: Output) -> int:
    """
    Compare a whitelist file with the service, and print the changes that applying it would make. Nothing is changed.

    Exit codes: 0 no changes; 2 the service differs from the file; 1 error, or the plan is over a limit. A plan that is
    over a limit, or has new requests on a chain that the service lists as not enabled, is still printed in full.

    The operator CustodyApplyWhitelistPlanOperator applies a plan, which it identifies by its hash. With pinned keys,
    requests that signatures do not prove are reported as unverified. They count as changes, but applying the plan does
    not touch them.

    A plan task applies a large plan in parts. Without --at-most, this command prints the whole plan. The plan hash
    equals a task's only if both have the same number of operations: "500 of 3,000 operations" is --at-most 500.

    JSON: {"plan_hash", "service", "file", "pinned": {"keys", "minimum"} (null: nothing is verified), "counts": {STATE:
    number}, "has_changes", "ignored" (ids), "only" (lists of values), "hidden" (number), "rows": [{"state", "action",
    "where", "id", "status", "fields", "shown", "note", "others" (ids), "request"}], "over_limits" (list of texts)}. The
    states are create, replace, later, pending, unchanged, differs, duplicate, undeclared, rejected, unreadable and
    unverified. The action is create, delete or null.
    """
    settings = _plan_settings(args)
    # If an option was not used, args lacks its name, and the limit keeps its default.
    limits = PlanLimits(**{name: getattr(args, name) for name in (*LIMITS, "must_keep") if hasattr(args, name)})
    try:
        file = _read_file(args, args.file)
    except WhitelistFileError as error:
        for each in _fault_lines(args.file, error):
            message(each)
        message(f"{args.file}: {count_faults(error.faults)}; the service was not read {label(error.code)}")
        return ERROR
    if file.unchecked_text:
        message(file.unchecked_text)
    with open_client(args) as client:
        service, snapshot = service_name(client), read_snapshot(client)
        found = make_plan(file.rows, snapshot, settings, service=service, name=file.name)
        faults = limits.faults(found)
        refusal, warnings = None, []
        try:
            warnings = check_chains(client, found.new_requests)
        except CustodyRequestError as error:
            refusal = error
        found = replace(found, warnings=tuple(filter(None, [*warnings, file.unchecked_text]))).first(args.at_most)
        # Print the plan even if its chains are refused.
        _print_plan(found, faults, output, all_rows=args.all)
        for each in warnings:
            message(each)
        if refusal is not None:
            raise refusal
    if advice := advice_on_differences(found, replace=args.replace):
        message(advice)
    for each in faults:
        message(f"the plan is over a limit: {each}")
    if faults:
        return ERROR
    return CHANGES if found.has_changes else NOTHING_TO_DO


def _plan_settings(args: Namespace) -> PlanSettings:
    only: dict[str, list[str]] = {}
    for each in args.only or ():
        name, _, value = each.partition("=")
        only.setdefault(name, []).append(value)
    return PlanSettings(
        prune=args.prune,
        replace=args.replace,
        only=check_only(only) if only else {},
        ignore=check_ignored(args.ignore or ()),
    )


def _print_plan(found: WhitelistPlan, faults: Sequence[str], output: Output, *, all_rows: bool) -> None:
    if output.form == "json":
        output.data({**plan_to_json(found), "over_limits": list(faults)})
    elif output.form == "markdown":
        output.text(plan_to_markdown(found))
    else:
        output.signed(plan_to_text(found, all_rows=all_rows))


# --- the service's whitelist -----------------------------------------------------------------------------------


def dump(args: Namespace, output: Output) -> int:
    """
    Print the service's whitelist as a YAML file, to start a whitelist file.

    Exit codes: 0 the file is complete; 1 a request is missing or cannot be written exactly. Such requests are reported
    on standard error and at the top of the file.

    Pending requests are included with a comment; rejected requests are left out. If there are several requests for one
    destination, the file has one of them, and a comment with the ids of the others. With pinned keys, unverified
    requests are left out.

    Do not plan with --prune from an incomplete file, because the plan would delete the requests that it lacks.
    """
    with open_client(args) as client:
        dumped = dump_snapshot(read_snapshot(client), service_name(client))
    output.text(dumped.text)
    for each in (*dumped.notes, *dumped.faults):
        message(each)
    return ERROR if dumped.faults else NOTHING_TO_DO


# --- one request --------------------------------------------------------------------------------------------


def show(args: Namespace, output: Output) -> int:
    """
    Show one whitelisting request: its state, content, signatures and history. With pinned keys, also show whether
    signatures prove that its address is whitelisted.

    Exit codes: 0 shown; 1 error, including a request that does not exist, or whose content cannot be used.

    The request's page in Airflow's UI shows the same. Content is not shown if it cannot be used, for example because it
    does not match its hash.

    JSON: {"id", "state" (effective, pending, rejected or unknown), "status" (as the service sent it), "trust"
    (verified; unsigned: it has no signatures; unverified; not checked: no keys are pinned, or it was rejected),
    "verification" (the proof, or why there is none), "problem", "legacy", "deletion_pending", "action", "created_at",
    "changed_at", "paths" (the ways to sign it: [[{"group", "present", "needed"}]]), "payload" (if the request is
    verified: the signed content only), "around" (other data from the service), "signatures": [{"user", "comment",
    "valid", "problem"}], "trail": [{"at", "user", "action", "comment"}]}. Each value of the payload is text.
    """
    with open_client(args) as client:
        view = read_request(client, args.id)
    data = asdict(view)
    row = data.pop("row")
    data = {**{name: row[name] for name in _ROW_FIELDS}, **data}
    output.data(data, _view_request(data, describe_paths(view.row)))
    if not view.payload:
        message(view.row.problem)
        return ERROR
    return NOTHING_TO_DO


def _view_request(data: dict[str, Any], paths: str) -> dict[str, Any]:
    """Return a request for people. Names mark everything that is not proved."""
    trust, is_proved = data["trust"], (data["state"], data["trust"]) == ("effective", "verified")
    names = {
        "payload": "payload" if is_proved else "payload, not verified",
        "around": "other data from the service, not signed",
        "signatures": "signatures, as reported by the service",
        "trail": "history, as reported by the service",
    }
    changed = {
        "paths": paths,
        "state": as_state(data["state"]),
        "trust": Mark("UNVERIFIED", "bad") if trust == "unverified" else as_state(trust),
    }
    last = {names[name]: data[name] for name in names}
    return {**{name: value for name, value in data.items() if name not in names}, **changed, **last}


def delete(args: Namespace, output: Output) -> int:
    """
    Delete one whitelisting request, in effect or not, after confirmation. The user needs the role
    WhitelistedAddressCreator.

    Exit codes: 0 deleted, or the request does not exist; 1 error, or the deletion was not confirmed.

    If the request was in effect, its address can no longer be used after the deletion, unless another request for the
    address is in effect.

    JSON: {"id", "deleted", "state", "chain", "address", "label"}. deleted is false if the request did not exist, or if
    the deletion was not confirmed. The state before the deletion is effective, pending, rejected or unknown. state,
    chain, address and label are null if the request did not exist.
    """
    request_id, comment = check_request_id(args.id, "ID"), check_text("--comment", args.comment)
    if not args.yes and not (sys.stdin and sys.stdin.isatty()):
        raise usage_error("cannot ask for confirmation: standard input is not a terminal", "Use --yes.")
    data = {"id": request_id, "deleted": False, **dict.fromkeys(("state", "chain", "address", "label"))}
    with open_client(args) as client:
        if status_if_exists(client, request_id) is None:
            message(f"request {request_id} does not exist; nothing to do")
            output.data(data)
            return NOTHING_TO_DO
        row = read_request(client, request_id).row
        data |= {"state": row.state, "chain": row.chain, "address": row.address, "label": row.label}
        if not args.yes and not _is_confirmed(request_id, row, client.settings.base_url):
            message("not confirmed; nothing was deleted")
            output.data(data)
            return ERROR
        client.delete_whitelist_request(request_id, comment)
    output.data({**data, "deleted": True})
    return NOTHING_TO_DO


def _is_confirmed(request_id: str, row: RequestRow, base_url: str) -> bool:
    """
    Show a request, and ask the user whether to delete it.

    The question itself contains no text from the service, so that such text cannot change its meaning.
    """
    for name, value in (("label", row.label), ("chain", row.chain), ("address", row.address)):
        message(f"{name}: {escape(value[:300])}")
    question = f"Delete request {request_id}, {describe_state(row)[1]}, at {base_url}? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --- options ------------------------------------------------------------------------------------------------


def _number(kind: Callable[[str], Any], low: int = 0) -> Callable[[str], Any]:
    def parse(value: str) -> Any:
        if value == "none":
            return None
        try:
            number = kind(value)
        except ValueError:
            number = -1
        if not low <= number < 1e12:
            raise ArgumentTypeError(f"must be a {'whole ' if kind is int else ''}number of at least {low}, or none")
        return number

    return parse


def _add_file(parser: Parser, name: str, **keywords: Any) -> None:
    text = "whitelist file, or - for standard input"
    parser.add_argument(name, metavar="FILE", help=text, **keywords)
    text = "format of the file on standard input"
    parser.add_argument("--format", choices=("yaml", "json", "csv"), help=text)
    parser.add_argument(
        "--check-addresses",
        action=BooleanOptionalAction,
        default=True,
        help="check addresses by the rules of their chains. Default: yes",
    )


def add_to(commands: Commands, help: str) -> None:
    """Add the commands."""
    group = add_group(commands, "whitelist", help)
    _add_file(add_command(group, "validate", "Check whitelist files", validate), "files", nargs="+")
    outputs = ("table", "json", "markdown")
    parser = add_command(group, "plan", "Compare a whitelist file with the service", plan, outputs)
    _add_file(parser, "file")
    parser.add_argument("--prune", action="store_true", help="plan to delete duplicates, and requests not in the file")
    text = "plan to replace requests that differ from their row"
    parser.add_argument("--replace", action="store_true", help=text)
    text = "plan only rows and requests with this blockchain, customer_id or visibility_group_id"
    parser.add_argument("--only", metavar="KEY=VALUE", action="append", help=text)
    parser.add_argument("--all", action="store_true", help="also show unchanged rows")
    for name, (kind, text) in LIMITS.items():
        parser.add_argument(flag_of(name), type=_number(kind), default=SUPPRESS, metavar="N|none", help=text)
    text = "only the first N operations, like the parameter at_most of the plan task. Default: all"
    parser.add_argument("--at-most", type=_number(int, 1), metavar="N|none", help=text)
    text = "address or label that the file must have"
    parser.add_argument("--must-keep", dest="must_keep", metavar="TEXT", action="append", help=text, default=SUPPRESS)
    text = "id of a request that you have inspected, and that must not block a row"
    parser.add_argument("--ignore", dest="ignore", metavar="ID", action="append", help=text)
    add_connection_options(parser)
    add_connection_options(add_command(group, "dump", "Print the service's whitelist as a file", dump, ()))
    parser = add_command(group, "show", "Show one whitelisting request", show)
    parser.add_argument("id", metavar="ID", help="id of the request")
    add_connection_options(parser)
    parser = add_command(group, "delete", "Delete a whitelisting request, after confirmation", delete)
    parser.add_argument("id", metavar="ID", help="id of the request")
    parser.add_argument("--comment", metavar="TEXT", required=True, help="reason, for the service's history")
    parser.add_argument("--yes", action="store_true", help="delete without confirmation")
    add_connection_options(parser)
    parser = add_command(group, "verify", "Verify the service's whitelist by signatures", verify)
    parser.add_argument("--id", dest="ids", metavar="ID", action="append", help="id of a request. Default: all")
    text = "with -o json: include the data that are needed to verify again"
    parser.add_argument("--evidence", action="store_true", help=text)
    text = "verify the evidence in this file, without the service"
    parser.add_argument("--from", dest="file", metavar="FILE", help=text)
    add_connection_options(parser)
    add_command(group, "schema", "Print the JSON Schema of a whitelist file", print_schema, ())
