"""The sandbox's state, in SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from airflow_custody.sandbox.errors import SandboxError
from airflow_custody.sandbox.settings import Settings

# Marks a file as the sandbox's ("CuSb"). The sandbox never writes to the database of another program.
_APPLICATION_ID = 0x43755362

# The conditions for the rows that `clear` deletes from these tables; it deletes all rows of other tables. The main
# token and the super-administrators' keys are kept, because connections use them.
_KEPT = {"tokens": "WHERE NOT is_main", "superadmins": "WHERE FALSE"}

# The size of an SQLite file's header, and the position of the application id in it.
_HEADER_SIZE, _APPLICATION_ID_AT = 100, slice(68, 72)
_IN_MEMORY = ":memory:"

_TABLES = "CREATE TABLE IF NOT EXISTS saved (name TEXT PRIMARY KEY, value TEXT NOT NULL);"


def _make_private(name: str) -> None:
    """
    Create a private state file, or make an existing file private.

    Call this before opening the database, because SQLite copies the file's permissions to its journal. A file that
    belongs to another program is left unchanged: :class:`State` raises an error after opening it.
    """
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        header = os.pread(descriptor, _HEADER_SIZE, 0)
        if not header or int.from_bytes(header[_APPLICATION_ID_AT], "big") == _APPLICATION_ID:
            os.fchmod(descriptor, 0o600)
            for ending in ("-journal", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.chmod(f"{os.path.realpath(name)}{ending}", 0o600)
    finally:
        os.close(descriptor)


class State:
    """
    The database that the stores share. Every call commits its changes.

    The routes run one after the other on the server's event loop. A lock is still needed, because the sandbox is
    started and stopped on other threads.

    :param path: file of the database. Only its owner can read it, because it contains private keys. None (default):
        in memory.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lock = threading.RLock()
        name = _IN_MEMORY if path is None else os.path.abspath(path)
        try:
            if path is not None:
                _make_private(name)
            self._database = sqlite3.connect(name, timeout=0.1, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise SandboxError(f"cannot use the state file {name}: {error}") from error
        self._database.row_factory = sqlite3.Row
        try:
            self._prepare(name)
        except (OSError, sqlite3.Error) as error:
            self.close()
            hint = " (is another sandbox using it?)" if "locked" in str(error) else ""
            raise SandboxError(f"cannot use the state file {name}: {error}{hint}") from error
        except SandboxError:
            self.close()
            raise
        self._settings = Settings.model_validate(self.load("settings", {}))

    def _prepare(self, name: str) -> None:
        # Commits must survive a kill of the process, but not a crash of the machine, so do not wait for the disk.
        self._database.execute("PRAGMA synchronous = OFF")
        # Lock the file, so that no second sandbox uses it, because the two would not notice each other's changes.
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("BEGIN EXCLUSIVE")
        (owner,) = self._database.execute("PRAGMA application_id").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and owner != _APPLICATION_ID:
            raise SandboxError(f"cannot use the state file {name}: it belongs to another program")
        self._database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._database.execute("COMMIT")
        self.create_tables(_TABLES)

    def create_tables(self, sql: str) -> None:
        """Create the tables of a store, unless they exist."""
        with self._lock:
            self._database.executescript(sql)

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def write(self, sql: str, *values: Any) -> int:
        """Execute a statement, and return the number of changed rows."""
        with self._lock:
            return self._database.execute(sql, values).rowcount

    def write_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values, in one transaction."""
        with self._lock:
            self._database.execute("BEGIN")
            try:
                self._database.executemany(sql, rows)
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @property
    def settings(self) -> Settings:
        """The settings. Changes to this object are lost on restart."""
        return self._settings

    def configure(self, /, **settings: object) -> None:
        """
        Change settings of the sandbox, and keep the rest.

        :param settings: the new values. Their names are fields of :class:`Settings`.
        """
        changed = Settings.model_validate({**self._settings.model_dump(), **settings})
        self.save("settings", changed.model_dump())
        self._settings = changed

    def load(self, name: str, default: Any) -> Any:
        """Return the value saved under a name, or the default."""
        found = self.rows("SELECT value FROM saved WHERE name = ?", name)
        return json.loads(found[0]["value"]) if found else default

    def save(self, name: str, value: Any) -> None:
        """Save a value under a name."""
        self.write("INSERT OR REPLACE INTO saved VALUES (?, ?)", name, json.dumps(value))

    def clear(self) -> None:
        """Delete everything except the main token and the super-administrators' keys."""
        with self._lock:
            self._database.execute("BEGIN")
            for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
                condition = _KEPT.get(row["name"], "")
                self._database.execute(f"DELETE FROM {row['name']} {condition}")
            self._database.execute("COMMIT")
        self._settings = Settings()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()
