"""Which rule of several is for a request."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_api import Api
from sandbox_approvers import PATH, Person, create, listed

from airflow_custody.sandbox import Sandbox
from airflow_custody.sandbox.rules.store import select_thresholds


def branches(*groups: str, minimum: int = 1) -> list[dict[str, Any]]:
    """Return one branch for each group."""
    return [{"sequential": [{"externalGroupID": group, "minimumSignatures": minimum}]} for group in groups]


def rule(currency: str, network: str, group: str, **lines: str) -> dict[str, Any]:
    found = [{"path": path, "parallel": branches(other)} for path, other in lines.items()]
    return {"currency": currency, "network": network, "parallel": branches(group), "lines": found}


RULES = [
    rule("", "", "others"),
    rule("ETH", "", "ether"),
    rule("ETH", "main", "ether-main", hot="hot-wallet"),
    rule("any", "test", "others-test"),
    rule("XLM", "main", "lumens-main"),
]


def payload(chain: str, wallets: tuple[str, ...] = (), addresses: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"currency": chain, "linkedInternalAddresses": [{}] * addresses}
    return {**found, "linkedWallets": [{"path": path} for path in wallets]} if wallets else found


@pytest.mark.parametrize(
    ("signed", "network", "group"),
    [
        (payload("ETH"), "main", "ether-main"),
        (payload("ETH"), "test", "ether"),
        (payload("ETH"), "", "ether"),
        (payload("eth"), "main", "others"),
        (payload("XLM"), "main", "lumens-main"),
        (payload("XLM"), "test", "others"),
        (payload("ETH", ("hot",)), "main", "hot-wallet"),
        (payload("ETH", ("cold",)), "main", "ether-main"),
        (payload("ETH", ("",)), "main", "ether-main"),
        (payload("ETH", ("hot", "cold")), "main", "ether-main"),
        (payload("ETH", ("hot",), addresses=1), "main", "ether-main"),
        (payload("ETH", ("hot",)), "", "ether"),
    ],
    ids=str,
)
def test_the_rule_for_chain_and_network_comes_first(signed: dict[str, Any], network: str, group: str) -> None:
    assert select_thresholds(RULES, signed, network) == branches(group)


@pytest.mark.parametrize("rules", [[], RULES[1:], [rule("Any", "Main", "x")]])
def test_there_may_be_no_rule(rules: list[dict[str, Any]]) -> None:
    assert select_thresholds(rules, payload("BTC"), "main") == []


def parallel(api: Api, number: str) -> Any:
    return api.get(f"{PATH}/{number}").json()["result"]["approvers"]["parallel"]


def post(api: Api, **fields: Any) -> str:
    body = {"label": "Treasury", "address": "0x" + "a" * 40, "blockchain": "ETH", **fields}
    return str(api.post(PATH, body).json()["result"]["id"])


def test_requests_follow_the_rules_that_are_set(sandbox: Sandbox, api: Api) -> None:
    line = {"path": "m/44'/60'/7'", "parallel": branches("wallets")}
    sandbox.control.set_rules([{"currency": "ETH", "parallel": branches("ether"), "lines": [line]}])
    assert parallel(api, create(api)) == branches("ether")
    assert parallel(api, post(api, linkedWalletIds=["7"])) == branches("wallets")
    assert parallel(api, post(api, linkedWalletIds=["8"])) == branches("ether")
    xrp = post(api, blockchain="XRP", address="rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh")
    assert parallel(api, xrp) == []
    ann = Person(sandbox, api, "ann", "ether", "approvers")
    assert ann.approve(xrp).status_code == 403
    sandbox.control.set_approvers(branches("risk"))
    assert parallel(api, create(api)) == branches("ether")
    assert parallel(api, post(api, blockchain="XRP", address="rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh")) == branches("risk")
    sandbox.control.set_rules(None)
    assert parallel(api, create(api)) == branches("risk")
    sandbox.control.set_approvers(None)
    assert parallel(api, create(api)) == branches("approvers")


def test_any_one_complete_branch_suffices(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers([*branches("many", minimum=2), *branches("board"), {"sequential": []}])
    ann, bob = Person(sandbox, api, "ann", "many"), Person(sandbox, api, "bob", "board")
    one, two = create(api), create(api, "b")
    assert ann.approve(one).status_code == 200
    assert (ann.pending(), bob.pending(), listed(api)) == ([two], [one, two], [])
    assert bob.approve(one).status_code == 200
    assert (listed(api), bob.pending()) == ([one], [two])
    eve = Person(sandbox, api, "eve", "many")
    assert (ann.approve(two).status_code, eve.approve(two).status_code) == (200, 200)
    assert (listed(api), bob.pending()) == ([one, two], [])


def test_zero_signatures_count_as_one(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_approvers(branches("board", minimum=0))
    ann, number = Person(sandbox, api, "ann", "board"), create(api)
    assert listed(api) == []
    assert ann.approve(number).status_code == 200
    assert listed(api) == [number]
