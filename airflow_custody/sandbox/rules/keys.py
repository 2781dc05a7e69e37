"""Private keys of the sandbox's super-administrators and signers."""

from __future__ import annotations

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)


def create_private_key() -> str:
    """Return a new P-256 private key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@lru_cache(maxsize=100)
def public_key_of(private_key: str) -> str:
    """Return the public key of a private key. Both are in PEM."""
    public_key = _load(private_key).public_key()
    return public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def sign(private_key: str, message: bytes) -> bytes:
    """Return the signature of a message as 64 bytes, r and s."""
    r, s = decode_dss_signature(_load(private_key).sign(message, ec.ECDSA(SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


@lru_cache(maxsize=100)
def _load(private_key: str) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(private_key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key
