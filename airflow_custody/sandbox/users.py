"""Keep the users of the service (published knowledge, as all about signing in and approving)."""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_custody.sandbox.errors import ServiceError, not_found
from airflow_custody.sandbox.state import State

#: The user of the main token.
MAIN_USER = "1"


@dataclass(frozen=True)
class User:
    """Describe one user."""

    id: str
    name: str
    tenant_id: str
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    public_key: str
    totp: bool


class Users:
    """Keep users: who they are, what they may do, and the key they sign with."""

    def __init__(self, state: State) -> None:
        self._state = state

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
    ) -> str:
        """Add or replace a user and return the id."""
        if user_id is None:
            # The first ids belong to the main token and to tokens made without a user.
            (highest,) = self._state.rows("SELECT coalesce(max(CAST(id AS INTEGER)), 0) FROM users")[0]
            user_id = str(max(highest + 1, 101))
        self._state.write(
            "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(user_id, name, tenant_id, json.dumps(list(roles)), password or "", totp),
            *(json.dumps(list(groups)), public_key or ""),
        )
        return user_id

    def get(self, user_id: str) -> User | None:
        """Find a user."""
        found = self._state.rows("SELECT * FROM users WHERE id = ?", user_id)
        return _user(found[0]) if found else None

    def needed(self, user_id: str) -> User:
        """Find a user that must be there, for a control call."""
        user = self.get(user_id)
        if user is None:
            raise not_found(f"user {user_id}")
        return user

    def sign_in(self, name: str, password: str, totp: str) -> User:
        """Recognise a user by name and password, or refuse with 401."""
        found = self._state.rows("SELECT * FROM users WHERE name = ?", name)
        if not found or not found[0]["password"] or not hmac.compare_digest(found[0]["password"], password):
            raise ServiceError(401, "wrong user name or password")
        user = _user(found[0])
        if user.totp and not totp:
            raise ServiceError(401, "a one-time code is required")
        return user


def _user(row: sqlite3.Row) -> User:
    return User(
        id=row["id"],
        name=row["name"],
        tenant_id=row["tenant_id"],
        roles=tuple(json.loads(row["roles"])),
        groups=tuple(json.loads(row["groups"])),
        public_key=row["public_key"],
        totp=bool(row["totp"]),
    )
