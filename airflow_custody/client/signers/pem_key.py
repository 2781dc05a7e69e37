"""
The private key of a PEM signer.

This module imports ``cryptography``, so the signer imports it only when the key is needed.
"""

from __future__ import annotations

from contextlib import suppress

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import Secret, SecretStr

from airflow_custody.client.text import pem_text, sanitize


class PemKeyError(ValueError):
    """
    Raised when a text is not a private key on P-256.

    The message gives the reason, but does not quote any part of the text.
    """


def load_private_key(pem: Secret[str | bytes] | SecretStr, password: SecretStr) -> EllipticCurvePrivateKey:
    """
    Return a private key on P-256.

    :param pem: the key in PEM.
    :param password: the password that the key is encrypted with; empty: the key is not encrypted.
    :raises PemKeyError: if the text is not a private key on P-256.
    """
    key: object = None
    # Do not chain the exception, because it may quote the key.
    with suppress(TypeError, ValueError, UnsupportedAlgorithm):
        key = load_pem_private_key(
            pem_text(pem.get_secret_value()).encode(), password.get_secret_value().encode() or None
        )
    if key is None:
        raise PemKeyError("it is not a private key in PEM of a known type, or its password is wrong or missing")
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise PemKeyError(other_curve(key))
    return key


def sign_message(key: EllipticCurvePrivateKey, message: bytes) -> bytes:
    """Return the signature of a message in DER."""
    return key.sign(message, ECDSA(SHA256()))


def other_curve(key: object) -> str:
    """Describe a key that is not on P-256."""
    curve = getattr(getattr(key, "curve", None), "name", None)
    kind = f"on the curve {sanitize(curve, 40)}" if curve else "not an elliptic-curve key"
    return f"it is {kind}, but must be on P-256 (secp256r1)"
