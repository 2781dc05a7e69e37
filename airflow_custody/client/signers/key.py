"""
The key behind a signer.

Everything that the signer returns is checked before it is used. The texts of the signer's exceptions are not quoted,
except for a :class:`CustodyError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
)

from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.signers import Signer
from airflow_custody.client.signers.pem_key import other_curve
from airflow_custody.client.text import pem_text
from airflow_custody.client.verification.keys import INTEGER_BYTES, SIGNATURE_BYTES, PublicKey

_T = TypeVar("_T")
# The order of P-256. The numbers r and s of a signature are smaller than the order.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# Exceptions that indicate mistakes in a signer's code. Other exceptions may be temporary failures of a KMS.
_MISTAKES = (ValueError, TypeError, AttributeError, ImportError, LookupError, NotImplementedError)


class SigningKey:
    """
    A signer and its public key. It checks each signature of the signer.

    :param signer: the signer.
    :raises CustodyConfigurationError: if the signer cannot sign.
    :raises CustodyError: if the signer's own check fails.
    """

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        #: The name of the key; until it is known, the name of the signer's type.
        self.name = type(signer).__name__
        self.name = self._run(self._read_name)
        if (check := self._run(lambda: self._part("check"))) is not None:
            self._run(check)
        #: The public key; None: the signer does not know it.
        self.public_key = self._run(self._read_public_key)

    def sign(self, message: bytes) -> bytes:
        """
        Return the signature of a message: 64 bytes ``r || s``. If the public key is known, the signature is verified.

        :param message: the message to sign.
        :raises CustodyConfigurationError: if the returned signature cannot be used.
        :raises CustodyError: if the signer failed. The error is retryable, unless the cause is a mistake in the
            signer's code.
        """
        signature = self._run(lambda: self._signer.sign(message))
        if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
            why = "it is not 64 bytes r||s (is it DER? raw_signature() converts it)"
        elif self.public_key is not None and not self.public_key.verifies(signature, message):
            why = "the signer's public key does not verify it"
        elif not all(0 < int.from_bytes(signature[at:][:INTEGER_BYTES], "big") < _ORDER for at in (0, INTEGER_BYTES)):
            why = "its r or s is out of range for P-256"
        else:
            return signature
        raise _unusable(f"the signature that the signer {self.name!r} returned cannot be used: {why}; it was not sent")

    def _run(self, part: Callable[[], _T]) -> _T:
        """
        Run a part of the signer's code, and return its result.

        All calls of the signer, and all reads of its attributes, go through this method.

        :raises CustodyError: if the code fails. The text of any other exception than a :class:`CustodyError` is not
            included.
        """
        try:
            return part()
        except CustodyError:
            raise
        except Exception as exception:
            failure = exception
        # Raise outside of "except", so that the exception is not chained. An OSError is never a mistake in the code,
        # even if it is also a ValueError, as for an unreadable certificate or response.
        is_mistake = isinstance(failure, _MISTAKES) and not isinstance(failure, OSError)
        raise (CustodyConfigurationError if is_mistake else CustodyError)(
            f"the signer {self.name!r} failed: {type(failure).__name__}; its signature was not sent",
            advice="The signer's error text is not quoted, because it may contain a secret. See the signer's own log.",
            code="signing-failed",
            retryable=not is_mistake,
        )

    def _part(self, name: str) -> Any:
        """
        Return an attribute of the signer; None if the signer does not have it.

        If the attribute is a property that raises an exception, the exception is passed on.
        """
        try:
            return getattr(self._signer, name)
        except AttributeError:
            if inspect.getattr_static(self._signer, name, None) is not None:
                raise
            return None

    def _read_name(self) -> str:
        name = self._part("name")
        if not isinstance(name, str) or not name or not callable(self._part("sign")):
            raise _unusable(
                f"a signer must have a 'name' and a method 'sign', unlike this {self.name}; nothing was signed"
            )
        return name

    def _read_public_key(self) -> PublicKey | None:
        """
        Return the signer's public key, which the signer may return as PEM, DER, or a key of the library
        ``cryptography``.
        """
        key = self._part("public_key")
        if callable(key):
            key = key()
        if key is None:
            return None
        what = f"the public key of the signer {self.name!r} cannot be used"
        if isinstance(key, (str, bytes, bytearray)):
            try:
                data = key.encode() if isinstance(key, str) else bytes(key)
                if b"-----BEGIN" in data:
                    key = load_pem_public_key(pem_text(data).encode())
                else:
                    key = load_der_public_key(data)
            except (ValueError, UnsupportedAlgorithm):
                raise _unusable(f"{what}: it is not a public key in PEM or DER") from None
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
            raise _unusable(f"{what}: {other_curve(key)}")
        return PublicKey.from_der(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _unusable(why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting="signer", code="signing-failed")
