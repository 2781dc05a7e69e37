"""The users of the service."""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_custody.sandbox.errors import ServiceError, not_found
from airflow_custody.sandbox.state import State

#: The id of the main token's user.
MAIN_USER = "1"

_TABLES = """
CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, tenant_id TEXT NOT NULL, roles TEXT NOT NULL, password TEXT NOT NULL,
    groups TEXT NOT NULL, public_key TEXT NOT NULL, external_id TEXT NOT NULL
);
"""
# The first id of an added user. Lower ids are used for the main token, and for tokens whose user was not added.
_FIRST_ID = 101


@dataclass(frozen=True)
class User:
    """A user of the service."""

    id: str
    name: str
    tenant_id: str
    roles: tuple[str, ...]
    password: str
    groups: tuple[str, ...]
    public_key: str
    external_id: str


class UserStore:
    """The store of users."""

    def __init__(self, state: State) -> None:
        self._state = state
        state.create_tables(_TABLES)

    def add_user(
        self,
        name: str,
        roles: Sequence[str],
        *,
        user_id: str | None = None,
        tenant_id: str = "1",
        password: str | None = None,
        groups: Sequence[str] = (),
        public_key: str | None = None,
        external_id: str | None = None,
    ) -> str:
        """
        Add or replace a user, and return the id.

        :param name: the user's name for signing in.
        :param roles: the user's roles, such as ``TPUser``.
        :param user_id: id of the user; an existing user is replaced. ``1`` is the main token's user. Default: a new id.
        :param tenant_id: id of the user's tenant. Default ``1``.
        :param password: password of the user. Default: the user has no password, and cannot sign in.
        :param groups: the user's groups of approvers. Default: no groups.
        :param public_key: P-256 public key in PEM, for verifying the user's signatures. Default: no key.
        :param external_id: the user's id in signatures. Default: an e-mail address derived from the id.
        """
        if user_id is None:
            (highest,) = self._state.rows("SELECT coalesce(max(CAST(id AS INTEGER)), 0) FROM users")[0]
            user_id = str(max(highest + 1, _FIRST_ID))
        self._state.write(
            "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(user_id, name, tenant_id, json.dumps(list(roles)), password or ""),
            *(json.dumps(list(groups)), public_key or "", external_id or _default_external_id(user_id)),
        )
        return user_id

    def get(self, user_id: str) -> User | None:
        """Return a user; None if the user does not exist."""
        found = self._state.rows("SELECT * FROM users WHERE id = ?", user_id)
        return _user(found[0]) if found else None

    def require(self, user_id: str) -> User:
        """Return a user, or raise a 404 error."""
        user = self.get(user_id)
        if user is None:
            raise not_found(f"user {user_id}")
        return user

    def all(self) -> list[User]:
        """Return all users, ordered by id."""
        return [_user(row) for row in self._state.rows("SELECT * FROM users ORDER BY CAST(id AS INTEGER), id")]

    def external_id(self, user_id: str) -> str:
        """Return a user's external id, even if the user does not exist."""
        user = self.get(user_id)
        return user.external_id if user else _default_external_id(user_id)

    def sign_in(self, name: str, password: str) -> User:
        """Return the user with a name and password, or raise 401."""
        user = next((each for each in self.all() if each.name == name and each.password), None)
        if user is None or not hmac.compare_digest(user.password.encode(), password.encode()):
            raise ServiceError(401, "wrong user name or password")
        return user


def _default_external_id(user_id: str) -> str:
    return f"user-{user_id}@example.test"


def _user(row: sqlite3.Row) -> User:
    return User(**{**row, "roles": tuple(json.loads(row["roles"])), "groups": tuple(json.loads(row["groups"]))})
