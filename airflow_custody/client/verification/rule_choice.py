"""Which of the signed rules decide about an address: chosen by what is signed. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from airflow_custody.client.text import count, sanitize
from airflow_custody.client.verification.rules_container import Path, Rule, RulesContainer
from airflow_custody.client.verification.signed_text import SignedText

_ByNetwork = Mapping[str, Sequence[Rule]]
_FOR_SUPERADMINS = "One rule must say who signs for it: making one is for super-administrators."


class RuleChoiceError(ValueError):
    """
    Raised when it is not certain which rule decides, or there is none; says why.

    :param advice: what to do about it; None: nothing.
    """

    def __init__(self, why: str, advice: str | None = None) -> None:
        super().__init__(why)
        self.advice = advice


class Networks(NamedTuple):
    """
    The networks that an address may be on, by what is signed and what is pinned.

    :param required: those that must have a rule.
    :param possible: others, whose rule, if there is one, must be met too.
    :param open: whether it may be on any other network, too.
    """

    required: tuple[str, ...]
    possible: tuple[str, ...] = ()
    open: bool = False


def networks_of(text: SignedText, shown: str | None, accepted: Collection[str] | None) -> Networks:
    """
    Return the networks that an address may be on.

    :param text: the signed text.
    :param shown: the network that the service shows outside of it; None or empty: none.
    :param accepted: the networks that are pinned; None: any.
    :raises RuleChoiceError: if they contradict each other.
    """
    signed: str = text.fields.get("network") or ""
    if signed and shown and signed != shown:
        raise RuleChoiceError(f"its text is for the network {_quote(signed)}, and the service shows {_quote(shown)}")
    network = signed or shown or ""
    if accepted is not None and network not in accepted:
        raise RuleChoiceError(
            f"its network {_quote(network)} is not pinned" if network else "the service does not show its network",
            "Accept it in 'networks', if addresses on it are to count."
            if network
            else "So nothing says that it is on one of those pinned. If the service shows none for this chain, leave "
            "out 'networks': then it needs the signatures that each rule for its chain asks for.",
        )
    if signed:
        return Networks((signed,))
    # No signature covers what the service shows: it is only one of those that it may be.
    required = (network,) if network else ()
    if accepted is not None:
        return Networks(required, tuple(each for each in accepted if each != network))
    return Networks(required, open=True)


def choose_rules(container: RulesContainer, currency: str, networks: Networks) -> tuple[Rule, ...]:
    """
    Return the rules that must all be met.

    :param container: the signed rules.
    :param currency: the chain, from the signed text.
    :param networks: the networks that the address may be on.
    :raises RuleChoiceError: if there is none, or it is not certain which.
    """
    own, default = container.by_network.get(currency, {}), container.by_network.get("", {})
    possible: list[str | None] = [*networks.possible]
    if networks.open:
        # Each network that a rule names, and one that none does.
        possible += [*filter(None, (*own, *default)), None]
    chosen: dict[int, Rule] = {}
    for network in dict.fromkeys([*networks.required, *possible]):
        rule = _choose(own, default, currency, network)
        if rule is not None:
            chosen[id(rule)] = rule
        elif network in networks.required:
            raise RuleChoiceError(
                f"no rule is for the chain {_quote(currency)} on the network {_quote(network)}", _FOR_SUPERADMINS
            )
    if not chosen:
        raise RuleChoiceError(f"no rule is for the chain {_quote(currency)}", _FOR_SUPERADMINS)
    return tuple(chosen.values())


def _choose(own: _ByNetwork, default: _ByNetwork, currency: str, network: str | None) -> Rule | None:
    """Return the rule for a chain and a network; None as network: one that no rule names."""
    named = network or ""
    found: Sequence[Rule] = (
        (own.get(named, ()) if named else ())
        or own.get("", ())
        or (*default.get("", ()), *(default.get(named, ()) if named else ()))
    )
    if len(found) > 1:
        raise RuleChoiceError(
            f"{count(len(found), 'rule is', 'rules are')} for the chain {_quote(currency)} on the same network",
            _FOR_SUPERADMINS,
        )
    return found[0] if found else None


def paths_of(rule: Rule, text: SignedText) -> tuple[tuple[Path, ...], str | None]:
    """
    Return the paths of a rule for a text, and the wallet's path if a line of the rule has them.

    :param rule: the rule.
    :param text: the signed text.
    """
    if wallet_path := text.wallet_path:
        for line in rule.lines:
            if line.wallet_path == wallet_path:
                return line.paths, wallet_path
    return rule.paths, None


def _quote(name: str | None) -> str:
    return repr(sanitize(name or "", 40))
