"""One chain, two spellings: some services write Polygon, others ETH with the network polygon."""

from __future__ import annotations

from typing import Any

import pytest
from support.whitelist.whitelist_plans import ask, listed, plan, snapshot_of, states

from airflow_custody.client.whitelist.addresses.destinations import find_candidates
from airflow_custody.client.whitelist.matching import index_requests

PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"blockchain": chain, **({"network": network} if network else {})}, {"blockchain": "ETH", "network": on_eth})
    for chain, network, on_eth in (
        ("Polygon", "mainnet", "polygon"),
        ("MATIC", "", "Polygon-Mainnet"),
        ("MATIC", "amoy", "polygon amoy"),
        ("FTM", "", "fantom"),
        ("Sonic", "", "sonic"),
        ("Sonic", "blaze", "blaze"),
        ("AvalancheC", "mainnet", "avalanche"),
        ("AvalancheC", "fuji", "fuji"),
    )
]
NOTE = "some services name this chain itself, others write ETH and name it as the network"


def at_service(blockchain: str, network: str | None = None, number: int = 3711, **wire: Any) -> Any:
    return listed(number, currency=blockchain, wire={**({"network": network} if network else {}), **wire})


@pytest.mark.parametrize(("own", "on_eth"), PAIRS, ids=str)
def test_no_request_is_created_for_the_other_spelling(own: dict[str, Any], on_eth: dict[str, Any]) -> None:
    for row, there in ((own, on_eth), (on_eth, own)):
        found = plan(ask(**row), at_service(**there), prune=True, replace=True)
        assert states(found) == [("differs", None, "3711")]
        assert found.rows[0].is_doubtful
        assert f"this request may be for the row, so nothing is created: {NOTE}" in found.rows[0].note
        # The exact spelling is found, and the other one is not deleted.
        both = plan(ask(**row), [at_service(**there), at_service(**row, number=5)], prune=True)
        assert states(both) == [("unchanged", None, "5"), ("undeclared", None, "3711")]
        # The user has inspected the request, or it was rejected.
        assert plan(ask(**row), at_service(**there), ignore="3711").operations
        assert plan(ask(**row), at_service(**there, status="rejected")).operations


@pytest.mark.parametrize(("own", "on_eth"), PAIRS, ids=str)
def test_two_rows_in_both_spellings_stop(own: dict[str, Any], on_eth: dict[str, Any]) -> None:
    found = plan([ask(**own), ask(**on_eth)], [])
    assert [(row.state, row.fields) for row in found.rows] == [("differs", ("blockchain",))] * 2
    for row, other in zip(found.rows, ("line 3", "line 2"), strict=True):
        assert (
            row.note == f"nothing is created: {other} may be for the same destination: {NOTE}. Keep one of the two rows"
        )
    assert found.operations == ()


@pytest.mark.parametrize(
    ("own", "on_eth"),
    [
        # A network of Ethereum itself, or of another chain.
        ({"blockchain": "Polygon"}, {"blockchain": "ETH", "network": "mainnet"}),
        ({"blockchain": "Polygon"}, {"blockchain": "ETH", "network": "sepolia"}),
        ({"blockchain": "Polygon"}, {"blockchain": "ETH", "network": "sonic"}),
        # Two networks of one chain.
        ({"blockchain": "Polygon", "network": "mainnet"}, {"blockchain": "ETH", "network": "amoy"}),
        ({"blockchain": "Polygon", "network": "amoy"}, {"blockchain": "ETH", "network": "polygon"}),
        # A chain whose addresses do not have Ethereum's form.
        ({"blockchain": "TRON"}, {"blockchain": "ETH", "network": "tron"}),
    ],
)
def test_two_networks_are_two_destinations(own: dict[str, Any], on_eth: dict[str, Any]) -> None:
    for row, there in ((own, on_eth), (on_eth, own)):
        assert states(plan(ask(**row), at_service(**there)))[0] == ("create", "create", "")
    assert {row.action for row in plan([ask(**own), ask(**on_eth)], []).rows} == {"create"}


@pytest.mark.parametrize("network", [None, "arbitrum"])
def test_a_network_that_says_nothing_may_be_any_until_the_file_uses_both_names(network: str | None) -> None:
    there = at_service("ETH", network)
    row, other = ask(blockchain="Polygon"), ask(network=network) if network else ask()
    assert states(plan(row, there)) == [("differs", None, "3711")]
    assert [each.state for each in plan([row, other], there).rows] == ["create", "unchanged"]


@pytest.mark.parametrize(
    ("asked", "shown", "state"),
    [
        (None, None, "unchanged"),
        ("mainnet", "mainnet", "unchanged"),
        *((None, each, "differs") for each in ("polygon", "sepolia", "testnet", "one")),
        *((each, None, "differs") for each in ("mainnet", "polygon", "sepolia")),
        ("mainnet", "polygon", "create"),
        ("sepolia", "mainnet", "create"),
    ],
)
@pytest.mark.parametrize("accepted", [(), ("network",)], ids=["", "accepted"])
def test_on_eth_a_row_takes_only_its_own_network(
    asked: str | None, shown: str | None, state: str, accepted: tuple[str, ...]
) -> None:
    row = ask(network=asked) if asked else ask()
    for there in (at_service("ETH", shown), listed(network=shown) if shown else listed()):
        found = plan(row, there, accept_fields=accepted, prune=True, replace=True)
        expected = "differs" if (asked, shown) == ("mainnet", "polygon") else state
        assert found.rows[0].state == expected
        assert bool(found.operations) == (expected == "create")
        if expected == "differs":
            assert "network" in found.rows[0].fields
            assert "so nothing is created" in found.rows[0].note


@pytest.mark.parametrize("chain", ["ETH", "Polygon", "BTC", "BASE"])
def test_a_search_for_a_lost_create_finds_it_whatever_network_the_service_fills_in_or_leaves_out(chain: str) -> None:
    networks = (None, "mainnet", "sepolia", "polygon", "testnet4", "one")
    for asked in networks:
        row = ask(blockchain=chain, network=asked) if asked else ask(blockchain=chain)
        for shown in networks if asked is None else (asked, None):
            there = at_service(chain, shown)
            assert [each.id for each in find_candidates(index_requests(snapshot_of([there])), row)] == ["3711"]
