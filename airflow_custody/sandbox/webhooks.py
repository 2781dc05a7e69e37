"""Keep webhook configurations."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import sqlite3
import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.wire import is_number, present, stamp

WebhookType = Literal[
    "requestStatus.updated",
    "transactionExternal.received",
    "transactionInternal.received",
    "currencyStatus.updated",
]

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_DEFAULT_PAGE = 20
MAX_PAGE = 100


class NewWebhook(BaseModel):
    """Describe the body of a create (published knowledge)."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: WebhookType
    url: Annotated[str, StringConstraints(pattern=r"^https://[^/\s]+")]
    secret: Annotated[str, StringConstraints(max_length=150)] | None = None


class NewStatus(BaseModel):
    """Describe the body of a change: the status and nothing else (part of the given interface)."""

    model_config = ConfigDict(strict=True, extra="forbid")

    status: Literal["enabled", "disabled"]


class Paging(BaseModel):
    """Describe which page of a listing to show (published knowledge)."""

    request: Literal["FIRST", "NEXT", "PREVIOUS", "LAST"] = "FIRST"
    size: int = 0
    current: str | None = None

    def window(self, total: int) -> tuple[int, int, dict[str, Any]]:
        """Work out where the page begins, how long it is, and the cursor that goes with it.

        How a page is named in `currentPage` is a guess: clients are not meant to read it.
        """
        size = self.size or _DEFAULT_PAGE
        if self.request == "FIRST":
            start = 0
        elif self.request == "LAST":
            start = max(0, (total - 1) // size * size)
        elif self.request == "NEXT":
            start = _place(self.current) + size
        else:
            start = max(0, _place(self.current) - size)
        cursor = present(currentPage=_page_name(start), hasPrevious=start > 0, hasNext=start + size < total)
        return start, size, cursor


class WebhookBook:
    """Create, list, change and delete webhooks."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create(self, caller: Caller, asked: NewWebhook) -> dict[str, Any]:
        """Keep a webhook; its secret, made up when none is given, is shown this once."""
        secret = asked.secret or secrets.token_urlsafe(24)
        webhook = self.add(tenant_id=caller.tenant_id, type=asked.type, url=asked.url, secret=secret)
        return {"webhook": webhook, "secret": secret}

    def add(
        self,
        *,
        tenant_id: str,
        type: str,
        url: str,
        status: str = "enabled",
        secret: str = "",
        id: str | None = None,
        timeout_until: str = "",
    ) -> dict[str, Any]:
        """Keep a webhook as it is, without looking at its values."""
        number, now = (id or str(uuid.uuid4())).lower(), stamp()
        if self._state.rows("SELECT 1 FROM webhooks WHERE id = ?", number):
            raise invalid(f"there is a webhook {number} already")
        self._state.write(
            "INSERT INTO webhooks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(number, tenant_id, type, url, status, secret, timeout_until, now, now),
        )
        return _webhook(self._state.rows("SELECT * FROM webhooks WHERE id = ?", number)[0])

    def set_status(self, caller: Caller, webhook_id: str, status: str) -> dict[str, Any]:
        """Enable or disable a webhook; the status it already has is fine, and a pause after failures ends."""
        number = _uuid(webhook_id)
        changed = self._state.write(
            "UPDATE webhooks SET status = ?, updated_at = ?, timeout_until = '' WHERE id = ? AND tenant_id = ?",
            *(status, stamp(), number, caller.tenant_id),
        )
        if not changed:
            raise not_found(f"webhook {number}")
        return _webhook(self._state.rows("SELECT * FROM webhooks WHERE id = ?", number)[0])

    def delete(self, caller: Caller, webhook_id: str) -> None:
        """Delete a webhook."""
        number = _uuid(webhook_id)
        if not self._state.write("DELETE FROM webhooks WHERE id = ? AND tenant_id = ?", number, caller.tenant_id):
            raise not_found(f"webhook {number}")

    def find(
        self, caller: Caller, *, type: str | None, url: str | None, descending: bool, paging: Paging
    ) -> dict[str, Any]:
        """List the webhooks of the caller's tenant, page by page, oldest first unless asked otherwise."""
        condition = "tenant_id = ? AND (? IS NULL OR type = ?) AND (? IS NULL OR url = ?)"
        values = (caller.tenant_id, type, type, url, url)
        (total,) = self._state.rows(f"SELECT count(*) FROM webhooks WHERE {condition}", *values)[0]
        start, size, cursor = paging.window(total)
        order = "DESC" if descending else "ASC"
        rows = self._state.rows(
            f"SELECT * FROM webhooks WHERE {condition} ORDER BY number {order} LIMIT ? OFFSET ?",
            *values,
            size,
            start,
        )
        return present(webhooks=[_webhook(row) for row in rows], cursor=cursor)

    def everything(self) -> list[dict[str, Any]]:
        """List all webhooks of all tenants, for tests."""
        rows = self._state.rows("SELECT * FROM webhooks ORDER BY number")
        return [{**_webhook(row), "tenantId": row["tenant_id"]} for row in rows]


def _webhook(row: sqlite3.Row) -> dict[str, Any]:
    return present(
        id=row["id"],
        type=row["type"],
        url=row["url"],
        status=row["status"],
        timeoutUntil=row["timeout_until"],
        updatedAt=row["updated_at"],
        createdAt=row["created_at"],
    )


def _uuid(text: str) -> str:
    if not _UUID.fullmatch(text.lower()):
        raise invalid(f"{text!r} is not a UUID")
    return text.lower()


def _page_name(start: int) -> str:
    return base64.urlsafe_b64encode(str(start).encode()).decode()


def _place(page: str | None) -> int:
    if page is None:
        raise invalid("cursor.currentPage: Field required with NEXT and PREVIOUS")
    try:
        start = base64.urlsafe_b64decode(page).decode("ascii")
    except (binascii.Error, ValueError):
        start = ""
    if not is_number(start) or len(start) > 12:
        raise invalid("cursor.currentPage: not a page this service has named")
    return int(start)
