"""Health entries: those of a fresh sandbox, and single ones for tests."""

from __future__ import annotations

import uuid
from typing import Any

from airflow_custody.sandbox.wire import omit_none

# The store replaces such a date at each read, so that an entry stays fresh for ever.
JUST_NOW = "{now-5s}"
SOON = "{now+60s}"

_NAMESPACE = uuid.UUID("6f1c1f0e-6c1b-4c57-9d0e-6a3c5f3f0b11")


def health_entry(
    group: str = "hsm",
    component: str = "hsm-1",
    check: str = "connectivity",
    *,
    tenant_id: str = "1",
    duration: str = "12.3ms",
    results: dict[str, str] | None = None,
    report: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """
    Return a complete, healthy and fresh entry.

    :param group: the group that it is listed under. Default ``hsm``.
    :param component: name of the component; its id is made of it. Default ``hsm-1``.
    :param check: name of the check. Default ``connectivity``.
    :param tenant_id: id of the tenant. Default ``1``.
    :param duration: how long the check took, in the service's notation. Default ``12.3ms``.
    :param results: status words by key, for example by currency. None (default): none.
    :param report: fields to replace in the report, or to remove if they are None.
    :param fields: fields to replace in the entry, by their names on the wire, or to remove if they are None.
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
        "lastUpdateDate": JUST_NOW,
        "validUntilDate": SOON,
    }
    return omit_none({**entry, **fields})


def default_entries() -> list[dict[str, Any]]:
    """Return the entries of a fresh sandbox: three groups, two tenants, every way to write a duration."""
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
