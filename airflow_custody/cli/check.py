"""The command ``check``: tests a connection step by step."""

from __future__ import annotations

import json
import platform
import re
from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_custody import __version__
from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO, add_command, usage_error
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Mark, Output, as_state, message, shorten_hashes
from airflow_custody.client.assumptions import check_assumptions
from airflow_custody.client.checks import CHECKS, DEFAULT_ROLE, ROLES, Check, check_connection
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.files import write_new_file
from airflow_custody.client.http.operation import missing_roles
from airflow_custody.client.text import sanitize, sentences

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.assumptions import Assumption


def check(args: Namespace, output: Output) -> int:
    """
    Test a connection step by step, without changing anything: settings, network, TLS, credentials, user, roles,
    health listing, pinned keys, tenant, chains and clocks.

    Exit codes: 0 no check failed; 1 a check failed, or an assumption does not hold.

    A check fails if the response is not the service's, or if a role required by --role is missing. A check is unknown
    if the service does not offer an operation that the check needs. The button Test Connection runs the same checks,
    except for the clocks.

    --assumptions also tests the package's assumptions about unpublished details of the service. These tests only read,
    at most 1,000 requests and 500 webhook calls. An assumption holds only if the data show it. --report writes the
    results to a new file without values, labels, addresses, ids and hosts, so that the file can be sent to others.

    JSON: {"ok", "checks": [{"check", "state", "detail", "advice", "code"}], "assumptions": [{"assumption", "state",
    "seen", "advice", "error"}]}. The checks are always settings, reachable, tls, credentials, user, roles, health
    listing, signatures and clock. After signatures, there may be three more checks, each only if the service offers the
    operations that it needs: tenant (compares the tenant's configuration with the pins), signer (whether a user with
    the role WhitelistedAddressApprover, and the user's key, are in the rules; fails only with --role) and chains (lists
    the active chains). The states of checks are ok, failed, unknown and not checked. The code is an error code of the
    documentation, or empty. The states of assumptions are holds, does not hold and cannot tell. Without --assumptions,
    or if the credentials are not accepted, assumptions is null.
    """
    if args.report and not args.assumptions:
        raise usage_error("--report needs --assumptions", "Use both options.")
    for each in args.roles or ():
        _check_role(each)
    checks, assumptions = _run_checks(args)
    failed = [name for name, each in checks.items() if each.state == "failed"]
    failed += [each.assumption for each in assumptions if each.state == "does not hold"]
    output.data(
        {
            "ok": not failed,
            "checks": [
                {"check": name, "state": each.state, "detail": each.detail, "advice": each.advice, "code": each.code}
                for name, each in checks.items()
            ],
            "assumptions": [*map(asdict, assumptions)] or None,
        },
        [
            Mark("FAILED", "bad", rest=f": {', '.join(failed)}") if failed else Mark("no check failed", "good"),
            _view(checks, assumptions),
        ],
    )
    if args.assumptions and not assumptions:
        message("assumptions were not tested: the credentials must be accepted first")
    if args.report:
        _write_report(args.report, checks, assumptions)
    return ERROR if failed else NOTHING_TO_DO


def _run_checks(args: Namespace) -> tuple[dict[str, Check], list[Assumption]]:
    """Return the results of the checks, and of the assumptions (empty if they were not tested)."""
    with ExitStack() as stack:
        try:
            client = stack.enter_context(open_client(args))
        except CustodyError as error:
            failed = Check("failed", error.reason, error.advice or "", error)
            return {**dict.fromkeys(CHECKS, Check()), "settings": failed}, []
        checks = check_connection(client, args.roles or ()).checks
        if not args.assumptions or checks["credentials"].state != "ok":
            return checks, []

        return checks, check_assumptions(client)


def _view(checks: dict[str, Check], assumptions: list[Assumption]) -> dict[str, Any]:
    """Return the results for people."""
    return {
        "checks": [
            {
                "check": name,
                "state": as_state(each.state),
                "detail": shorten_hashes(sentences(each.detail, each.advice))
                + (each.code and f" [custody/{each.code}]"),
            }
            for name, each in checks.items()
            if each.detail
        ],
        "not checked": ", ".join(name for name, each in checks.items() if not each.detail),
        "assumptions": [
            {
                "assumption": each.assumption,
                "state": as_state(each.state),
                "seen": sentences(_in_words(each.seen), each.error, each.advice),
            }
            for each in assumptions
        ],
    }


def _in_words(seen: Mapping[str, Any]) -> str:
    texts = []
    for name, value in seen.items():
        if isinstance(value, dict):
            value = [f"{number} {word}" for word, number in value.items()]
        if isinstance(value, list):
            value = ", ".join(value) or "none"
        texts.append(f"{name}: {('no', 'yes')[value] if isinstance(value, bool) else value}")
    return "; ".join(texts)


def _write_report(path: str, checks: dict[str, Check], assumptions: list[Assumption]) -> None:
    """Write the results without texts that could identify the service."""
    report = {
        "airflow-provider-custody": __version__,
        "python": platform.python_version(),
        "checks": {name: {"state": each.state, "code": each.code} for name, each in checks.items()},
        "assumptions": [
            {"assumption": each.assumption, "state": each.state, "seen": each.seen} for each in assumptions
        ],
    }
    try:
        # Never overwrite an existing file, because it may hold keys.
        write_new_file(path, f"{json.dumps(report, indent=2)}\n".encode())
    except OSError as error:
        why = f"--report: {sanitize(path, 200)} cannot be written: {error.strerror}"
        raise usage_error(why, "Choose the path of a new file.") from None
    message(f"{path} has only states, words, counts and codes. Read the words before you attach it to an issue.")


def _check_role(given: str) -> None:
    """Reject an unknown role, because a mistyped role would be reported as missing."""
    known = sorted({role for needed in ROLES for role in needed.split(" or ")})
    for role in re.split(" or ", given, flags=re.IGNORECASE):
        if missing_roles([role], known):
            raise usage_error(f"--role: unknown role {sanitize(role, 60)!r}", f"The roles are: {', '.join(known)}.")


def add_to(commands: Commands, help: str) -> None:
    """Add the command."""
    parser = add_command(commands, "check", help, check)
    text = f"required role, or 'A or B' for one of two. Default: {DEFAULT_ROLE}"
    parser.add_argument("--role", dest="roles", metavar="ROLE", action="append", help=text)
    text = "also test the package's assumptions about the service"
    parser.add_argument("--assumptions", action="store_true", help=text)
    text = "with --assumptions: write the results to this new file, without values, labels, addresses, ids or hosts"
    parser.add_argument("--report", metavar="FILE", help=text)
    add_connection_options(parser)
