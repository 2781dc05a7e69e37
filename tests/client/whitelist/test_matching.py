"""The choice of the requests at the service that may have the requested content."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support.whitelist.encodings import base58_check, x_address
from support.whitelist.whitelist_plans import (
    ADDRESS,
    CASH,
    LEGACY,
    OTHER,
    XRP,
    ask,
    listed,
    settings_of,
    snapshot_of,
    unreadable,
)

from airflow_custody.client import WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.whitelist.addresses.checks import spellings
from airflow_custody.client.whitelist.addresses.destinations import destination_of, find_candidates, names_in
from airflow_custody.client.whitelist.comparison import Comparison, compare
from airflow_custody.client.whitelist.matching import index_requests

CHECKSUMMED = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"
# The same script, and the same account, in two spellings.
LTC_M, LTC_3 = (base58_check(bytes([number]) + bytes(range(20))) for number in (0x32, 0x05))
TRON, TRON_HEX = base58_check(b"\x41" + bytes(range(200, 220))), "41" + bytes(range(200, 220)).hex()

ALICE = "alice::1220" + "ab" * 16
BECH32 = "bc1" + "q" * 39
CANTON: dict[str, Any] = {"blockchain": "Canton", "address": ALICE}
BITCOIN: dict[str, Any] = {"blockchain": "BTC", "address": LEGACY}
BITCOIN_SHOWN: dict[str, Any] = {"currency": "BTC", "address": LEGACY}


def compared(asked: WhitelistRequest, envelope: WhitelistEnvelope, **settings: Any) -> Comparison:
    (request,) = snapshot_of([envelope])
    return compare(asked, envelope, request.fields, settings_of(**settings))


def candidates(
    envelopes: Iterable[WhitelistEnvelope], asked: WhitelistRequest, known: Iterable[WhitelistRequest] = ()
) -> list[WhitelistEnvelope]:
    """Return which envelopes may be for the destination of a request, beside rows that name chains and networks."""
    index = index_requests(snapshot_of(envelopes), names_in(map(destination_of, known)))
    return [each.shown for each in find_candidates(index, asked)]


def is_candidate(asked: dict[str, Any], *envelopes: WhitelistEnvelope) -> bool:
    return len(candidates(envelopes, ask(**asked))) == len(envelopes)


@pytest.mark.parametrize(
    ("asked", "shown", "differing"),
    [
        ({}, {}, []),
        ({}, {"currency": "Ethereum", "address": ADDRESS.upper(), "memo": None}, []),
        ({}, {"label": "Other"}, ["label"]),
        # Values that the service adds.
        ({}, {"tag": "99", "addressType": "exchange"}, []),
        ({"network": "main"}, {"network": "ethereum-mainnet"}, []),
        ({"network": "main"}, {"wire": {"network": "mainnet"}}, []),
        # A network that one side does not name matches any.
        ({"network": "mainnet"}, {}, ["network"]),
        # If it was not asked for, only the main one is as good as none, wherever it is shown.
        *(({}, shown, []) for shown in ({"network": "Mainnet"}, {"wire": {"network": "ethereum"}})),
        *(({}, shown, ["network"]) for shown in ({"network": "sepolia"}, {"wire": {"network": "sepolia"}})),
        ({}, {"network": "", "wire": {"network": "one"}}, ["network"]),
        ({"network": "testnet3", **BITCOIN}, {"wire": {"network": "test"}, **BITCOIN_SHOWN}, []),
        ({"memo": "7"}, {"memo": "7"}, []),
        ({"address": BECH32, "blockchain": "BTC"}, {"address": BECH32.upper(), "currency": "BTC"}, []),
        ({"address": CASH, "blockchain": "BCH"}, {"address": CASH.partition(":")[2], "currency": "BCH"}, []),
        ({"address": CASH, "blockchain": "BCH"}, {"address": LEGACY, "currency": "BCH"}, []),
        # The tag of XRP is in the address or beside it.
        *(
            ({"blockchain": "XRP", **asked}, {"currency": "XRP", **shown}, [])
            for one, other in (
                ({"address": XRP}, {"address": x_address()}),
                ({"address": XRP, "memo": "0"}, {"address": x_address(tag=0)}),
                ({"address": XRP, "memo": "12"}, {"address": x_address(tag=12)}),
                ({"address": XRP, "memo": "12"}, {"address": x_address(tag=12), "memo": "12"}),
                (
                    {"address": XRP, "memo": str(2**32 - 1), "network": "testnet"},
                    {"address": x_address(tag=2**32 - 1, prefix=b"\x04\x93"), "network": "testnet"},
                ),
            )
            for asked, shown in ((one, other), (other, one))
        ),
        *(
            ({"blockchain": chain, "address": one}, {"currency": chain, "address": other}, [])
            for chain, names in (("LTC", (LTC_M, LTC_3)), ("TRX", (TRON, TRON_HEX, f"0x{TRON_HEX}", TRON_HEX.upper())))
            for one in names
            for other in names
        ),
        ({"address": "0.0.123-vfmkw", "blockchain": "HBAR"}, {"address": "0.0.123", "currency": "Hedera"}, []),
        # Hexadecimal after 0x folds on any chain.
        ({"blockchain": "FLOW"}, {"currency": "flow", "address": ADDRESS.upper()}, []),
        (CANTON, {"currency": "Canton", "address": ALICE}, []),
        # An unknown name of a chain or network may mean any.
        ({}, {"currency": "ETHX"}, ["blockchain"]),
        (
            {"blockchain": "BTC", "address": LEGACY},
            {"currency": "x", "address": LEGACY.lower()},
            ["blockchain", "address"],
        ),
        ({"network": "mainnet"}, {"wire": {"network": "ethereum-1"}}, ["network"]),
        ({"network": "ethereum-1"}, {"network": "mainnet"}, ["network"]),
        # The name means one of the test networks.
        ({"network": "testnet"}, {"network": "sepolia"}, ["network"]),
        # The table does not say whether case counts there.
        (CANTON, {"currency": "Canton", "address": ALICE.replace("a", "A", 1)}, ["address"]),
    ],
)
def test_the_same_destination_in_any_spelling(
    asked: dict[str, Any], shown: dict[str, Any], differing: list[str]
) -> None:
    assert is_candidate(asked, listed(**shown))
    assert [*compared(ask(**asked), listed(**shown)).differs] == differing


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"address": XRP, "memo": "12"}, {"address": x_address(tag=12)}),
        ({"address": x_address(tag=12)}, {"address": XRP, "memo": "12"}),
        ({"address": x_address(tag=12)}, {"address": XRP, "memo": "13"}),
        ({"address": x_address(tag=12)}, {"address": XRP}),
        ({"address": XRP}, {"address": x_address(tag=12)}),
        ({"address": x_address(tag=12)}, {"address": x_address(tag=12), "memo": "13"}),
    ],
)
def test_only_the_same_tag_is_a_difference_in_spelling(asked: dict[str, Any], shown: dict[str, Any]) -> None:
    # The last four are compared by id, for example with the expected content.
    request, envelope = ask(blockchain="XRP", **asked), listed(currency="XRP", **shown)
    is_same = is_candidate({"blockchain": "XRP", **asked}, envelope)
    found = compared(request, envelope)
    assert is_same is (not found.differs)
    spelled = request.model_copy(update=found.spelling)
    assert (spelled.address, spelled.memo) == (
        (shown["address"], shown.get("memo")) if is_same else (asked["address"], asked.get("memo"))
    )


@pytest.mark.parametrize(
    ("chain", "one", "other"),
    [
        ("XRP", (x_address(tag=12), None), (XRP, "12")),
        ("XRP", (x_address(), "12"), (x_address(tag=12), None)),
        ("LTC", (LTC_M, None), (LTC_3, None)),
        ("TRX", (TRON, None), (TRON_HEX, None)),
        ("BCH", (CASH, None), (LEGACY, None)),
        ("AvalancheC", (CHECKSUMMED.lower(), None), (CHECKSUMMED, None)),
    ],
)
def test_the_services_own_search_is_asked_for_each_spelling(
    chain: str, one: tuple[str, str | None], other: tuple[str, str | None]
) -> None:
    assert one[0] in spellings(*other, chain)
    assert other[0] in spellings(*one, chain)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, {"address": OTHER}),
        ({}, {"currency": "Polygon"}),
        ({}, {"memo": "7"}),
        ({"memo": "7"}, {}),
        ({"memo": "007"}, {"memo": "7"}),
        ({"network": "sepolia"}, {"wire": {"network": "mainnet"}}),
        ({"network": "mainnet"}, {"network": "sepolia"}),
        ({"network": "sepolia"}, {"network": "eth-hoodi"}),
        ({"network": "mainnet"}, {"network": "testnet"}),
        ({"network": "testnet", **BITCOIN}, {"network": "testnet4", **BITCOIN_SHOWN}),
        # An unknown name may mean another chain, but not another address or memo.
        ({}, {"currency": "ETHX", "address": OTHER}),
        ({"blockchain": "XRP", "address": XRP}, {"currency": "XRP", "address": XRP.swapcase()}),
        # Tags of XRP, which may be part of the address.
        ({"blockchain": "XRP", "address": XRP, "memo": "12"}, {"currency": "XRP", "address": x_address(tag=13)}),
        ({"blockchain": "XRP", "address": x_address(tag=0)}, {"currency": "XRP", "address": x_address()}),
        (
            {"blockchain": "XRP", "address": x_address(tag=12)},
            {"currency": "XRP", "address": x_address(tag=12, key=b"b")},
        ),
        # The network of a test address must be named.
        ({"blockchain": "XRP", "address": XRP}, {"currency": "XRP", "address": x_address(prefix=b"\x04\x93")}),
        # Parties that share a namespace.
        (CANTON, {"currency": "Canton", "address": ALICE.replace("alice", "bob")}),
    ],
)
def test_another_destination(asked: dict[str, Any], shown: dict[str, Any]) -> None:
    assert not candidates([listed(**shown)], ask(**asked))


@pytest.mark.parametrize(
    "envelope",
    [
        unreadable(None),
        listed(address=None),
        listed(address=" "),
        listed(currency=None),
        listed(memo=7),
        listed(network=["x"]),
    ],
    ids=[
        *("no text", "no address", "a blank address", "no chain", "a number for the memo", "a list for the network"),
    ],
)
def test_an_unreadable_request_may_be_for_any_row(envelope: WhitelistEnvelope) -> None:
    for each in (ask(), ask(address=LEGACY, blockchain="BTC"), ask(memo="7")):
        assert candidates([envelope], each) == [envelope]


def test_names_that_rows_use_for_one_address_are_known() -> None:
    base = {"blockchain": "BASE", "network": "one"}
    second = {**base, "network": "two"}
    envelopes = [listed(currency="BASE", network="one")]
    assert candidates(envelopes, ask())
    rows = [ask(**base), ask(**second)]
    assert not candidates(envelopes, ask(), rows)
    assert not candidates(envelopes, ask(**second), rows)
    assert candidates(envelopes, ask(**base), rows) == envelopes
    # The two chains may have a name in common.
    for known in rows:
        assert candidates(envelopes, ask(**second), [known]) == envelopes
    # A row for another address, or with another memo, says nothing about this one.
    for other in ({"address": OTHER}, {"memo": "7"}):
        unrelated = [ask(**{**base, **other}), ask(**second)]
        assert candidates(envelopes, ask(**second), unrelated) == envelopes


def test_a_network_is_accepted_by_name() -> None:
    for shown in ({"network": "sepolia"}, {"wire": {"network": "sepolia"}}):
        assert compared(ask(), listed(**shown), accept_fields=("network",)).differs == ()
        # A network that differs from the requested one does not match.
        hoodi = compared(ask(network="hoodi"), listed(**shown), accept_fields=("network",))
        assert hoodi.differs == ("network",)
