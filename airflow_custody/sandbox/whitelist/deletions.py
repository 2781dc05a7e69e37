"""Deletions that take effect once they are signed: one reading of what is not published."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from airflow_custody.sandbox.state import State

_TABLES = """
CREATE TABLE IF NOT EXISTS deletions (marked_id INTEGER PRIMARY KEY, deleted_from TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS deletion_signatures (
    request_id INTEGER NOT NULL, user_id TEXT NOT NULL, group_id TEXT NOT NULL, PRIMARY KEY (request_id, user_id)
);
"""
#: The requests, each with the status that it had before it was to be deleted, or NULL.
MARKED = "whitelist LEFT JOIN deletions ON marked_id = id"


class Deletions:
    """The store of pending deletions and their signatures."""

    def __init__(self, state: State) -> None:
        self._state = state
        state.create_tables(_TABLES)

    def add(self, row: sqlite3.Row) -> None:
        """Mark a request for deletion."""
        self._state.write("INSERT INTO deletions VALUES (?, ?)", row["id"], row["status"])

    def remove(self, request_id: int) -> None:
        """Remove the mark of a request, if it has one, and the signatures of its deletion."""
        self._state.write("DELETE FROM deletions WHERE marked_id = ?", request_id)
        self._state.write("DELETE FROM deletion_signatures WHERE request_id = ?", request_id)

    def add_signature(self, row: sqlite3.Row, user_id: str, group: str) -> None:
        """Add a user's signature, made for a group of approvers, to a deletion."""
        self._state.write("INSERT INTO deletion_signatures VALUES (?, ?, ?)", row["id"], user_id, group)

    def signers(self, rows: Sequence[sqlite3.Row]) -> dict[int, dict[str, str]]:
        """Return who has signed, by request: each user, and for which group; of one to be deleted, its deletion."""
        found: dict[int, dict[str, str]] = {row["id"]: {} for row in rows}
        for table, wanted in (
            ("signatures", [row["id"] for row in rows if not row["deleted_from"]]),
            ("deletion_signatures", [row["id"] for row in rows if row["deleted_from"]]),
        ):
            condition = "request_id IN (SELECT value FROM json_each(?))"
            for each in self._state.rows(f"SELECT * FROM {table} WHERE {condition}", json.dumps(wanted)):
                found[each["request_id"]][each["user_id"]] = each["group_id"]
        return found
