"""The rules in a response: find the rules that a request refers to, and verify them against the pins."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Mapping, Sized
from typing import Any, NamedTuple

from airflow_custody.client.text import count
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.keys import SIGNATURE_BYTES, Verifies, decode_base64
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

#: Maximum seconds that the date of the rules may be ahead of this machine's clock.
MAX_AHEAD = 300

# Advice for the errors below.
_MISSING = (
    "Without rules, no signature can be verified. A request in effect must carry the rules that it was signed under; "
    "for a pending request, the rules in force ('GET /rules') are enough. Ask the service's operators."
)
_NOT_NAMED = (
    "The response must have these rules in 'rulesContainers'. If they are missing again, ask the service's operators."
)
_LABELS = (
    "Each entry of 'rulesContainers' must have its own label: the SHA-256 of its rules in base64. The rules may "
    "have been exchanged. Ask the service's operators."
)
#: What the words in a row's ``rulesFault`` mean. :func:`add_rules` adds this field when it reads a row.
_FAULTS = {
    "wrong label": "the label that it refers to is not the hash of the rules that have this label in the response",
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
    """Rules that the pinned keys have signed, with the result of their verification."""

    container: RulesContainer
    rules: VerifiedRules


#: Unverified rules and their signatures. The rules are in base64. The signatures are either a single message in base64,
#: as in an envelope, or each of them is in base64, as in the response of ``GET /rules``.
UnverifiedRules = tuple[str, str | tuple[str, ...]]


# --- rules in responses ------------------------------------------------------------------------------------


def add_rules(rows: Iterable[Any], containers: object, known: dict[str, str]) -> None:
    """
    Add rules to the rows of a page.

    Instead of repeating rules in each row, a page may have a separate list of rules, each with a label that rows refer
    to. The label of rules is computed again: see :func:`label_of`. If rules have a wrong label, or several rules have
    the same label, the rows that refer to this label get a ``rulesFault`` instead of rules, and cannot be verified. A
    row whose label is not in the list gets nothing. A row with its own rules keeps them. To save memory, equal rules
    become one object, also across pages.

    :param rows: the rows, which are changed.
    :param containers: the page's ``rulesContainers``.
    :param known: the rules of the previous pages, empty at first. The rules of this page are added to it.
    """
    entries: dict[str, dict[str, Any]] = {}
    for each in containers if isinstance(containers, list) else ():
        label = each.get("hash") if isinstance(each, dict) else None
        if not isinstance(label, str) or not label:
            continue
        if label in entries:
            entries[label] = {"rulesFault": "several"}
        elif label != label_of(each.get("rulesContainer")):
            entries[label] = {"rulesFault": "wrong label"}
        else:
            entries[label] = {name: each.get(name) for name in ("rulesContainer", "rulesSignatures")}
    for row in rows:
        label = row.get("rulesContainerHash")
        if not row.get("rulesContainer") and isinstance(label, str):
            row.update(entries.get(label, {}))
        for name in ("rulesContainer", "rulesSignatures"):
            text = row.get(name)
            if isinstance(text, str):
                row[name] = known.setdefault(text, text)


def label_of(container: object) -> str | None:
    """
    Return the label of rules in a listing: the SHA-256, in base64, of the rules' base64 text (not of their bytes).

    :param container: the rules, as sent; they should be text in base64.
    :return: the label; None if the rules are not text.
    """
    if not isinstance(container, str):
        return None
    return base64.b64encode(hashlib.sha256(container.encode("utf-8", "surrogatepass")).digest()).decode()


def enclosed_rules(envelope: Mapping[str, Any]) -> UnverifiedRules:
    """
    Return the rules that an envelope carries.

    :param envelope: the envelope as received.
    :raises RefusalError: if the rules or their signatures are missing, or the rules are wrongly labelled.
    """
    text, signatures = envelope.get("rulesContainer"), envelope.get("rulesSignatures")
    if fault := envelope.get("rulesFault"):
        raise RefusalError(_FAULTS.get(str(fault), "its rules have an unknown fault"), _LABELS)
    if not text and envelope.get("rulesContainerHash"):
        raise RefusalError("the response lacks the rules that it refers to", _NOT_NAMED)
    if not isinstance(text, str) or not isinstance(signatures, str) or not text or not signatures:
        raise RefusalError("its rules, or the signatures of its rules, are missing", _MISSING)
    return text, signatures


def listed_rules(rules: object) -> UnverifiedRules:
    """
    Return rules from ``GET /rules``.

    :param rules: ``rulesContainer`` in base64, and ``rulesSignatures``, a list of ``{userId, signature}``.
    :raises RefusalError: if the rules or their signatures are missing, or there are too many signatures.
    """
    shown = rules if isinstance(rules, Mapping) else {}
    text, found = shown.get("rulesContainer"), shown.get("rulesSignatures")
    if not isinstance(text, str) or not text:
        raise RefusalError("its rules are missing")
    if not isinstance(found, list):
        raise RefusalError("their signatures are missing")
    _check_number(found)
    signatures = (each.get("signature") for each in found if isinstance(each, dict))
    return text, tuple(each for each in signatures if isinstance(each, str))


# --- verification ------------------------------------------------------------------------------------------


def verify_rules(pins: VerificationPins, verifies: Verifies, text: str, signatures: str | Iterable[str]) -> SignedRules:
    """
    Verify rules against the pins, and return them.

    :param pins: the trusted keys and settings.
    :param verifies: verifies signatures.
    :param text: the container, in base64.
    :param signatures: the container's signatures, in one of the two forms in :data:`UnverifiedRules`.
    :raises RefusalError: if too few pinned keys have signed the rules, or their content or date is refused.
    """
    found = _read_signatures(signatures)
    data = _decode(text, "its rules", MAX_CONTAINER_BYTES)
    digest = hashlib.sha256(data).digest()
    # Count keys, not signatures, because anyone can turn a valid ECDSA signature into a second valid one of the same
    # key.
    signers = [key for key in pins.public_keys if any(verifies(key, each, digest) for each in found)]
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


def _read_signatures(signatures: str | Iterable[str]) -> list[bytes]:
    """Return the bytes of each signature. In a list, a signature that is not base64 does not count."""
    if not isinstance(signatures, str):
        decoded = []
        for each in signatures:
            try:
                decoded.append(_decode(each, "it", SIGNATURE_BYTES))
            except RefusalError:
                continue
        return decoded
    try:
        found = read_signatures(_decode(signatures, "they", MAX_SIGNATURES_BYTES))
    except RefusalError as error:
        raise RefusalError(f"the signatures of its rules cannot be read: {error}") from None
    _check_number(found)
    return found


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


def _decode(text: str, what: str, maximum: int) -> bytes:
    """Decode base64. Refuse a text that is too large before decoding it."""
    if len(text) > (maximum + 2) // 3 * 4:
        raise RefusalError(f"{what} are larger than {maximum} bytes")
    try:
        return decode_base64(text)
    except ValueError:
        raise RefusalError(f"{what} are not base64 (standard alphabet, with padding)") from None


def _check_number(signatures: Sized) -> None:
    if len(signatures) > MAX_RULES_SIGNATURES:
        raise RefusalError(f"its rules have more than {MAX_RULES_SIGNATURES} signatures")
