"""The command ``health``: evaluates the service's health checks."""

from __future__ import annotations

import json
from argparse import BooleanOptionalAction, Namespace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Mark, Output, as_state, message
from airflow_custody.client.health.verdict import HealthCriteria, judge

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.health.models import HealthCheck
    from airflow_custody.client.health.verdict import HealthVerdict

# Stands for a status that the service does not report.
_MISSING = "(missing)"
# The options for the criteria, each with the name of the criterion, the name of its value in the help, and its help.
_OPTIONS = {
    "--group": ("groups", "NAME", "evaluate only this group"),
    "--component": ("components", "NAME", "evaluate only this component"),
    "--check": ("checks", "NAME", "evaluate only checks with this name"),
    "--require-results": ("require_results", "KEY", "required key of a result, such as a currency"),
    "--healthy-status": ("healthy_statuses", "WORD", "healthy status word. Default: success"),
}


def check_health(args: Namespace, output: Output) -> int:
    """
    Evaluate the service's health checks. Also list the names that a health operator or sensor can select: groups,
    components, checks and keys of results.

    Exit codes: 0 healthy; 2 not healthy; 1 error, including a selected name that does not exist.

    The verdict is the same as that of the operator CustodyHealthCheckOperator. If a selected name does not exist, all
    checks of the service are listed.

    JSON: {"healthy", "total", "unhealthy", "groups": {NAME: {"total", "unhealthy"}}, "groups_not_named", "problems":
    [{"group", "component", "component_id", "check", "tenant_id", "status", "reason", "last_update_date",
    "valid_until_date", "report": {"name", "status", "duration_seconds", "results": {KEY: WORD}, "results_not_named",
    "message", "error", "vaultd_clients": [{"host_port", "connected", "error", "last_ping"}],
    "vaultd_clients_not_named"}}], "problems_not_named", "oldest_result_age_seconds", "fetched_at", "listed": [{"group",
    "component", "check", "status", "results": {KEY: WORD}}]}. A value that the service does not report, or that cannot
    be read, is null. There are at most 50 problems (64 KiB), 50 groups, and 30 results and 5 vaultd clients for each
    report; the fields that end in not_named have the numbers of those that are left out. All checks are in listed, but
    identical rows, for example of several tenants or machines, are merged.
    """
    criteria = HealthCriteria.of(
        tenant_id=args.tenant_id,
        groups=args.groups,
        components=args.components,
        checks=args.checks,
        require_results=args.require_results,
        healthy_statuses=args.healthy_statuses or ("success",),
        require_fresh=args.require_fresh,
    )
    with open_client(args) as client:
        checks = client.list_health_checks(criteria.tenant_id)
    verdict = judge(checks, criteria)
    rows = map(_row, checks if verdict.missing else verdict.checks)
    listed = [json.loads(each) for each in sorted({json.dumps(row) for row in rows})]
    headline, *details = view_health(verdict)
    judged = [] if verdict.missing else [*details, headline]
    output.data({**verdict.to_json(), "listed": listed}, [[_view(row) for row in listed], *judged])
    if verdict.missing:
        options = {setting: option for option, (setting, _, _) in _OPTIONS.items()}
        message(verdict.wrong_names(named=options.__getitem__))
        return ERROR
    return NOTHING_TO_DO if verdict.healthy else CHANGES


def _row(check: HealthCheck) -> dict[str, Any]:
    """Return a check's names and status words as the service sent them."""
    return {
        "group": check.listed_under,
        "component": check.component_name,
        "check": check.health_check,
        "status": check.status,
        "results": dict(sorted((check.report.results if check.report else {}).items())),
    }


def _view(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people."""
    results = ", ".join(f"{key} {word or _MISSING}" for key, word in row["results"].items())
    return {**row, "status": as_state(row["status"] or _MISSING), "results": results}


def view_health(verdict: HealthVerdict) -> list[Mark | str]:
    """
    Return the lines of a verdict: the verdict itself, then what is wrong.

    :param verdict: the verdict.
    """
    return [Mark(verdict.headline(), "good" if verdict.healthy else "bad"), *verdict.details()]


def add_to(commands: Commands, help: str) -> None:
    """Add the command."""
    parser = add_command(commands, "health", help, check_health)
    parser.add_argument("--tenant-id", metavar="ID", help="evaluate only this tenant")
    for flag, (dest, metavar, text) in _OPTIONS.items():
        parser.add_argument(flag, dest=dest, metavar=metavar, action="append", help=text)
    parser.add_argument(
        "--require-fresh",
        action=BooleanOptionalAction,
        default=True,
        help="whether an expired result counts as not healthy. Default: yes",
    )
    add_connection_options(parser)
