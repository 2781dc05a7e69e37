"""Descriptions of pins and of the service's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import count, name_some
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.verification.verifier import VerificationPins, Verifier

if TYPE_CHECKING:
    from airflow_custody.client.rules.operations import WireRules
    from airflow_custody.client.verification.verifier import VerifiedRules

#: The text for settings without pinned keys.
NOTHING_PINNED = NOT_PINNED[:1].lower() + NOT_PINNED[1:].rstrip(".")


def how_to_pin(source: str | None) -> str:
    """
    Return instructions for pinning keys.

    :param source: place of the settings: ``--base-url``, or an Airflow connection.
    """
    how = (
        "Set --superadmin-keys and --superadmin-minimum"
        if str(source).startswith("--")
        else f"Set superadmin_keys and superadmin_minimum in {source or 'the connection'}"
    )
    return f"{how}. Get the keys from the people who hold them, not from the service."


def describe_pins(pins: VerificationPins) -> str:
    """Return a description of pinned keys."""
    keys = name_some(pins.fingerprints)
    networks = "any" if pins.networks is None else name_some(sorted(pins.networks), 40)
    legacy = "accepted" if pins.allow_legacy_signatures else "refused"
    oldest = pins.rules_not_before
    floor = "Age of rules: not limited" if oldest is None else f"Rules from {format_unix_time(oldest)} on"
    number = count(len(pins.fingerprints), "pinned key")
    signers = f"{pins.superadmin_minimum} of {number} must sign ({keys})"
    return f"{signers}. Networks: {networks}. Legacy signatures: {legacy}. {floor}"


def describe_rules(pins: VerificationPins, verified: VerifiedRules, rules: WireRules) -> str:
    """
    Describe the verified rules that the service reports as in force.

    :param pins: the pins.
    :param verified: the result of verifying the rules.
    :param rules: the rules, as the service sent them.
    """
    since = format_unix_time(verified.timestamp) if verified.timestamp else None
    signers = _signers(pins, rules)
    text = (
        f"The service's rules in force are {f'dated {since}' if since else 'without a date'} and signed by "
        f"{name_some(signers, 80)}; SHA-256 {verified.sha256}"
    )
    others = [each for each in pins.fingerprints if each not in signers]
    return f"{text}; not signed by {name_some(others, 80)}" if others else text


def _signers(pins: VerificationPins, rules: WireRules) -> list[str]:
    """
    Return the fingerprints of all pinned keys that have signed the rules, even if there are more than required.
    """
    found = []
    for key, fingerprint in zip(pins.superadmin_keys, pins.fingerprints, strict=True):
        try:
            Verifier(VerificationPins(key, 1)).verify_rules(rules)
        except CustodyError:
            continue
        found.append(fingerprint)
    return found
