"""The stored form of the cursors of webhook calls, in an asset's state store and in events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.client.webhooks.calls import CallCursor


def to_stored(cursor: CallCursor, **facts: Any) -> dict[str, Any]:
    """Return a cursor as it is stored, in an asset's state store and in events, with facts about its reader."""
    return {**facts, "cursor": cursor.to_json()}


def from_stored(value: Any) -> tuple[CallCursor | None, Mapping[str, Any]]:
    """
    Return a cursor that was stored, and the facts; None: there is none.

    :raises CustodyRequestError: if it cannot be read.
    """
    from airflow_custody.client.webhooks.calls import CallCursor

    if value is None:
        return None, {}
    return CallCursor.from_json(value.get("cursor") if isinstance(value, Mapping) else value), value
