"""The health entries, and their listing."""

from __future__ import annotations

import re
import time
from typing import Any

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.health.entries import default_entries
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.wire import dumps, timestamp_from_ns

Entry = dict[str, Any]

_RELATIVE_DATE = re.compile(r"\{now(?:([+-])(\d+(?:\.\d+)?)s)?\}")
_MAX_CACHED = 64


class HealthStore:
    """The store of health entries."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.load()

    def load(self) -> None:
        """Load the entries from the state, or begin with the default ones."""
        entries = self._state.get_setting("health", None)
        self._entries: list[Entry] = default_entries() if entries is None else entries
        self._response: Any = self._state.get_setting("health_response", None)
        self._templates: dict[str | None, _Template] = {}

    def listing(self, tenant_id: str | None) -> bytes:
        """Return the listing by group, as JSON; None lists the entries of all tenants."""
        template = self._templates.get(tenant_id)
        if template is None:
            if len(self._templates) >= _MAX_CACHED:
                self._templates.clear()
            template = self._templates[tenant_id] = _Template(self._build(tenant_id))
        return template.render()

    def set(self, entries: list[Entry]) -> None:
        """Replace all entries by these, exactly as they are."""
        for entry in entries:
            if not isinstance(entry.get("group"), str):
                raise invalid("every entry needs a text `group`; to test anything else, set the whole response")
        self._entries = entries
        self._response = None
        self._save()

    def set_response(self, response: Any) -> None:
        """Replace the listing by this value, whatever it is; None goes back to the entries."""
        self._response = response
        self._save()

    def update(self, group: str | None, component: str | None, check: str | None, fields: dict[str, Any]) -> int:
        """Change fields of every matching entry, remove those that are None, and return how many entries match."""
        found = [
            entry
            for entry in self._entries
            if _matches(entry, "group", group)
            and _matches(entry, "healthCheck", check)
            and (_matches(entry, "componentName", component) or _matches(entry, "componentId", component))
        ]
        if not found:
            raise not_found("a matching health entry")
        if "group" in fields and not isinstance(fields["group"], str):
            raise invalid("`group` must be a text; to test anything else, set the whole response")
        for entry in found:
            for name, value in fields.items():
                if value is None:
                    entry.pop(name, None)
                else:
                    entry[name] = value
        self._save()
        return len(found)

    def _build(self, tenant_id: str | None) -> Any:
        if self._response is not None:
            return self._response
        groups: dict[str, dict[str, list[Entry]]] = {}
        for entry in self._entries:
            if tenant_id is None or str(entry.get("tenantId", "")) == tenant_id:
                groups.setdefault(entry["group"], {"healthChecks": []})["healthChecks"].append(entry)
        return {"groups": groups} if groups else {}

    def _save(self) -> None:
        self._templates.clear()
        self._state.set_setting("health", self._entries)
        self._state.set_setting("health_response", self._response)


class _Template:
    """JSON text in which only the relative dates are left to fill in, so that a long listing is quick to write."""

    def __init__(self, value: Any) -> None:
        self._text = dumps(value)
        self._offsets = {
            date.group(): round(float((date[1] or "+") + (date[2] or "0")) * 1e9)
            for date in _RELATIVE_DATE.finditer(self._text)
        }

    def render(self) -> bytes:
        """Return the text with dates relative to now."""
        now = time.time_ns()
        text = self._text
        for date, offset in self._offsets.items():
            text = text.replace(date, timestamp_from_ns(now + offset))
        return text.encode()


def _matches(entry: Entry, name: str, value: str | None) -> bool:
    return value is None or entry.get(name) == value
