"""The users of the service."""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_custody.sandbox.errors import ServiceError, not_found
from airflow_custody.sandbox.state import State

#: The id of the user of the main token.
MAIN_USER = "1"

_TABLES = """
CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, tenant_id TEXT NOT NULL, roles TEXT NOT NULL, password TEXT NOT NULL,
    totp INTEGER NOT NULL, groups TEXT NOT NULL, public_key TEXT NOT NULL, external_id TEXT NOT NULL
);
"""
# The lower ids belong to the main token and to tokens without a user.
_FIRST_ID = 101


@dataclass(frozen=True)
class User:
    """A user of the service."""

    id: str
    tenant_id: str
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    public_key: str
    totp: bool
    external_id: str


class UserStore:
    """The store of users."""

    def __init__(self, state: State) -> None:
        self._state = state
        state.create_tables(_TABLES)

    def add(
        self,
        *,
        name: str,
        roles: Sequence[str],
        user_id: str | None = None,
        tenant_id: str = "1",
        password: str | None = None,
        totp: bool = False,
        groups: Sequence[str] = (),
        public_key: str | None = None,
        external_id: str | None = None,
    ) -> str:
        """Add a user, or replace the one with this id, and return the id."""
        if user_id is None:
            (highest,) = self._state.rows("SELECT coalesce(max(CAST(id AS INTEGER)), 0) FROM users")[0]
            user_id = str(max(highest + 1, _FIRST_ID))
        self._state.write(
            "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(user_id, name, tenant_id, json.dumps(list(roles)), password or "", totp),
            *(json.dumps(list(groups)), public_key or "", external_id or _default_external_id(user_id)),
        )
        return user_id

    def get(self, user_id: str) -> User | None:
        """Return a user, or None if there is no such user."""
        found = self._state.rows("SELECT * FROM users WHERE id = ?", user_id)
        return _user(found[0]) if found else None

    def with_keys(self) -> list[User]:
        """Return the users who have a public key, in the order of their ids."""
        rows = self._state.rows("SELECT * FROM users WHERE public_key != '' ORDER BY CAST(id AS INTEGER), id")
        return [_user(row) for row in rows]

    def passwords(self) -> list[str]:
        """Return the passwords of all users."""
        return [str(row["password"]) for row in self._state.rows("SELECT password FROM users")]

    def require(self, user_id: str) -> User:
        """Return a user, or raise a 404 error."""
        user = self.get(user_id)
        if user is None:
            raise not_found(f"user {user_id}")
        return user

    def external_id(self, user_id: str) -> str:
        """Return the external id of a user, or of a token without a user."""
        user = self.get(user_id)
        return user.external_id if user else _default_external_id(user_id)

    def sign_in(self, name: str, password: str, totp: str) -> User:
        """Return the user with this name and password, or raise a 401 error."""
        found = self._state.rows("SELECT * FROM users WHERE name = ?", name)
        if not found or not found[0]["password"] or not hmac.compare_digest(found[0]["password"], password):
            raise ServiceError(401, "wrong user name or password")
        user = _user(found[0])
        if user.totp and not totp:
            raise ServiceError(401, "a one-time code is required")
        return user


def _default_external_id(user_id: str) -> str:
    return f"user-{user_id}@example.test"


def _user(row: sqlite3.Row) -> User:
    return User(
        id=row["id"],
        tenant_id=row["tenant_id"],
        roles=tuple(json.loads(row["roles"])),
        groups=tuple(json.loads(row["groups"])),
        public_key=row["public_key"],
        totp=bool(row["totp"]),
        external_id=row["external_id"],
    )
