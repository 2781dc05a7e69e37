"""
What each error code stands for: the cause, and what to do about it.

The documentation's page of error codes and the command ``custody errors`` are made of this.
"""

from __future__ import annotations

from airflow_custody.client.error_codes import (
    approving,
    command_line,
    health,
    network,
    plans,
    responses,
    settings,
    tasks,
    verification,
    webhooks,
    whitelisting,
)
from airflow_custody.client.error_codes.entry import Entry, Group

__all__ = ["ENTRIES", "GROUPS", "Entry", "Group"]

#: All codes, by subject.
GROUPS: tuple[Group, ...] = (
    settings.GROUP,
    network.SIGN_IN,
    network.NETWORK,
    responses.GROUP,
    tasks.GROUP,
    whitelisting.GROUP,
    plans.GROUP,
    approving.GROUP,
    verification.GROUP,
    webhooks.GROUP,
    health.GROUP,
    command_line.GROUP,
)
#: All codes, by name.
ENTRIES: dict[str, Entry] = {entry.code: entry for group in GROUPS for entry in group.entries}
