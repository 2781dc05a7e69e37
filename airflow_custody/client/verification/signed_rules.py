"""The rules in a response, and their verification against the pins."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_custody.client.text import count
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.keys import SIGNATURE_BYTES, decode_base64
from airflow_custody.client.verification.pins import VerificationPins
from airflow_custody.client.verification.results import RefusalError, VerifiedRules
from airflow_custody.client.verification.rules_container import (
    MAX_CONTAINER_BYTES,
    MAX_RULES_SIGNATURES,
    MAX_SIGNATURES_BYTES,
    RulesContainer,
    read_container,
    read_signatures,
)
from airflow_custody.client.verification.signature_count import Verifies

#: Maximum seconds that the date of the rules may be ahead of this machine's clock.
MAX_AHEAD = 300

# Advice for each error.
_MISSING = (
    "Without rules, no signature can be verified. A request in effect must carry the rules that it was signed under; "
    "for a pending request, the rules in force ('GET /rules') are enough. Ask the service's operators."
)
_NOT_NAMED = "It must have them in 'rulesContainers'. If they are missing again, ask the service's operators."
_LABELS = (
    "Each entry of 'rulesContainers' must have its own label: the SHA-256 of its rules in base64. The rules may "
    "have been exchanged. Ask the service's operators."
)
#: The reasons for the ``rulesFault`` of a row, which was added when the row was read.
_FAULTS = {
    "wrong label": "the response has the rules that it refers to under a label that does not fit them",
    "several": "the response has several rules with the label that it refers to",
}
COMPARE_PINS = (
    "Run 'custody check', and compare the pinned keys that it shows with the super-administrators' keys. If keys were "
    "replaced, get the new ones from the super-administrators, never from the service. Keep the old keys pinned as "
    "long as requests have rules that were signed with them."
)
_TOO_OLD = (
    "Older rules stay validly signed forever, and may be weaker. Set an earlier 'rules_not_before' only if you accept "
    "them."
)
_IN_FUTURE = "Check this machine's clock. Rules with a future date would always pass 'rules_not_before'."


class SignedRules(NamedTuple):
    """Rules that the pinned keys have signed, with the verification's result."""

    container: RulesContainer
    rules: VerifiedRules


#: Unverified rules and their signatures: the container in base64, and the bytes of each signature.
UnverifiedRules = tuple[str, tuple[bytes, ...]]


def shows_rules(envelope: Mapping[str, Any]) -> bool:
    """
    Tell whether an envelope carries rules, usable or not.

    :param envelope: the envelope as received.
    """
    return any(map(envelope.get, ("rulesContainer", "rulesSignatures", "rulesFault")))


def enclosed_rules(envelope: Mapping[str, Any]) -> UnverifiedRules:
    """
    Return the rules that an envelope carries.

    :param envelope: the envelope as received.
    :raises RefusalError: if the rules are missing or wrongly labelled, or their signatures cannot be read.
    """
    text, signatures = envelope.get("rulesContainer"), envelope.get("rulesSignatures")
    if fault := envelope.get("rulesFault"):
        raise RefusalError(_FAULTS.get(str(fault), "its rules have an unknown fault"), _LABELS)
    if not text and envelope.get("rulesContainerHash"):
        raise RefusalError("the response lacks the rules that it refers to", _NOT_NAMED)
    if not isinstance(text, str) or not isinstance(signatures, str) or not text or not signatures:
        raise RefusalError("its rules, or the signatures of its rules, are missing", _MISSING)
    return text, _read_enclosed(signatures)


# Most envelopes carry the same few rules. Errors are not cached.
@lru_cache(maxsize=64)
def _read_enclosed(signatures: str) -> tuple[bytes, ...]:
    """Return the bytes of each signature of enclosed rules."""
    try:
        found = read_signatures(_decode(signatures, "they", MAX_SIGNATURES_BYTES))
    except RefusalError as error:
        raise RefusalError(f"the signatures of its rules cannot be read: {error}") from None
    return _not_too_many(found)


def listed_rules(rules: object) -> UnverifiedRules:
    """
    Return rules from ``GET /rules``.

    A signature that is not base64 does not count.

    :param rules: ``rulesContainer`` in base64, and ``rulesSignatures``, a list of ``{userId, signature}``.
    :raises RefusalError: if the rules or their signatures are missing, or there are too many signatures.
    """
    shown = rules if isinstance(rules, Mapping) else {}
    text, found = shown.get("rulesContainer"), shown.get("rulesSignatures")
    if not isinstance(text, str) or not text:
        raise RefusalError("its rules are missing")
    if not isinstance(found, list):
        raise RefusalError("their signatures are missing")
    signatures = []
    for each in _not_too_many(found):
        try:
            signatures.append(_decode(each["signature"], "it", SIGNATURE_BYTES))
        except (RefusalError, LookupError, TypeError):
            continue
    return text, tuple(signatures)


def verify_rules(pins: VerificationPins, verifies: Verifies, text: str, signatures: Iterable[bytes]) -> SignedRules:
    """
    Verify rules against the pins, and return them.

    :param pins: the trusted keys and settings.
    :param verifies: verifies signatures.
    :param text: the container, in base64.
    :param signatures: the bytes of its signatures.
    :raises RefusalError: if too few pinned keys have signed the rules, or their content or date is refused.
    """
    data = _decode(text, "its rules", MAX_CONTAINER_BYTES)
    digest = hashlib.sha256(data).digest()
    # Count keys, not signatures, because anyone can change a valid signature into another valid signature.
    signers = [key for key in pins.public_keys if any(verifies(key, each, digest) for each in signatures)]
    minimum = pins.superadmin_minimum
    if len(signers) < minimum:
        signed_by = f"{len(signers)} of the {count(minimum, 'required pinned key')}"
        if minimum == 1:
            signed_by = "none of the pinned keys"
        raise RefusalError(f"its rules are signed by {signed_by}")
    # Read the rules only after their signatures were verified, so that unsigned data does not reach the decoder.
    try:
        container = read_container(data)
    except RefusalError as error:
        raise RefusalError(f"its rules cannot be read: {error}") from None
    if pins.rules_not_before is not None:
        _check_date(container.timestamp, pins.rules_not_before)
    fingerprints = tuple(key.fingerprint for key in signers)
    return SignedRules(container, VerifiedRules(container.sha256, container.timestamp, fingerprints))


def _check_date(timestamp: int, floor: int) -> None:
    """
    Refuse rules whose date is missing, too old, or in the future.

    Rules with a future date are refused because they might never become too old.
    """
    made = f"of {_date(timestamp)}" if timestamp else "without a date"
    if timestamp < floor:
        raise RefusalError(f"its rules are {made}, but 'rules_not_before' is {_date(floor)}", _TOO_OLD)
    if timestamp > time.time() + MAX_AHEAD:
        raise RefusalError(f"its rules are {made}, which is in the future ('rules_not_before' is set)", _IN_FUTURE)


def _date(seconds: int) -> str:
    return format_unix_time(seconds) or f"{seconds} (Unix time)"


def _decode(text: object, what: str, maximum: int) -> bytes:
    """Decode base64; refuse a text that is too large without reading it."""
    if not isinstance(text, str):
        raise RefusalError(f"{what} are not text")
    if len(text) > (maximum + 2) // 3 * 4:
        raise RefusalError(f"{what} are larger than {maximum} bytes")
    try:
        return decode_base64(text)
    except ValueError:
        raise RefusalError(f"{what} are not base64 (standard alphabet, with padding)") from None


def _not_too_many(found: Iterable[Any]) -> tuple[Any, ...]:
    signatures = tuple(found)
    if len(signatures) > MAX_RULES_SIGNATURES:
        raise RefusalError(f"its rules have more than {MAX_RULES_SIGNATURES} signatures")
    return signatures
