"""The key that signs an approval: what a signer returns is checked before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.public_keys import SIGNATURE_BYTES
from airflow_custody.client.signers import check_signer, public_key_of
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.approval_batch import failed

if TYPE_CHECKING:
    from airflow_custody.client.signers import Signer

# The order of P-256: r and s are below it.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class SigningKey:
    """
    A signer, its public key, and what is true of all that it signs.

    :param signer: the signer.
    :raises CustodyConfigurationError: if it cannot sign.
    :raises CustodyError: if its own check fails.
    """

    def __init__(self, signer: Signer) -> None:
        check_signer(signer)
        self._signer = signer
        self.name = signer.name
        failure = None
        try:
            check = getattr(signer, "check", None)
            if check is not None:
                check()
        except CustodyError:
            raise
        except Exception as exception:
            failure = exception
        if failure is not None:
            raise self._failed(failure)
        #: The public key; None: the signer does not know it.
        self.public_key = public_key_of(signer)

    def sign(self, message: bytes) -> bytes:
        """
        Return the signature of a message: 64 bytes ``r || s``, verified if the public key is known.

        :param message: what is signed.
        :raises CustodyConfigurationError: if what the signer returned cannot be used.
        :raises CustodyError: if the signer failed; it is retryable unless it is a mistake in its code.
        """
        signature, failure = None, None
        try:
            signature = self._signer.sign(message)
        except CustodyError:
            raise
        except Exception as exception:
            failure = exception
        if failure is not None:
            raise self._failed(failure)
        if not isinstance(signature, bytes):
            raise self._unusable(f"it is not 64 bytes, but of type {type(signature).__name__}")
        if len(signature) != SIGNATURE_BYTES:
            raise self._unusable("it is not 64 bytes r||s (is it DER? raw_signature() converts it)")
        if self.public_key is not None and not self.public_key.verifies(signature, message):
            raise self._unusable("the signer's public key does not verify it")
        numbers = [int.from_bytes(part, "big") for part in (signature[:32], signature[32:])]
        if not all(0 < each < _ORDER for each in numbers):
            raise self._unusable("its r or s is no number of a P-256 signature")
        return signature

    def _failed(self, failure: Exception) -> CustodyError:
        """Return the error for what a signer raised: a mistake in its code, or trouble of a KMS that may pass."""
        is_mistake = isinstance(failure, (ValueError, TypeError, AttributeError, LookupError, NotImplementedError))
        return failed(
            CustodyConfigurationError if is_mistake else CustodyError,
            f"the signer {self.name!r} failed: {type(failure).__name__}: {sanitize(failure, 160)}; its approval was "
            "not sent",
            retryable=not is_mistake,
        )

    def _unusable(self, why: str) -> CustodyError:
        return CustodyConfigurationError(
            f"the signature that the signer {self.name!r} returned cannot be used: {why}; it was not sent",
            setting="signer",
        )
