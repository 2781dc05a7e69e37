"""The command that judges the service's health."""

from __future__ import annotations

import json
from argparse import BooleanOptionalAction, Namespace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.client.health.verdict import HealthCriteria, judge

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client.health.models import HealthCheck

# The options that choose checks: what they set, their values, and what they say.
_OPTIONS = {
    "--group": ("groups", "NAME", "only checks of this group"),
    "--component": ("components", "NAME", "only checks of this component"),
    "--check": ("checks", "NAME", "only checks of this name"),
    "--require-results": ("require_results", "KEY", "result that some check must report, such as a currency"),
    "--healthy-status": ("healthy_statuses", "WORD", "status word that counts as healthy. Default: success"),
}


def check_health(args: Namespace, output: Output) -> int:
    """
    Judge the service's health checks, as the operator CustodyHealthCheckOperator does, and list
    what a gate can name: groups, components, checks and the keys of results. If the options name
    what does not exist, all of the service's are listed.

    Exit codes: 0 healthy, 2 not healthy, 1 the service could not be asked, or wrong usage, also a
    group, component, check or result that does not exist.

    JSON: {"healthy", "total", "unhealthy", "groups": {NAME: {"total", "unhealthy"}},
    "groups_not_named", "problems": [{"group", "component", "check", "tenant_id", "status",
    "reason"}], "problems_not_named", "oldest_result_age_seconds", "fetched_at"}: the first 20
    problems and 50 groups; and all that is listed, "listed": [{"group", "component", "check",
    "status", "results": {KEY: WORD}}]; what is alike of several tenants or machines is there once.
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
    table = [{**row, "results": [f"{key} {word}" for key, word in row["results"].items()]} for row in listed]
    judged = [] if verdict.missing else [*verdict.details(), verdict.headline()]
    output.data({**verdict.to_json(), "listed": listed}, [table, *judged])
    if verdict.missing:
        options = {setting: option for option, (setting, _, _) in _OPTIONS.items()}
        message(verdict.wrong_names(named=options.__getitem__))
        return ERROR
    return NOTHING_TO_DO if verdict.healthy else CHANGES


def _row(check: HealthCheck) -> dict[str, Any]:
    """Return what of a check a gate can name, with the status words: the exact names, as the service sent them."""
    return {
        "group": check.listed_under,
        "component": check.component_name,
        "check": check.health_check,
        "status": check.status,
        "results": dict(sorted(((check.report or {}).get("results") or {}).items())),
    }


def add_to(commands: Commands, help: str) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "health", help, check_health)
    parser.add_argument("--tenant-id", metavar="ID", help="only the checks of this tenant")
    for flag, (dest, metavar, text) in _OPTIONS.items():
        parser.add_argument(flag, dest=dest, metavar=metavar, action="append", help=text)
    parser.add_argument(
        "--require-fresh",
        action=BooleanOptionalAction,
        default=True,
        help="whether a check past its validUntilDate counts as not healthy. Default: yes",
    )
    add_connection_options(parser)
