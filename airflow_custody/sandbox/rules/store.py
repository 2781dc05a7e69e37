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


class Line(_Model):
    """Required signers if the wallet at ``path`` is the request's only link."""

    path: str
    parallel: list[Branch]


class Rule(_Model):
    """Required signers for a chain and network; empty or ``Any`` matches all."""

    currency: str = ""
    network: str = ""
    parallel: list[Branch]
    lines: list[Line] = []


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

    def set_approvers(self, parallel: list[dict[str, Any]] | None) -> None:
        """
        Set the default rule: the required signers of future whitelisting requests.

        The default rule applies to chains without a rule of their own. Existing requests keep their required signers.
        An existing request fails verification if it takes effect under rules that require more signatures.

        :param parallel: ``[{"sequential": [{"externalGroupID": ..., "minimumSignatures": ...}, ...]}, ...]``. One
            complete branch is enough; within a branch, the groups sign one after the other. None: one member of the
            group ``approvers``, or two members for a request with both linked addresses and linked wallets.
        """
        branches = [Branch.model_validate(each).model_dump() for each in parallel or ()]
        self._state.save("approvers", branches or None)
        rules = self._state.load("rules", None)
        if rules is not None:
            others = [rule for rule in rules if not (is_any(rule["currency"]) and is_any(rule["network"]))]
            self.set_rules([*others, _default_rule(branches or _DEFAULT_BRANCHES)])

    def set_rules(self, rules: Sequence[Mapping[str, Any]] | None) -> None:
        """
        Set all rules for future whitelisting requests.

        A request follows the first rule for its chain and network, or else for its chain and any network, or else for
        any chain. A request without a matching rule cannot be signed.

        :param rules: each with ``currency`` (the chain) and ``network``, which match everything if empty or left out;
            ``parallel``, in the form that :meth:`set_approvers` accepts; and optionally ``lines``, each with the
            ``path`` of a wallet, and the ``parallel`` to use if this wallet is the request's only link. None: only the
            default rule, which :meth:`set_approvers` sets.
        """
        found = None if rules is None else [Rule.model_validate(each).model_dump() for each in rules]
        self._state.save("rules", found)

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
        number = self._state.settings.superadmins
        query = "SELECT * FROM superadmins ORDER BY number LIMIT ?"
        found = self._state.rows(query, number)
        if len(found) < number:
            new = [(each, create_private_key()) for each in range(len(found) + 1, number + 1)]
            self._state.write_many("INSERT INTO superadmins VALUES (?, ?)", new)
            found = self._state.rows(query, number)
        return {f"superadmin-{row['number']}@example.test": row["private_key"] for row in found}

    def thresholds(self, payloads: Iterable[tuple[Mapping[str, Any], str]]) -> list[Branches]:
        """Return the required signers for pairs of payload and network."""
        rules = self._rules()
        found = []
        for payload, network in payloads:
            branches = select_thresholds(rules, payload, network)
            found.append(_both_linked(payload) if branches == _DEFAULT_BRANCHES and self._is_default else branches)
        return found

    def current(self) -> sqlite3.Row:
        """
        Return the rules in force, signed by all super-administrators.

        `container` and `signatures` (one message) are in base64. `hash` is the SHA-256 of the decoded container.
        `signed_by` contains the same signatures as JSON, each with its user.
        """
        superadmins = self.superadmins()
        users = [*self._users_with_keys(), *(_superadmin(name, key) for name, key in superadmins.items())]
        rules = self._rules()
        groups = _groups(users, rules)
        content = hashlib.sha256(dumps([users, groups, rules]).encode()).hexdigest()
        latest = self._state.rows("SELECT * FROM rules ORDER BY id DESC LIMIT 1")
        if latest and latest[0]["content"] == content:
            return latest[0]
        now = time.time_ns()
        container = encode_rules_container(users, groups, rules, now // 10**9)
        signatures = [(name, sign(key, container)) for name, key in superadmins.items()]
        self._state.write(
            # Two versions within one second may have the same container: the later version replaces the earlier.
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
        """Return versions of the rules, by the hash of the container."""
        rows = self._state.rows(
            "SELECT * FROM rules WHERE hash IN (SELECT value FROM json_each(?))", json.dumps(sorted(set(hashes)))
        )
        return {row["hash"]: row for row in rows}

    @property
    def _is_default(self) -> bool:
        return self._state.load("rules", None) is None and not self._state.load("approvers", None)

    def _rules(self) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] | None = self._state.load("rules", None)
        if rules is not None:
            return rules
        return [_default_rule(self._state.load("approvers", None) or _DEFAULT_BRANCHES)]

    def _users_with_keys(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for user in self._users.all():
            if user.public_key:
                # Ids must be unique in the rules.
                entry = {"publicKey": user.public_key, "roles": user.roles, "groups": user.groups}
                found.setdefault(user.external_id, {"id": user.external_id, **entry})
        return list(found.values())


def is_any(word: str) -> bool:
    """Return whether a rule's chain or network matches everything."""
    return word.casefold() in ("", "any")


def select_thresholds(rules: Sequence[Mapping[str, Any]], payload: Mapping[str, Any], network: str) -> Branches:
    """
    Return the branches of required signers of a request.

    Every group of one branch must sign. Without a matching rule, there are no branches.

    :param rules: the rules, in the form that ``set_rules`` stores.
    :param payload: the payload of the request.
    :param network: its network, which may be missing in the payload.
    """
    rule = _select_rule(rules, payload["currency"], network)
    if rule is None:
        return []
    wallets = payload.get("linkedWallets", [])
    if len(wallets) == 1 and not payload["linkedInternalAddresses"]:
        for line in rule["lines"]:
            if line["path"] and line["path"] == wallets[0].get("path"):
                return list(line["parallel"])
    return list(rule["parallel"])


def _select_rule(rules: Sequence[Mapping[str, Any]], chain: str, network: str) -> Mapping[str, Any] | None:
    """Return the most specific rule for a chain and network, if any."""
    of_chain = [rule for rule in rules if rule["currency"] == chain]
    of_network = [rule for rule in of_chain if network and rule["network"] == network]
    of_any_network = [rule for rule in of_chain if is_any(rule["network"])]
    of_any_chain = [
        rule for rule in rules if is_any(rule["currency"]) and (is_any(rule["network"]) or rule["network"] == network)
    ]
    return next(iter([*of_network, *of_any_network, *of_any_chain]), None)


def _superadmin(name: str, private_key: str) -> dict[str, Any]:
    return {"id": name, "publicKey": public_key_of(private_key), "roles": ["SuperAdmin"], "groups": []}


def _default_rule(branches: Branches) -> dict[str, Any]:
    return {"currency": "", "network": "", "parallel": branches, "lines": []}


def _both_linked(payload: Mapping[str, Any]) -> Branches:
    # A request with both linked addresses and linked wallets has another threshold, which is not in the rules. The
    # numbers are assumptions.
    both = payload["linkedInternalAddresses"] and payload.get("linkedWallets")
    return [{"sequential": [{"externalGroupID": DEFAULT_GROUP, "minimumSignatures": 2 if both else 1}]}]


def _groups(users: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return user ids by group, for all groups of users and rules."""
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


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
