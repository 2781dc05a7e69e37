"""Webhook configurations."""

from __future__ import annotations

import re
import secrets
import sqlite3
import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.listings import Listing, Paging
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import omit_empty, timestamp

WebhookType = Literal[
    "requestStatus.updated",
    "transactionExternal.received",
    "transactionInternal.received",
    "currencyStatus.updated",
]

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")

_TABLES = """
CREATE TABLE IF NOT EXISTS webhooks (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, tenant_id TEXT NOT NULL, type TEXT NOT NULL,
    url TEXT NOT NULL, status TEXT NOT NULL, timeout_until TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
"""


class NewWebhook(BaseModel):
    """The body of a call that creates a webhook."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: WebhookType
    url: Annotated[str, StringConstraints(pattern=r"^https://[^/\s]+")]
    secret: Annotated[str, StringConstraints(max_length=150)] | None = None


class NewStatus(BaseModel):
    """The body of a call that changes a webhook's status."""

    model_config = ConfigDict(strict=True, extra="forbid")

    status: Literal["enabled", "disabled"]


class WebhookSearch(Paging):
    """The parameters that select webhooks."""

    type: str | None = None
    order: Literal["ASC", "DESC"] = Field(default="ASC", alias="sortOrder")


class WebhookStore:
    """The store of webhook configurations."""

    def __init__(self, state: State) -> None:
        self._state = state
        #: The behaviour of the listing.
        self.listing = Listing(state, "webhooks")
        state.create_tables(_TABLES)

    def create(self, caller: Caller, new: NewWebhook) -> dict[str, Any]:
        """Create a webhook, and return it with its secret, which is random if the call has none."""
        webhook = self.add_webhook(new.type, new.url, tenant_id=caller.tenant_id)
        return {"webhook": webhook, "secret": new.secret or secrets.token_urlsafe(24)}

    def add_webhook(
        self,
        type: str = "requestStatus.updated",
        url: str = "https://hooks.example.com/custody",
        status: str = "enabled",
        id: str | None = None,
        tenant_id: str = "1",
        timeout_until: str = "",
    ) -> dict[str, Any]:
        """
        Add a webhook without checking its values, and return it in the service's form.

        :param type: the type of event. Default ``requestStatus.updated``.
        :param url: where the service sends its calls. Default ``https://hooks.example.com/custody``.
        :param status: its status, such as ``enabled`` (default) or ``disabled``.
        :param id: its id. Default: a random UUID.
        :param tenant_id: id of its tenant. Default ``1``.
        :param timeout_until: end of its cool-down after failed deliveries. Until then, an enabled webhook is listed
            with the status ``cooling_word`` of the settings. Default: no cool-down.
        """
        id, now = (id or str(uuid.uuid4())).lower(), timestamp()
        if self._state.rows("SELECT 1 FROM webhooks WHERE id = ?", id):
            raise invalid(f"webhook {id} already exists")
        self._state.write(
            "INSERT INTO webhooks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(id, tenant_id, type, url, status, timeout_until, now, now),
        )
        return self._get(id)

    def webhooks(self) -> list[dict[str, Any]]:
        """Return the webhooks of all tenants."""
        rows = self._state.rows("SELECT * FROM webhooks ORDER BY number")
        return [{**self._webhook(row), "tenantId": row["tenant_id"]} for row in rows]

    def set_status(self, caller: Caller, webhook_id: str, status: str) -> dict[str, Any]:
        """
        Enable or disable a webhook.

        Disabling ends its cool-down after failed deliveries. Enabling ends it depending on ``enabling_ends_cooling``.
        """
        id = _parse_uuid(webhook_id)
        changed = self._state.write(
            "UPDATE webhooks SET status = ?, updated_at = ? WHERE id = ? AND tenant_id = ?",
            *(status, timestamp(), id, caller.tenant_id),
        )
        if status == "disabled" or self._state.settings.enabling_ends_cooling:
            self._state.write(
                "UPDATE webhooks SET timeout_until = '' WHERE id = ? AND tenant_id = ?", id, caller.tenant_id
            )
        if not changed:
            raise not_found(f"webhook {id}")
        return self._get(id)

    def delete(self, caller: Caller, webhook_id: str) -> None:
        """Delete a webhook."""
        id = _parse_uuid(webhook_id)
        if not self._state.write("DELETE FROM webhooks WHERE id = ? AND tenant_id = ?", id, caller.tenant_id):
            raise not_found(f"webhook {id}")

    def find(self, caller: Caller, search: WebhookSearch) -> dict[str, Any]:
        """Return one page of the tenant's webhooks, ordered by age."""
        search = self.listing.understood(search)
        rows = self._state.rows(
            f"SELECT * FROM webhooks WHERE tenant_id = ? AND type = coalesce(?, type) ORDER BY number {search.order}",
            *(caller.tenant_id, search.type),
        )
        found, cursor = search.cut([self._webhook(row) for row in rows], self.listing)
        return omit_empty(webhooks=found, cursor=cursor)

    def _get(self, id: str) -> dict[str, Any]:
        return self._webhook(self._state.rows("SELECT * FROM webhooks WHERE id = ?", id)[0])

    def _webhook(self, row: sqlite3.Row) -> dict[str, Any]:
        # Compare the times as texts. This is right unless a test has set a time in another form.
        is_cooling = row["status"] == "enabled" and row["timeout_until"] > timestamp()
        return omit_empty(
            id=row["id"],
            type=row["type"],
            url=row["url"],
            status=self._state.settings.cooling_word if is_cooling else row["status"],
            timeoutUntil=row["timeout_until"],
            updatedAt=row["updated_at"],
            createdAt=row["created_at"],
        )


def _parse_uuid(text: str) -> str:
    if not _UUID.fullmatch(text.lower()):
        raise invalid(f"{text!r} is not a UUID")
    return text.lower()
