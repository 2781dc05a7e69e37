"""The key that signs an approval: what a signer returns is checked before it is sent, and what a refusal says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.signers import name_of, part_of, public_key_of
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.keys import SIGNATURE_BYTES, decode_base64
from airflow_custody.client.verification.rules_container import MAX_CONTAINER_BYTES, RulesContainer, read_container
from airflow_custody.client.whitelist.approval_batch import failed

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.signers import Signer
    from airflow_custody.client.users.models import WireUser

_T = TypeVar("_T")
# The order of P-256: r and s are below it.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# Seconds for the rules that explain a refusal, which is known already.
_EXPLAIN_TIMEOUT = 5.0
_ABOUT_SIGNATURE = "If it is about the signature:"


class SigningKey:
    """
    A signer, its public key, and what is true of all that it signs.

    :param signer: the signer.
    :raises CustodyConfigurationError: if it cannot sign.
    :raises CustodyError: if its own check fails.
    """

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        #: The name of the key; until that is known, the signer's type.
        self.name = type(signer).__name__
        self.name = self._run(lambda: name_of(signer))
        check = self._run(lambda: part_of(signer, "check"))
        if check is not None:
            self._run(check)
        #: The public key; None: the signer does not know it.
        self.public_key = self._run(lambda: public_key_of(signer))

    def sign(self, message: bytes) -> bytes:
        """
        Return the signature of a message: 64 bytes ``r || s``, verified if the public key is known.

        :param message: the message to sign.
        :raises CustodyConfigurationError: if what the signer returned cannot be used.
        :raises CustodyError: if the signer failed; it is retryable unless it is a mistake in its code.
        """
        signature = self._run(lambda: self._signer.sign(message))
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

    def _run(self, part: Callable[[], _T]) -> _T:
        """
        Return what a part of the signer returns. Nothing else may call a signer, or read one of its attributes.

        :raises CustodyError: if it fails; nothing of another error's text comes along.
        """
        try:
            return part()
        except CustodyError:
            raise
        except Exception as exception:
            failure = exception
        # Outside of "except", so that it is not chained to this error either.
        raise self._failed(failure)

    def _failed(self, failure: Exception) -> CustodyError:
        """Return the error for what a signer raised: a mistake in its code, or trouble of a KMS that may pass."""
        mistakes = (ValueError, TypeError, AttributeError, ImportError, LookupError, NotImplementedError)
        # A certificate or a response that cannot be read may be a ValueError, too.
        is_mistake = isinstance(failure, mistakes) and not isinstance(failure, OSError)
        return failed(
            CustodyConfigurationError if is_mistake else CustodyError,
            # Its text is the signer's own, which may hold its key or its password.
            f"the signer {self.name!r} failed: {type(failure).__name__}; its approval was not sent",
            advice="What it says is not quoted, because it may hold a secret: look at the signer's own log.",
            code="signing-failed",
            retryable=not is_mistake,
        )

    def _unusable(self, why: str) -> CustodyError:
        return CustodyConfigurationError(
            f"the signature that the signer {self.name!r} returned cannot be used: {why}; it was not sent",
            setting="signer",
            code="signing-failed",
        )


def explain_refusal(error: CustodyError, client: CustodyClient, key: SigningKey, user: WireUser) -> None:
    """
    Add to an error whose key the signer has, if the service refuses an approval as wrong.

    What it refuses, only the service's own words say: the error's code stays, and this is advice. The keys are those of
    the rules that the service shows. They may not be signed as pinned: they only explain what the service has refused
    by itself.

    :param error: the error; its advice is changed.
    :param client: the client of the user who approves.
    :param key: the key that signed.
    :param user: the user, as far as the service says.
    """
    if error.status != 400:
        return
    signer = f"the signer {sanitize(key.name, 120)!r}"
    text = client.settings.user_text
    owner = f"{text[0].lower()}{text[1:]}"
    name = user.get("externalUserId")
    rules = _rules_of(client) if key.public_key and name else None
    theirs = rules.key_of(name) if rules and name else None
    if theirs is None:
        error.advice = f"{_ABOUT_SIGNATURE} the key of {signer} must be the one that the service has for {owner}."
    elif theirs == key.public_key:
        error.advice = f"The key of {signer} is the one that the service's rules have for {owner}."
    else:
        other = next((each for each in rules.users if rules.key_of(each) == key.public_key), None) if rules else None
        whose = f"it is the key of {sanitize(other, 80)!r}" if other else "it is no user's key there"
        error.advice = (
            f"{_ABOUT_SIGNATURE} the key of {signer} is not the one that the service's rules have for {owner}, "
            f"{sanitize(name, 80)!r}: {whose}. Give the signer that user's key, or use the connection of the user "
            "whose key it is."
        )


def _rules_of(client: CustodyClient) -> RulesContainer | None:
    """Return the rules that the service shows; None if it shows none that can be read, at once and in a few seconds."""
    try:
        text = client.get_rules(only_try=_EXPLAIN_TIMEOUT).get("rulesContainer")
        if isinstance(text, str) and len(text) <= (MAX_CONTAINER_BYTES + 2) // 3 * 4:
            return read_container(decode_base64(text))
    except Exception:  # noqa: S110 - whatever it is, the refusal counts
        pass
    return None
