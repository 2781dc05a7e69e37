"""Whether a webhook delivers, in the service's word. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from airflow_custody.client.text import ascii_lower, sanitize
from airflow_custody.client.timestamps import parse_timestamp


def has_status(webhook: Mapping[str, Any], status: str) -> bool:
    """
    Tell whether a webhook has a status.

    :param webhook: the webhook, as the service sends it.
    :param status: the status word; compared without case.
    """
    return ascii_lower(str(webhook.get("status") or "")) == ascii_lower(status)


def cooling_until(webhook: Mapping[str, Any], now: datetime | None = None) -> str:
    """
    Return in words until when a webhook is cooling down; empty: it is not.

    One whose time cannot be read may be: it counts as cooling down.

    :param webhook: the webhook, as the service sends it.
    :param now: the time; None (default): now.
    """
    text = webhook.get("timeoutUntil")
    if not text:
        return ""
    until = parse_timestamp(str(text))
    if until is None:
        return f"a time that cannot be read ({sanitize(text, 40)!r})"
    return f"{until:%Y-%m-%d %H:%M:%S} UTC" if until > (now or datetime.now(timezone.utc)) else ""
