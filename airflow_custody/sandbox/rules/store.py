"""The rules for whitelisting, and the super-administrators who sign them."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.rules.encoder import encode_rules_container, encode_user_signatures
from airflow_custody.sandbox.rules.keys import create_private_key, public_key_of, sign
from airflow_custody.sandbox.rules.thresholds import Branches, is_any, select_thresholds
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.wire import dumps, timestamp_from_ns

#: The group that signs whitelisting requests if no rules are set.
DEFAULT_GROUP = "approvers"
_DEFAULT_BRANCHES: Branches = [{"sequential": [{"externalGroupID": DEFAULT_GROUP, "minimumSignatures": 1}]}]
_DEFAULT_SUPERADMINS = 2

_TABLES = """
CREATE TABLE IF NOT EXISTS superadmins (number INTEGER PRIMARY KEY, private_key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rules (
    id INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, container TEXT NOT NULL,
    signatures TEXT NOT NULL, signed_by TEXT NOT NULL, created_at TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class SignedRules:
    """
    Rules that all super-administrators have signed.

    :param id: the id of this version of the rules.
    :param hash: the SHA-256 of the container, in hex.
    :param container: the container, in base64.
    :param signatures: the signatures as one message, in base64.
    :param signed_by: the same signatures, each with its user.
    :param created_at: when this version came into force.
    """

    id: int
    hash: str
    container: str
    signatures: str
    signed_by: tuple[dict[str, str], ...]
    created_at: str


class RuleStore:
    """
    The store of the rules.

    The rules follow from the users, the groups they are in, and who must sign. Whoever asks for those in force after
    one of these has changed gets a new version of the rules, with new signatures; the old versions are kept.
    """

    def __init__(self, state: State, users: UserStore) -> None:
        self._state = state
        self._users = users
        state.create_tables(_TABLES)

    def pins(self) -> dict[str, Any]:
        """Return the super-administrators' public keys, and how many of them must sign, as a connection's extras."""
        return {
            "superadmin_keys": [public_key_of(each) for each in self.superadmins().values()],
            "superadmin_minimum": self._state.get_setting("superadmin_minimum", _DEFAULT_SUPERADMINS),
        }

    def set_superadmins(self, number: int, minimum: int) -> None:
        """Set how many super-administrators there are, and how many of them must sign."""
        if not 1 <= minimum <= number:
            raise invalid("minimum: must be at least 1, and at most the number of super-administrators")
        self._state.set_setting("superadmins", number)
        self._state.set_setting("superadmin_minimum", minimum)

    def public_keys(self) -> list[dict[str, str]]:
        """Return the super-administrators' public keys, with their ids."""
        return [{"userID": name, "publicKey": public_key_of(key)} for name, key in self.superadmins().items()]

    def set_rules(self, rules: list[dict[str, Any]] | None) -> None:
        """Set the rules for whitelisting; None for one rule for all chains."""
        self._state.set_setting("rules", rules)

    def set_approvers(self, branches: Branches | None) -> None:
        """Set who must sign if no rule is for the chain, or one of the default's group; None for the latter."""
        self._state.set_setting("approvers", branches)
        rules = self._state.get_setting("rules", None)
        if rules is not None:
            others = [rule for rule in rules if not (is_any(rule["currency"]) and is_any(rule["network"]))]
            self.set_rules([*others, _default_rule(branches or _DEFAULT_BRANCHES)])

    def thresholds(self, payloads: Iterable[tuple[Mapping[str, Any], str]]) -> list[Branches]:
        """Return who must sign each of some requests, of which these are the payloads and the networks."""
        rules = self._rules()
        found = []
        for payload, network in payloads:
            branches = select_thresholds(rules, payload, network)
            found.append(_both_linked(payload) if branches == _DEFAULT_BRANCHES and self._is_default else branches)
        return found

    def current(self) -> SignedRules:
        """Return the rules in force."""
        superadmins = self.superadmins()
        users = [*self._users_with_keys(), *(_superadmin(name, key) for name, key in superadmins.items())]
        rules = self._rules()
        groups = _groups(users, rules)
        content = hashlib.sha256(dumps([users, groups, rules]).encode()).hexdigest()
        latest = self._state.rows("SELECT * FROM rules ORDER BY id DESC LIMIT 1")
        if latest and latest[0]["content"] == content:
            return _signed_rules(latest[0])
        now = time.time_ns()
        container = encode_rules_container(users, groups, rules, now // 10**9)
        signatures = [(name, sign(key, container)) for name, key in superadmins.items()]
        self._state.write(
            # Of two versions with the same content within one second, the later one replaces the other.
            "INSERT OR REPLACE INTO rules (content, hash, container, signatures, signed_by, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            *(content, hashlib.sha256(container).hexdigest(), _base64(container)),
            _base64(encode_user_signatures(signatures)),
            json.dumps([{"userId": name, "signature": _base64(signature)} for name, signature in signatures]),
            timestamp_from_ns(now),
        )
        return _signed_rules(self._state.rows("SELECT * FROM rules ORDER BY id DESC LIMIT 1")[0])

    def versions(self, hashes: Iterable[str]) -> dict[str, SignedRules]:
        """Return these versions of the rules, by the hashes of their containers."""
        rows = self._state.rows(
            "SELECT * FROM rules WHERE hash IN (SELECT value FROM json_each(?))", json.dumps(sorted(set(hashes)))
        )
        return {row["hash"]: _signed_rules(row) for row in rows}

    def get(self, version: int) -> SignedRules:
        """Return a version of the rules by its id."""
        found = self._state.rows("SELECT * FROM rules WHERE id = ?", version)
        if not found:
            raise not_found(f"rules {version}")
        return _signed_rules(found[0])

    def history(self) -> list[SignedRules]:
        """Return all versions of the rules, those in force first."""
        self.current()
        return [_signed_rules(row) for row in self._state.rows("SELECT * FROM rules ORDER BY id DESC")]

    @property
    def _is_default(self) -> bool:
        return self._state.get_setting("rules", None) is None and not self._state.get_setting("approvers", None)

    def _rules(self) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] | None = self._state.get_setting("rules", None)
        if rules is not None:
            return rules
        return [_default_rule(self._state.get_setting("approvers", None) or _DEFAULT_BRANCHES)]

    def superadmins(self) -> dict[str, str]:
        """Return the private keys of the super-administrators by their ids."""
        number = self._state.get_setting("superadmins", _DEFAULT_SUPERADMINS)
        query = "SELECT * FROM superadmins ORDER BY number LIMIT ?"
        found = self._state.rows(query, number)
        if len(found) < number:
            new = [(each, create_private_key()) for each in range(len(found) + 1, number + 1)]
            self._state.write_many("INSERT INTO superadmins VALUES (?, ?)", new)
            found = self._state.rows(query, number)
        return {f"superadmin-{row['number']}@example.test": row["private_key"] for row in found}

    def _users_with_keys(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for user in self._users.with_keys():
            # Ids are unique in the rules.
            found.setdefault(
                user.external_id,
                {
                    "id": user.external_id,
                    "publicKey": user.public_key,
                    "roles": user.roles,
                    "groups": user.groups,
                },
            )
        return list(found.values())


def _superadmin(name: str, private_key: str) -> dict[str, Any]:
    return {"id": name, "publicKey": public_key_of(private_key), "roles": ["SuperAdmin"], "groups": []}


def _default_rule(branches: Branches) -> dict[str, Any]:
    return {"currency": "", "network": "", "parallel": branches, "lines": []}


def _both_linked(payload: Mapping[str, Any]) -> Branches:
    # With both linked lists other thresholds apply, which the rules do not show; the numbers are assumptions.
    both = payload["linkedInternalAddresses"] and payload.get("linkedWallets")
    return [{"sequential": [{"externalGroupID": DEFAULT_GROUP, "minimumSignatures": 2 if both else 1}]}]


def _groups(users: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the ids of each group's users: of every group that users are in or that a rule names."""
    found: dict[str, list[str]] = {}
    for rule in rules:
        for branches in (rule["parallel"], *(line["parallel"] for line in rule["lines"])):
            for branch in branches:
                for group in branch["sequential"]:
                    found.setdefault(group["externalGroupID"], [])
    for user in users:
        for name in dict.fromkeys(user["groups"]):
            found.setdefault(name, []).append(user["id"])
    return found


def _signed_rules(row: sqlite3.Row) -> SignedRules:
    return SignedRules(
        id=row["id"],
        hash=row["hash"],
        container=row["container"],
        signatures=row["signatures"],
        signed_by=tuple(json.loads(row["signed_by"])),
        created_at=row["created_at"],
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
