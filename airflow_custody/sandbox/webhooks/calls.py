"""The journal of calls to webhooks."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from airflow_custody.sandbox.listings import Listing, Paging
from airflow_custody.sandbox.settings import CallSettings
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.wire import dumps, omit_empty, timestamp, timestamp_from_ns

# `position` is the time by which listings are ordered.
_TABLES = """
CREATE TABLE IF NOT EXISTS webhook_calls (
    number INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, position TEXT NOT NULL, call TEXT NOT NULL
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
# The first id of a call. It is large, so that it differs from ids that tests choose themselves, which are often small.
_FIRST_ID = 100_001


class CallSearch(Paging):
    """The parameters that select calls."""

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

    def add_webhook_call(self, /, tenant_id: str = "1", **call: object) -> None:
        """
        Add a call to a webhook, with any fields.

        :param tenant_id: id of the tenant. Default ``1``.
        :param call: the fields, by their names on the wire.
        """
        self._insert(tenant_id, [call])

    def add_webhook_calls(
        self, /, number: int, *, age: float = 0.0, spacing: float = 0.001, tenant_id: str = "1", **fields: object
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
        data: Mapping[str, object] | None = None,
        *,
        age: float = 0.0,
    ) -> list[dict[str, Any]]:
        """
        Add a call to each webhook of a type, and return the calls.

        The payload has the published form: ``{"type": ..., "createdAt": ..., "data": {...}}``. Disabled webhooks get no
        call.

        :param webhook_type: the type of the webhooks.
        :param data: what the event is about. Default: a sample for the type, such as
            ``{"requestId": 123, "status": "APPROVED"}``.
        :param age: age of the calls, in seconds. With an age, the calls appear late: they are listed below calls that a
            client may have read already. Default 0.
        """
        at, event_id = time.time_ns() - round(age * 1e9), str(uuid.uuid4())
        rows = self._state.rows(
            "SELECT * FROM webhooks WHERE tenant_id = ? AND type = ? ORDER BY number", "1", webhook_type
        )
        webhooks = [row["id"] for row in rows if row["status"] != "disabled"]
        data = _DATA.get(webhook_type, {}) if data is None else data
        payload = dumps({"type": webhook_type, "createdAt": timestamp_from_ns(at), "data": data})
        calls = [
            self._call(each, at, eventId=event_id, webhookId=webhook, payload=payload)
            for each, webhook in zip(self._new_ids(len(webhooks)), webhooks, strict=True)
        ]
        self._insert("1", calls)
        return calls

    def find(self, caller: Caller, search: CallSearch) -> dict[str, Any]:
        """Return one page of the webhook calls of the caller's tenant."""
        self._remove_old(caller.tenant_id)
        search = self.listing.understood(search)
        source = "FROM webhook_calls WHERE tenant_id = ?"
        if self.listing.is_arranged:
            rows = self._state.rows(f"SELECT call {source} ORDER BY number", caller.tenant_id)
            found, cursor = search.cut([json.loads(row["call"]) for row in rows], self.listing)
            return omit_empty(calls=found, cursor=cursor)
        (total,) = self._state.rows(f"SELECT count(*) {source}", caller.tenant_id)[0]
        size = self.listing.page_size(search.size)
        start, cursor = search.place(size, total)
        place = "position" if self._settings.order == "created" else "''"
        rows = self._state.rows(
            f"SELECT call {source} ORDER BY {place} {search.order}, number {search.order} LIMIT ? OFFSET ?",
            *(caller.tenant_id, size, start),
        )
        return omit_empty(calls=[json.loads(row["call"]) for row in rows], cursor=cursor)

    def _call(self, id: str, at: int, **fields: str) -> dict[str, Any]:
        step = max(1, round(self._settings.resolution * 1e9))
        created_at = timestamp_from_ns(at // step * step)
        times = {"createdAt": created_at, "updatedAt": created_at}
        return {"id": id, "status": "success", "attempts": "1", **fields, **times}

    def _insert(self, tenant_id: str, calls: Iterable[dict[str, Any]]) -> None:
        self._state.write_many(
            "INSERT INTO webhook_calls VALUES (NULL, ?, ?, ?)",
            [(tenant_id, _position(call.get("createdAt")), dumps(call)) for call in calls],
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
