"""The commands on webhooks."""

from __future__ import annotations

from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

from airflow_custody.cli.commands import NOTHING_TO_DO, Command, Group
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client
from airflow_custody.cli.output import Output
from airflow_custody.client.text import REDACTED
from airflow_custody.client.text_table import format_table

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
    List the webhook configurations. Needs the role Admin.

    Exit codes: 0 listed, also if there is none; 1 error.

    JSON: a list of {"id", "type", "status", "url", "timeout_until", "created_at",
    "updated_at"}, as the service sends them; null where it sends nothing. User names,
    passwords and parameters of a URL are not shown.
    """
    with open_client(args) as client:
        rows = [{name: each.get(wire) for name, wire in _FIELDS.items()} for each in client.list_webhooks()]
    for row in rows:
        row["url"] = _without_secrets(row["url"])
    columns = ("id", "type", "status", "updated_at", "url")
    cells = [[row[name] for name in columns] for row in rows]
    output.data(rows, [format_table([name.upper() for name in columns], cells)])
    return NOTHING_TO_DO


def _without_secrets(url: Any) -> str | None:
    """Return a URL without what may be a secret in it."""
    if not url:
        return None
    try:
        parts = urlsplit(str(url))
    except ValueError:
        return REDACTED
    user, at, host = parts.netloc.rpartition("@")
    parts = parts._replace(netloc=f"{REDACTED if user else ''}{at}{host}")
    return parts._replace(query=REDACTED if parts.query else "", fragment="").geturl()


GROUP = Group(
    "webhooks",
    "Webhook configurations",
    (Command("list", "List the webhook configurations", list_webhooks, CONNECTION_OPTIONS),),
)
