"""Webhook configurations."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import sqlite3
import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.listings import Listing
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import is_decimal, omit_empty, timestamp

WebhookType = Literal[
    "requestStatus.updated",
    "transactionExternal.received",
    "transactionInternal.received",
    "currencyStatus.updated",
]

DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")

_TABLES = """
CREATE TABLE IF NOT EXISTS webhooks (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, tenant_id TEXT NOT NULL, type TEXT NOT NULL,
    url TEXT NOT NULL, status TEXT NOT NULL, secret TEXT NOT NULL, timeout_until TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS webhook_calls (number INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, call TEXT NOT NULL);
"""


class NewWebhook(BaseModel):
    """The body of a create."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: WebhookType
    url: Annotated[str, StringConstraints(pattern=r"^https://[^/\s]+")]
    secret: Annotated[str, StringConstraints(max_length=150)] | None = None


class NewStatus(BaseModel):
    """The body of a change, which is of the status and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid")

    status: Literal["enabled", "disabled"]


class Paging(BaseModel):
    """Which page of a listing to return."""

    request: Literal["FIRST", "NEXT", "PREVIOUS", "LAST"] = "FIRST"
    size: int = 0
    current: str | None = None

    def cut(self, rows: list[dict[str, Any]], listing: Listing) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """
        Return the rows of the page, and its cursor.

        The content of `currentPage` is an assumption: clients are not meant to read it.
        """
        rows = listing.arrange(rows, lambda row: str(row.get("id")))
        total, size = len(rows), listing.page_size(self.size or DEFAULT_PAGE_SIZE)
        if self.request == "FIRST":
            start = 0
        elif self.request == "LAST":
            start = max(0, (total - 1) // size * size)
        elif self.request == "NEXT":
            start = _page_start(self.current) + size
        else:
            start = max(0, _page_start(self.current) - size)
        cursor = omit_empty(currentPage=_page_name(start), hasPrevious=start > 0, hasNext=start + size < total)
        return rows[start : start + size], cursor


class WebhookStore:
    """The store of webhook configurations."""

    def __init__(self, state: State) -> None:
        self._state = state
        #: How the listing of webhooks behaves, and the one of their calls.
        self.listing = Listing(state, "webhooks")
        self.calls_listing = Listing(state, "webhook-calls")
        state.create_tables(_TABLES)

    def create(self, caller: Caller, new: NewWebhook) -> dict[str, Any]:
        """Create a webhook and return it with its secret, which is random unless one is given."""
        secret = new.secret or secrets.token_urlsafe(24)
        webhook = self.add(tenant_id=caller.tenant_id, type=new.type, url=new.url, secret=secret)
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
        """Add a webhook, whatever its values, and return it."""
        id, now = (id or str(uuid.uuid4())).lower(), timestamp()
        if self._state.rows("SELECT 1 FROM webhooks WHERE id = ?", id):
            raise invalid(f"webhook {id} already exists")
        self._state.write(
            "INSERT INTO webhooks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(id, tenant_id, type, url, status, secret, timeout_until, now, now),
        )
        return self._get(id)

    def set_status(self, caller: Caller, webhook_id: str, status: str) -> dict[str, Any]:
        """Enable or disable a webhook, which also ends its time-out after failed deliveries."""
        id = _parse_uuid(webhook_id)
        changed = self._state.write(
            "UPDATE webhooks SET status = ?, updated_at = ?, timeout_until = '' WHERE id = ? AND tenant_id = ?",
            *(status, timestamp(), id, caller.tenant_id),
        )
        if not changed:
            raise not_found(f"webhook {id}")
        return self._get(id)

    def delete(self, caller: Caller, webhook_id: str) -> None:
        """Delete a webhook."""
        id = _parse_uuid(webhook_id)
        if not self._state.write("DELETE FROM webhooks WHERE id = ? AND tenant_id = ?", id, caller.tenant_id):
            raise not_found(f"webhook {id}")

    def find(
        self, caller: Caller, *, type: str | None, url: str | None, descending: bool, paging: Paging
    ) -> dict[str, Any]:
        """Return one page of the webhooks of the caller's tenant, by age."""
        rows = self._state.rows(
            "SELECT * FROM webhooks WHERE tenant_id = ? AND (? IS NULL OR type = ?) AND (? IS NULL OR url = ?)"
            f" ORDER BY number {_direction(descending)}",
            *(caller.tenant_id, type, type, url, url),
        )
        found, cursor = paging.cut([_webhook(row) for row in rows], self.listing)
        return omit_empty(webhooks=found, cursor=cursor)

    def add_call(self, tenant_id: str, call: dict[str, Any]) -> None:
        """Add a call to a webhook, whatever its values."""
        self._state.write("INSERT INTO webhook_calls VALUES (NULL, ?, ?)", tenant_id, json.dumps(call))

    def find_calls(
        self, caller: Caller, *, filters: dict[str, str | None], descending: bool, paging: Paging
    ) -> dict[str, Any]:
        """Return one page of the calls to webhooks of the caller's tenant, by age."""
        rows = self._state.rows(
            f"SELECT call FROM webhook_calls WHERE tenant_id = ? ORDER BY number {_direction(descending)}",
            caller.tenant_id,
        )
        calls = [json.loads(row["call"]) for row in rows]
        given = {name: value for name, value in filters.items() if value is not None}
        matching = [call for call in calls if given.items() <= {name: call.get(name) for name in given}.items()]
        found, cursor = paging.cut(matching, self.calls_listing)
        return omit_empty(calls=found, cursor=cursor)

    def list_all(self) -> list[dict[str, Any]]:
        """Return the webhooks of all tenants."""
        rows = self._state.rows("SELECT * FROM webhooks ORDER BY number")
        return [{**_webhook(row), "tenantId": row["tenant_id"]} for row in rows]

    def _get(self, id: str) -> dict[str, Any]:
        return _webhook(self._state.rows("SELECT * FROM webhooks WHERE id = ?", id)[0])


def _direction(descending: bool) -> str:
    return "DESC" if descending else "ASC"


def _webhook(row: sqlite3.Row) -> dict[str, Any]:
    return omit_empty(
        id=row["id"],
        type=row["type"],
        url=row["url"],
        status=row["status"],
        timeoutUntil=row["timeout_until"],
        updatedAt=row["updated_at"],
        createdAt=row["created_at"],
    )


def _parse_uuid(text: str) -> str:
    if not _UUID.fullmatch(text.lower()):
        raise invalid(f"{text!r} is not a UUID")
    return text.lower()


def _page_name(start: int) -> str:
    return base64.urlsafe_b64encode(str(start).encode()).decode()


def _page_start(page: str | None) -> int:
    if page is None:
        raise invalid("cursor.currentPage: Field required with NEXT and PREVIOUS")
    try:
        start = base64.urlsafe_b64decode(page).decode("ascii")
    except (binascii.Error, ValueError):
        start = ""
    if not is_decimal(start) or len(start) > 12:
        raise invalid("cursor.currentPage: not a page of this listing")
    return int(start)
