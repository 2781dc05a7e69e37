"""Keys to pin, and settings that pin them."""

from __future__ import annotations

from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@cache
def private_key(number: int) -> ec.EllipticCurvePrivateKey:
    """Return a private key, the same for the same number."""
    return ec.derive_private_key(10**9 + number, ec.SECP256R1())


def public_pem(number: int) -> str:
    """Return the public key in PEM."""
    text = private_key(number).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return text.decode()


def private_pem(number: int) -> str:
    """Return the private key in PEM."""
    return private_key(number).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def pinned(*numbers: int, **settings: Any) -> dict[str, Any]:
    """Return the settings that pin these keys, all of which must have signed."""
    return {"superadmin_keys": [public_pem(each) for each in numbers], "superadmin_minimum": len(numbers), **settings}
