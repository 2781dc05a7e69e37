"""The tenant's currencies and configuration."""

from __future__ import annotations

from typing import Any

from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.wire import equal_ignoring_case, omit_empty

_NAMES = {
    "ETH": "Ethereum",
    "BTC": "Bitcoin",
    "XRP": "XRP Ledger",
    "SOL": "Solana",
    "ADA": "Cardano",
    "XLM": "Stellar",
    "DOGE": "Dogecoin",
    "DOT": "Polkadot",
    "FTM": "Fantom",
    "AvalancheC": "Avalanche C-Chain",
}
_TOKEN = {"symbol": "USDC", "name": "USD Coin", "blockchain": "ETH", "decimals": "6", "isToken": True, "enabled": True}
_FIAT = {"symbol": "CHF", "name": "Swiss franc", "decimals": "2", "isFiat": True, "enabled": True}


class TenantStore:
    """
    The store of the tenant's currencies, which the settings list as ``CHAIN`` or ``CHAIN/network``.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def currencies(self, *, show_disabled: bool) -> list[dict[str, Any]]:
        """Return the currencies: the chains, a token and a fiat currency. The names and ids are assumptions."""
        settings = self._state.settings
        chains = [(each, True) for each in settings.currencies] + [
            (each, False) for each in settings.disabled_currencies
        ]
        found = [_chain(each, enabled=enabled) for each, enabled in chains if enabled or show_disabled] + [
            _TOKEN,
            _FIAT,
        ]
        return [
            omit_empty(**{"id": str(number), "displayName": each["name"], **each})
            for number, each in enumerate(found, start=1)
        ]

    def active_chain(self, chain: str, network: str) -> str:
        """Return the service's spelling of a chain, or reject the chain if it is not active."""
        settings = self._state.settings
        disabled = [_split(each) for each in settings.disabled_currencies]
        for symbol, of_network in map(_split, settings.currencies):
            is_disabled = any(equal_ignoring_case(symbol, one) and network == other for one, other in disabled if other)
            if equal_ignoring_case(symbol, chain) and of_network in ("", network) and not is_disabled:
                return symbol
        raise invalid(f"the currency {chain} is not active in the hardware security module")


def _split(currency: str) -> tuple[str, str]:
    symbol, _, network = currency.partition("/")
    return symbol, network


def _chain(currency: str, *, enabled: bool) -> dict[str, Any]:
    symbol, network = _split(currency)
    name = f"{_NAMES.get(symbol, symbol)} {network}".strip()
    kind = {"type": "native", "decimals": "18", "enabled": enabled}
    return {"symbol": symbol, "name": name, "blockchain": symbol, "network": network, **kind}
