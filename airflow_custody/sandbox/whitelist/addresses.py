"""
The rules that addresses of each chain must follow.

Checksums are not checked: made-up addresses of the right format are easier to test with.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "[02-9ac-hj-np-z]"

_ETH = re.compile(r"0x[0-9a-fA-F]{40}")
# Of the main, test and regression test networks: `network`, which tells them apart, is free text.
_BTC = re.compile(
    rf"[123mn][{_BASE58}]{{25,34}}|(?:bc|tb|bcrt)1{_BECH32}{{11,71}}|(?:BC|TB|BCRT)1{_BECH32.upper()}{{11,71}}"
)
_XRP = re.compile(rf"r[{_BASE58}]{{24,34}}")
_XLM = re.compile(r"G[A-Z2-7]{55}")


def is_valid_address(chain: str, address: str) -> bool:
    """Return whether an address has the format of its chain; for a chain without rules, whether it is not blank."""
    rule = _RULES.get(chain.upper())
    return rule(address) if rule else bool(address.strip())


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda address: pattern.fullmatch(address) is not None


def _is_solana_address(address: str) -> bool:
    number = 0
    for character in address[:64]:
        digit = _BASE58.find(character)
        if digit < 0:
            return False
        number = number * 58 + digit
    leading_zeros = len(address) - len(address.lstrip("1"))
    return len(address) <= 64 and leading_zeros + (number.bit_length() + 7) // 8 == 32


_RULES: dict[str, Callable[[str], bool]] = {
    "ETH": _matches(_ETH),
    "BTC": _matches(_BTC),
    "XRP": _matches(_XRP),
    "XLM": _matches(_XLM),
    "SOL": _is_solana_address,
}
