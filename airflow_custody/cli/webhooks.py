"""The commands on webhooks."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from airflow_custody.cli.commands import NOTHING_TO_DO, add_command, add_group
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output
from airflow_custody.client.secrets import without_secrets

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands

# Names on the wire, by names in the output.
_FIELDS = {
    "id": "id",
    "type": "type",
    "status": "status",
    "url": "url",
    "timeout_until": "timeoutUntil",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}


def list_webhooks(args: Namespace, output: Output) -> int:
    """
    List the webhook configurations. Needs the role Admin or AdminReadOnly.

    Exit codes: 0 listed, also if there is none; 1 error.

    JSON: a list of {"id", "type", "status", "url", "timeout_until", "created_at",
    "updated_at"}, as the service sends them; null where it sends nothing. Of a URL, only
    scheme, host and port are shown: the rest may be a secret.
    """
    with open_client(args) as client:
        rows = [{name: each.get(wire) for name, wire in _FIELDS.items()} for each in client.list_webhooks()]
    for row in rows:
        row["url"] = without_secrets(row["url"])
    output.data(rows, rows or "none")
    return NOTHING_TO_DO


def add_to(commands: Commands, help: str) -> None:
    """Add the commands to the parser of all."""
    group = add_group(commands, "webhooks", help)
    add_connection_options(add_command(group, "list", "List the webhook configurations", list_webhooks))
