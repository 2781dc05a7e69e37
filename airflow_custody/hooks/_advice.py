"""Add the connection's id to ``custody`` commands in advice."""

from __future__ import annotations

import re
import shlex

from airflow_custody.hooks.custody import CustodyHook

# A quoted command that uses a connection.
_COMMAND = re.compile(
    r"(?P<quote>[`'])(?P<command>custody (?:check|status|health|webhooks|whitelist (?:plan|dump|show|verify|delete))\b"
    r"(?![^`'\n]*--conn-id)[^`'\n]*)(?P=quote)"
)


def name_connection(text: str, conn_id: str) -> str:
    """
    Add a connection's id to each ``custody`` command in a text. Without it, the command uses the default connection.

    :param text: advice, with each command in quotation marks or backticks.
    :param conn_id: the id. Nothing is added for the default connection.
    """
    if conn_id == CustodyHook.default_conn_name:
        return text
    option = f"--conn-id {shlex.quote(conn_id)}"
    return _COMMAND.sub(lambda found: f"{found['quote']}{found['command']} {option}{found['quote']}", text)
