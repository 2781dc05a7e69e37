"""Approvers to try signing with: the sandbox makes their keys and keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_custody.sandbox.errors import ServiceError, invalid
from airflow_custody.sandbox.rules.keys import create_private_key, public_key_of
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import MAIN_USER, UserStore
from airflow_custody.sandbox.users.tokens import TokenStore

#: The groups, in the order in which they must sign.
GROUPS = ("first", "second")
_ROLES = ("TPUser", "WhitelistedAddressApprover")
_TABLES = """
CREATE TABLE IF NOT EXISTS approvers (
    name TEXT PRIMARY KEY, user_id TEXT NOT NULL, external_id TEXT NOT NULL, "group" TEXT NOT NULL,
    token TEXT NOT NULL, private_key TEXT NOT NULL
);
"""


class ApproverStore:
    """The store of the approvers."""

    def __init__(self, state: State, users: UserStore, tokens: TokenStore, rules: RuleStore) -> None:
        self._state = state
        self._users = users
        self._tokens = tokens
        self._rules = rules
        state.create_tables(_TABLES)

    def add(self, names: Sequence[str]) -> list[dict[str, str]]:
        """Add a user to each group, and require that one signs after the other; unless this has been done."""
        if len(set(names)) != len(GROUPS):
            raise invalid(f"names: must be {len(GROUPS)} different ones")
        found = [dict(row) for row in self._state.rows("SELECT * FROM approvers ORDER BY rowid")]
        if found:
            if [each["name"] for each in found] != list(names):
                raise ServiceError(409, f"there are others already: {', '.join(each['name'] for each in found)}")
            return found
        for name, group in zip(names, GROUPS, strict=True):
            key, external_id = create_private_key(), f"{name}@example.test"
            user_id = self._users.add(
                name=name, roles=_ROLES, groups=[group], public_key=public_key_of(key), external_id=external_id
            )
            token = self._tokens.add(roles=_ROLES, tenant_id="1", user_id=user_id, expires_in=None, jwt=False)
            self._state.write(
                "INSERT INTO approvers VALUES (?, ?, ?, ?, ?, ?)", name, user_id, external_id, group, token, key
            )
        if self._users.get(MAIN_USER) is None:
            # Whoever has no key is no approver.
            self._users.add(name="main", roles=_ROLES, user_id=MAIN_USER)
        groups = [{"externalGroupID": group, "minimumSignatures": 1} for group in GROUPS]
        self._rules.set_approvers([{"sequential": groups}])
        return self.add(names)
