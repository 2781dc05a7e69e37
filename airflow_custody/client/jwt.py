"""What a JWT says of itself. Nothing here checks its signature."""

from __future__ import annotations

import base64
import binascii
import json
import math
from datetime import datetime, timezone
from typing import Any


def jwt_claims(token: str) -> dict[str, Any]:
    """
    Return the claims of a JWT, without checking its signature.

    :param token: any token.
    :return: its claims; nothing if it is no JWT or cannot be read.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def jwt_expiry(token: str) -> datetime | None:
    """
    Return when a JWT expires, without checking its signature.

    :param token: any token.
    :return: its ``exp`` as an aware time; None if it is no JWT or its ``exp`` cannot be read.
    """
    expires = jwt_seconds(jwt_claims(token).get("exp"))
    try:
        return None if expires is None else datetime.fromtimestamp(expires, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def jwt_seconds(claim: object) -> float | None:
    """Return a claim that is a time, in Unix seconds; None if it is none."""
    if isinstance(claim, bool) or not isinstance(claim, (int, float)):
        return None
    try:
        seconds = float(claim)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None
