"""Write values the way the service does."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

# Enough for what travels as a 64-bit integer in a JSON string.
MAX_ID = 2**63 - 1


def dumps(value: Any) -> str:
    """Write compact JSON with characters as they are, as a server written in Go would."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def present(**fields: Any) -> dict[str, Any]:
    """Leave out what is empty, zero or false (published knowledge)."""
    return {name: value for name, value in fields.items() if value or isinstance(value, dict)}


def stamp(seconds_from_now: float = 0.0) -> str:
    """Write a moment as RFC 3339 in UTC with nine digits of fraction."""
    return stamp_ns(time.time_ns() + round(seconds_from_now * 1e9))


def stamp_ns(nanoseconds: int) -> str:
    """Write nanoseconds since 1970 as RFC 3339 in UTC with nine digits of fraction."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    whole = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def is_number(text: str) -> bool:
    """Tell whether a text is a decimal number without sign."""
    return text.isascii() and text.isdigit()


def same_text(left: str, right: str) -> bool:
    """Compare without case."""
    return left.casefold() == right.casefold()


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was not given."""
    return {name: value for name, value in fields.items() if value is not None}
