"""The rules that a response carries: whether super-administrators have signed them, as pinned."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.text import count
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.keys import SIGNATURE_BYTES, decode_base64
from airflow_custody.client.verification.pins import VerificationPins
from airflow_custody.client.verification.protobuf import ProtobufError
from airflow_custody.client.verification.results import VerifiedRules
from airflow_custody.client.verification.rules_container import (
    MAX_CONTAINER_BYTES,
    MAX_RULES_SIGNATURES,
    MAX_SIGNATURES_BYTES,
    RulesContainer,
    read_container,
    read_signatures,
)
from airflow_custody.client.verification.signature_count import SignatureCache

#: Maximum number of containers that are remembered.
MAX_CONTAINERS = 64

# What to do about it.
_MISSING = (
    "Without them no signature can be checked. A request in effect must show those that it was signed under; for a "
    "pending one, those in force ('GET /rules') will do. Ask those who run the service."
)
_NOT_NAMED = (
    "They belong beside its rows, in 'rulesContainers'. If they are missing again, ask those who run the service."
)
_NOT_PINNED = (
    "Compare the pins with 'custody check'. If keys have been replaced, ask super-administrators for theirs, and never "
    "the service; a request keeps the rules that it was signed under, and these the older keys."
)
_TOO_OLD = (
    "Older rules stay signed for ever, and may be weaker: set an earlier 'rules_not_before' only if these are to count."
)


class RefusalError(Exception):
    """
    Raised when a step of verifying fails; says why.

    :param why: why.
    :param advice: what to do about it; None: nothing.
    :param code: the code of the error that it becomes.
    """

    def __init__(self, why: str, advice: str | None = None, code: ErrorCode = "not-verified") -> None:
        super().__init__(why)
        self.advice = advice
        self.code: ErrorCode = code


class SignedRules:
    """Rules that are signed as pinned, and what is proved of them."""

    __slots__ = ("container", "rules")

    def __init__(self, container: RulesContainer, rules: VerifiedRules) -> None:
        self.container = container
        self.rules = rules


class RulesVerifier:
    """
    Verifies rules, and remembers them: most rows of a listing carry the same. May be used by several threads.

    :param pins: what is trusted.
    :param signatures: what verifies signatures.
    """

    def __init__(self, pins: VerificationPins, signatures: SignatureCache) -> None:
        self.pins = pins
        self._signatures = signatures
        # By the hash of their bytes; by the text of their signatures, with their own; and those that failed, with why.
        self._containers: OrderedDict[bytes, RulesContainer] = OrderedDict()
        self._verified: OrderedDict[str, tuple[str, SignedRules]] = OrderedDict()
        self._failed: OrderedDict[bytes, tuple[str, str | None, ErrorCode]] = OrderedDict()
        self._in_force: tuple[tuple[object, list[bytes]], SignedRules] | None = None
        self._lock = threading.Lock()

    def of(self, envelope: Mapping[str, Any]) -> SignedRules:
        """
        Return the rules that an envelope carries.

        :param envelope: the envelope as it came.
        :raises RefusalError: if they are not signed as pinned, or cannot be read.
        """
        text, signatures = envelope.get("rulesContainer"), envelope.get("rulesSignatures")
        if not text and envelope.get("rulesContainerHash"):
            raise RefusalError("the response does not have the rules that it names", _NOT_NAMED, "not-verified")
        if not isinstance(text, str) or not isinstance(signatures, str) or not text or not signatures:
            raise RefusalError("its rules, or the signatures of its rules, are missing", _MISSING, "not-verified")
        # Found by the signatures, which are short, and then compared: hashing all of the rules takes longer.
        with self._lock:
            known, outcome = self._verified.get(signatures, ("", None))
            if outcome is not None and known == text:
                self._verified.move_to_end(signatures)
                return outcome
        # What failed is remembered by its hash only: anybody can send a lot of it.
        digest = _digest(text) + _digest(signatures)
        with self._lock:
            refusal = self._failed.get(digest)
        if refusal is None:
            try:
                data = _decode(text, "its rules", MAX_CONTAINER_BYTES)
                outcome = self._check(data, _enclosed_signatures(signatures), _NOT_PINNED)
            except RefusalError as error:
                refusal = str(error), error.advice, error.code
            else:
                self._remember(self._verified, signatures, (text, outcome))
                return outcome
            self._remember(self._failed, digest, refusal)
        raise RefusalError(*refusal)

    def listed(self, rules: Mapping[str, Any]) -> SignedRules:
        """
        Return rules as ``GET /rules`` shows them.

        :param rules: ``rulesContainer`` in base64, and ``rulesSignatures``, a list of ``{userId, signature}``.
        :raises RefusalError: if they are not signed as pinned, or cannot be read.
        """
        data = _decode(rules.get("rulesContainer"), "its rules", MAX_CONTAINER_BYTES)
        return self._check(data, _listed_signatures(rules.get("rulesSignatures")))

    def in_force(self, rules: object) -> SignedRules:
        """
        Return the rules in force, for a request that is shown without any.

        :param rules: as for :meth:`listed`.
        :raises RefusalError: if they are not signed as pinned, or cannot be read.
        """
        try:
            if not isinstance(rules, Mapping):
                raise RefusalError("they are no JSON object")
            # Many requests have the same: they are decoded once.
            shown = rules.get("rulesContainer"), _listed_signatures(rules.get("rulesSignatures"))
            with self._lock:
                known = self._in_force
            if known is not None and known[0] == shown:
                return known[1]
            outcome = self.listed(rules)
        except RefusalError as error:
            raise RefusalError(
                f"it is shown without rules, and those in force cannot be used: {error}",
                error.advice or _NOT_PINNED,
                "not-verified",
            ) from None
        with self._lock:
            self._in_force = shown, outcome
        return outcome

    def _check(self, data: bytes, signatures: Sequence[bytes], advice: str | None = None) -> SignedRules:
        digest = hashlib.sha256(data).digest()
        counted = set()
        # One key counts once, whatever the signatures: their bytes can be changed so that they verify again.
        for signature in signatures:
            for key in self.pins.public_keys:
                if key not in counted and self._signatures.verifies(key, signature, digest):
                    counted.add(key)
                    break
            if len(counted) == self.pins.superadmin_minimum:
                break
        else:
            minimum = self.pins.superadmin_minimum
            signed_by = f"{len(counted)} of the {count(minimum, 'pinned key')} that must have signed them"
            if minimum == 1:
                signed_by = "no pinned key, and one must have signed them"
            raise RefusalError(f"its rules are signed by {signed_by}", advice, "not-verified")
        # Read only now: what nobody signed does not reach the decoder.
        with self._lock:
            container = self._containers.get(digest)
        if container is None:
            try:
                container = read_container(data)
            except ProtobufError as error:
                raise RefusalError(f"its rules cannot be read: {error}") from None
            self._remember(self._containers, digest, container)
        floor = self.pins.rules_not_before
        if floor is not None and container.timestamp < floor:
            made = f"of {_date(container.timestamp)}" if container.timestamp else "without a date"
            raise RefusalError(
                f"its rules are {made}, and none before {_date(floor)} count ('rules_not_before')",
                _TOO_OLD,
                "not-verified",
            )
        signers = tuple(key.fingerprint for key in self.pins.public_keys if key in counted)
        return SignedRules(container, VerifiedRules(container.sha256, container.timestamp, signers))

    def _remember(self, cache: OrderedDict[Any, Any], key: object, value: object) -> None:
        with self._lock:
            cache[key] = value
            while len(cache) > MAX_CONTAINERS:
                cache.popitem(last=False)


def _date(seconds: int) -> str:
    return format_unix_time(seconds) or f"{seconds} (Unix time)"


# --- base64 ------------------------------------------------------------------------------------------------


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def _decode(text: object, what: str, most: int) -> bytes:
    """Decode base64; what is too large is refused unread."""
    if not isinstance(text, str) or not text:
        raise RefusalError(f"{what} are missing")
    if len(text) > (most + 2) // 3 * 4:
        raise RefusalError(f"{what} are larger than {most} bytes")
    try:
        return decode_base64(text)
    except ValueError:
        raise RefusalError(f"{what} are not base64 (standard alphabet, with padding)") from None


def _enclosed_signatures(text: object) -> list[bytes]:
    """Return the signatures of rules as an envelope has them."""
    data = _decode(text, "the signatures of its rules", MAX_SIGNATURES_BYTES)
    try:
        found = read_signatures(data)
    except ProtobufError as error:
        raise RefusalError(f"the signatures of its rules cannot be read: {error}") from None
    return _usable(found)


def _listed_signatures(found: object) -> list[bytes]:
    """Return the signatures of rules as ``GET /rules`` has them; one that is not base64 does not count."""
    if not isinstance(found, list):
        raise RefusalError("their signatures are missing")
    _usable(found)
    signatures = []
    for each in found:
        text = each.get("signature") if isinstance(each, Mapping) else None
        try:
            signatures.append(_decode(text, "a signature", SIGNATURE_BYTES))
        except RefusalError:
            continue
    return signatures


def _usable(found: list[Any]) -> list[Any]:
    if len(found) > MAX_RULES_SIGNATURES:
        raise RefusalError(f"its rules have more than {MAX_RULES_SIGNATURES} signatures")
    return found
