"""Which rules decide about an address."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rule_choice import choose_rules, network_of
from airflow_custody.client.verification.rules_container import Rule, RulesContainer
from airflow_custody.client.verification.signed_text import SignedText

#: What is signed, what is shown, and what is pinned.
Networks = tuple[str, str | None, list[str] | None]
OPEN: Networks = ("", None, None)
SHOWN: Networks = ("", "mainnet", None)


def text(**fields: Any) -> SignedText:
    return SignedText("", {"currency": "ETH", **fields})


def container(*names: str) -> RulesContainer:
    """Return rules named as ``ETH/mainnet``; ``*`` for all."""
    parts = (name.replace("*", "").split("/") for name in names)
    return RulesContainer("", 0, {}, {}, tuple(Rule(currency, network, ()) for currency, network in parts))


def chosen(rules: RulesContainer, networks: Networks) -> set[str]:
    signed, shown, accepted = networks
    network = network_of(text(network=signed), shown, accepted)
    found = choose_rules(rules, text(network=signed), network, accepted)
    return {f"{rule.currency or '*'}/{rule.network or '*'}" for rule in found}


@pytest.mark.parametrize(
    ("rules", "networks", "expected"),
    [
        (["ETH/mainnet", "ETH/testnet"], OPEN, {"ETH/mainnet", "ETH/testnet"}),
        (["ETH/mainnet", "ETH/*", "*/*"], OPEN, {"ETH/mainnet", "ETH/*"}),
        (["ETH/mainnet", "*/*"], OPEN, {"ETH/mainnet", "*/*"}),
        (["*/*", "BTC/mainnet"], OPEN, {"*/*"}),
        (["*/mainnet", "*/testnet"], OPEN, {"*/mainnet", "*/testnet"}),
        (["ETH/mainnet", "ETH/testnet"], SHOWN, {"ETH/mainnet", "ETH/testnet"}),
        (["ETH/mainnet", "ETH/testnet"], ("", "mainnet", ["mainnet", "testnet"]), {"ETH/mainnet", "ETH/testnet"}),
        # Nobody can whitelist an address for a network without a rule.
        (["ETH/mainnet"], ("", "mainnet", ["mainnet", "sepolia"]), {"ETH/mainnet"}),
        (["ETH/mainnet", "ETH/*"], ("", "mainnet", ["mainnet", "sepolia"]), {"ETH/mainnet", "ETH/*"}),
    ],
)
def test_all_that_may_apply(rules: list[str], networks: Networks, expected: set[str]) -> None:
    assert chosen(container(*rules), networks) == expected


@pytest.mark.parametrize(
    ("rules", "networks"),
    [
        (["ETH/testnet"], SHOWN),
        (["ETH/testnet"], ("", "mainnet", ["mainnet", "testnet"])),
        (["BTC/*"], OPEN),
        (["ETH/testnet", "ETH/testnet", "ETH/mainnet"], OPEN),
    ],
)
def test_refused_if_uncertain(rules: list[str], networks: Networks) -> None:
    with pytest.raises(RefusalError):
        chosen(container(*rules), networks)


@given(
    st.lists(st.sampled_from(["ETH", "*", "BTC"]).flatmap(lambda a: st.sampled_from([f"{a}/{n}" for n in "*mt"]))),
    st.sampled_from(["m", "t", "other"]),
)
def test_without_a_signed_network_never_less_is_asked_for(rules: list[str], shown: str) -> None:
    """Whatever the service shows as network: the rule of the true one is among those that are met."""
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


@pytest.mark.parametrize(
    ("signed", "shown", "accepted", "why"),
    [
        ("mainnet", "testnet", None, "for the network 'mainnet', and the service shows 'testnet'"),
        ("mainnet", "Mainnet", None, "for the network 'mainnet', and the service shows 'Mainnet'"),
        ("testnet", "testnet", ["mainnet"], "its network 'testnet' is not pinned"),
        ("testnet", None, ["mainnet"], "its network 'testnet' is not pinned"),
        ("", "testnet", ["mainnet"], "its network 'testnet' is not pinned"),
        ("", None, ["mainnet"], "does not show its network"),
    ],
)
def test_networks_that_contradict(signed: str, shown: str | None, accepted: list[str] | None, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        network_of(text(network=signed), shown, accepted)
