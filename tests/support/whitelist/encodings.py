"""Encoders of addresses, independent of the package's decoders."""

from __future__ import annotations

import hashlib

BITCOIN = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
RIPPLE = "rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz"


def base58(data: bytes, alphabet: str = BITCOIN) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = alphabet[digit] + text
    return alphabet[0] * (len(data) - len(data.lstrip(b"\0"))) + text


def base58_check(data: bytes, alphabet: str = BITCOIN) -> str:
    return base58(data + hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4], alphabet)


#: The account of the classic address ``rN7n7otQDd6FczFgLdSqtcsAUxDkw6fzRH``.
ACCOUNT = bytes.fromhex("93b89afcad4c8eac2b131c1331fef12ae1522bbe")


def x_address(
    tag: int | None = None, *, key: bytes = ACCOUNT, prefix: bytes = b"\x05\x44", flags: int | None = None, end: int = 0
) -> str:
    """Return an X-address of XRP (XLS-5); ``end`` is the number in the four unused bytes."""
    flags = (tag is not None) if flags is None else flags
    data = prefix + key.ljust(20, b"x") + bytes([flags])
    return base58_check(data + (tag or 0).to_bytes(4, "little") + end.to_bytes(4, "little"), RIPPLE)
