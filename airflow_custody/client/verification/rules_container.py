"""
The signed rules: the users with their keys, the groups, and the required signers of each chain.

The rules are read from protobuf. :func:`choose_rules` returns the rules that apply to an address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_custody.client.text import ASCII_LOWER, count, sanitize
from airflow_custody.client.verification.keys import PublicKey, read_keys
from airflow_custody.client.verification.protobuf import Field, Message, messages, read_message
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_text import SignedText

#: Maximum size of a container in bytes. A larger container is refused before it is read.
MAX_CONTAINER_BYTES = 4 * 1024 * 1024
#: Maximum size in bytes of the signatures of a container. Larger signatures are refused before they are read.
MAX_SIGNATURES_BYTES = 64 * 1024
#: Maximum number of signatures of a container. It limits the work, because each one is tried with each pinned key.
MAX_RULES_SIGNATURES = 32
# Maximum length of a user's key. A P-256 key in PEM has 178 characters.
_MAX_PEM_LENGTH = 1000
_INTERNAL_WALLET = 1

_PROPERTIES = Field("properties", "bytes", repeated=True)
_THRESHOLDS: Message = {1: messages("thresholds", {1: Field("group", "string"), 2: Field("minimum", "uint32")})}
_USER: Message = {
    1: Field("id", "string"),
    2: Field("key", "string"),
    3: Field("roles", "enum", repeated=True),
    4: _PROPERTIES,
}
_GROUP: Message = {1: Field("id", "string"), 2: Field("users", "string", repeated=True), 3: _PROPERTIES}
_LINE: Message = {
    1: messages("cells", {1: Field("type", "enum"), 2: Field("payload", "bytes")}),
    2: messages("parallel", _THRESHOLDS),
    3: _PROPERTIES,
}
_RULE: Message = {
    1: Field("currency", "string"),
    2: messages("parallel", _THRESHOLDS),
    3: _PROPERTIES,
    4: Field("network", "string"),
    5: messages("lines", _LINE),
}
_CONTAINER: Message = {
    1: messages("users", _USER),
    2: messages("groups", _GROUP),
    3: Field("minimumDistinctUserSignatures", "uint32"),
    4: Field("minimumDistinctGroupSignatures", "uint32"),
    6: messages("rules", _RULE),
    8: Field("enforcedRulesHash", "string"),
    9: _PROPERTIES,
    10: Field("timestamp", "uint64"),
    11: Field("minimumCommitmentSignatures", "uint32"),
    12: Field("engineIdentities", "string", repeated=True),
    13: Field("hsmSlotId", "uint32"),
}
#: The message in a cell's payload, by the cell's type; other types have none.
_CELLS: Mapping[int, Message] = {
    1: {1: Field("path", "string")},
    2: {1: Field("address", "string"), 2: Field("path", "string")},
    4: {1: Field("label", "string")},
    5: {1: Field("address", "string"), 2: Field("memo", "string")},
}
_SIGNATURE: Message = {1: Field("user", "string"), 2: Field("signature", "bytes"), 3: Field("comment", "string")}
_SIGNATURES: Message = {1: messages("signatures", _SIGNATURE)}


@dataclass(frozen=True)
class Threshold:
    """
    The number of users of a group who must sign.

    :param group_id: the group's id.
    :param minimum: the number, at least 1.
    """

    group_id: str
    minimum: int


#: A path is complete if all of its groups have signed, each with at least its threshold of users.
Path = tuple[Threshold, ...]


@dataclass(frozen=True)
class Line:
    """
    The paths that replace a rule's own paths if a certain wallet is linked to the address.

    :param wallet_path: the wallet's derivation path; empty: the line is not for a wallet.
    :param paths: the paths; one complete path is enough.
    """

    wallet_path: str
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class Rule:
    """
    The required signers for addresses on a chain.

    :param currency: the chain; empty: all chains that have no rule of their own.
    :param network: the chain's network; empty: any network.
    :param paths: the paths; one complete path is enough.
    :param lines: paths that replace ``paths`` for an address with a single linked wallet.
    """

    currency: str
    network: str
    paths: tuple[Path, ...]
    lines: tuple[Line, ...] = ()

    def paths_for(self, wallet_path: str) -> tuple[tuple[Path, ...], str | None]:
        """
        Return the paths for an address.

        If the rule has a line for the linked wallet, the result is the line's paths and the wallet's path. Otherwise,
        the result is the rule's own paths and None.

        :param wallet_path: the path of the address's only linked wallet; empty: there is no such wallet.
        """
        for line in self.lines if wallet_path else ():
            if line.wallet_path == wallet_path:
                return line.paths, wallet_path
        return self.paths, None


@dataclass
class RulesContainer:
    """
    Signed rules.

    :param sha256: the hash of the rules' bytes, in hex.
    :param timestamp: creation time in Unix seconds; 0: not given.
    :param users: the users' keys, by the user's id. None: the key cannot be used. This only matters if the user has
        signed.
    :param groups: the ids of a group's users, by the group's id.
    :param rules: the rules for addresses.
    """

    sha256: str
    timestamp: int
    users: Mapping[str, PublicKey | None]
    groups: Mapping[str, frozenset[str]]
    rules: tuple[Rule, ...]

    @cached_property
    def by_network(self) -> Mapping[str, Mapping[str, Sequence[Rule]]]:
        """The rules by their currency, then by their network."""
        found: dict[str, dict[str, list[Rule]]] = {}
        for rule in self.rules:
            found.setdefault(rule.currency, {}).setdefault(rule.network, []).append(rule)
        return found


def read_container(data: bytes) -> RulesContainer:
    """
    Read rules.

    :param data: the bytes that super-administrators have signed.
    :raises RefusalError: if the bytes cannot be read, or could be read in two ways.
    """
    found = read_message(data, _CONTAINER)
    return RulesContainer(
        sha256=hashlib.sha256(data).hexdigest(),
        timestamp=found["timestamp"],
        users=read_keys({id_: user["key"] for id_, user in _by_id(found["users"], "user").items()}, _MAX_PEM_LENGTH),
        groups={id_: frozenset(group["users"]) for id_, group in _by_id(found["groups"], "group").items()},
        rules=tuple(
            Rule(
                _name_or_all(each["currency"]),
                _name_or_all(each["network"]),
                _paths(each["parallel"]),
                tuple(Line(_wallet_path(line["cells"]), _paths(line["parallel"])) for line in each["lines"]),
            )
            for each in found["rules"]
        ),
    )


def read_signatures(data: bytes) -> list[bytes]:
    """
    Read the signatures of rules from an envelope.

    The users' names in the message are ignored, because no signature covers them.

    :param data: the bytes of the message ``UserSignatures``.
    :raises RefusalError: if the message cannot be read.
    """
    return [each["signature"] for each in read_message(data, _SIGNATURES)["signatures"]]


def _name_or_all(name: str) -> str:
    """Return a rule's currency or network; empty if it is the word ``any``."""
    return "" if name.translate(ASCII_LOWER) == "any" else name


def _by_id(found: list[dict[str, Any]], what: str) -> dict[str, dict[str, Any]]:
    by_id: dict[str, dict[str, Any]] = {each["id"]: each for each in found}
    if len(by_id) != len(found):
        raise RefusalError(f"two {what}s have the same id")
    return by_id


def _paths(parallel: list[dict[str, Any]]) -> tuple[Path, ...]:
    """
    Return the paths that signatures can complete.

    A path without groups is left out, because otherwise it would be complete without any signature. A path with a
    threshold of 0 is also left out, because 0 is a mistake, and the intended number is unknown.
    """
    paths = (tuple(Threshold(each["group"], each["minimum"]) for each in path["thresholds"]) for path in parallel)
    return tuple(path for path in paths if path and all(each.minimum for each in path))


def _wallet_path(cells: list[dict[str, Any]]) -> str:
    """
    Return the wallet path in the first cell of a line; empty if the first cell is not a wallet.

    :raises RefusalError: if any of the cells cannot be read.
    """
    payloads = [read_message(cell["payload"], _CELLS.get(cell["type"], {})) for cell in cells]
    path: str = payloads[0]["path"] if cells and cells[0]["type"] == _INTERNAL_WALLET else ""
    return path


# --- the choice --------------------------------------------------------------------------------------------

_ByNetwork = Mapping[str, Sequence[Rule]]
_FOR_SUPERADMINS = "Exactly one rule must apply. Ask the super-administrators to change the rules."


def choose_rules(
    container: RulesContainer, text: SignedText, network: str, accepted: Collection[str] | None
) -> tuple[Rule, ...]:
    """
    Return the rules that must all be met.

    If the signed text does not name the network, no signature covers it, and the service may report a wrong network.
    Therefore the rules of every possible network must be met.

    :param container: the signed rules.
    :param text: the signed text.
    :param network: the network that the text or the service reports; empty: unknown.
    :param accepted: the pinned networks; None: any network is accepted.
    :raises RefusalError: if no rule covers the address, or several rules cover the same network.
    """
    currency = text.fields["currency"]
    own, default = container.by_network.get(currency, {}), container.by_network.get("", {})
    # None represents all networks that no rule names.
    possible: list[str | None] = [network] if network else []
    if not text.fields.get("network"):
        possible += [*filter(None, (*own, *default)), None] if accepted is None else accepted
    chosen: dict[int, Rule] = {}
    for each in dict.fromkeys(possible):
        rule = _choose(own, default, currency, each)
        if rule is not None:
            chosen[id(rule)] = rule
        elif network and each == network:
            raise RefusalError(
                f"no rule covers the chain {_quote(currency)} on the network {_quote(network)}", _FOR_SUPERADMINS
            )
    if not chosen:
        raise RefusalError(f"no rule covers the chain {_quote(currency)}", _FOR_SUPERADMINS)
    return tuple(chosen.values())


def _choose(own: _ByNetwork, default: _ByNetwork, currency: str, network: str | None) -> Rule | None:
    """
    Return the rule for a chain and a network; None if no rule covers it.

    A network of None represents all networks that no rule names.
    """
    named = network or ""
    found: Sequence[Rule] = (
        (own.get(named, ()) if named else ())
        or own.get("", ())
        or (*default.get("", ()), *(default.get(named, ()) if named else ()))
    )
    if len(found) > 1:
        raise RefusalError(
            f"{count(len(found), 'rule covers', 'rules cover')} the chain {_quote(currency)} on the same network",
            _FOR_SUPERADMINS,
        )
    return found[0] if found else None


def _quote(name: str) -> str:
    return repr(sanitize(name, 40))
