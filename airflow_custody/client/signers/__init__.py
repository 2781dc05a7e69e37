"""Signers: ECDSA on P-256 with SHA-256, as ``r || s``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.files import UnsuitableFileError, read_file
from airflow_custody.client.text import is_pem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from pydantic import Secret, SecretStr

    from airflow_custody.client.error_codes import ErrorCode

__all__ = ["PemSigner", "Signer", "raw_signature"]

# Errors of reading a key that a retry does not overcome.
_LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, UnsuitableFileError)


class Signer(Protocol):
    """
    A signer of messages with a P-256 key.

    Implement it for a KMS or an HSM.

    A signer may also have a method ``check()``. It is called before anything is read or sent, and must raise
    :class:`CustodyConfigurationError` if the key cannot be used.

    A signer may also have ``public_key``, a method or an attribute with the public key in PEM or DER. Each signature is
    then verified with it before it is sent. Later, the signature is recognized at the service by this key, whatever
    user name the service reports for it.

    If a signer raises an exception, only the exception's type is reported, because its text may contain a secret. The
    failure is retryable, unless the type indicates a mistake in the code, such as :class:`TypeError`. A
    :class:`CustodyError` is raised unchanged.
    """

    @property
    def name(self) -> str:
        """The name of the key in the log; never the key itself."""

    def sign(self, message: bytes) -> bytes:
        """
        Sign a message.

        :param message: the bytes to hash with SHA-256 and sign.
        :return: 64 bytes: ``r`` and ``s``, 32 each, big-endian. :func:`raw_signature` converts DER to this format.
        """


class NamedSigner:
    """
    A signer with a named key, and its errors.

    :param name: the name of the key in the log.
    :param advice: advice about where the key is configured, for errors about an unusable key. Default: no advice.
    :raises CustodyConfigurationError: if the name is itself a key.
    """

    def __init__(self, name: str, advice: str | None = None) -> None:
        if is_pem(name):
            raise CustodyConfigurationError(
                "this is the key itself: set the path of its file, or the id of its connection",
                setting="signer",
                code="signing-failed",
            )
        self.name = name
        self._advice = advice

    def _unusable(self, why: str, code: ErrorCode = "signing-failed") -> CustodyConfigurationError:
        return CustodyConfigurationError(
            f"the signing key {self.name!r} cannot be used: {why}", setting="signer", advice=self._advice, code=code
        )

    def _unavailable(self, why: str) -> CustodyError:
        return CustodyError(
            f"the signing key {self.name!r} cannot be used now: {why}; this signature was not made",
            retryable=True,
            code="signing-failed",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class PemSigner(NamedSigner):
    """
    A signer with a private key in PEM, which is loaded on each use, and not kept.

    :param load: returns the key, ``-----BEGIN ... PRIVATE KEY-----``. Its line ends may be written as two characters,
        ``\\n``. If it raises an :class:`OSError`, the key cannot be read; other exceptions are passed on unchanged.
    :param name: the name of the key in the log.
    :param password: the password that the key is encrypted with; None (default): it is not encrypted.
    :raises CustodyConfigurationError: if the name is itself a key.
    """

    def __init__(
        self,
        load: Callable[[], str | bytes | SecretStr],
        *,
        name: str,
        password: str | SecretStr | None = None,
    ) -> None:
        super().__init__(name)
        self._load = load
        self._password: str | SecretStr = password or ""

    @classmethod
    def from_file(cls, path: str | Path, *, password: str | SecretStr | None = None) -> PemSigner:
        """
        Make a signer from a file.

        :param path: the file's path; also the signer's name.
        :param password: the password that the key is encrypted with; None (default): it is not encrypted.
        :return: the signer.
        """
        return cls(lambda: read_file(path), name=str(path), password=password)

    def public_key(self) -> EllipticCurvePublicKey:
        """
        Return the public key, with which signatures are verified before they are sent.

        :raises CustodyConfigurationError: if the key cannot be loaded, or is not a P-256 key.
        :raises CustodyError: if the key cannot be read now, for example because of a time-out.
        """
        return self._key().public_key()

    def sign(self, message: bytes) -> bytes:
        """
        Sign a message.

        :param message: the bytes to hash with SHA-256 and sign.
        :return: 64 bytes ``r || s``.
        :raises CustodyConfigurationError: if the key cannot be loaded, or is not a P-256 key.
        :raises CustodyError: if the key cannot be read now, for example because of a time-out.
        """
        from airflow_custody.client.signers.pem_key import sign_message

        return raw_signature(sign_message(self._key(), message))

    def _read_key(self) -> tuple[Secret[str | bytes] | SecretStr, SecretStr]:
        """Return the key in PEM, and its password (empty if the key is not encrypted)."""
        from airflow_custody.client.secrets import as_secret

        return _wrap(self._load()), as_secret(self._password)

    def _key(self) -> EllipticCurvePrivateKey:
        from airflow_custody.client.signers.pem_key import PemKeyError, load_private_key

        # Raise all errors outside of "except", so that they are not chained to the caught exceptions. The tracebacks of
        # these lead through functions that have the key in a variable.
        failure: OSError | PemKeyError
        try:
            return load_private_key(*self._read_key())
        except (OSError, PemKeyError) as exception:
            failure = exception
        if isinstance(failure, PemKeyError):
            raise self._unusable(str(failure))
        # The OSError may come from the user's `load` function instead of the system. Its text may then contain a
        # secret, and its number may not be one of the system's error numbers.
        is_system = type(failure).__module__ == "builtins" and failure.errno in tuple(errno.errorcode)
        reason = os.strerror(failure.errno or 0) if is_system else type(failure).__name__
        if isinstance(failure, UnsuitableFileError):
            reason = failure.why
        why = f"it cannot be read: {reason}"
        if isinstance(failure, _LASTING):
            raise self._unusable(why)
        raise self._unavailable(why)


def _wrap(pem: str | bytes | SecretStr) -> Secret[str | bytes] | SecretStr:
    from pydantic import Secret, SecretStr

    return pem if isinstance(pem, SecretStr) else Secret(pem)


def raw_signature(der: bytes) -> bytes:
    """
    Convert a signature from DER to the service's format.

    AWS KMS and most libraries return DER.

    :param der: a P-256 signature in DER.
    :return: 64 bytes: ``r`` and ``s``, 32 each, big-endian.
    :raises ValueError: if the signature is not DER, or does not come from a P-256 key.
    """
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    r, s = decode_dss_signature(der)
    try:
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    except OverflowError:
        raise ValueError("the signature is not of a P-256 key") from None
