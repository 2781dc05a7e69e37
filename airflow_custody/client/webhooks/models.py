"""Webhook configurations and their calls, as the service sends them."""

from __future__ import annotations

from typing import Any

from airflow_custody.client.wire import LENIENT, TypedDict

#: Maximum number of characters of a webhook's secret.
MAX_SECRET_LENGTH = 150


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
