"""The rules for whitelisting: their required signers, and the super-administrators who sign the rules."""

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

#: The group that signs whitelisting requests if no rules are set.
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
    """A group of approvers, and how many of it must sign; zero counts as one."""

    externalGroupID: str
    minimumSignatures: Annotated[int, Field(ge=0, lt=2**32)]


class Branch(_Model):
    """Groups of approvers that sign one after the other."""

    sequential: list[Group]


class Line(_Model):
    """The required signers if a request's only link is the wallet with this path."""

    path: str
    parallel: list[Branch]


class Rule(_Model):
    """The required signers for a chain and a network; empty or ``Any`` is for all of them."""

    currency: str = ""
    network: str = ""
    parallel: list[Branch]
    lines: list[Line] = []


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

    def set_approvers(self, parallel: list[dict[str, Any]] | None) -> None:
        """
        Set who must sign the whitelisting requests that are created from now on, if no rule is for their chain.

        Requests that are there keep theirs, and do not verify if the rules in force when they take effect ask for more.

        :param parallel: ``[{"sequential": [{"externalGroupID": ..., "minimumSignatures": ...}, ...]}, ...]``: any one
            branch must be signed, and within a branch one group after the other. None: one member of the group
            ``approvers``, or two for a request with both linked lists.
        """
        branches = [Branch.model_validate(each).model_dump() for each in parallel or ()]
        self._state.save("approvers", branches or None)
        rules = self._state.load("rules", None)
        if rules is not None:
            others = [rule for rule in rules if not (is_any(rule["currency"]) and is_any(rule["network"]))]
            self.set_rules([*others, _default_rule(branches or _DEFAULT_BRANCHES)])

    def set_rules(self, rules: Sequence[Mapping[str, Any]] | None) -> None:
        """
        Set all rules for the whitelisting requests that are created from now on.

        A request's rule is the first one for its chain and network, or else for its chain, or else for all chains.
        Without one, nobody can sign it.

        :param rules: each with ``currency`` (the chain) and ``network``, empty or left out for all; ``parallel``, as
            in :meth:`set_approvers`; and optionally ``lines``, each with the ``path`` of a wallet, and the ``parallel``
            that a request follows instead if this wallet is its only link. None: one rule for all, as
            :meth:`set_approvers` sets it.
        """
        found = None if rules is None else [Rule.model_validate(each).model_dump() for each in rules]
        self._state.save("rules", found)

    def pins(self) -> dict[str, Any]:
        """
        Return what a client pins to verify the rules, by the names of a connection's extras.

        ``superadmin_keys`` is a list of public keys in PEM, and ``superadmin_minimum`` how many of them must sign.
        """
        keys = [public_key_of(each) for each in self.superadmins().values()]
        return {"superadmin_keys": keys, "superadmin_minimum": self._state.settings.superadmin_minimum}

    def superadmins(self) -> dict[str, str]:
        """Return the private keys of the super-administrators by their ids, to forge with."""
        number = self._state.settings.superadmins
        query = "SELECT * FROM superadmins ORDER BY number LIMIT ?"
        found = self._state.rows(query, number)
        if len(found) < number:
            new = [(each, create_private_key()) for each in range(len(found) + 1, number + 1)]
            self._state.write_many("INSERT INTO superadmins VALUES (?, ?)", new)
            found = self._state.rows(query, number)
        return {f"superadmin-{row['number']}@example.test": row["private_key"] for row in found}

    def thresholds(self, payloads: Iterable[tuple[Mapping[str, Any], str]]) -> list[Branches]:
        """Return who must sign each of some requests, of which these are the payloads and the networks."""
        rules = self._rules()
        found = []
        for payload, network in payloads:
            branches = select_thresholds(rules, payload, network)
            found.append(_both_linked(payload) if branches == _DEFAULT_BRANCHES and self._is_default else branches)
        return found

    def current(self) -> sqlite3.Row:
        """
        Return the rules in force, signed by all super-administrators.

        Their `hash` is the SHA-256 of the `container`, which is in base64, as is the message with all `signatures`;
        `signed_by` has the same signatures, each with its user, in JSON.
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
            # Of two versions with the same content within one second, the later one replaces the other.
            "INSERT OR REPLACE INTO rules (content, hash, container, signatures, signed_by, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            *(content, hashlib.sha256(container).hexdigest(), _base64(container)),
            _base64(encode_user_signatures(signatures)),
            json.dumps([{"userId": name, "signature": _base64(signature)} for name, signature in signatures]),
            timestamp_from_ns(now),
        )
        return self._state.rows("SELECT * FROM rules ORDER BY id DESC LIMIT 1")[0]

    def versions(self, hashes: Iterable[str]) -> dict[str, sqlite3.Row]:
        """Return these versions of the rules, by the hashes of their containers."""
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
                # Ids are unique in the rules.
                entry = {"publicKey": user.public_key, "roles": user.roles, "groups": user.groups}
                found.setdefault(user.external_id, {"id": user.external_id, **entry})
        return list(found.values())


def is_any(word: str) -> bool:
    """Return whether a rule's chain or network stands for all of them."""
    return word.casefold() in ("", "any")


def select_thresholds(rules: Sequence[Mapping[str, Any]], payload: Mapping[str, Any], network: str) -> Branches:
    """
    Return who must sign a request: all groups of any one branch; no branch at all if no rule is for it.

    :param rules: the rules, as the control sets them.
    :param payload: the payload of the request.
    :param network: its network, which the payload need not have.
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
    """Return the rule for a chain and network, from the most specific to the least; None if there is none."""
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


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
