"""Users whose private keys the sandbox creates and stores."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from airflow_custody.sandbox.errors import ServiceError, invalid
from airflow_custody.sandbox.rules.keys import create_private_key, public_key_of, sign
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import MAIN_USER, UserStore
from airflow_custody.sandbox.users.tokens import TokenStore
from airflow_custody.sandbox.whitelist.store import EFFECTIVE, PENDING, WhitelistStore, added
from airflow_custody.sandbox.wire import dumps

#: The groups of approvers, in the order of signing.
GROUPS = ("first", "second")
_ROLES = ("TPUser", "WhitelistedAddressApprover")
_COMMENT = "signed by the sandbox"
# Approvers have a token. Other signers have none, and sign only on demand.
_TABLES = """
CREATE TABLE IF NOT EXISTS signers (
    name TEXT PRIMARY KEY, user_id TEXT NOT NULL, external_id TEXT NOT NULL, "group" TEXT NOT NULL,
    private_key TEXT NOT NULL, token TEXT
);
"""


class SignerStore:
    """The store of signing users and their private keys."""

    def __init__(
        self, state: State, users: UserStore, tokens: TokenStore, rules: RuleStore, whitelist: WhitelistStore
    ) -> None:
        self._state = state
        self._users = users
        self._tokens = tokens
        self._rules = rules
        self._whitelist = whitelist
        state.create_tables(_TABLES)

    def add_signers(self, names: Sequence[str]) -> list[dict[str, str]]:
        """
        Require two new users to sign future whitelisting requests, in order.

        The users are in the groups ``first`` and ``second``. The sandbox creates and stores their keys. The main
        token's user, which is otherwise in every group, is then in no group.

        :param names: the names of the two users. If they have already been added, nothing changes. If other users have
            been added, the call fails.
        :return: the users, each with `name`, `user_id`, `external_id`, `group`, `token` and `private_key` (PEM).
        """
        different = {each.strip() for each in names} - {""}
        if len(names) != len(GROUPS) or len(different) != len(GROUPS):
            raise invalid(f"names: {len(GROUPS)} different names are required")
        added_before = self._added_signers()
        if added_before:
            names_before = [each["name"] for each in added_before]
            if names_before != list(names):
                raise ServiceError(409, f"other signers already exist: {', '.join(names_before)}")
            return added_before
        for name, group in zip(names, GROUPS, strict=True):
            user_id = self._add(name, f"{name}@example.test", group)
            token = self._tokens.add_token(_ROLES, user_id=user_id)
            self._state.write("UPDATE signers SET token = ? WHERE name = ?", token, name)
        if self._users.get(MAIN_USER) is None:
            # Without this entry, the main token's user would be in every group.
            self._users.add_user("main", _ROLES, user_id=MAIN_USER)
        groups = [{"externalGroupID": group, "minimumSignatures": 1} for group in GROUPS]
        self._rules.set_approvers([{"sequential": groups}])
        return self._added_signers()

    def _added_signers(self) -> list[dict[str, str]]:
        rows = self._state.rows("SELECT * FROM signers WHERE token IS NOT NULL ORDER BY rowid")
        return [dict(row) for row in rows]

    def add_whitelist_requests(
        self,
        requests: Sequence[Mapping[str, object]],
        *,
        status: str = EFFECTIVE,
        tenant_id: str = "1",
        user_id: str = "1",
        signed: bool = False,
    ) -> list[str]:
        """
        Add many whitelisting requests at once, and return their ids.

        By default, they are in effect without signatures. They are checked and stored as if the user had created them.
        If one request is rejected, no request is added.

        :param requests: the fields of each request, by their names on the wire.
        :param status: the status of all requests. Default ``APPROVED`` (in effect); ``pending`` for pending requests.
        :param tenant_id: id of the tenant. Default ``1``.
        :param user_id: id of the creating user. Default ``1``.
        :param signed: whether to call :meth:`sign_whitelist_requests` for them. Default: no.
        """
        if signed and status != EFFECTIVE:
            raise invalid(f"signed: requires the status {EFFECTIVE}")
        rows = [added(each) for each in requests]
        found = self._whitelist.add(tenant_id, user_id, PENDING if signed else status, rows)
        if signed:
            self.sign_whitelist_requests(found)
        return found

    def sign_whitelist_requests(self, ids: Sequence[str]) -> None:
        """
        Add valid signatures to whitelisting requests until they are in effect.

        The sandbox signs with its own users, ``signer-1@example.test`` and so on, for every group of the first branch.
        Missing users are added to the groups, which changes the rules.

        :param ids: ids of requests that are pending, or in effect without enough signatures.
        """
        rows = self._whitelist.rows_by_id(ids)
        signed = self._whitelist.signers(rows)
        for row, envelope in zip(rows, self._whitelist.envelopes(rows), strict=True):
            hashes = [envelope["metadata"]["hash"]]
            for group, number in _missing(row, Counter(signed[row["id"]].values())).items():
                for user_id, key in self._free_signers(group, number, signed[row["id"]]):
                    signature = base64.b64encode(sign(key, dumps(hashes).encode())).decode()
                    self._whitelist.add_signatures([row], user_id, group, signature, _COMMENT, hashes)
        self._whitelist.take_effect(rows)

    def private_keys(self) -> dict[str, str]:
        """Return all private keys by external user id, for forging signatures."""
        rows = self._state.rows("SELECT * FROM signers ORDER BY rowid")
        return {**self._rules.superadmins(), **{row["external_id"]: row["private_key"] for row in rows}}

    def _free_signers(self, group: str, number: int, signed: Container[str]) -> list[tuple[str, str]]:
        """Return this number of a group's signers who have not signed yet, with their keys. Add missing signers."""
        rows = self._state.rows("SELECT * FROM signers WHERE token IS NULL ORDER BY rowid")
        free = [(row["user_id"], row["private_key"]) for row in rows if row["group"] == group]
        free = [each for each in free if each[0] not in signed][:number]
        if len(free) == number:
            return free
        name = f"signer-{len(rows) + 1}@example.test"
        self._add(name, name, group)
        return self._free_signers(group, number, signed)

    def _add(self, name: str, external_id: str, group: str) -> str:
        key = create_private_key()
        user_id = self._users.add_user(
            name, _ROLES, groups=[group], public_key=public_key_of(key), external_id=external_id
        )
        values = (name, user_id, external_id, group, key)
        self._state.write("INSERT OR REPLACE INTO signers VALUES (?, ?, ?, ?, ?, NULL)", *values)
        return user_id


def _missing(row: sqlite3.Row, counts: Counter[str]) -> dict[str, int]:
    """Return the number of missing signatures by group, for the first branch."""
    if row["status"] not in (PENDING, EFFECTIVE):
        raise ServiceError(409, f"whitelisted address {row['id']} is neither pending approval nor in effect")
    branches = json.loads(row["approvers"])
    if not branches or not branches[0]["sequential"]:
        raise invalid(f"whitelisted address {row['id']} cannot be signed: no rule names a group")
    minimum = {each["externalGroupID"]: max(1, each["minimumSignatures"]) for each in branches[0]["sequential"]}
    return {group: number - counts[group] for group, number in minimum.items() if number > counts[group]}
