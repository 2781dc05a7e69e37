"""
Choose the rules that apply to an address.

The choice depends on the signed text and the network. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow_custody.client.text import ascii_lower, count, sanitize
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rules_container import Path, Rule, RulesContainer
from airflow_custody.client.verification.signed_text import SignedText

_ByNetwork = Mapping[str, Sequence[Rule]]
_FOR_SUPERADMINS = "Exactly one rule must apply. Ask the super-administrators to change the rules."


def network_of(text: SignedText, shown: str | None, accepted: Collection[str] | None) -> str:
    """
    Return the network of an address; empty if it is unknown.

    This is the network in the signed text, or else the network that the service reports. They do not contradict each
    other if they differ only in case.

    :param text: the signed text.
    :param shown: the network that the service reports outside of the text; None or empty: none.
    :param accepted: the networks that are pinned; None: any.
    :raises RefusalError: if the networks contradict each other, or are not pinned.
    """
    signed: str = text.fields.get("network") or ""
    if signed and shown and ascii_lower(signed) != ascii_lower(shown):
        raise RefusalError(f"its text is for the network {_quote(signed)}, but the service reports {_quote(shown)}")
    network = signed or shown or ""
    if accepted is None or network in accepted:
        return network
    if network:
        raise RefusalError(
            f"its network {_quote(network)} is not pinned",
            "To accept addresses on it, add it to 'networks'.",
        )
    raise RefusalError(
        "the service does not report its network",
        "So it may not be on a pinned network. If the service reports no network for this chain, leave out 'networks'. "
        "Then the address needs the signatures that each rule for its chain requires.",
    )


def choose_rules(
    container: RulesContainer, text: SignedText, network: str, accepted: Collection[str] | None
) -> tuple[Rule, ...]:
    """
    Return the rules that must all be met.

    If only the service reports the network, no signature covers it. The address may then be on another network, so the
    rules of every possible network must be met.

    :param container: the signed rules.
    :param text: the signed text.
    :param network: its network, as :func:`network_of` returned it.
    :param accepted: the networks that are pinned; None: any.
    :raises RefusalError: if no rule covers the address, or several rules cover the same network.
    """
    currency = text.fields["currency"]
    own, default = container.by_network.get(currency, {}), container.by_network.get("", {})
    # None stands for a network that no rule names.
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
    Return the rule for a chain and a network.

    A network of None stands for a network that no rule names.
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


def paths_of(rule: Rule, text: SignedText) -> tuple[tuple[Path, ...], str | None]:
    """
    Return the paths of a rule for a text.

    If the rule has a line for the linked wallet, the result is the line's paths and the wallet's path. Otherwise, the
    result is the rule's paths and None.

    :param rule: the rule.
    :param text: the signed text.
    """
    if wallet_path := text.wallet_path:
        for line in rule.lines:
            if line.wallet_path == wallet_path:
                return line.paths, wallet_path
    return rule.paths, None


def _quote(name: str) -> str:
    return repr(sanitize(name, 40))
