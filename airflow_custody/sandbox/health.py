"""Keep the health entries and write their listings quickly."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from airflow_custody.sandbox.entries import default_entries
from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.wire import dumps, stamp_ns

Entry = dict[str, Any]

_MOVING = re.compile(r"\{now(?:([+-])(\d+(?:\.\d+)?)s)?\}")
_MAX_CACHED = 64


class Listing:
    """Hold JSON text in which only the moving dates are left open."""

    def __init__(self, value: Any) -> None:
        self._text = dumps(value)
        self._moving = {
            mark.group(): round(float((mark[1] or "+") + (mark[2] or "0")) * 1e9)
            for mark in _MOVING.finditer(self._text)
        }

    def render(self) -> bytes:
        """Write the text with the dates of this moment."""
        now = time.time_ns()
        text = self._text
        for mark, offset in self._moving.items():
            text = text.replace(mark, stamp_ns(now + offset))
        return text.encode()


class HealthBoard:
    """Answer what the health operations ask.

    The listing is part of the given interface; the narrower ones and `failIfUnhealthy` are published
    knowledge.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.load()

    def load(self) -> None:
        """Read the entries from the state, or begin with the default ones."""
        entries = self._state.setting("health", None)
        self._entries: list[Entry] = default_entries() if entries is None else entries
        self._answer: Any = self._state.setting("health_answer", None)
        self._cache: dict[tuple[str | None, ...], Listing] = {}

    def set(self, entries: list[Entry]) -> None:
        """Show these entries, exactly as they are."""
        for entry in entries:
            if not isinstance(entry.get("group"), str):
                raise invalid(
                    "an entry needs a text `group` to be listed under; for anything else set the whole answer"
                )
        self._entries = entries
        self._answer = None
        self._changed()

    def set_answer(self, answer: Any) -> None:
        """Answer the listing with this, whatever it is; None goes back to the entries."""
        self._answer = answer
        self._changed()

    def update(self, group: str | None, component: str | None, check: str | None, fields: dict[str, Any]) -> int:
        """Change fields of every entry that matches, remove those given as None, and count the entries."""
        found = [
            entry
            for entry in self._entries
            if _wanted(entry, "group", group)
            and _wanted(entry, "healthCheck", check)
            and (_wanted(entry, "componentName", component) or _wanted(entry, "componentId", component))
        ]
        if not found:
            raise not_found("a matching health entry")
        if "group" in fields and not isinstance(fields["group"], str):
            raise invalid("`group` must stay a text; for anything else set the whole answer")
        for entry in found:
            for name, value in fields.items():
                if value is None:
                    entry.pop(name, None)
                else:
                    entry[name] = value
        self._changed()
        return len(found)

    def all(self, tenant_id: str | None) -> bytes:
        """List every entry by group."""
        if self._answer is not None:
            return self._render(("answer",), lambda: self._answer)
        return self._render(("all", tenant_id), lambda: _groups(self.select(tenant_id)))

    def by_component(self, tenant_id: str | None) -> bytes:
        """List every entry by component, then by group."""

        def build() -> Any:
            components: dict[str, list[Entry]] = {}
            for entry in self.select(tenant_id):
                components.setdefault(str(entry.get("componentName", "")), []).append(entry)
            listed = {name: _groups(entries) for name, entries in components.items()}
            return {"components": listed} if listed else {}

        return self._render(("components", tenant_id), build)

    def of_group(self, tenant_id: str | None, group: str) -> bytes:
        """List the entries of one group."""
        if not self.select(None, group):
            raise not_found(f"health group {group}")

        def build() -> Any:
            entries = self.select(tenant_id, group)
            return {"healths": entries} if entries else {}

        return self._render(("group", tenant_id, group), build)

    def one(self, tenant_id: str | None, group: str, check: str) -> bytes:
        """Show one check of a group; where several components run it, the first (a guess)."""
        entries = self.select(tenant_id, group, check)
        if not entries:
            raise not_found(f"health check {group}/{check}")
        return self._render(("one", tenant_id, group, check), lambda: {"health": entries[0]})

    def select(self, tenant_id: str | None, group: str | None = None, check: str | None = None) -> list[Entry]:
        """Pick entries by tenant, group and check."""
        return [
            entry
            for entry in self._entries
            if (tenant_id is None or str(entry.get("tenantId", "")) == tenant_id)
            and _wanted(entry, "group", group)
            and _wanted(entry, "healthCheck", check)
        ]

    def _render(self, key: tuple[str | None, ...], build: Callable[[], Any]) -> bytes:
        listing = self._cache.get(key)
        if listing is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            listing = self._cache[key] = Listing(build())
        return listing.render()

    def _changed(self) -> None:
        self._cache.clear()
        self._state.set("health", self._entries)
        self._state.set("health_answer", self._answer)


def unhealthy(entries: Iterable[Entry]) -> list[str]:
    """Name the checks that do not look well.

    `success` is part of the given interface, `HEALTHY` is published knowledge; that any other word counts as
    unhealthy is a guess.
    """
    return [
        f"{entry.get('group')}/{entry.get('healthCheck')} of {entry.get('componentName')}"
        for entry in entries
        if str(entry.get("status", "")).lower() not in ("success", "healthy")
    ]


def _groups(entries: Iterable[Entry]) -> Any:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry["group"], []).append(entry)
    listed = {name: {"healthChecks": checks} for name, checks in groups.items()}
    return {"groups": listed} if listed else {}


def _wanted(entry: Entry, name: str, value: str | None) -> bool:
    return value is None or entry.get(name) == value
