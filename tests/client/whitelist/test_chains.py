"""Whether the chain of a new request is active."""

from __future__ import annotations

from typing import Any

import pytest
from support.whitelist.whitelist_plans import ask

from airflow_custody.client import CustodyClient, CustodyError, CustodyRequestError
from airflow_custody.client.tenant.models import Currency
from airflow_custody.client.whitelist.chains import ListedChains, check_chains
from airflow_custody.sandbox import Sandbox

POLYGON = {"symbol": "POL", "blockchain": "ETH", "network": "polygon", "display_name": "Polygon"}
LISTED = ListedChains(
    [
        Currency(symbol="ETH", blockchain="ETH", network="mainnet", display_name="Ethereum", enabled=True),
        Currency(**POLYGON),  # type: ignore[arg-type]
        Currency(symbol="DOT", display_name="Polkadot"),
        Currency(symbol="SOL", name="Solana", enabled=True),
        Currency(symbol="FTM", name="Fantom"),
    ]
)


@pytest.mark.parametrize(
    ("fields", "is_refused", "warning"),
    [
        ({}, False, ""),
        ({"blockchain": "eth"}, False, ""),
        ({"blockchain": "dot"}, True, ""),
        ({"blockchain": None, "currency": "DOT"}, True, ""),
        # The network only matters if the service lists it.
        ({"network": "Polygon"}, True, ""),
        ({"blockchain": "pol"}, True, ""),
        # On ETH, the network may name another chain.
        ({"network": "fantom"}, True, ""),
        ({"network": "sepolia"}, False, ""),
        ({"blockchain": "DOT", "network": "westend"}, True, ""),
        # A name that is not listed may still be known to the service.
        ({"blockchain": "Etherium"}, False, "chain Etherium, .* Similar chains: ETH (Ethereum, network mainnet)."),
        ({"blockchain": "Polkadott"}, False, "Similar chains: DOT (Polkadot, not enabled)."),
        ({"blockchain": "Solana"}, False, "Similar chains: SOL (Solana)."),
        (
            {"blockchain": "QQQQ"},
            False,
            "Listed chains: ETH (Ethereum, network mainnet), ETH (Polygon, network polygon",
        ),
    ],
)
def test_the_verdict_on_a_chain(fields: dict[str, Any], is_refused: bool, warning: str) -> None:
    request = ask(**fields)
    assert bool(LISTED.why_refused(request)) == is_refused
    first, _, last = warning.partition(".* ")
    assert bool(LISTED.warnings([request])) == bool(warning)
    for text in LISTED.warnings([request, request]):
        assert first in text
        assert last in text


def test_tokens_and_fiat_currencies_are_not_chains(client: CustodyClient, sandbox: Sandbox) -> None:
    token = {"symbol": "ETH", "blockchain": "DOT", "isToken": True}
    listed = [token, {"symbol": "SOL", "isFiat": True}, {"symbol": "ETH", "enabled": True}]
    sandbox.control.add_fault("status", path="/currencies", status=200, body={"result": listed})
    (warning,) = check_chains(client, {"line 2": ask(), "line 3": ask(blockchain="DOT"), "line 4": ask()})
    assert "does not list the chain DOT" in warning


def test_all_refused_rows_are_named(client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.configure(disabled_currencies=["DOT", "NEAR"])
    rows = {"line 2": ask(blockchain="DOT"), "line 3": ask(), "line 4": ask(blockchain="NEAR")}
    with pytest.raises(CustodyRequestError) as caught:
        check_chains(client, {**rows, "line 5": ask(blockchain="DOT")})
    why = "the chain {} is not enabled at the service: {}"
    assert caught.value.message == (
        f"{why.format('DOT', 'line 2, line 5')}; {why.format('NEAR', 'line 4')}; nothing is sent"
    )
    assert caught.value.code == "chain-disabled"
    assert not caught.value.retryable


def test_without_new_requests_there_is_no_call(client: CustodyClient, sandbox: Sandbox) -> None:
    assert check_chains(client, {}) == []
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("fault", "is_logged"),
    [
        # The service does not offer the listing.
        ({"kind": "status", "status": 404}, False),
        ({"kind": "status", "status": 501}, False),
        # It is unknown whether the service offers the listing.
        ({"kind": "html", "status": 404}, True),
        ({"kind": "status", "status": 403, "body": {"detail": "Forbidden"}}, True),
        ({"kind": "status", "status": 200, "body": {"status": "UP"}}, True),
        ({"kind": "status", "status": 400}, True),
    ],
    ids=str,
)
def test_without_a_listing_nothing_is_refused(
    client: CustodyClient, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, fault: dict[str, Any], is_logged: bool
) -> None:
    sandbox.control.configure(disabled_currencies=["DOT"])
    sandbox.control.add_fault(**fault, path="/currencies", times=None)
    assert check_chains(client, {"line 2": ask(blockchain="DOT"), "line 3": ask(blockchain="Etherium")}) == []
    assert ("Whether the chain is enabled is not checked" in caplog.text) == is_logged


@pytest.mark.parametrize(
    ("fault", "retryable"),
    [
        ({"kind": "status", "status": 503, "retry_after": 0}, True),
        ({"kind": "drop"}, True),
        ({"kind": "status", "status": 401}, False),
    ],
    ids=str,
)
def test_a_service_that_cannot_be_read_now_stops(sandbox: Sandbox, fault: dict[str, Any], retryable: bool) -> None:
    sandbox.control.add_fault(**fault, path="/currencies", times=None)
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client, pytest.raises(CustodyError) as caught:
        check_chains(client, {"line 2": ask()})
    assert caught.value.retryable == retryable
