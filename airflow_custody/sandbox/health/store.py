"""Health entries, and their listing."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.wire import dumps, omit_none, timestamp_from_ns

Entry = dict[str, Any]

_RELATIVE_DATE = re.compile(r"\{now(?:([+-])(\d+(?:\.\d+)?)s)?\}")
_NAMESPACE = uuid.UUID("6f1c1f0e-6c1b-4c57-9d0e-6a3c5f3f0b11")


class HealthStore:
    """The store of health entries."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.reload()

    def reload(self) -> None:
        """Load the entries from the state, or else the default entries."""
        entries = self._state.load("health", None)
        self._entries: list[Entry] = default_entries() if entries is None else entries
        self._response: Any = self._state.load("health_response", None)
        self._texts: dict[str | None, str] = {}

    def listing(self, tenant_id: str | None) -> bytes:
        """Return a tenant's entries, or all entries, by group as JSON."""
        if tenant_id not in self._texts:
            self._texts = {tenant_id: dumps(self._build(tenant_id))}
        now = time.time_ns() + round(self._state.settings.clock_offset * 1e9)

        def date(found: re.Match[str]) -> str:
            return timestamp_from_ns(now + round(float((found[1] or "+") + (found[2] or "0")) * 1e9))

        return _RELATIVE_DATE.sub(date, self._texts[tenant_id]).encode()

    def set_health(self, entries: Sequence[Mapping[str, object]]) -> None:
        """
        Set the health entries.

        Each entry is listed unchanged under its `group`. A field that an entry leaves out is therefore missing in the
        response; :func:`health_entry` returns complete entries. Only placeholders such as ``{now}``, ``{now-5s}`` and
        ``{now+60s}`` are replaced by dates each time the listing is read.

        :param entries: the entries, in the order of the listing.
        """
        self._save(entries, None)

    def set_health_response(self, response: object) -> None:
        """
        Set the whole response of the health listing.

        :param response: the response, any JSON value. None: list the entries again.
        """
        self._save(self._entries, response)

    def update_health(
        self, /, group: str | None = None, component: str | None = None, check: str | None = None, **fields: object
    ) -> int:
        """
        Change fields of all matching health entries, and return their number.

        :param group: name of the group whose entries are changed. Default: all groups.
        :param component: name or id of the component whose entries are changed. Default: all components.
        :param check: name of the entries that are changed. Default: all names.
        :param fields: new values, by the names on the wire. None removes a field.
        """
        found = [
            entry
            for entry in self._entries
            if group in (None, entry.get("group"))
            and check in (None, entry.get("healthCheck"))
            and component in (None, entry.get("componentName"), entry.get("componentId"))
        ]
        if not found:
            raise not_found("a matching health entry")
        for entry in found:
            for name, value in fields.items():
                if value is None:
                    entry.pop(name, None)
                else:
                    entry[name] = value
        self._save(self._entries, self._response)
        return len(found)

    def _build(self, tenant_id: str | None) -> Any:
        if self._response is not None:
            return self._response
        groups: dict[str, dict[str, list[Entry]]] = {}
        for entry in self._entries:
            if tenant_id is None or str(entry.get("tenantId", "")) == tenant_id:
                groups.setdefault(entry["group"], {"healthChecks": []})["healthChecks"].append(entry)
        return {"groups": groups} if groups else {}

    def _save(self, entries: Sequence[Mapping[str, object]], response: object) -> None:
        if not all(isinstance(entry.get("group"), str) for entry in entries):
            raise invalid(
                "every entry must have a `group` of type text; for any other response, use set_health_response"
            )
        self._state.save("health", entries)
        self._state.save("health_response", response)
        self.reload()


def health_entry(
    group: str = "hsm",
    component: str = "hsm-1",
    check: str = "connectivity",
    *,
    tenant_id: str = "1",
    duration: str = "12.3ms",
    results: dict[str, str] | None = None,
    report: Mapping[str, object] | None = None,
    **fields: object,
) -> dict[str, Any]:
    """
    Return a complete, healthy and fresh health entry.

    :param group: the group under which it is listed. Default ``hsm``.
    :param component: name of the component. Its id is derived from name and tenant. Default ``hsm-1``.
    :param check: name of the check. Default ``connectivity``.
    :param tenant_id: id of the tenant. Default ``1``.
    :param duration: duration of the check, in the service's notation. Default ``12.3ms``.
    :param results: status words by key, for example by currency. Default: no results.
    :param report: fields to replace in the report. None removes the field.
    :param fields: fields to replace in the entry, by their names on the wire. None removes the field.
    """
    whole_report = {
        "name": check,
        "status": "success",
        "duration": duration,
        "results": results,
        **(report or {}),
    }
    entry: dict[str, Any] = {
        "tenantId": tenant_id,
        "componentName": component,
        "componentId": str(uuid.uuid5(_NAMESPACE, f"{tenant_id}/{component}")),
        "group": group,
        "healthCheck": check,
        "status": "success",
        "report": omit_none(whole_report),
        "lastUpdateDate": "{now-5s}",
        "validUntilDate": "{now+60s}",
    }
    return omit_none({**entry, **fields})


def default_entries() -> list[dict[str, Any]]:
    """Return the default entries, which cover every notation of a duration."""
    vault = {"hostPort": "vault-1.internal:8200", "connected": True, "lastPing": "{now-2s}"}
    coins = {"ETH": "success", "BTC": "success", "XRP": "success", "SOL": "success"}
    return [
        health_entry("hsm", "hsm-1", "connectivity", duration="850\u00b5s"),
        health_entry("hsm", "hsm-1", "vault", duration="12.3ms", report={"vaultdClients": [vault]}),
        health_entry("hsm", "hsm-2", "connectivity", tenant_id="2", duration="912\u03bcs"),
        health_entry("blockchain", "chain-gateway", "nodes", duration="1.5s", results=coins),
        health_entry("blockchain", "chain-gateway", "synchronisation", duration="1m2.5s", results={"ADA": "success"}),
        health_entry(
            "blockchain", "chain-gateway", "nodes", tenant_id="2", duration="75us", results={"XLM": "success"}
        ),
        health_entry("database", "database", "ping", duration="930ns"),
        health_entry("database", "database", "replication", duration="2ms", report={"message": "1 replica in step"}),
        health_entry("database", "database", "ping", tenant_id="2", duration="1.2ms"),
    ]
