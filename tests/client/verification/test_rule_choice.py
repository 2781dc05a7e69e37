"""Which rules decide about an address."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rule_choice import choose_rules, network_of, paths_of
from airflow_custody.client.verification.rules_container import Line, Path, Rule, RulesContainer, Threshold, is_wildcard
from airflow_custody.client.verification.signed_text import SignedText

#: What is signed, what is shown, and what is pinned.
Networks = tuple[str, str | None, list[str] | None]
OPEN: Networks = ("", None, None)
SIGNED: Networks = ("mainnet", None, None)
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


@pytest.mark.parametrize("name", ["", "any", "Any", "ANY", "aNy"])
def test_wildcards(name: str) -> None:
    assert is_wildcard(name)


@pytest.mark.parametrize("name", ["*", " any", "all", "\u1d00ny"])
def test_no_wildcards(name: str) -> None:
    assert not is_wildcard(name)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["ETH/mainnet", "ETH/*", "*/*"], "ETH/mainnet"),
        (["*/*", "ETH/*", "ETH/mainnet"], "ETH/mainnet"),
        (["ETH/testnet", "ETH/*", "*/*"], "ETH/*"),
        (["ETH/testnet", "*/*"], "*/*"),
        (["BTC/mainnet", "*/mainnet"], "*/mainnet"),
        (["eth/mainnet", "*/*"], "*/*"),
    ],
)
def test_tiers(rules: list[str], expected: str) -> None:
    assert chosen(container(*rules), SIGNED) == {expected}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([], "no rule is for the chain 'ETH' on the network 'mainnet'"),
        (["BTC/*", "*/testnet"], "no rule is for the chain 'ETH' on the network 'mainnet'"),
        (["ETH/mainnet", "ETH/mainnet"], "2 rules are for the chain 'ETH'"),
        (["ETH/*", "ETH/*"], "2 rules are for the chain 'ETH'"),
        (["*/*", "*/mainnet"], "2 rules are for the chain 'ETH'"),
    ],
)
def test_no_rule_or_two(rules: list[str], why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        chosen(container(*rules), SIGNED)


def test_two_rules_of_a_tier_that_does_not_win() -> None:
    assert chosen(container("ETH/mainnet", "*/*", "*/*"), SIGNED) == {"ETH/mainnet"}


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
    ("signed", "shown", "accepted", "expected"),
    [
        ("mainnet", "mainnet", None, "mainnet"),
        ("mainnet", None, None, "mainnet"),
        ("mainnet", "", ["mainnet", "testnet"], "mainnet"),
        ("", "mainnet", ["mainnet"], "mainnet"),
        ("", "mainnet", None, "mainnet"),
        ("", None, None, ""),
    ],
)
def test_networks(signed: str, shown: str | None, accepted: list[str] | None, expected: str) -> None:
    assert network_of(text(network=signed), shown, accepted) == expected


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


OWN: tuple[Path, ...] = ((Threshold("ops", 2),),)
LINES = tuple(Line(path, ((Threshold("ops", number),),)) for path, number in [("", 3), ("a", 4), ("b", 5), ("a", 6)])
RULE = Rule("ETH", "", OWN, LINES)
WALLET: dict[str, object] = {"id": 7, "name": "hot"}


@pytest.mark.parametrize(
    ("fields", "minimum", "wallet_path"),
    [
        ({}, 2, None),
        ({"linkedWallets": []}, 2, None),
        ({"linkedWallets": [WALLET]}, 2, None),
        ({"linkedWallets": [WALLET | {"path": ""}]}, 2, None),
        ({"linkedWallets": [WALLET | {"path": "c"}]}, 2, None),
        ({"linkedWallets": [WALLET | {"path": "a"}]}, 4, "a"),
        ({"linkedWallets": [WALLET | {"path": "b"}], "linkedInternalAddresses": []}, 5, "b"),
        ({"linkedWallets": [WALLET | {"path": "a"}] * 2}, 2, None),
        ({"linkedWallets": [WALLET | {"path": "a"}], "linkedInternalAddresses": [{"id": "1"}]}, 2, None),
    ],
)
def test_lines(fields: dict[str, Any], minimum: int, wallet_path: str | None) -> None:
    paths, found = paths_of(RULE, text(**fields))
    assert [each.minimum for each in itertools.chain(*paths)] == [minimum]
    assert found == wallet_path
