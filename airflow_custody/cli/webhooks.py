"""The commands ``webhooks``."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import NOTHING_TO_DO, add_command, add_group
from airflow_custody.cli.connection import add_connection_options, open_client
from airflow_custody.cli.output import Output, as_state
from airflow_custody.client.secrets import without_secrets

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands

# Names in the output, with the names that the service uses.
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
    List the webhook configurations. The user needs the role Admin or AdminReadOnly.

    Exit codes: 0 listed, even if there are none; 1 error.

    Only scheme, host and port of a webhook's URL are shown, because the rest may be a secret.

    JSON: a list of {"id", "type", "status", "url", "timeout_until", "created_at", "updated_at"}, as the service sends
    them. A value that the service does not send is null.
    """
    with open_client(args) as client:
        webhooks = client.list_webhooks()
    rows: list[dict[str, Any]] = [{name: each.get(wire) for name, wire in _FIELDS.items()} for each in webhooks]
    for row in rows:
        row["url"] = without_secrets(row["url"])
    table = [{**row, "status": as_state(row["status"] or "")} for row in rows]
    output.data(rows, table or "none")
    return NOTHING_TO_DO


def add_to(commands: Commands, help: str) -> None:
    """Add the commands."""
    group = add_group(commands, "webhooks", help)
    add_connection_options(add_command(group, "list", "List the webhook configurations", list_webhooks))
