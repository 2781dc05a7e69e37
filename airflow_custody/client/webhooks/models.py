"""Webhook configurations and their calls, as the service sends them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from airflow_custody.client.secrets import REDACTED
from airflow_custody.client.text import as_name, ascii_lower, read_number, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.webhooks.payload import clean_text, payload_text, read_payload
from airflow_custody.client.wire import LENIENT, TypedDict

#: Maximum number of characters of a webhook's secret.
MAX_SECRET_LENGTH = 150
# Everything before and after the host may be a secret: many services take a token in a path.
_PLACE = re.compile(
    r"(?P<scheme>https?)://(?P<user>[^/?#\\]*@)?(?P<host>[\w.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?P<port>:[0-9]{1,5})?"
    r"(?P<rest>[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)


class WireWebhook(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str
    type: str | None
    url: str | None
    status: str | None
    timeoutUntil: str | None
    updatedAt: str | None
    createdAt: str | None


class WireCursor(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    currentPage: str | None
    hasNext: bool | None


class WireWebhooks(TypedDict, total=False):
    webhooks: list[WireWebhook] | None
    cursor: WireCursor | None


class WireCreatedWebhook(TypedDict, total=False):
    webhook: WireWebhook | None
    secret: str | None


class WireWebhookCalls(TypedDict, total=False):
    # The fields are passed on as they come.
    calls: list[dict[str, Any]] | None
    cursor: WireCursor | None


@dataclass(frozen=True)
class WebhookCall:
    """
    A call that the service has made to a webhook, or is about to make: an entry of its journal.

    :param id: the call's id, the same when the call is repeated.
    :param webhook_id: id of the webhook that it goes to.
    :param event_id: id of the event that it tells of.
    :param payload_text: the text of what it tells, as it came; None if there is none.
    :param status: status of its delivery, as the service sent it.
    :param status_message: the service's message on its status; empty if there is none.
    :param attempts: number of delivery attempts; None: not given.
    :param created_at: creation time by the service's clock; None: not given, or not readable.
    :param updated_at: time of the last change; None as for ``created_at``.
    """

    id: str
    webhook_id: str
    event_id: str = ""
    payload_text: str | None = None
    status: str = ""
    status_message: str = ""
    attempts: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def from_wire(cls, call_id: str, row: Mapping[str, Any]) -> WebhookCall:
        """
        Return the call that a row of the listing shows. Unreadable values are missing.

        :param call_id: its id, as text.
        :param row: the row.
        """
        return cls(
            id=call_id,
            webhook_id=_text(row.get("webhookId")),
            event_id=_text(row.get("eventId")),
            payload_text=payload_text(row.get("payload")),
            status=_text(row.get("status")),
            status_message=_text(row.get("statusMessage")),
            attempts=_number(row.get("attempts")),
            created_at=_time(row.get("createdAt")),
            updated_at=_time(row.get("updatedAt")),
        )

    @property
    def payload(self) -> Any:
        """The payload: parsed, each time, if it is JSON, otherwise its text; None if there is none."""
        return read_payload(self.payload_text)

    @property
    def length(self) -> int:
        """The number of characters of its texts."""
        texts = (self.id, self.webhook_id, self.event_id, self.payload_text or "", self.status, self.status_message)
        return sum(map(len, texts))

    def to_json(self) -> dict[str, Any]:
        """Return the call as plain JSON data; times as ISO 8601 text."""
        return {
            "id": self.id,
            "webhook_id": self.webhook_id,
            "event_id": self.event_id,
            "payload": self.payload,
            "status": self.status,
            "status_message": self.status_message,
            "attempts": self.attempts,
            "created_at": self.created_at and self.created_at.isoformat(),
            "updated_at": self.updated_at and self.updated_at.isoformat(),
        }


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


def without_secrets(url: Any) -> str | None:
    """
    Return where a URL leads to, without what may be a secret in it: its scheme, host and port; None: there is none.

    Text that may not be a host is not shown.
    """
    if not url:
        return None
    place = _PLACE.fullmatch(str(url))
    # Characters that should have been encoded: the host may be a part of the password.
    if place is None or "@" in (place["rest"] or ""):
        return REDACTED
    user, rest = (f"{REDACTED}@" if place["user"] else ""), (f"/{REDACTED}" if (place["rest"] or "/") != "/" else "")
    return f"{place['scheme']}://{user}{place['host']}{place['port'] or ''}{rest}"


def _text(value: object) -> str:
    return clean_text(as_name(value) or "")


def _number(value: object) -> int | None:
    text = as_name(value)
    return None if text is None else read_number(text, 2**63 - 1)


def _time(value: object) -> datetime | None:
    return parse_timestamp(value) if isinstance(value, str) else None
