"""The command that judges the service's health."""

from __future__ import annotations

from argparse import BooleanOptionalAction, Namespace
from typing import TYPE_CHECKING

from airflow_custody.cli.commands import CHANGES, ERROR, NOTHING_TO_DO, add_command, add_repeated
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output, message

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands


def check_health(args: Namespace, output: Output) -> int:
    """
    Judge the service's health checks, as the operator CustodyHealthCheckOperator does.

    Exit codes: 0 healthy, 2 not healthy, 1 the service could not be asked, or wrong usage, also a
    group, component, check or result that does not exist.

    JSON: {"healthy", "total", "unhealthy", "groups": {NAME: {"total", "unhealthy"}},
    "groups_not_named", "problems": [{"group", "component", "check", "tenant_id", "status",
    "reason"}], "problems_not_named", "oldest_result_age_seconds", "fetched_at"}: the first 20
    problems and 50 groups.
    """
    from airflow_custody.client.health.verdict import HealthCriteria, judge

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
        verdict = judge(client.list_health_checks(criteria.tenant_id), criteria)
    output.data(verdict.to_json(), [*verdict.table(), verdict.summary()])
    if verdict.missing:
        message(verdict.error())
        return ERROR
    return NOTHING_TO_DO if verdict.healthy else CHANGES


def add_to(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "health", "Judge the service's health checks", check_health)
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
