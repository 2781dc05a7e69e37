"""Whitelisting rules: the required signers, and the super-administrators who sign the rules."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from airflow_custody.sandbox.rules.encoder import encode_rules_container, encode_user_signatures
from airflow_custody.sandbox.rules.keys import create_private_key, public_key_of, sign
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.wire import dumps, timestamp_from_ns

Branches = list[dict[str, Any]]

# The number of super-administrators, all of whom sign the rules.
_SUPERADMINS = 2
#: The group that must sign whitelisting requests if no rules are set.
DEFAULT_GROUP = "approvers"
_DEFAULT_BRANCHES: Branches = [{"sequential": [{"externalGroupID": DEFAULT_GROUP, "minimumSignatures": 1}]}]

_TABLES = """
CREATE TABLE IF NOT EXISTS superadmins (number INTEGER PRIMARY KEY, private_key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rules (
    id INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, container TEXT NOT NULL,
    signatures TEXT NOT NULL, signed_by TEXT NOT NULL, created_at TEXT NOT NULL
);
"""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Group(_Model):
    """A group of approvers, and its threshold (zero means one)."""

    externalGroupID: str
    minimumSignatures: Annotated[int, Field(ge=0, lt=2**32)]


class Branch(_Model):
    """Groups of approvers that must sign one after the other."""

    sequential: list[Group]


class RuleStore:
    """
    The store of the rules.

    The rules contain users, their groups and the required signers. The first read after a change of any of these
    creates a new version of the rules, with new signatures. Old versions are kept.
    """

    def __init__(self, state: State, users: UserStore) -> None:
        self._state = state
        self._users = users
        state.create_tables(_TABLES)

    def set_approvers(self, parallel: Sequence[Mapping[str, object]] | None) -> None:
        """
        Set the rule: the required signers of future whitelisting requests.

        Existing requests keep their required signers. If such a request takes effect under rules that require more
        signatures, it fails verification.

        :param parallel: ``[{"sequential": [{"externalGroupID": ..., "minimumSignatures": ...}, ...]}, ...]``. One
            complete branch is enough; within a branch, the groups sign one after the other. None: one member of the
            group ``approvers``.
        """
        branches = [Branch.model_validate(each).model_dump() for each in parallel or ()]
        self._state.save("approvers", branches or None)

    def approvers(self) -> Branches:
        """Return the branches of required signers. Every group of one branch must sign."""
        return self._state.load("approvers", None) or _DEFAULT_BRANCHES

    def pins(self) -> dict[str, Any]:
        """
        Return the keys to pin, as extras of a connection.

        ``superadmin_keys`` is a list of public keys in PEM. ``superadmin_minimum`` is the required
        number of signatures by these keys.
        """
        keys = [public_key_of(each) for each in self.superadmins().values()]
        return {"superadmin_keys": keys, "superadmin_minimum": self._state.settings.superadmin_minimum}

    def superadmins(self) -> dict[str, str]:
        """Return the private keys of the super-administrators, by user id."""
        query = "SELECT * FROM superadmins ORDER BY number"
        if not self._state.rows(query):
            new = [(number, create_private_key()) for number in range(1, _SUPERADMINS + 1)]
            self._state.write_many("INSERT INTO superadmins VALUES (?, ?)", new)
        found = self._state.rows(query)
        return {f"superadmin-{row['number']}@example.test": row["private_key"] for row in found}

    def current(self) -> sqlite3.Row:
        """
        Return the rules in force, signed by all super-administrators.

        `container` and `signatures` (one message) are in base64. `hash` is the SHA-256 of the decoded container.
        `signed_by` contains the same signatures as JSON, each with its user.
        """
        superadmins = self.superadmins()
        users = [*self._users_with_keys(), *(_superadmin(name, key) for name, key in superadmins.items())]
        branches = self.approvers()
        groups = _groups(users, branches)
        content = hashlib.sha256(dumps([users, groups, branches]).encode()).hexdigest()
        latest = self._state.rows("SELECT * FROM rules ORDER BY id DESC LIMIT 1")
        if latest and latest[0]["content"] == content:
            return latest[0]
        now = time.time_ns()
        container = encode_rules_container(users, groups, branches, now // 10**9)
        signatures = [(name, sign(key, container)) for name, key in superadmins.items()]
        self._state.write(
            # Two versions within one second may have the same container. If so, the later one replaces the earlier one.
            "INSERT OR REPLACE INTO rules (content, hash, container, signatures, signed_by, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            *(content, hashlib.sha256(container).hexdigest(), _base64(container)),
            _base64(encode_user_signatures(signatures)),
            json.dumps([{"userId": name, "signature": _base64(signature)} for name, signature in signatures]),
            timestamp_from_ns(now),
        )
        return self._state.rows("SELECT * FROM rules ORDER BY id DESC LIMIT 1")[0]

    def key_in_force(self, external_id: str) -> str | None:
        """Return a user's public key in the rules in force; None if the user is not in the rules."""
        return next((each["publicKey"] for each in self._users_with_keys() if each["id"] == external_id), None)

    def versions(self, hashes: Iterable[str]) -> dict[str, sqlite3.Row]:
        """Return the versions of the rules with these hashes, by the hash of their container."""
        rows = self._state.rows(
            "SELECT * FROM rules WHERE hash IN (SELECT value FROM json_each(?))", json.dumps(sorted(set(hashes)))
        )
        return {row["hash"]: row for row in rows}

    def _users_with_keys(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for user in self._users.all():
            if user.public_key:
                # Use only the first user with an external id, because ids must be unique in the rules.
                entry = {"publicKey": user.public_key, "roles": user.roles, "groups": user.groups}
                found.setdefault(user.external_id, {"id": user.external_id, **entry})
        return list(found.values())


def _superadmin(name: str, private_key: str) -> dict[str, Any]:
    return {"id": name, "publicKey": public_key_of(private_key), "roles": ["SuperAdmin"], "groups": []}


def _groups(users: Sequence[Mapping[str, Any]], branches: Branches) -> dict[str, list[str]]:
    """Return user ids by group, for all groups of users and rules."""
    found: dict[str, list[str]] = {
        group["externalGroupID"]: [] for branch in branches for group in branch["sequential"]
    }
    for user in users:
        for name in dict.fromkeys(user["groups"]):
            found.setdefault(name, []).append(user["id"])
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
