"""The command that tries a connection step by step, and prints the result of each step."""

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
from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client, usage_error
from airflow_custody.cli.output import Output, message, shorten_hashes
from airflow_custody.client.assumptions import check_assumptions
from airflow_custody.client.checks import CHECKS, DEFAULT_ROLE, ROLES, Check, check_connection
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.files import write_new_file
from airflow_custody.client.http.operation import missing_roles
from airflow_custody.client.text import sanitize, sentences

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.assumptions import Assumption


def check(args: Namespace, output: Output) -> int:
    """
    Try a connection step by step: whether its settings can be used, the service can be reached,
    TLS, the credentials, who the user is, which roles the user lacks and what for, the health
    listing, what is pinned to verify signatures with and whether the service's rules are signed so,
    and whether the clocks agree. It changes nothing.

    A check fails if the response is not the service's, or a role required by --role is missing.
    Unknown: the service does not offer this. The button Test Connection makes the same checks, but
    does not compare the clocks.

    With --assumptions it also tries, with reads only, what this package assumes about the service
    because it is not published: at most 1,000 requests and 500 webhook calls. An assumption holds
    only if something was seen that shows it. --report writes the result without any value, label,
    address, id or host, fit to be sent to others.

    Exit codes: 0 nothing failed (something may be unknown), 1 something failed, or an assumption
    does not hold.

    JSON: {"ok", "checks": [{"check", "state", "detail", "advice", "code"}], "assumptions":
    [{"assumption", "state", "seen", "advice", "error"}]}, always all of settings, reachable, tls,
    credentials, user, roles, health listing, signatures, clock; states are ok, failed, unknown, not
    checked. The code is an error code of the documentation, or empty. Assumptions are null without
    --assumptions, and where the credentials are not accepted; their states are holds, does not
    hold, cannot tell.
    """
    _check_options(args)
    checks, assumptions = _find(args)
    failed = _has_failed(checks, assumptions)
    output.data(
        {
            "ok": not failed,
            "checks": [_check_to_json(name, each) for name, each in checks.items()],
            "assumptions": [*map(asdict, assumptions)] or None,
        },
        _view(checks, assumptions),
    )
    if args.assumptions and not assumptions:
        message("Assumptions were not tried: that needs credentials that are accepted.")
    if args.report:
        _write_report(args.report, checks, assumptions)
    return ERROR if failed else NOTHING_TO_DO


def _check_options(args: Namespace) -> None:
    if args.report and not args.assumptions:
        raise usage_error("--report: only with --assumptions", "Give both.")
    for each in args.roles or ():
        _check_role(each)


def _has_failed(checks: dict[str, Check], assumptions: list[Assumption]) -> bool:
    if any(each.state == "failed" for each in checks.values()):
        return True
    return any(each.state == "does not hold" for each in assumptions)


def _find(args: Namespace) -> tuple[dict[str, Check], list[Assumption]]:
    """Return the results of the checks and, if they are tried, of the assumptions."""
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


def _check_to_json(name: str, check: Check) -> dict[str, str]:
    texts = {"detail": check.detail, "advice": check.advice, "code": check.code}
    return {"check": name, "state": check.state, **texts}


def _view(checks: dict[str, Check], assumptions: list[Assumption]) -> dict[str, Any]:
    """Return what people see of the results."""
    return {
        "checks": [_check_row(name, each) for name, each in checks.items() if each.detail],
        "not checked": ", ".join(name for name, each in checks.items() if not each.detail),
        "assumptions": [_assumption_row(each) for each in assumptions],
    }


def _check_row(name: str, check: Check) -> dict[str, str]:
    return {
        "check": name,
        "state": check.state,
        "detail": shorten_hashes(sentences(check.detail, check.advice)),
        "code": check.code and f"[custody/{check.code}]",
    }


def _assumption_row(found: Assumption) -> dict[str, str]:
    seen = sentences(_in_words(found.seen), found.error, found.advice)
    return {"assumption": found.assumption, "state": found.state, "seen": seen}


def _in_words(seen: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {_value_in_words(value)}" for name, value in seen.items())


def _value_in_words(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{number} {word}" for word, number in value.items()]
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _write_report(path: str, checks: dict[str, Check], assumptions: list[Assumption]) -> None:
    """Write the results without any text that could identify the service: no detail, advice or error."""
    report = {
        "airflow-provider-custody": __version__,
        "python": platform.python_version(),
        "checks": {name: {"state": each.state, "code": each.code} for name, each in checks.items()},
        "assumptions": [
            {"assumption": each.assumption, "state": each.state, "seen": each.seen} for each in assumptions
        ],
    }
    try:
        # A new file: an existing file may hold keys.
        write_new_file(path, f"{json.dumps(report, indent=2)}\n".encode())
    except OSError as error:
        raise CustodyConfigurationError(
            f"--report: {sanitize(path, 200)} cannot be written: {error.strerror}",
            advice="Give the path of a new file.",
            code="parameter-wrong",
        ) from None
    message(f"{path} has states, words, counts and codes only. Read its words before you send it along with an issue.")


def _check_role(given: str) -> None:
    """Refuse roles that no operation needs: a mistyped one would look as if the user lacked it."""
    known = sorted({role for needed in ROLES for role in needed.split(" or ")})
    for role in re.split(" or ", given, flags=re.IGNORECASE):
        if missing_roles([role], known):
            raise usage_error(f"--role: there is no role {sanitize(role, 60)!r}", f"There are: {', '.join(known)}.")


def add_to(commands: Commands, help: str) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "check", help, check)
    text = f"role that the user must have, or 'A or B' if one of two is enough. Default: {DEFAULT_ROLE}"
    parser.add_argument("--role", dest="roles", metavar="ROLE", action="append", help=text)
    text = "also try what is assumed about the service, with reads only"
    parser.add_argument("--assumptions", action="store_true", help=text)
    text = "write the result to a new file, without any value; with --assumptions"
    parser.add_argument("--report", metavar="FILE", help=text)
    add_connection_options(parser)
