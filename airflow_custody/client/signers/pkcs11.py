"""A signer whose key is in an HSM, reached through PKCS#11."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.signers import NamedSigner
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from pydantic import SecretStr

    from airflow_custody.client.signers.hsm import TokenSession

# Permanent failures, by the names of the library's exceptions.
_REASONS = {
    "PinIncorrect": "the HSM rejected the PIN; some HSMs lock it after a few failed attempts",
    "PinInvalid": "the HSM rejected the PIN: it has characters that the HSM does not accept",
    "PinLenRange": "the HSM rejected the PIN: it is too short or too long",
    "PinExpired": "the PIN has expired",
    "PinLocked": "the HSM has locked the PIN after failed attempts",
    "UserPinNotInitialized": "the token has no PIN yet",
    "MultipleTokensReturned": "several tokens have this label; give each token a label of its own",
    "MechanismInvalid": "the HSM does not offer CKM_ECDSA",
    "KeyTypeInconsistent": "the key cannot sign with CKM_ECDSA",
}
# Locks that let only one thread at a time use a library, because a login applies to the whole process, so two threads
# would log each other out. Each process has its own lock, because a forked process could inherit a lock that is held.
_locks: dict[int, threading.Lock] = {}


@dataclass(frozen=True)
class Pkcs11Key:
    """
    The place of a key, and the PIN to use it.

    :param module: the path of the HSM's PKCS#11 library on the worker, or a name under which the system's loader finds
        it.
    :param token: the label of the token.
    :param key: the label of the key pair.
    :param pin: the user PIN of the token.
    """

    module: str
    token: str
    key: str
    pin: SecretStr


class Pkcs11Signer(NamedSigner):
    """
    A signer with a P-256 key in an HSM, through PKCS#11. The key never leaves the HSM.

    The library is loaded and initialised in the process that signs, and again in each child process. Each use opens a
    session, logs in with the PIN, and closes the session. Messages are hashed here and signed with ``CKM_ECDSA``,
    the mechanism that HSMs with EC keys have in common. If the token also has the public key, under the same label,
    signatures are verified before they are sent. Needs the extra ``pkcs11``.

    A wrong PIN, key or library fails the task without retries, because repeating a wrong PIN would lock the token. If
    the HSM or the token is unavailable, Airflow's retries apply.

    :param module: the path of the HSM's PKCS#11 library on the worker.
    :param token: the label of the token. White space around it is removed.
    :param key: the label of the key pair. White space around it is removed.
    :param pin: returns the token's user PIN; called when the key is needed, and its result is not kept. Line breaks at
        the PIN's end are removed.
    """

    def __init__(self, *, module: str, token: str, key: str, pin: Callable[[], str | SecretStr]) -> None:
        token, key = token.strip(), key.strip()
        self._key = (module, token, key)
        self._pin = pin
        super().__init__(f"pkcs11:token={sanitize(token, 64)};object={sanitize(key, 64)}")

    def check(self) -> None:
        """
        Check that the key can be used; nothing is signed.

        :raises CustodyConfigurationError: if the key cannot be used, and a retry would not help.
        :raises CustodyError: if the HSM is unavailable.
        """
        with self._session() as token:
            self._private_key(token)

    def public_key(self) -> EllipticCurvePublicKey | None:
        """
        Return the public key, with which signatures are verified; None if the token does not have it.

        :raises CustodyConfigurationError: if the key is not a P-256 key.
        :raises CustodyError: if the HSM is unavailable.
        """
        with self._session() as token:
            key = self._only(token.public_keys())
            if key is None:
                return None
            self._check_curve(token, key)
            try:
                return token.read_public_key(key)
            except ValueError:
                raise self._unusable("the HSM does not return its public key as a P-256 point") from None

    def sign(self, message: bytes) -> bytes:
        """
        Sign a message.

        :param message: the bytes to hash with SHA-256 and sign.
        :return: 64 bytes ``r || s``.
        :raises CustodyConfigurationError: if the key cannot be used, and a retry would not help.
        :raises CustodyError: if the HSM is unavailable.
        """
        with self._session() as token:
            return token.sign(self._private_key(token), hashlib.sha256(message).digest())

    def _where(self) -> Pkcs11Key:
        from pydantic import SecretStr

        pin = self._pin()
        pin = pin if isinstance(pin, SecretStr) else SecretStr(pin if isinstance(pin, str) else "")
        # Remove line breaks from the end, because files and secrets backends may add them.
        return Pkcs11Key(*self._key, SecretStr(pin.get_secret_value().rstrip("\r\n")))

    def _private_key(self, token: TokenSession) -> Any:
        key = self._only(token.private_keys())
        if key is None:
            raise self._unusable("the token has no private EC key with this label that this PIN may use")
        self._check_curve(token, key)
        return key

    def _only(self, keys: list[Any]) -> Any:
        """Return the only key of a kind; None if there is none."""
        if len(keys) > 1:
            raise self._unusable("the token has several keys with this label; give each key a label of its own")
        return keys[0] if keys else None

    def _check_curve(self, token: TokenSession, key: Any) -> None:
        if not token.may_be_p256(key):
            raise self._unusable("it is not a P-256 (secp256r1) key")

    @contextmanager
    def _session(self) -> Iterator[TokenSession]:
        """
        Open a session that is logged in, and yield it.

        :raises CustodyError: if this fails; the error explains why.
        """
        try:
            from airflow_custody.client.signers.hsm import PKCS11Error, TokenSession, initialised
        except ImportError:
            why = "the package python-pkcs11 is missing: pip install python-pkcs11"
            raise self._unusable(why, "package-missing") from None
        where = self._where()
        if not where.pin:
            raise self._unusable("the PIN is missing")
        failure, is_loaded = None, False
        with _locks.setdefault(os.getpid(), threading.Lock()):
            try:
                library = initialised(where.module)
                is_loaded = True
                with library.get_token(token_label=where.token).open(user_pin=where.pin.get_secret_value()) as session:
                    yield TokenSession(session, where.key)
            except PKCS11Error as exception:
                failure = exception
        if failure is not None:
            # Raise outside of "except" and do not chain, so that the library's own message is included only as
            # sanitized text.
            raise self._failed(failure, where, is_loaded=is_loaded) from None

    def _failed(self, failure: Exception, where: Pkcs11Key, *, is_loaded: bool) -> CustodyError:
        kind = type(failure).__name__
        if kind in _REASONS:
            return self._unusable(_REASONS[kind])
        if kind == "PKCS11Error":
            detail = sanitize(failure, 160)
            if is_loaded:
                # An error code of the vendor's own may mean a rejected PIN, so do not retry.
                return self._unusable(f"the HSM failed with an error unknown to PKCS#11: {detail}")
            module = sanitize(where.module, 200)
            if "already initialized" in detail:
                why = "this process has already loaded the library under another path; use the same path everywhere"
                return self._unusable(f"the library {module!r} cannot be used: {why}")
            return self._unusable(f"the library {module!r} cannot be loaded on this machine: {detail}")
        detail = ": ".join(filter(None, (kind, sanitize(failure, 120))))
        what = f"the HSM failed ({detail})"
        if kind == "NoSuchToken":
            what = f"the HSM is unavailable, or has no token {sanitize(where.token, 64)!r}"
        return self._unavailable(what)
