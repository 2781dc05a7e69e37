"""What is pinned, and what is proved of the service's rules: for people and for programs. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.trust import NOT_PINNED

if TYPE_CHECKING:
    from airflow_custody.client.rules.operations import WireRules
    from airflow_custody.client.verification.verifier import VerificationPins, VerifiedRules

#: What a command says that finds nothing pinned.
NOTHING_PINNED = NOT_PINNED[:1].lower() + NOT_PINNED[1:].rstrip(".")
_MAX_SHOWN = 10
_HASH = re.compile(r"\b([0-9a-f]{16})[0-9a-f]{48}\b")


def name_texts(texts: Iterable[str], limit: int = 80) -> str:
    """Return texts in words, each of them short and not all of many: what comes after them stays in sight."""
    shown = [sanitize(each, limit) for each in texts]
    rest = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    return ", ".join(shown[:_MAX_SHOWN]) + rest


def shorten_hashes(text: str) -> str:
    """Return a text for people, with the first 16 digits of each SHA-256: JSON has all 64."""
    return _HASH.sub(r"\1…", text)


def describe_pins(pins: VerificationPins) -> str:
    """Return pins in words."""
    keys = name_texts(pins.fingerprints)
    networks = "any network" if pins.networks is None else f"networks {name_texts(sorted(pins.networks), 40)}"
    legacy = "legacy signatures count" if pins.allow_legacy_signatures else "legacy signatures do not count"
    oldest = pins.rules_not_before
    floor = "rules of any age" if oldest is None else f"rules from {format_unix_time(oldest)} on"
    number = count(len(pins.fingerprints), "pinned key")
    return f"{pins.superadmin_minimum} of {number} must sign ({keys}); {networks}, {legacy}, {floor}"


def describe_rules(pins: VerificationPins, verified: VerifiedRules, rules: WireRules) -> str:
    """
    Return in words what is proved of the rules that the service says are in force.

    :param pins: what is pinned.
    :param verified: what is proved.
    :param rules: the rules as they came.
    """
    since = verified.date
    signers = _signers(pins, rules)
    text = (
        f"The rules that the service says are in force are {f'of {since}' if since else 'without a date'}, "
        f"signed by {name_texts(signers)}; SHA-256 {verified.sha256}"
    )
    others = [each for each in pins.fingerprints if each not in signers]
    return f"{text}; did not sign them: {name_texts(others)}" if others else text


def _signers(pins: VerificationPins, rules: WireRules) -> list[str]:
    """Return the fingerprints of all pinned keys that have signed rules: verifying them needs no more than enough."""
    from airflow_custody.client.verification.verifier import VerificationPins, Verifier

    found = []
    for key, fingerprint in zip(pins.superadmin_keys, pins.fingerprints, strict=True):
        try:
            Verifier(VerificationPins(key, 1)).verify_rules(rules)
        except CustodyError:
            continue
        found.append(fingerprint)
    return found
