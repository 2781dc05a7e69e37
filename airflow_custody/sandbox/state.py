"""Keep the sandbox's state in SQLite, in memory or in a file."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from typing import Any

from airflow_custody.sandbox.errors import SandboxError

# Marks a file as ours ("CuSb"), so that another program's database is never written to by mistake.
_APPLICATION_ID = 0x43755362

_TABLES = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (
    token TEXT PRIMARY KEY, user_id TEXT NOT NULL, tenant_id TEXT NOT NULL, roles TEXT NOT NULL,
    expires_at REAL, is_main INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS whitelist (
    id INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, user_id TEXT NOT NULL, status TEXT NOT NULL,
    blockchain TEXT NOT NULL, network TEXT NOT NULL, label TEXT NOT NULL, address TEXT NOT NULL,
    fields TEXT NOT NULL, body BLOB NOT NULL, created_at TEXT NOT NULL, approvers TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS signatures (
    request_id INTEGER NOT NULL, user_id TEXT NOT NULL, group_id TEXT NOT NULL, signature TEXT NOT NULL,
    comment TEXT NOT NULL, hashes TEXT NOT NULL, signed_at TEXT NOT NULL, PRIMARY KEY (request_id, user_id)
);
CREATE TABLE IF NOT EXISTS webhooks (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, tenant_id TEXT NOT NULL, type TEXT NOT NULL,
    url TEXT NOT NULL, status TEXT NOT NULL, secret TEXT NOT NULL, timeout_until TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, tenant_id TEXT NOT NULL, roles TEXT NOT NULL, password TEXT NOT NULL,
    totp INTEGER NOT NULL, groups TEXT NOT NULL, public_key TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS api_keys (id TEXT PRIMARY KEY, secret TEXT NOT NULL, user_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nonces (api_key TEXT, nonce TEXT, PRIMARY KEY (api_key, nonce));
"""


class State:
    """Hold one SQLite database; every write is committed when the call returns.

    The routes run one after the other on the server's event loop, but starting and stopping happen on other
    threads: hence the lock.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lock = threading.RLock()
        where = os.fspath(path) if path is not None else ":memory:"
        try:
            self._database = sqlite3.connect(where, timeout=0.1, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise SandboxError(f"cannot use the state file {where}: {error}") from error
        self._database.row_factory = sqlite3.Row
        try:
            self._prepare(where)
        except sqlite3.Error as error:
            self.close()
            hint = " (is another sandbox using it?)" if "locked" in str(error) else ""
            raise SandboxError(f"cannot use the state file {where}: {error}{hint}") from error
        except SandboxError:
            self.close()
            raise

    def _prepare(self, where: str) -> None:
        # What was committed must survive the death of the process, not of the machine: do not wait for the disk.
        self._database.execute("PRAGMA synchronous = OFF")
        # Two sandboxes on one file would not see each other's changes: the second must not start.
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("BEGIN EXCLUSIVE")
        (owner,) = self._database.execute("PRAGMA application_id").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and owner != _APPLICATION_ID:
            raise SandboxError(f"cannot use the state file {where}: it belongs to another program")
        self._database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for statement in _TABLES.split(";"):
            self._database.execute(statement)
        self._database.execute("COMMIT")

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Read rows."""
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def write(self, sql: str, *values: Any) -> int:
        """Write, and say how many rows that changed."""
        with self._lock:
            return self._database.execute(sql, values).rowcount

    def insert(self, sql: str, *values: Any) -> int:
        """Insert one row, and say which number it got."""
        with self._lock:
            return self._database.execute(sql, values).lastrowid or 0

    def setting(self, name: str, default: Any) -> Any:
        """Read one setting."""
        found = self.rows("SELECT value FROM settings WHERE name = ?", name)
        return json.loads(found[0]["value"]) if found else default

    def set(self, name: str, value: Any) -> None:
        """Keep one setting."""
        self.write("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, json.dumps(value))

    def clear(self) -> None:
        """Forget everything but the main token."""
        with self._lock:
            self._database.execute("BEGIN")
            for table in ("settings", "whitelist", "signatures", "webhooks", "users", "api_keys", "nonces"):
                self._database.execute(f"DELETE FROM {table}")
            self._database.execute("DELETE FROM tokens WHERE NOT is_main")
            self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()
