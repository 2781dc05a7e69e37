"""Reading from a task's state, from outside, what the task has created. Pure functions, no I/O."""

from __future__ import annotations

import json
from typing import Any

from airflow_custody.client.errors import CustodyOutcomeUnknownError
from airflow_custody.idempotency import rows, store
from airflow_custody.idempotency.records import Created, Intent, digest, from_stored

#: The key of a task that creates one thing.
ONE = store.STATE_KEY
#: Prefix of the keys of a task that creates many.
MANY = rows.STATE_KEY


def has_created(key: str, value: str, identifier: str, base_url: str) -> bool | None:
    """
    Tell whether a row of the task state store says that the task has created something at a service.

    :param key: the row's key.
    :param value: its value, JSON text, as the database has it.
    :param identifier: the id of what was created.
    :param base_url: base URL of the service.
    :return: None: it has created something with this id, and it is not known at which service.
    """
    try:
        stored = json.loads(value)
        if key == ONE:
            record = from_stored(stored)
            if not isinstance(record, Created) or record.id != identifier:
                return False
            return _is_of(
                record.attempt.content.get("service") if isinstance(record.attempt, Intent) else None, base_url
            )
        # The window that is open stands in the row with the progress.
        window = stored.get("window", {}) if key == MANY else stored
        is_created = any(state == "created" and detail == identifier for state, detail in _rows(window))
        return is_created and _is_of(window.get("service"), base_url)
    except (AttributeError, CustodyOutcomeUnknownError, RecursionError, TypeError, ValueError):
        # Another version's, or not ours.
        return False


def _is_of(service: object, base_url: str) -> bool | None:
    """Tell whether the stored digest of a service's base URL is that of this one."""
    return service == digest(base_url) if service and base_url else None


def _rows(window: Any) -> list[tuple[Any, Any]]:
    return [(state, detail) for state, detail, *_ in window.get("rows", {}).values()]
