"""Check addresses against the rules of their chain.

That an address must follow its chain's rules is part of the given interface; the rules themselves are the
chains' own. Checksums are left alone: a sandbox that accepts made-up addresses of the right shape is easier to
test against.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "[02-9ac-hj-np-z]"

_ETH = re.compile(r"0x[0-9a-fA-F]{40}")
# Main net, test net and regression test net: which one is meant is told by `network`, a free text.
_BTC = re.compile(
    rf"[123mn][{_BASE58}]{{25,34}}|(?:bc|tb|bcrt)1{_BECH32}{{11,71}}|(?:BC|TB|BCRT)1{_BECH32.upper()}{{11,71}}"
)
_XRP = re.compile(rf"r[{_BASE58}]{{24,34}}")
_XLM = re.compile(r"G[A-Z2-7]{55}")


def _solana(address: str) -> bool:
    number = 0
    for character in address[:64]:
        digit = _BASE58.find(character)
        if digit < 0:
            return False
        number = number * 58 + digit
    leading_zeros = len(address) - len(address.lstrip("1"))
    return len(address) <= 64 and leading_zeros + (number.bit_length() + 7) // 8 == 32


def _shape(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda address: pattern.fullmatch(address) is not None


_RULES: dict[str, Callable[[str], bool]] = {
    "ETH": _shape(_ETH),
    "BTC": _shape(_BTC),
    "XRP": _shape(_XRP),
    "XLM": _shape(_XLM),
    "SOL": _solana,
}


def follows_rules(chain: str, address: str) -> bool:
    """Tell whether an address has the shape of its chain; for a chain without rules anything not blank has."""
    rule = _RULES.get(chain.upper())
    return rule(address) if rule else bool(address.strip())
