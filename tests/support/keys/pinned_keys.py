"""Keys to pin, and settings that pin them."""

from __future__ import annotations

from typing import Any

from support.keys.envelopes import Key, pem
from support.keys.envelopes import private_key as key_of
from support.service.people import pem_of


def private_key(number: int) -> Key:
    """Return a private key, the same for the same number."""
    return key_of(f"pinned {number}")


def public_pem(number: int) -> str:
    """Return the public key in PEM."""
    return pem(f"pinned {number}")


def private_pem(number: int) -> str:
    """Return the private key in PEM."""
    return pem_of(private_key(number))


def pinned(*numbers: int, **settings: Any) -> dict[str, Any]:
    """Return the settings that pin these keys, all of which must have signed."""
    return {"superadmin_keys": [public_pem(each) for each in numbers], "superadmin_minimum": len(numbers), **settings}
