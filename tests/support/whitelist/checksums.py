"""Checksums of addresses that tests make."""

from __future__ import annotations

from Crypto.Hash import keccak


def eip55(digits: str) -> str:
    """Return the 40 hexadecimal digits of an address in the case that EIP-55 gives them."""
    nibbles = keccak.new(data=digits.lower().encode(), digest_bits=256).hexdigest()
    return "".join(
        each.upper() if nibble > "7" else each for each, nibble in zip(digits.lower(), nibbles, strict=False)
    )
