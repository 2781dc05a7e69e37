"""The journal of calls to webhooks."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from airflow_custody.sandbox.listings import Listing, Paging
from airflow_custody.sandbox.settings import CallSettings
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import dumps, omit_empty, timestamp, timestamp_from_ns

# `call` is the whole call; the other columns are used to find and order calls. `position` is the time by which listings
# are ordered.
_TABLES = """
CREATE TABLE IF NOT EXISTS webhook_calls (
    number INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, position TEXT NOT NULL, id TEXT, webhook_id TEXT,
    event_id TEXT, status TEXT, call TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS webhook_calls_by_position ON webhook_calls (tenant_id, position, number);
"""
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z")
# The data of an event of each published type, in the published form: ids are numbers.
_DATA: dict[str, dict[str, Any]] = {
    "requestStatus.updated": {"requestId": 123, "status": "APPROVED"},
    "currencyStatus.updated": {"currencyId": 7, "currency": "ETH", "status": "enabled"},
    "transactionExternal.received": {"transactionId": 46596},
    "transactionInternal.received": {"transactionId": 46597},
}
# Large, because a test that chooses its own ids often chooses small ones.
_FIRST_ID = 100_001


class CallSearch(Paging):
    """The parameters that select calls."""

    webhook_id: str | None = Field(default=None, alias="webhookID")
    event_id: str | None = Field(default=None, alias="eventID")
    status: str | None = None
    order: Literal["ASC", "DESC"] = Field(default="DESC", alias="sortOrder")


class CallStore:
    """
    The store of calls to webhooks.

    :param state: the sandbox's state, which contains the table of webhooks.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        #: The behaviour of the listing.
        self.listing = Listing(state, "webhook-calls")
        state.create_tables(_TABLES)

    @property
    def _settings(self) -> CallSettings:
        return self._state.settings.calls

    def add_webhook_call(self, /, tenant_id: str = "1", **call: Any) -> None:
        """
        Add a call to a webhook, with any fields.

        :param tenant_id: id of the tenant. Default ``1``.
        :param call: the fields, by their names on the wire.
        """
        self._insert(tenant_id, [call])

    def add_webhook_calls(
        self, /, number: int, *, age: float = 0.0, spacing: float = 0.001, tenant_id: str = "1", **fields: Any
    ) -> list[str]:
        """
        Add many calls to webhooks at once, and return their ids.

        :param number: number of calls.
        :param age: age of the first call, in seconds. Default 0.
        :param spacing: time between consecutive calls, in seconds. Default 0.001.
        :param tenant_id: id of the tenant. Default ``1``.
        :param fields: fields of all calls, by their names on the wire.
        """
        first, step = time.time_ns() - round(age * 1e9), round(spacing * 1e9)
        ids = self._new_ids(number)
        calls = [
            self._call(each, first + index * step, eventId=f"event-{each}", webhookId="", payload="{}") | fields
            for index, each in enumerate(ids)
        ]
        self._insert(tenant_id, calls)
        return ids

    def send_event(
        self,
        webhook_type: str,
        data: dict[str, Any] | None = None,
        *,
        payload: Any = None,
        event_id: str | None = None,
        age: float = 0.0,
        status: str = "success",
        tenant_id: str = "1",
    ) -> list[dict[str, Any]]:
        """
        Add a call to each webhook of a type, and return the calls.

        The payload has the published form: ``{"type": ..., "createdAt": ..., "data": {...}}``. Disabled webhooks get no
        call.

        :param webhook_type: the type of the webhooks.
        :param data: what the event is about. Default: a sample for the type, such as
            ``{"requestId": 123, "status": "APPROVED"}``.
        :param payload: another payload, JSON data or text, instead of one in the published form. Default: none.
        :param event_id: the id of the event. Default: a random id.
        :param age: age of the calls, in seconds. An age makes calls late: they are listed below calls that a client may
            have read already. Default 0.
        :param status: delivery status of the calls. Default ``success``.
        :param tenant_id: id of the tenant. Default ``1``.
        """
        at, event_id = time.time_ns() - round(age * 1e9), event_id or str(uuid.uuid4())
        rows = self._state.rows(
            "SELECT * FROM webhooks WHERE tenant_id = ? AND type = ? ORDER BY number", tenant_id, webhook_type
        )
        webhooks = [row["id"] for row in rows if row["status"] != "disabled"]
        if payload is None:
            data = _DATA.get(webhook_type, {}) if data is None else data
            payload = {"type": webhook_type, "createdAt": timestamp_from_ns(at), "data": data}
        text = payload if isinstance(payload, str) else dumps(payload)
        calls = [
            self._call(each, at, eventId=event_id, webhookId=webhook, payload=text, status=status)
            for each, webhook in zip(self._new_ids(len(webhooks)), webhooks, strict=True)
        ]
        self._insert(tenant_id, calls)
        return calls

    def find(self, caller: Caller, search: CallSearch) -> dict[str, Any]:
        """Return one page of the webhook calls of the caller's tenant."""
        self._remove_old(caller.tenant_id)
        search = self.listing.understood(search)
        filters = {"webhook_id": search.webhook_id, "event_id": search.event_id, "status": search.status}
        given = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(["tenant_id = ?", *(f"{name} = ?" for name in given)])
        values = (caller.tenant_id, *given.values())
        if self.listing.is_arranged:
            rows = self._state.rows(f"SELECT call FROM webhook_calls WHERE {where} ORDER BY number", *values)
            found, cursor = search.cut([json.loads(row["call"]) for row in rows], self.listing)
            return omit_empty(calls=found, cursor=cursor)
        (total,) = self._state.rows(f"SELECT count(*) FROM webhook_calls WHERE {where}", *values)[0]
        size = self.listing.page_size(search.size)
        start, cursor = search.place(size, total)
        place = "position" if self._settings.order == "created" else "''"
        rows = self._state.rows(
            f"SELECT call FROM webhook_calls WHERE {where} "
            f"ORDER BY {place} {search.order}, number {search.order} LIMIT ? OFFSET ?",
            *(*values, size, start),
        )
        return omit_empty(calls=[json.loads(row["call"]) for row in rows], cursor=cursor)

    def _call(self, id: str, at: int, **fields: str) -> dict[str, Any]:
        step = max(1, round(self._settings.resolution * 1e9))
        created_at = timestamp_from_ns(at // step * step)
        times = {"createdAt": created_at, "updatedAt": created_at}
        return {"id": id, "status": "success", "attempts": "1", **fields, **times}

    def _insert(self, tenant_id: str, calls: Iterable[dict[str, Any]]) -> None:
        names = ("id", "webhookId", "eventId", "status")
        self._state.write_many(
            "INSERT INTO webhook_calls VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            [
                (tenant_id, _position(call.get("createdAt")), *(_column(call.get(each)) for each in names), dumps(call))
                for call in calls
            ],
        )

    def _new_ids(self, number: int) -> list[str]:
        if self._settings.ids == "uuid":
            return [str(uuid.uuid4()) for _ in range(number)]
        first = self._state.load("next_call_id", _FIRST_ID)
        self._state.save("next_call_id", first + number)
        return [str(each) for each in range(first, first + number)]

    def _remove_old(self, tenant_id: str) -> None:
        if self._settings.max_age is not None:
            oldest = _position(timestamp(-self._settings.max_age))
            self._state.write("DELETE FROM webhook_calls WHERE tenant_id = ? AND position < ?", tenant_id, oldest)
        if self._settings.max_number is not None:
            self._state.write(
                "DELETE FROM webhook_calls WHERE number IN (SELECT number FROM webhook_calls WHERE tenant_id = ? "
                "ORDER BY position DESC, number DESC LIMIT -1 OFFSET ?)",
                *(tenant_id, self._settings.max_number),
            )


def _position(created_at: Any) -> str:
    """Return a sort key for a time. An invalid time counts as now."""
    found = _TIME.fullmatch(created_at) if isinstance(created_at, str) else None
    if found is None:
        return timestamp_from_ns(time.time_ns()).removesuffix("Z")
    return f"{found[1]}.{(found[2] or '').ljust(9, '0')}"


def _column(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else json.dumps(value)
