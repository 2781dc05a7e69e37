"""Checksums of addresses that tests make."""

from __future__ import annotations


def eip55(digits: str) -> str:
    """Return the 40 hexadecimal digits of an address in the case that EIP-55 gives them."""
    from bip_utils.utils.crypto import Kekkak256

    nibbles = Kekkak256.QuickDigest(digits.lower()).hex()
    return "".join(
        each.upper() if nibble > "7" else each for each, nibble in zip(digits.lower(), nibbles, strict=False)
    )
