"""The operations on webhook configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from airflow_custody.client.http.operation import MAX_PAGE_SIZE, Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.text import is_uuid, sanitize
from airflow_custody.client.webhooks.models import (
    MAX_SECRET_LENGTH,
    WireCreatedWebhook,
    WireWebhook,
    WireWebhookCalls,
    WireWebhooks,
)

WebhookStatus = Literal["enabled", "disabled"]
WEBHOOK_STATUSES: tuple[WebhookStatus, ...] = ("enabled", "disabled")

_NO_SUCH_WEBHOOK = "No webhook configuration has this id: it was deleted, or the id is of another service."

SET_WEBHOOK_STATUS = Operation(
    "set webhook status", "PATCH", "/webhooks", roles=("Admin",), hints={404: _NO_SUCH_WEBHOOK}
)
DELETE_WEBHOOK = Operation("delete webhook", "DELETE", "/webhooks", roles=("Admin",), hints={404: _NO_SUCH_WEBHOOK})
CREATE_WEBHOOK = Operation("create webhook", "POST", "/webhooks", roles=("Admin",), confidential=True, documented=False)
LIST_WEBHOOKS = Operation("list webhooks", "GET", "/webhooks", roles=("Admin",), documented=False)
LIST_WEBHOOK_CALLS = Operation("list webhook calls", "GET", "/webhooks/calls", roles=("Admin",), documented=False)

Page = TypeVar("Page", WireWebhooks, WireWebhookCalls)


class WebhookOperations(ServiceOperations):
    """The operations on webhook configurations."""

    def set_webhook_status(self, webhook_id: str, status: WebhookStatus) -> None:
        """
        Enable or disable a webhook configuration: ``PATCH /webhooks/{uuid}``.

        Setting the status it already has is allowed.

        :param webhook_id: the configuration's UUID.
        :param status: ``"enabled"`` or ``"disabled"``.
        :raises CustodyRequestError: if the id is no UUID or the status is another word; nothing was sent.
        :raises CustodyNotFoundError: if there is no such webhook configuration.
        """
        operation = _on_webhook(SET_WEBHOOK_STATUS, webhook_id)
        if status not in WEBHOOK_STATUSES:
            raise operation.refused(f"the status must be 'enabled' or 'disabled', not {sanitize(repr(status), 40)}")
        self._transport.call(operation, None, body={"status": status})

    def delete_webhook(self, webhook_id: str) -> None:
        """
        Delete a webhook configuration: ``DELETE /webhooks/{uuid}``. Afterwards it no longer exists.

        :param webhook_id: the configuration's UUID.
        :raises CustodyRequestError: if the id is no UUID; nothing was sent.
        :raises CustodyNotFoundError: if there is no such webhook configuration.
        """
        self._transport.call(_on_webhook(DELETE_WEBHOOK, webhook_id), None)

    def create_webhook(
        self,
        webhook_type: str,
        url: str,
        *,
        secret: str | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> tuple[str, str]:
        """
        Create a webhook configuration: ``POST /webhooks`` (undocumented). Two calls create two.

        :param webhook_type: the type of event to deliver, for example ``requestStatus.updated``.
        :param url: where to deliver, HTTPS.
        :param secret: the secret to sign deliveries with, at most 150 characters; None (default): the service makes
            one up.
        :param before_send: as for :meth:`create_whitelist_request`.
        :return: the webhook's id, and its secret, which the service never shows again.
        :raises CustodyOutcomeUnknownError: if it was sent and its response is missing, truncated, unreadable or a
            5xx.
        :raises CustodyError: of another type if it was not created.
        """
        if secret is not None and not 0 < len(secret) <= MAX_SECRET_LENGTH:
            raise CREATE_WEBHOOK.refused(f"the secret must have 1 to {MAX_SECRET_LENGTH} characters")
        body = {"type": webhook_type, "url": url, **({} if secret is None else {"secret": secret})}
        reply = self._transport.call(CREATE_WEBHOOK, WireCreatedWebhook, body=body, before_send=before_send)
        webhook_id = (reply.body.get("webhook") or {}).get("id", "")
        secret = reply.body.get("secret") or secret
        if not is_uuid(webhook_id) or not secret:
            raise reply.unexpected("it has no 'webhook.id' and 'secret'")
        return webhook_id, secret

    def list_webhooks(self, *, webhook_type: str | None = None, url: str | None = None) -> Iterator[WireWebhook]:
        """
        List webhook configurations, page by page: ``GET /webhooks`` (undocumented).

        :param webhook_type: only those of this type. Default: no filter, and so for those below.
        :param url: only those that deliver to this URL.
        :return: the webhooks. A page is fetched when it is needed.
        """
        filters = {"type": webhook_type, "url": url}
        for page in self._cursor_pages(LIST_WEBHOOKS, WireWebhooks, "webhooks", filters):
            yield from page.get("webhooks") or ()

    def list_webhook_calls(
        self, *, webhook_id: str | None = None, event_id: str | None = None, status: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """
        List deliveries of webhooks, page by page: ``GET /webhooks/calls`` (undocumented).

        :param webhook_id: only those of this webhook. Default: no filter, and so for those below.
        :param event_id: only those of this event.
        :param status: only those with this status.
        :return: the calls, as the service shows them. A page is fetched when it is needed.
        """
        filters = {"webhookID": webhook_id, "eventID": event_id, "status": status}
        for page in self._cursor_pages(LIST_WEBHOOK_CALLS, WireWebhookCalls, "calls", filters):
            yield from page.get("calls") or ()

    def _cursor_pages(
        self, operation: Operation, shape: type[Page], rows: str, filters: Mapping[str, str | None]
    ) -> Iterator[Page]:
        query = {name: value for name, value in filters.items() if value is not None}
        query.update({"cursor.pageRequest": "FIRST", "cursor.pageSize": str(MAX_PAGE_SIZE)})
        seen: set[str] = set()
        while True:
            reply = self._transport.call(operation, shape, query=query)
            reply.require_any_key(rows, "cursor")
            yield reply.body
            cursor = reply.body.get("cursor") or {}
            if not cursor.get("hasNext"):
                return
            page = cursor.get("currentPage")
            if not page or page in seen:
                raise reply.unexpected("its cursor does not advance")
            seen.add(page)
            query.update({"cursor.pageRequest": "NEXT", "cursor.currentPage": page})


def _on_webhook(operation: Operation, webhook_id: object) -> Operation:
    """Return the operation for one webhook; only a UUID may become part of a path."""
    if not is_uuid(str(webhook_id)):
        raise operation.refused(
            "the webhook id must be a UUID like 123e4567-e89b-12d3-a456-426614174000, not "
            f"{sanitize(repr(webhook_id), 60)}"
        )
    return operation.on(str(webhook_id))
