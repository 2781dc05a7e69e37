"""Formats of values on the wire."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

#: Path prefix of the service's operations.
ROOT = "/api/rest/v1"


def dumps(value: Any) -> str:
    """Return compact JSON without escaped non-ASCII characters, like a Go server."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def omit_empty(**fields: object) -> dict[str, Any]:
    """Return the fields without empty, zero or false values; keep all dictionaries."""
    return {name: value for name, value in fields.items() if value or isinstance(value, dict)}


def omit_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def timestamp(seconds_from_now: float = 0.0) -> str:
    """Return a time relative to now, as RFC 3339 in UTC."""
    return timestamp_from_ns(time.time_ns() + round(seconds_from_now * 1e9))


def timestamp_from_ns(nanoseconds: int) -> str:
    """Return a time in nanoseconds since 1970, as RFC 3339 in UTC."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    whole = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def decode_base64(text: str) -> bytes:
    """Return the bytes of a text in base64; empty if the text is malformed."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def is_decimal(text: str) -> bool:
    """Return whether a text is an unsigned decimal number."""
    return text.isascii() and text.isdigit()


def equal_ignoring_case(left: str, right: str) -> bool:
    """Return whether two texts are equal, ignoring case."""
    return left.casefold() == right.casefold()


def is_below(path: str, prefix: str | None) -> bool:
    """Return whether a path is at or below a prefix, ignoring ``ROOT``."""
    prefix = _without_root("/" + (prefix or "").strip("/"))
    return f"{_without_root(path)}/".startswith(prefix.rstrip("/") + "/")


def _without_root(path: str) -> str:
    return path.removeprefix(ROOT) or "/" if f"{path}/".startswith(f"{ROOT}/") else path
