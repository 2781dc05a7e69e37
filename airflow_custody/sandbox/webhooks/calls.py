"""The journal of calls to webhooks."""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
import time
import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.listings import Listing
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.webhooks.paging import DEFAULT_PAGE_SIZE, Paging
from airflow_custody.sandbox.wire import dumps, omit_empty, timestamp_from_ns

# The columns beside the call itself are what it is found by. `position` is the time by which it is listed.
_TABLES = """
CREATE TABLE IF NOT EXISTS webhook_calls (
    number INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, position TEXT NOT NULL, id TEXT, webhook_id TEXT,
    event_id TEXT, status TEXT, call TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS webhook_calls_by_position ON webhook_calls (tenant_id, position, number);
CREATE TABLE IF NOT EXISTS status_changes (
    number INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, request_id INTEGER NOT NULL, status TEXT NOT NULL,
    changed_at REAL NOT NULL
);
CREATE TRIGGER IF NOT EXISTS whitelist_status_changes AFTER UPDATE OF status ON whitelist
WHEN old.status != new.status AND EXISTS (SELECT 1 FROM settings WHERE name = 'whitelist_events' AND value = 'true')
BEGIN
    INSERT INTO status_changes
    VALUES (NULL, new.tenant_id, new.id, new.status, (julianday('now') - 2440587.5) * 86400);
END;
"""
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z")
# Calls that a test adds itself often have small numbers.
_FIRST_ID = 100_001
_WHITELIST_TYPE = "requestStatus.updated"


class CallBehaviour(BaseModel):
    """How the service writes, keeps and lists calls. None of this is published."""

    model_config = ConfigDict(extra="forbid")

    paging: Literal["offset", "keyset"] = "offset"
    order: Literal["created", "written"] = "created"
    ids: Literal["number", "uuid"] = "number"
    resolution: Annotated[float, Field(ge=0)] = 0.0
    writes_when_disabled: bool = False
    writes_when_cooling_down: bool = True
    max_age: Annotated[float, Field(ge=0)] | None = None
    max_number: Annotated[int, Field(ge=0)] | None = None


class CallStore:
    """
    The store of calls to webhooks.

    :param state: the sandbox's state, which has the tables of whitelisting requests and of webhooks.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        #: How the listing behaves.
        self.listing = Listing(state, "webhook-calls")
        state.create_tables(_TABLES)

    @property
    def behaviour(self) -> CallBehaviour:
        """How calls are written, kept and listed."""
        return CallBehaviour.model_validate(self._state.get_setting("call_behaviour", {}))

    def set_behaviour(self, behaviour: CallBehaviour) -> None:
        """Set how calls are written, kept and listed."""
        self._state.set_setting("call_behaviour", behaviour.model_dump())

    def set_whitelist_events(self, enabled: bool) -> None:
        """Set whether a call is written when the status of a whitelisting request changes; the service has none."""
        self._state.set_setting("whitelist_events", enabled)

    def add(self, tenant_id: str, call: dict[str, Any]) -> None:
        """Add a call, whatever its values."""
        self._insert(tenant_id, [call])

    def add_many(self, number: int, *, tenant_id: str, age: float, spacing: float, fields: dict[str, Any]) -> list[str]:
        """Add calls with these fields, one after the other, the first with this age in seconds; return their ids."""
        behaviour = self.behaviour
        first, step = time.time_ns() - round(age * 1e9), round(spacing * 1e9)
        ids = self._new_ids(number, behaviour)
        calls = [
            _call(each, _dated(first + index * step, behaviour), eventId=f"event-{each}", webhookId="", payload="{}")
            | fields
            for index, each in enumerate(ids)
        ]
        self._insert(tenant_id, calls)
        return ids

    def send_event(
        self, webhook_type: str, payload: Any, *, tenant_id: str, event_id: str | None, age: float, status: str
    ) -> list[dict[str, Any]]:
        """Write a call for each webhook of a type, unless its state keeps it from that, and return the calls."""
        self._write_status_changes()
        at = time.time_ns() - round(age * 1e9)
        return self._write_event(webhook_type, payload, tenant_id, event_id or str(uuid.uuid4()), at, status)

    def find(
        self, caller: Caller, *, filters: dict[str, str | None], descending: bool, paging: Paging
    ) -> dict[str, Any]:
        """Return one page of the calls to webhooks of the caller's tenant."""
        behaviour = self.behaviour
        self._write_status_changes()
        self._remove_old(caller.tenant_id, behaviour)
        given = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(["tenant_id = ?", *(f"{name} = ?" for name in given)])
        values = (caller.tenant_id, *given.values())
        key = "position, number" if behaviour.order == "created" else "'', number"
        if self.listing.is_arranged:
            rows = self._state.rows(f"SELECT call FROM webhook_calls WHERE {where} ORDER BY number", *values)
            found, cursor = paging.cut([json.loads(row["call"]) for row in rows], self.listing)
            return omit_empty(calls=found, cursor=cursor)
        find = self._find_by_key if behaviour.paging == "keyset" else self._find_by_offset
        size = self.listing.page_size(paging.size or DEFAULT_PAGE_SIZE)
        rows, cursor = find(where, values, key, descending, paging, size)
        return omit_empty(calls=[json.loads(row["call"]) for row in rows], cursor=cursor)

    def _find_by_offset(
        self, where: str, values: tuple[str, ...], key: str, descending: bool, paging: Paging, size: int
    ) -> tuple[list[sqlite3.Row], dict[str, Any]]:
        (total,) = self._state.rows(f"SELECT count(*) FROM webhook_calls WHERE {where}", *values)[0]
        start = paging.start(total, size)
        rows = self._state.rows(
            f"SELECT call FROM webhook_calls WHERE {where} ORDER BY {_directed(key, descending)} LIMIT ? OFFSET ?",
            *(*values, size, start),
        )
        return rows, paging.cursor(start, size, total)

    def _find_by_key(
        self, where: str, values: tuple[str, ...], key: str, descending: bool, paging: Paging, size: int
    ) -> tuple[list[sqlite3.Row], dict[str, Any]]:
        """Return a page that begins after the last row of the page before, or ends before the first of the next."""
        backwards = paging.request in ("PREVIOUS", "LAST")
        known = () if paging.request in ("FIRST", "LAST") else _read_key(paging.current, backwards)
        after = f" AND ({key}) {'<' if descending is not backwards else '>'} (?, ?)" if known else ""
        rows = self._state.rows(
            f"SELECT call, {key.split(', ')[0]} AS place, number FROM webhook_calls WHERE {where}{after} "
            f"ORDER BY {_directed(key, descending is not backwards)} LIMIT ?",
            *(*values, *known, size + 1),
        )
        more, rows = len(rows) > size, rows[:size]
        if backwards:
            rows.reverse()
        has_next = paging.request == "PREVIOUS" or (more and not backwards)
        has_previous = paging.request == "NEXT" or (more and backwards)
        return rows, omit_empty(currentPage=_write_key(rows), hasPrevious=has_previous, hasNext=has_next)

    def _write_status_changes(self) -> None:
        """Write the calls for requests whose status has changed since calls were last listed."""
        changes = self._state.rows("SELECT * FROM status_changes ORDER BY number")
        if not changes:
            return
        self._state.write("DELETE FROM status_changes WHERE number <= ?", changes[-1]["number"])
        for each in changes:
            payload = {"requestId": str(each["request_id"]), "status": each["status"]}
            event_id = f"whitelist-{each['request_id']}-{each['number']}"
            at = round(each["changed_at"] * 1e9)
            self._write_event(_WHITELIST_TYPE, payload, each["tenant_id"], event_id, at, "success")

    def _write_event(
        self, webhook_type: str, payload: Any, tenant_id: str, event_id: str, at: int, status: str
    ) -> list[dict[str, Any]]:
        behaviour, now = self.behaviour, timestamp_from_ns(time.time_ns())
        webhooks = [
            row["id"]
            for row in self._state.rows(
                "SELECT * FROM webhooks WHERE tenant_id = ? AND type = ? ORDER BY number", tenant_id, webhook_type
            )
            if _writes(row, behaviour, now)
        ]
        text = payload if isinstance(payload, str) else dumps(payload)
        ids = self._new_ids(len(webhooks), behaviour)
        calls = [
            _call(each, _dated(at, behaviour), eventId=event_id, webhookId=webhook, payload=text, status=status)
            for each, webhook in zip(ids, webhooks, strict=True)
        ]
        self._insert(tenant_id, calls)
        return calls

    def _insert(self, tenant_id: str, calls: Iterable[dict[str, Any]]) -> None:
        names = ("id", "webhookId", "eventId", "status")
        self._state.write_many(
            "INSERT INTO webhook_calls VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            [
                (tenant_id, _position(call.get("createdAt")), *(_column(call.get(each)) for each in names), dumps(call))
                for call in calls
            ],
        )

    def _new_ids(self, number: int, behaviour: CallBehaviour) -> list[str]:
        if behaviour.ids == "uuid":
            return [str(uuid.uuid4()) for _ in range(number)]
        first = self._state.get_setting("next_call_id", _FIRST_ID)
        self._state.set_setting("next_call_id", first + number)
        return [str(each) for each in range(first, first + number)]

    def _remove_old(self, tenant_id: str, behaviour: CallBehaviour) -> None:
        if behaviour.max_age is not None:
            oldest = _position(timestamp_from_ns(time.time_ns() - round(behaviour.max_age * 1e9)))
            self._state.write("DELETE FROM webhook_calls WHERE tenant_id = ? AND position < ?", tenant_id, oldest)
        if behaviour.max_number is not None:
            self._state.write(
                "DELETE FROM webhook_calls WHERE number IN (SELECT number FROM webhook_calls WHERE tenant_id = ? "
                "ORDER BY position DESC, number DESC LIMIT -1 OFFSET ?)",
                *(tenant_id, behaviour.max_number),
            )


def _call(id: str, created_at: str, **fields: str) -> dict[str, Any]:
    times = {"createdAt": created_at, "updatedAt": created_at}
    return {"id": id, "status": "success", "attempts": "1", **fields, **times}


def _dated(at: int, behaviour: CallBehaviour) -> str:
    step = max(1, round(behaviour.resolution * 1e9))
    return timestamp_from_ns(at // step * step)


def _writes(webhook: sqlite3.Row, behaviour: CallBehaviour, now: str) -> bool:
    if webhook["status"] == "disabled":
        return behaviour.writes_when_disabled
    if webhook["status"] != "enabled" or webhook["timeout_until"] > now:
        return behaviour.writes_when_cooling_down
    return True


def _position(created_at: Any) -> str:
    """Return a text that sorts as the time does; what is no time sorts as if it were now."""
    found = _TIME.fullmatch(created_at) if isinstance(created_at, str) else None
    if found is None:
        return timestamp_from_ns(time.time_ns()).removesuffix("Z")
    return f"{found[1]}.{(found[2] or '').ljust(9, '0')}"


def _column(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else json.dumps(value)


def _directed(key: str, descending: bool) -> str:
    return ", ".join(f"{each} DESC" if descending else each for each in key.split(", "))


def _write_key(rows: list[sqlite3.Row]) -> str:
    if not rows:
        return ""
    ends = [[row["place"], row["number"]] for row in (rows[0], rows[-1])]
    return base64.urlsafe_b64encode(json.dumps(ends).encode()).decode()


def _read_key(page: str | None, backwards: bool) -> tuple[str, int]:
    try:
        first, last = json.loads(base64.urlsafe_b64decode(page or ""))
        place, number = first if backwards else last
        return str(place), int(number)
    except (binascii.Error, ValueError, TypeError):
        raise invalid("cursor.currentPage: not a page of this listing") from None
