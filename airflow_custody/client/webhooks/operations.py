"""The operations on webhook configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal
from uuid import UUID

from pydantic import SecretStr

from airflow_custody.client.arguments import MAX_PAGE_SIZE, describe
from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.client.health.models import WireHealthListing
from airflow_custody.client.health.operations import LIST_HEALTH_CHECKS
from airflow_custody.client.http.listings import CursorPage, listing_changed, read_journal, read_twice
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.responses import Reply
from airflow_custody.client.http.service import ServiceOperations, shown_object
from airflow_custody.client.secrets import as_secret
from airflow_custody.client.text import ascii_lower, is_uuid, sanitize
from airflow_custody.client.webhooks.calls import BEGINNING, CallCursor, NewCalls, read_new_calls
from airflow_custody.client.webhooks.models import (
    MAX_SECRET_LENGTH,
    WebhookCall,
    WireCreatedWebhook,
    WireWebhook,
    WireWebhookCalls,
    WireWebhooks,
    has_status,
    status_of,
)

WebhookStatus = Literal["enabled", "disabled"]
WEBHOOK_STATUSES: tuple[WebhookStatus, ...] = ("enabled", "disabled")

_NO_SUCH_WEBHOOK = "`custody webhooks list` lists the existing webhooks."

# All of these operations are confidential, because any response may contain a webhook, and its URL may hold a password.
SET_WEBHOOK_STATUS = Operation(
    "set webhook status",
    "PATCH",
    "/webhooks",
    roles=("Admin",),
    confidential=True,
    quotes_refusals=True,
    confirmed_by="read back",
    hints={404: _NO_SUCH_WEBHOOK},
)
DELETE_WEBHOOK = Operation(
    "delete webhook",
    "DELETE",
    "/webhooks",
    roles=("Admin",),
    confidential=True,
    quotes_refusals=True,
    confirmed_by="read back",
    hints={404: _NO_SUCH_WEBHOOK},
)
CREATE_WEBHOOK = Operation(
    "create webhook",
    "POST",
    "/webhooks",
    roles=("Admin",),
    confidential=True,
    documented=False,
    confirmed_by="result",
    creates=True,
)
LIST_WEBHOOKS = Operation(
    "list webhooks", "GET", "/webhooks", roles=("Admin or AdminReadOnly",), confidential=True, documented=False
)
LIST_WEBHOOK_CALLS = Operation(
    "list webhook calls",
    "GET",
    "/webhooks/calls",
    roles=("Admin or AdminReadOnly",),
    confidential=True,
    documented=False,
)

#: Default for the maximum number of new calls that are returned at once.
DEFAULT_CALL_LIMIT = 10_000


class WebhookOperations(ServiceOperations):
    """The operations on webhook configurations."""

    def set_webhook_status(self, webhook_id: str, status: WebhookStatus) -> None:
        """
        Enable or disable a webhook configuration: ``PATCH /webhooks/{uuid}``.

        A response that is empty, or has the webhook with this status, confirms the change. After any other success, a
        redirect or a refusal (4xx), the listing is read, and must have the webhook with this status. A refused token,
        and an error that a later call may overcome (such as a 429), are raised without reading the listing. Setting a
        status that the webhook already has therefore succeeds; if the service refuses the change, a warning is logged.
        A webhook that is cooling down after failed deliveries counts as enabled. If the service does not offer the
        listing, any JSON response that does not contradict the change confirms it, with a warning in the log.

        :param webhook_id: the configuration's UUID.
        :param status: ``"enabled"`` or ``"disabled"``.
        :raises CustodyRequestError: if the id is not a UUID, or the status is another word; nothing is sent.
        :raises CustodyNotFoundError: if the service itself reports that the webhook configuration does not exist.
        :raises CustodyResponseError: if the change is not confirmed.
        """
        operation = _on_webhook(SET_WEBHOOK_STATUS, webhook_id)
        if status not in WEBHOOK_STATUSES:
            raise operation.refused(f"the status must be 'enabled' or 'disabled', not {describe(status)}")

        def shows(data: Mapping[str, Any]) -> bool | None:
            webhook = shown_object(data, "webhook", "result")
            if _is_id(webhook.get("id"), webhook_id) and webhook.get("status"):
                return ascii_lower(status_of(webhook)) == status
            found = [each for each in (data, data.get("webhook"), data.get("result")) if isinstance(each, dict)]
            other_status = "disabled" if status == "enabled" else "enabled"
            is_contrary = _is_other(webhook, webhook_id) or any(has_status(each, other_status) for each in found)
            return False if is_contrary else None

        def read_back() -> str | None:
            state = self._webhook_state(str(webhook_id))
            if state is None:
                return "no such webhook is listed"
            return None if ascii_lower(state) == status else f"the webhook's status is {sanitize(repr(state), 40)}"

        with _naming_webhook(webhook_id):
            self._write(operation, body={"status": status}, shows=shows, read_back=read_back, probe=self._probe)

    def delete_webhook(self, webhook_id: str) -> None:
        """
        Delete a webhook configuration: ``DELETE /webhooks/{uuid}``.

        A response that is empty or names only this webhook confirms the deletion. After any other success, a redirect,
        a gateway's refusal (4xx), or the service's own 400, 404 or 409, the listing is read, and the webhook must be
        absent. Other errors, and errors that a later call may overcome (such as a 429), are raised without reading the
        listing. If the service does not offer the listing, any JSON response that does not name another webhook
        confirms the deletion, with a warning in the log.

        :param webhook_id: the configuration's UUID.
        :raises CustodyRequestError: if the id is not a UUID; nothing is sent.
        :raises CustodyNotFoundError: if the service itself reports that the webhook configuration does not exist, and
            the listing either does not have it or cannot be read, for example because of a gateway's page. If the
            listing gets a 404 or a gateway's page, ``GET /health`` must succeed, because with a wrong base URL every
            response is a 404.
        :raises CustodyResponseError: if the deletion is not confirmed.
        """

        def shows(data: Mapping[str, Any]) -> bool | None:
            webhook = shown_object(data, "webhook", "result")
            if _is_id(webhook.get("id"), webhook_id):
                # If the response shows the webhook with a status, it may still exist, or this may be its former state.
                return None if webhook.get("status") else True
            return False if _is_other(webhook, webhook_id) else None

        def read_back() -> str | None:
            state = self._webhook_state(str(webhook_id))
            return None if state is None else f"the webhook still exists, with status {sanitize(repr(state), 40)}"

        operation = _on_webhook(DELETE_WEBHOOK, webhook_id)
        with _naming_webhook(webhook_id):
            self._write(operation, shows=shows, read_back=read_back, is_deletion=True, probe=self._probe)

    def create_webhook(
        self,
        webhook_type: str,
        url: str,
        *,
        secret: str | SecretStr | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> tuple[str, str]:
        """
        Create a webhook configuration: ``POST /webhooks`` (undocumented). Two calls create two webhooks.

        :param webhook_type: the type of event to deliver, for example ``requestStatus.updated``.
        :param url: the URL to deliver to, HTTPS.
        :param secret: the secret to sign deliveries with, at most 150 characters; None (default): the service generates
            a secret.
        :param before_send: same as for :meth:`create_whitelist_request`.
        :return: the webhook's id, and its secret, which the service never returns again.
        :raises CustodyOutcomeUnknownError: if the call was sent and its response is missing, truncated, unreadable,
            interim (1xx), a 5xx or a refusal that is not the service's own. The webhook may have been created.
        :raises CustodyResponseError: if the call was redirected. The webhook may have been created.
        :raises CustodyError: (of another type) if the webhook was not created.
        """
        body: dict[str, Any] = {"type": webhook_type, "url": url}
        if secret is not None:
            secret = body["secret"] = as_secret(secret)
            if not 0 < len(secret) <= MAX_SECRET_LENGTH:
                raise CREATE_WEBHOOK.refused(f"the secret must have 1 to {MAX_SECRET_LENGTH} characters")
            # Hide the secret, because a later response may echo it.
            self._transport.auth.hide(secret)
        reply = self._transport.call(CREATE_WEBHOOK, WireCreatedWebhook, body=body, before_send=before_send)
        webhook_id = (reply.body.get("webhook") or {}).get("id", "")
        secret = as_secret(reply.body.get("secret") or secret or "")
        if not is_uuid(webhook_id) or not secret:
            raise reply.unexpected("it lacks 'webhook.id' or 'secret'")
        self._transport.auth.hide(secret)
        return webhook_id, secret.get_secret_value()

    def list_webhooks(self, *, webhook_type: str | None = None) -> Iterator[WireWebhook]:
        """
        List webhook configurations, page by page: ``GET /webhooks`` (undocumented).

        The listing is complete. If there is more than one page, all pages are read a second time, and both readings
        must have the same webhooks in the same order.

        :param webhook_type: type of the webhooks to list. Default: webhooks of all types.
        :return: the webhooks, each once. Pages are fetched when they are needed.
        :raises CustodyResponseError: if the listing changes while it is read, or its pages are inconsistent (the error
            is retryable then, and may be raised after the last webhook); or if a response is unusable or has a webhook
            of another type.
        """
        return self._webhooks(webhook_type)

    def list_webhook_calls(self) -> Iterator[WebhookCall]:
        """
        List webhook calls, oldest first: ``GET /webhooks/calls`` (undocumented).

        The listing is complete as long as new calls come last, and only the oldest calls are removed. A call that
        appears late, before a call that was already read, may be missed. If there is more than one page, the first page
        is read again at the end, and must begin with the same call.

        :return: the calls, each once. Pages are fetched when they are needed.
        :raises CustodyResponseError: if the listing changes while it is read, or its pages are inconsistent (the error
            is retryable then, and may be raised after the last call); if a response is unusable; or if there are more
            than 1,000,000 calls.
        """
        return read_journal(LIST_WEBHOOK_CALLS, self._call_pages("ASC"))

    def read_webhook_calls(
        self,
        cursor: CallCursor | None,
        *,
        start: Literal["now", "beginning"] = "now",
        limit: int = DEFAULT_CALL_LIMIT,
    ) -> NewCalls:
        """
        Read new webhook calls since a cursor: ``GET /webhooks/calls`` (undocumented).

        The newest calls are read first, back to five minutes before the cursor's time. Over successive readings, every
        call is returned at least once. This requires that each reading begins with the previous reading's cursor, and
        that a call appears at most five minutes after a newer call.

        :attr:`NewCalls.gap` describes the calls that may be lost. There is a gap if the newest known call is no longer
            listed, or if the service's clock (the ``Date`` of its responses) was set back, and is more than five
            minutes behind the cursor. If the clock has caught up before this reading, no gap is reported, although
            calls may be lost. Each gap is reported once.

        :param cursor: the cursor: :attr:`NewCalls.cursor` of the previous reading; None: this is the first reading.
        :param start: where the first reading starts: ``now`` (default) returns no calls, and a cursor that knows all
            existing calls; ``beginning`` returns the oldest calls.
        :param limit: maximum number of calls to return; the oldest new calls come first. Each reading reads all new
            calls to find the oldest ones, so a higher limit needs fewer requests if there are many new calls. Default
            10,000.
        :return: the new calls, in the order of creation, and the cursor for the next reading.
        :raises CustodyRequestError: if ``start`` or ``limit`` is wrong; nothing is sent.
        :raises CustodyResponseError: if the service does not list the calls in the order of their time stamps, or a
            time stamp is missing or unreadable; or (retryable) if the listing changes faster than it can be read.
        """
        if start not in ("now", "beginning"):
            raise LIST_WEBHOOK_CALLS.refused(f"start must be 'now' or 'beginning', not {describe(start)}")
        if type(limit) is not int or limit < 1:
            raise LIST_WEBHOOK_CALLS.refused(f"limit must be a whole number from 1, not {describe(limit)}")
        if cursor is None and start == "beginning":
            cursor = BEGINNING
        return read_new_calls(LIST_WEBHOOK_CALLS, self._call_pages("DESC"), cursor, limit)

    def _call_pages(self, order: Literal["ASC", "DESC"]) -> Callable[[str | None], CursorPage[WebhookCall]]:
        """Return a function that fetches pages of calls in an order: the first page (None), or the one after a page."""

        def fetch(name: str | None) -> CursorPage[WebhookCall]:
            query = {**_cursor_query(name), "sortOrder": order}
            reply = self._transport.call(LIST_WEBHOOK_CALLS, WireWebhookCalls, query=query)
            calls = [(each, WebhookCall.from_wire(each, row)) for each, row in _rows(reply, "calls")]
            return CursorPage(calls, _next_page(reply), reply.response.date)

        return fetch

    def get_newest_webhook_call(self) -> WebhookCall | None:
        """
        Get the newest webhook call, in one request: ``GET /webhooks/calls`` (undocumented).

        :return: the call; None: the service lists no calls.
        :raises CustodyResponseError: if the service lists the oldest calls first, although the newest were requested;
            if it lists no call, but says that there are more; or if the response is unusable.
        """
        # Request two calls, because the second one reveals the order.
        query = {**_cursor_query(None), "sortOrder": "DESC", "cursor.pageSize": "2"}
        reply = self._transport.call(LIST_WEBHOOK_CALLS, WireWebhookCalls, query=query)
        calls = [WebhookCall.from_wire(each, row) for each, row in _rows(reply, "calls")[:2]]
        times = [call.created_at for call in calls if call.created_at is not None]
        if times != sorted(times, reverse=True):
            raise reply.unexpected("it lists the oldest call first, although the newest was requested")
        if not calls and _next_page(reply) is not None:
            raise listing_changed(LIST_WEBHOOK_CALLS, "a page is empty but not the last")
        return calls[0] if calls else None

    def _probe(self) -> None:
        """Send a documented read, because its response shows whether the base URL is right."""
        self._transport.call(LIST_HEALTH_CHECKS, WireHealthListing).require_any_key("groups")

    def _webhook_state(self, webhook_id: str) -> str | None:
        """
        Return a webhook's status in the listing; None: the webhook is not listed.

        :raises CustodyError: if the listing cannot be read.
        """
        # Do not take `{}` for an empty listing here, because this listing is read after a response that may come from a
        # gateway, and `{}` may also come from the gateway.
        for webhook in self._webhooks(empty_object_allowed=False):
            if _is_id(webhook["id"], webhook_id):
                return status_of(webhook)
        return None

    def _webhooks(self, webhook_type: str | None = None, *, empty_object_allowed: bool = True) -> Iterator[WireWebhook]:
        filters = {} if webhook_type is None else {"type": webhook_type}

        def fetch(name: str | None) -> CursorPage[WireWebhook]:
            reply = self._transport.call(LIST_WEBHOOKS, WireWebhooks, query={**_cursor_query(name), **filters})
            rows = _rows(reply, "webhooks")
            for _, row in rows:
                if filters and row.get("type") and ascii_lower(row["type"]) != ascii_lower(filters["type"]):
                    raise reply.unexpected("the 'type' of a row is not the requested type")
            if reply.response.says_nothing and not empty_object_allowed:
                raise reply.unexpected("it has neither 'webhooks' nor 'cursor'")
            return CursorPage(rows, _next_page(reply))

        return read_twice(LIST_WEBHOOKS, fetch)


def _cursor_query(name: str | None) -> dict[str, str]:
    """
    Return the query for a page: for the first page or, if a page is named, for the page after it.
    """
    size = {"cursor.pageSize": str(MAX_PAGE_SIZE)}
    if name is None:
        return {**size, "cursor.pageRequest": "FIRST"}
    return {**size, "cursor.pageRequest": "NEXT", "cursor.currentPage": name}


def _next_page(reply: Reply[Any]) -> str | None:
    """Return the name with which the page after this one is requested; None if this is the last page."""
    cursor = reply.body.get("cursor") or {}
    if not cursor.get("hasNext"):
        return None
    name = cursor.get("currentPage")
    if not name:
        raise reply.unexpected("its cursor has a next page but no 'currentPage'")
    return str(name)


def _rows(reply: Reply[Any], key: str) -> list[tuple[str, Any]]:
    """
    Return the rows of a page, each with its id.

    :param reply: the page.
    :param key: the key of its rows.
    :raises CustodyResponseError: if the page has no rows in the expected place.
    """
    rows = reply.rows(key, "cursor")
    if key not in reply.body:
        for name, value in reply.response.data.items():
            if name != "cursor" and isinstance(value, (list, dict)):
                raise reply.unexpected(f"it has no {key!r}, and may have its rows elsewhere")
    return rows


@contextmanager
def _naming_webhook(webhook_id: str) -> Iterator[None]:
    """If the service reports that the webhook does not exist, name the webhook in the error."""
    try:
        yield
    except CustodyNotFoundError as error:
        if not error.from_service:
            raise
        raise error.with_facts(message=f"no webhook has the id {webhook_id} ({error.message.rstrip('.')})") from None


def _is_other(webhook: Mapping[str, Any], webhook_id: str) -> bool:
    """Tell whether an object in a response is another webhook."""
    return is_uuid(str(webhook.get("id"))) and not _is_id(webhook["id"], webhook_id)


def _is_id(shown: object, webhook_id: str) -> bool:
    return ascii_lower(str(shown)) == ascii_lower(str(webhook_id))


def _on_webhook(operation: Operation, webhook_id: object) -> Operation:
    """
    Return the operation for one webhook, whose id must be a UUID, because it becomes part of the path.
    """
    if not isinstance(webhook_id, (str, UUID)) or not is_uuid(str(webhook_id)):
        raise operation.refused(
            f"the webhook id must be a UUID like 123e4567-e89b-12d3-a456-426614174000, not {describe(webhook_id)}",
            "parameter-wrong",
        )
    return operation.on(str(webhook_id))
