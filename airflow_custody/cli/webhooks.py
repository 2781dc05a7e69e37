"""The commands on webhooks."""

from __future__ import annotations

from argparse import Namespace

from airflow_custody.cli.commands import NOTHING_TO_DO, Command, Group
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client
from airflow_custody.cli.output import Output
from airflow_custody.client.text_table import format_table
from airflow_custody.client.webhooks.urls import without_secrets

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
    columns = ("id", "type", "status", "updated_at", "url")
    cells = [[row[name] for name in columns] for row in rows]
    output.data(rows, [format_table([name.upper() for name in columns], cells)])
    return NOTHING_TO_DO


GROUP = Group(
    "webhooks",
    "Webhook configurations",
    (Command("list", "List the webhook configurations", list_webhooks, CONNECTION_OPTIONS),),
)
