"""Which rule is for a whitelisting request, and who must sign it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Branches = list[dict[str, Any]]


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
    rule = _select_rule(rules, str(payload["currency"]), network)
    if rule is None:
        return []
    wallets = payload.get("linkedWallets", [])
    if len(wallets) == 1 and not payload["linkedInternalAddresses"]:
        for line in rule["lines"]:
            if line["path"] and line["path"] == wallets[0].get("path"):
                return list(line["parallel"])
    return list(rule["parallel"])


def _select_rule(rules: Sequence[Mapping[str, Any]], chain: str, network: str) -> Mapping[str, Any] | None:
    of_chain = [rule for rule in rules if rule["currency"] == chain]
    of_any = [rule for rule in rules if is_any(rule["currency"])]
    candidates = [
        *(rule for rule in of_chain if network and rule["network"] == network),
        *(rule for rule in of_chain if is_any(rule["network"])),
        *(rule for rule in of_any if is_any(rule["network"]) or rule["network"] == network),
    ]
    return candidates[0] if candidates else None
