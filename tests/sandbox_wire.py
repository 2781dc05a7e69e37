"""Reading what the sandbox writes: protocol buffers by field number, and signatures of 64 bytes."""

from __future__ import annotations

import base64
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key


def fields_of(data: bytes) -> dict[int, list[Any]]:
    """Return the values of a message, numbers and bytes, by field number."""
    found: dict[int, list[Any]] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        key = varint()
        value: Any = varint()
        if key & 7 == 2:
            value, position = data[position : position + value], position + value
        else:
            assert key & 7 == 0
        found.setdefault(key >> 3, []).append(value)
    return found


def decode(text: str) -> dict[int, list[Any]]:
    """Return the values of a message in base64."""
    return fields_of(base64.b64decode(text, validate=True))


def is_signed(pem: str, message: bytes, signature: bytes) -> bool:
    """Return whether a signature of 64 bytes is this key's, over this message."""
    assert len(signature) == 64
    key = load_pem_public_key(pem.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    der = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
    try:
        key.verify(der, message, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True
