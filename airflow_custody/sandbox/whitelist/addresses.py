"""
The rules that addresses of each chain must follow, their checksums included.

What decodes them is imported with the first address that needs it. Where it is not installed, which is so on Python
3.14, an address that is not blank is valid.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

# Of the main, test and regression test networks: `network`, which tells them apart, is free text.
_BITCOIN_PREFIXES = ("bc", "tb", "bcrt")
_BITCOIN_VERSIONS = (0x00, 0x05, 0x6F, 0xC4)
_CARDANO_PREFIXES = ("addr", "addr_test", "stake", "stake_test")
# No address of these chains is longer.
_MAX_LENGTH = 128


def is_valid_address(chain: str, address: str) -> bool:
    """Return whether an address follows the rules of its chain; for a chain without rules, whether it is not blank."""
    rule = _RULES.get(chain.upper())
    if rule is None or not _can_decode():
        return bool(address.strip())
    return len(address) <= _MAX_LENGTH and address.isascii() and rule(address)


@cache
def _can_decode() -> bool:
    """Return whether bip-utils is installed."""
    return importlib.util.find_spec("bip_utils") is not None


def _is_ethereum_address(address: str) -> bool:
    from bip_utils import EthAddrDecoder

    # In one case it has no checksum.
    digits = address.removeprefix("0x")
    return _is_decoded(EthAddrDecoder, address, skip_chksum_enc=digits in (digits.lower(), digits.upper()))


def _is_decoded(decoder: Any, address: str, **options: Any) -> bool:
    try:
        decoder.DecodeAddr(address, **options)
    except Exception:
        # Of some texts, such as CBOR of another kind, not only ValueError.
        return False
    return True


def _is_bitcoin_address(address: str) -> bool:
    prefix = _bech32_prefix(address)
    if prefix in _BITCOIN_PREFIXES:
        return len(address) <= 90 and _is_bech32(prefix, address, segwit=True)
    data = _base58_check(address, "BITCOIN")
    return len(data) == 21 and data[0] in _BITCOIN_VERSIONS


def _is_ripple_address(address: str) -> bool:
    data = _base58_check(address, "RIPPLE")
    return len(data) == 21 and data[0] == 0


def _is_solana_address(address: str) -> bool:
    return len(_base58(address)) == 32


def _is_stellar_address(address: str) -> bool:
    from bip_utils import XlmAddrDecoder, XlmAddrTypes

    return _is_decoded(XlmAddrDecoder, address, addr_type=XlmAddrTypes.PUB_KEY)


def _is_cardano_address(address: str) -> bool:
    prefix = _bech32_prefix(address)
    if prefix in _CARDANO_PREFIXES:
        return _is_bech32(prefix, address)
    from bip_utils import AdaByronAddrDecoder

    return _is_decoded(AdaByronAddrDecoder, address)


def _bech32_prefix(address: str) -> str:
    return address.lower().rpartition("1")[0]


def _is_bech32(prefix: str, address: str, *, segwit: bool = False) -> bool:
    from bip_utils.bech32 import Bech32ChecksumError, Bech32Decoder, SegwitBech32Decoder

    decoder = SegwitBech32Decoder if segwit else Bech32Decoder
    try:
        decoder.Decode(prefix, address)
    except (Bech32ChecksumError, ValueError):
        return False
    return True


def _base58(address: str) -> bytes:
    """Return what base58 encodes; empty if it is not base58."""
    from bip_utils.base58 import Base58Decoder

    try:
        data: bytes = Base58Decoder.Decode(address)
    except ValueError:
        return b""
    return data


def _base58_check(address: str, alphabet: str) -> bytes:
    """Return what base58 with a checksum encodes; empty if that is wrong."""
    from bip_utils.base58 import Base58Alphabets, Base58ChecksumError, Base58Decoder

    try:
        data: bytes = Base58Decoder.CheckDecode(address, Base58Alphabets[alphabet])
    except (Base58ChecksumError, ValueError):
        return b""
    return data


_RULES: dict[str, Callable[[str], bool]] = {
    "ADA": _is_cardano_address,
    "BTC": _is_bitcoin_address,
    "ETH": _is_ethereum_address,
    "SOL": _is_solana_address,
    "XLM": _is_stellar_address,
    "XRP": _is_ripple_address,
}
