"""Users of the sandbox's own, who sign whitelisting requests on demand."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from airflow_custody.sandbox.errors import ServiceError, invalid
from airflow_custody.sandbox.rules.keys import create_private_key, public_key_of, sign
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.whitelist.models import MAX_BATCH
from airflow_custody.sandbox.whitelist.store import EFFECTIVE, PENDING, WhitelistStore
from airflow_custody.sandbox.wire import dumps

_ROLES = ("TPUser", "WhitelistedAddressApprover")
_COMMENT = "signed by the sandbox"
_TABLES = """
CREATE TABLE IF NOT EXISTS signers (user_id TEXT PRIMARY KEY, group_id TEXT NOT NULL, private_key TEXT NOT NULL);
"""


class Signers:
    """The users whose private keys the sandbox keeps: as many of each group as it takes."""

    def __init__(self, state: State, users: UserStore, whitelist: WhitelistStore) -> None:
        self._state = state
        self._users = users
        self._whitelist = whitelist
        state.create_tables(_TABLES)

    def sign(self, ids: Sequence[str]) -> None:
        """Sign requests, pending or not, as all groups of their first branch, so that they are in effect."""
        rows = self._whitelist.rows_by_id(ids)
        signed = self._whitelist.deletions.signers(rows)
        missing = {row["id"]: _missing(row, Counter(signed[row["id"]].values())) for row in rows}
        signers = self._signers(missing.values())
        batches: dict[tuple[tuple[str, str], ...], list[sqlite3.Row]] = {}
        for row in rows:
            free = (
                (user_id, group)
                for group, number in missing[row["id"]].items()
                for user_id in [each for each in signers[group] if each not in signed[row["id"]]][:number]
            )
            batches.setdefault(tuple(free), []).append(row)
        keys = {row["user_id"]: row["private_key"] for row in self._state.rows("SELECT * FROM signers")}
        for chosen, all_rows in batches.items():
            for batch in _batches(all_rows):
                hashes = [each["metadata"]["hash"] for each in self._whitelist.envelopes(batch)]
                message = dumps(hashes).encode()
                for user_id, group in chosen:
                    signature = base64.b64encode(sign(keys[user_id], message)).decode()
                    self._whitelist.add_signatures(
                        batch, user_id, group=group, signature=signature, comment=_COMMENT, hashes=hashes
                    )
        self._whitelist.take_effect(rows)

    def private_keys(self) -> dict[str, str]:
        """Return the private keys of the signers by their external ids."""
        rows = self._state.rows("SELECT * FROM signers")
        return {self._users.external_id(row["user_id"]): row["private_key"] for row in rows}

    def _signers(self, missing: Iterable[dict[str, int]]) -> dict[str, list[str]]:
        """Return the signers of each group, with new ones if there are too few."""
        needed: dict[str, int] = {}
        for groups in missing:
            for group, number in groups.items():
                needed[group] = max(number, needed.get(group, 0))
        found: dict[str, list[str]] = {group: [] for group in needed}
        rows = self._state.rows("SELECT * FROM signers ORDER BY rowid")
        for row in rows:
            found.setdefault(row["group_id"], []).append(row["user_id"])
        number = len(rows)
        for group, minimum in needed.items():
            while len(found[group]) < minimum:
                number += 1
                found[group].append(self._add(f"signer-{number}@example.test", group))
        return found

    def _add(self, name: str, group: str) -> str:
        key = create_private_key()
        user_id = self._users.add(
            name=name, roles=_ROLES, groups=[group], public_key=public_key_of(key), external_id=name
        )
        self._state.write("INSERT OR REPLACE INTO signers VALUES (?, ?, ?)", user_id, group, key)
        return user_id


def _missing(row: sqlite3.Row, counts: Counter[str]) -> dict[str, int]:
    """Return how many signatures of each group the first branch of a request still needs."""
    if row["deleted_from"] or row["status"] not in (PENDING, EFFECTIVE):
        raise ServiceError(409, f"whitelisted address {row['id']} is neither pending approval nor in effect")
    branches = json.loads(row["approvers"])
    if not branches or not branches[0]["sequential"]:
        raise invalid(f"nobody can sign whitelisted address {row['id']}: no rule names a group")
    minimum = {each["externalGroupID"]: max(1, each["minimumSignatures"]) for each in branches[0]["sequential"]}
    return {group: number - counts[group] for group, number in minimum.items() if number > counts[group]}


def _batches(rows: list[sqlite3.Row]) -> Iterator[list[sqlite3.Row]]:
    for first in range(0, len(rows), MAX_BATCH):
        yield rows[first : first + MAX_BATCH]
