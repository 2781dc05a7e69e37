"""The command that judges the service's health."""

from __future__ import annotations

import math
import time
from argparse import ArgumentTypeError, BooleanOptionalAction, Namespace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command, add_repeated
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict

_DEFAULT_WATCH = 30.0
_MAX_WATCH = 86_400


def check_health(args: Namespace, output: Output) -> int:
    """
    Judge the service's health checks, as the operator CustodyHealthCheckOperator does.

    With --watch it goes on until Ctrl-C, and prints a line for each poll; it survives failures
    that pass, such as a service that restarts. A wrong token ends it.

    Exit codes: 0 healthy, 2 not healthy, 1 the service could not be asked, or wrong usage, also a
    group, component, check or result that does not exist; with --watch 130, when Ctrl-C ends it.

    JSON: {"healthy", "total", "unhealthy", "groups": {NAME: {"total", "unhealthy"}},
    "groups_not_named", "problems": [{"group", "component", "check", "tenant_id", "status",
    "reason"}], "problems_not_named", "oldest_result_age_seconds", "fetched_at"}: the first 20
    problems and 50 groups. With --watch each poll is one line; one that failed is
    {"healthy": null, "error", "code", "fetched_at"}.
    """
    from airflow_custody.client.health.verdict import HealthCriteria

    criteria = HealthCriteria.of(
        tenant_id=args.tenant_id,
        groups=args.groups,
        components=args.components,
        checks=args.checks,
        require_results=args.require_results,
        healthy_statuses=args.healthy_statuses or ("success",),
        require_fresh=args.require_fresh,
    )
    if args.watch is not None:
        return _watch(args, criteria, output)
    verdict = _judge(args, criteria)
    output.data(verdict.to_json(), [*verdict.table(), verdict.summary()])
    if verdict.missing:
        message(verdict.error())
        return ERROR
    return _code(verdict)


def _judge(args: Namespace, criteria: HealthCriteria) -> HealthVerdict:
    from airflow_custody.client.health.verdict import judge

    with open_client(args) as client:
        return judge(client.list_health_checks(criteria.tenant_id), criteria)


def _code(verdict: HealthVerdict) -> int:
    return NOTHING_TO_DO if verdict.healthy else CHANGES


def _watch(args: Namespace, criteria: HealthCriteria, output: Output) -> int:
    """Print a line for each poll until the reader has gone, and return the last one's exit code."""
    code = NOTHING_TO_DO
    while True:
        now = datetime.now(timezone.utc)
        try:
            # The connection is read anew: a token may have been renewed.
            verdict = _judge(args, criteria)
        except CustodyError as error:
            if not error.transient:
                raise
            data = {"healthy": None, "error": error.reason, "code": error.code, "fetched_at": now.isoformat()}
            line = f"unknown      {error.reason} {label(error.code)}"
        else:
            code = _code(verdict)
            word = "healthy    " if verdict.healthy else "NOT HEALTHY"
            data, line = verdict.to_json(), f"{word}  {verdict.summary()}"
        output.data(data, f"{now:%Y-%m-%d %H:%M:%S} UTC  {line}", indent=None)
        if output.closed:
            return code
        time.sleep(args.watch)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= _MAX_WATCH:
        raise ArgumentTypeError(f"must be a number of seconds from 0.1 to {_MAX_WATCH}")
    return seconds


def add_to(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "health", "Judge the service's health checks", check_health)
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=_seconds,
        const=_DEFAULT_WATCH,
        help=f"judge again every so many seconds, until Ctrl-C. Default: {_DEFAULT_WATCH:g}",
    )
    parser.add_argument("--tenant-id", metavar="ID", help="only the checks of this tenant")
    for flag, dest, metavar, text in (
        ("--group", "groups", "NAME", "only checks of this group"),
        ("--component", "components", "NAME", "only checks of this component"),
        ("--check", "checks", "NAME", "only checks of this name"),
        ("--require-results", "require_results", "KEY", "result that some check must report, such as a currency"),
        ("--healthy-status", "healthy_statuses", "WORD", "status word that counts as healthy. Default: success"),
    ):
        add_repeated(parser, flag, dest, metavar, text)
    parser.add_argument(
        "--require-fresh",
        action=BooleanOptionalAction,
        default=True,
        help="whether a check past its validUntilDate counts as not healthy. Default: yes",
    )
    add_connection_options(parser)
