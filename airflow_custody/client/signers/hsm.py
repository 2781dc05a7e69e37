"""
The HSM behind a PKCS#11 signer.

This module needs the extra ``pkcs11``, so the signer imports it only when the key is needed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pkcs11
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from pkcs11 import Attribute, KeyType, Mechanism, ObjectClass, PKCS11Error
from pkcs11.exceptions import AttributeSensitive, AttributeTypeInvalid

__all__ = ["PKCS11Error", "TokenSession", "initialised"]

# The object identifier of P-256 in DER, as PKCS#11 names a curve.
_P256 = bytes.fromhex("06082a8648ce3d030107")
_POINT_BYTES = 65
# The process that initialised each library. A child process cannot use the state it inherits.
_initialised_by: dict[str, int] = {}
# The path under which each library was first loaded, by its path with links resolved.
_paths: dict[str, str] = {}


class TokenSession:
    """
    A session that is logged in to a token.

    :param session: the session of the library.
    :param label: the label of the key pair.
    """

    def __init__(self, session: Any, label: str) -> None:
        self._session = session
        self._label = label

    def private_keys(self) -> list[Any]:
        """Return the private EC keys with the label."""
        return self._find(ObjectClass.PRIVATE_KEY)

    def public_keys(self) -> list[Any]:
        """Return the public EC keys with the label."""
        return self._find(ObjectClass.PUBLIC_KEY)

    def _find(self, kind: Any) -> list[Any]:
        wanted = {Attribute.CLASS: kind, Attribute.KEY_TYPE: KeyType.EC, Attribute.LABEL: self._label}
        # Read the results to the end, because the library fails when an unfinished search is garbage-collected.
        return list(self._session.get_objects(wanted))

    def may_be_p256(self, key: Any) -> bool:
        """
        Tell whether a key may be on P-256. If the HSM does not reveal a key's curve, the key is accepted.
        """
        try:
            return bytes(key[Attribute.EC_PARAMS]) == _P256
        except (AttributeSensitive, AttributeTypeInvalid):
            # Not every HSM reveals the curve of a private key. If the key is on another curve, this is found when its
            # signature is checked, before it is sent.
            return True

    def read_public_key(self, key: Any) -> EllipticCurvePublicKey:
        """
        Return a public key.

        :raises ValueError: if the HSM does not return the key as a point of P-256.
        """
        point = bytes(key[Attribute.EC_POINT])
        # Some libraries return the bare point, but most return it inside a DER OCTET STRING. The point is at the end.
        return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point[-_POINT_BYTES:])

    def sign(self, key: Any, digest: bytes) -> bytes:
        """Return the signature of a digest: ``r || s``."""
        return bytes(key.sign(digest, mechanism=Mechanism.ECDSA))


def initialised(module: str) -> Any:
    """Return a library that is initialised in this process."""
    if os.path.dirname(module):
        # Always load a library under the same path, because loading it under a second path would initialise it again,
        # which fails.
        module = _paths.setdefault(os.path.realpath(module), module)
    library = pkcs11.lib(module)
    if _initialised_by.setdefault(module, os.getpid()) != os.getpid():
        # Finalizing may fail, because some libraries detect a child process themselves and have nothing to finalize.
        with suppress(PKCS11Error):
            library.finalize()
        library.initialize()
        _initialised_by[module] = os.getpid()
    return library
