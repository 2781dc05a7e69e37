"""The commands on whitelists."""

from __future__ import annotations

import json
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli import verify
from airflow_custody.cli.commands import (
    CHANGES,
    ERROR,
    NOTHING_TO_DO,
    OUTPUTS,
    REJECTED_HELP,
    Command,
    Group,
    Option,
    option,
)
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyConfigurationError, WhitelistFileError
from airflow_custody.client.text import count, sanitize

if TYPE_CHECKING:
    from airflow_custody.cli.dump import StatusWords
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.file import WhitelistFile
    from airflow_custody.client.whitelist.listing import Listing

#: The limits of ``PlanLimits``; each is an option of the same name.
LIMITS = ("max_creates", "max_create_percent", "max_deletes", "max_delete_percent", "must_keep")
_MARKDOWN = "markdown"


# --- files --------------------------------------------------------------------------------------------------


def validate(args: Namespace, output: Output) -> int:
    """
    Check a whitelist file, and print all that is wrong with it. Needs no connection.

    Addresses that could not be checked are no fault; their number is printed on standard error,
    too.

    Exit codes: 0 nothing is wrong, 1 something is, or the file cannot be read.

    JSON: {"file", "valid", "rows" (their number; null if it is not valid), "unchecked" (the
    number of addresses that could not be checked; null likewise), "sha256" (of the file; null
    likewise), "faults" (a list of texts)}.
    """
    from airflow_custody.client.whitelist.file import read_whitelist_file

    try:
        file = read_whitelist_file(args.file, check_addresses=args.check_addresses)
    except WhitelistFileError as error:
        faults = [sanitize(each, 1000) for each in error.faults]
        nothing = dict.fromkeys(("rows", "unchecked", "sha256"))
        output.data({"file": args.file, "valid": False, **nothing, "faults": faults}, faults)
        message(f"{args.file}: {count(len(faults), 'fault')} {label(error.code)}")
        return ERROR
    rows = len(file.rows)
    counts = {"rows": rows, "unchecked": file.unchecked}
    line = f"{sanitize(args.file)}: {count(rows, 'row')}, nothing is wrong (SHA-256 {file.sha256})"
    output.data(
        {"file": args.file, "valid": True, **counts, "sha256": file.sha256, "faults": []},
        ["; ".join(filter(None, (line, file.unchecked_text)))],
    )
    _tell_unchecked(file)
    return NOTHING_TO_DO


def schema(args: Namespace, output: Output) -> int:
    """
    Print the JSON Schema of a whitelist file, with which editors complete and check it. Needs
    no connection.

    Exit codes: 0 printed, 1 error.
    """
    from airflow_custody.client.whitelist.file import whitelist_schema

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
    verified), "counts": {STATE: number}, "has_changes", "rows":
    [{"state", "action", "where", "id", "status", "fields", "shown", "note", "request"}],
    "over_limits" (a list of texts)}. States are create, pending, unchanged, differs, undeclared,
    rejected, unreadable, unverified; actions create, delete and null.
    """
    from airflow_custody.client.whitelist.listing import service_name
    from airflow_custody.client.whitelist.plan import PlanLimits
    from airflow_custody.client.whitelist.plan_report import plan_to_json, plan_to_markdown, plan_to_table
    from airflow_custody.client.whitelist.planner import make_plan

    words = _status_words(args)
    file = _read(args)
    # What is not given has the limits' own defaults.
    limits = PlanLimits(**{name: getattr(args, name) for name in LIMITS if hasattr(args, name)})
    with open_client(args) as client:
        service = service_name(client)
        listing = _fetch(client, words)
    found = make_plan(
        file.rows,
        listing,
        service=service,
        name=file.name,
        prune=args.prune,
        dry_run_chains=args.dry_run_chains or (),
        effective_statuses=words.effective,
        rejected_statuses=words.rejected,
        accept_fields=args.accept_fields or (),
    )
    faults = limits.faults(found)
    if output.form == _MARKDOWN:
        output.text(plan_to_markdown(found))
    elif output.form == OUTPUTS[0]:
        output.text(plan_to_table(found, all_rows=args.all))
    else:
        output.data({**plan_to_json(found), "over_limits": list(faults)}, ())
    for each in faults:
        message(f"the plan is over a limit: {each}")
    if faults:
        return ERROR
    return CHANGES if found.has_changes else NOTHING_TO_DO


def _status_words(args: Namespace) -> StatusWords:
    from airflow_custody.cli.dump import StatusWords

    if args.any_status and args.effective_statuses:
        raise CustodyConfigurationError(
            "--any-status and --effective-status are both given", advice="Give one of them.", code="usage-wrong"
        )
    words = StatusWords(rejected=args.rejected_statuses) if args.rejected_statuses else StatusWords()
    if args.any_status:
        return replace(words, effective=None)
    return replace(words, effective=args.effective_statuses) if args.effective_statuses else words


def _fetch(client: CustodyClient, words: StatusWords) -> Listing:
    from airflow_custody.client.whitelist.listing import fetch_listing

    if words.effective is None:
        return fetch_listing(client, by_status=False)
    return fetch_listing(client, effective_statuses=words.effective, rejected_statuses=words.rejected)


def _read(args: Namespace) -> WhitelistFile:
    """Return the file; all that is wrong with it becomes messages."""
    from airflow_custody.client.whitelist.file import read_whitelist_file

    try:
        file = read_whitelist_file(args.file, check_addresses=args.check_addresses)
    except WhitelistFileError as error:
        for each in error.faults:
            # What cannot be read is named by its path already.
            message(each if each.startswith(f"{args.file}: ") else f"{args.file}: {each}")
        # The faults are told: what is left is how many there are.
        error.message = f"{args.file}: {count(len(error.faults), 'fault')}; the service was not asked"
        raise
    _tell_unchecked(file)
    return file


def _tell_unchecked(file: WhitelistFile) -> None:
    if file.unchecked_text:
        message(file.unchecked_text)


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
    from airflow_custody.cli.dump import dump_listing
    from airflow_custody.client.whitelist.listing import service_name

    words = _status_words(args)
    with open_client(args) as client:
        service = service_name(client)
        listing = _fetch(client, words)
    dumped = dump_listing(listing, service, words, accept_fields=args.accept_fields or ())
    output.text(dumped.text)
    for each in (*dumped.notes, *dumped.faults):
        message(each)
    return ERROR if dumped.faults else NOTHING_TO_DO


def show(args: Namespace, output: Output) -> int:
    """
    Show one whitelisting request: its status, its payload, its signatures, its trail. With pinned
    keys it says whether signatures prove that it is whitelisted, and by whom; without, nothing is
    verified: the payload is what its hash says, and all else is the service's word. Whether it is
    pending is the service's word, too.

    Exit codes: 0 shown; 1 there is no such request, its payload is not what its hash says (it is
    not shown then), or another error.

    JSON: {"id", "status", "action", "tenant_id", "blockchain", "network",
    "visibility_group_id", "hash", "fault" (why its payload is not what its hash says; or null),
    "payload" (null then; with pinned keys, what is signed and nothing else: null if it is not
    verified), "unverified_payload" (with pinned keys, what its hash says, if it is another:
    nothing proves it; or null), "verified" (whether signatures prove it; null if nothing is
    pinned), "reason" (why they do not; null if it is pending or rejected), "verification" (what
    they prove: as a row of verify, with its state; or null), "signatures": [{"user_id",
    "signature", "hashes"}], "trail": [{"date", "action",
    "user_id", "external_user_id", "comment"}]}.
    """
    from airflow_custody.cli.show import describe_request, listed_as, show_lines
    from airflow_custody.client.verification.rules_in_force import verifier_for

    with open_client(args) as client:
        envelope = client.get_whitelist_request(args.id)
        listed = "settled" if client.verifier is None else listed_as(client, envelope)
        data = describe_request(envelope, verifier_for(client, [envelope.wire]), listed)
    output.data(data, show_lines(data))
    if data["fault"]:
        message(data["fault"])
    return ERROR if data["fault"] else NOTHING_TO_DO


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


def _limit(name: str, kind: Callable[[str], Any], help: str) -> Option:
    return option(
        f"--{name.replace('_', '-')}", type=_number(kind), default=SUPPRESS, metavar="N", help=f"{help}; or none"
    )


def _several(flag: str, dest: str, metavar: str, help: str, default: Any = None) -> Option:
    return option(flag, dest=dest, metavar=metavar, action="append", default=default, help=f"{help}; may be repeated")


_FILE = (
    option("file", metavar="FILE", help="a whitelist file in YAML, JSON or CSV"),
    option(
        "--check-addresses",
        action=BooleanOptionalAction,
        default=True,
        help="whether addresses are checked against the rules of their chains, where the extra 'addresses' is "
        "installed. Default: yes",
    ),
)

_STATUS_WORDS = (
    _several(
        "--effective-status", "effective_statuses", "WORD", "status word of requests in effect. Default: approved"
    ),
    option("--any-status", action="store_true", help="a request that is not pending is in effect"),
    option("--rejected-status", dest="rejected_statuses", metavar="WORD", action="append", help=REJECTED_HELP),
)

_ACCEPT_FIELDS = _several(
    "--accept-field",
    "accept_fields",
    "KEY",
    "key of a payload that may have a value that a file cannot say; or envelope.action, for an unknown word there",
)

GROUP = Group(
    "whitelist",
    "Whitelists, and files that say what should be in them",
    (
        Command("validate", "Check a whitelist file", validate, _FILE),
        Command(
            "plan",
            "Compare a whitelist file with what the service has",
            plan,
            (
                *_FILE,
                option("--prune", action="store_true", help="plan to delete what the file does not have"),
                option("--all", action="store_true", help="show unchanged rows in the table, too"),
                _limit("max_creates", int, "maximum number of creations. Default: no limit"),
                _limit("max_create_percent", float, "the same in per cent of the file's rows. Default: no limit"),
                _limit("max_deletes", int, "maximum number of deletions. Default: 10"),
                _limit("max_delete_percent", float, "the same in per cent of the service's requests. Default: 30"),
                _several("--must-keep", "must_keep", "TEXT", "address or label that must be in the file", SUPPRESS),
                _several("--dry-run-chain", "dry_run_chains", "CHAIN", "chain for which nothing is planned"),
                _ACCEPT_FIELDS,
                *_STATUS_WORDS,
                *CONNECTION_OPTIONS,
            ),
            outputs=(*OUTPUTS, _MARKDOWN),
        ),
        Command(
            "dump",
            "Print the service's whitelist as a file",
            dump,
            (_ACCEPT_FIELDS, *_STATUS_WORDS, *CONNECTION_OPTIONS),
            outputs=(),
        ),
        Command(
            "show",
            "Show one whitelisting request",
            show,
            (option("id", metavar="ID", help="id of the request"), *CONNECTION_OPTIONS),
        ),
        verify.COMMAND,
        Command("schema", "Print the JSON Schema of a whitelist file", schema, outputs=()),
    ),
)
