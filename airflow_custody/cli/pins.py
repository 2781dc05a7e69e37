"""What is pinned, and what is proved of the service's rules: for people and for programs. No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_custody.client.describe import NOTHING_PINNED as NOTHING_PINNED
from airflow_custody.client.describe import describe_pins as describe_pins
from airflow_custody.client.describe import how_to_pin as how_to_pin
from airflow_custody.client.describe import name_texts as name_texts
from airflow_custody.client.timestamps import format_unix_time

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import VerificationPins, VerifiedRules

_HASH = re.compile(r"\b([0-9a-f]{16})[0-9a-f]{48}\b")


def shorten_hashes(text: str) -> str:
    """Return a text for people, with the first 16 digits of each SHA-256: JSON has all 64."""
    return _HASH.sub(r"\1…", text)


def pins_to_json(pins: VerificationPins) -> dict[str, Any]:
    """Return pins as plain JSON data, by the names that a connection has for them, in an order of their own."""
    keys = sorted(zip(pins.fingerprints, pins.superadmin_keys, strict=True))
    return {
        "superadmin_keys": [key for _, key in keys],
        "fingerprints": [fingerprint for fingerprint, _ in keys],
        "superadmin_minimum": pins.superadmin_minimum,
        "networks": None if pins.networks is None else sorted(pins.networks),
        "allow_legacy_signatures": pins.allow_legacy_signatures,
        "rules_not_before": pins.rules_not_before,
    }


def rules_to_json(rules: VerifiedRules) -> dict[str, Any]:
    """Return verified rules as plain JSON data."""
    return {
        "sha256": rules.sha256,
        "timestamp": rules.timestamp,
        "date": format_unix_time(rules.timestamp) if rules.timestamp else None,
        "signed_by": sorted(rules.signed_by),
    }
