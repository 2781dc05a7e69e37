"""The choice of the rules that apply to an address."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rules_container import Rule, RulesContainer, choose_rules
from airflow_custody.client.verification.signed_text import SignedText

#: The signed network, the reported network, and the pinned network.
Networks = tuple[str, str | None, list[str] | None]


def text(**fields: Any) -> SignedText:
    return SignedText("", {"currency": "ETH", **fields})


def container(*names: str) -> RulesContainer:
    """Return rules named as ``ETH/mainnet``; ``*`` for all."""
    parts = (name.replace("*", "").split("/") for name in names)
    return RulesContainer("", 0, {}, {}, tuple(Rule(currency, network, ()) for currency, network in parts))


def chosen(rules: RulesContainer, networks: Networks) -> set[str]:
    signed, shown, accepted = networks
    found = choose_rules(rules, text(network=signed), signed or shown or "", accepted)
    return {f"{rule.currency or '*'}/{rule.network or '*'}" for rule in found}


@given(
    st.lists(st.sampled_from(["ETH", "*", "BTC"]).flatmap(lambda a: st.sampled_from([f"{a}/{n}" for n in "*mt"]))),
    st.sampled_from(["m", "t", "other"]),
)
def test_without_a_signed_network_never_less_is_asked_for(rules: list[str], shown: str) -> None:
    """Whatever network the service reports, the signatures also satisfy the rule of the true network."""
    try:
        found = chosen(container(*rules), ("", shown, None))
    except RefusalError:
        return
    for network in ("m", "t", "other"):
        try:
            true = chosen(container(*rules), (network, None, None))
        except RefusalError:
            continue
        assert true <= found
