"""The store of cursors of webhook calls: the state store that Airflow keeps for an asset, from Airflow 3.3 on."""

from __future__ import annotations

import asyncio
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


class CursorStore:
    """
    The store of one reader's cursor.

    :param store: Airflow's state store of the asset; None: there is none.
    :param key: the cursor's key in it.
    """

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self.key = key
        self._value: Any = None

    @property
    def is_there(self) -> bool:
        """Whether there is a state store."""
        return self._store is not None

    def __repr__(self) -> str:
        return f"{self._store!r} {self.key}"

    async def load_async(self) -> CallCursor | None:
        """Return the cursor, in a triggerer."""
        from airflow_custody.client.errors import CustodyError

        self._value = await self._ask("get")
        try:
            return from_stored(self._value)[0]
        except CustodyError as error:
            raise CustodyError(
                f"{error.text} Nothing is read until the key {self.key!r} in the asset's state store is repaired, or "
                "deleted, which starts over as 'start' says",
                code="record-unreadable",
            ) from error

    async def save_async(self, cursor: CallCursor) -> bool:
        """
        Store a cursor, in a triggerer, and return whether the one before was this reader's.

        The stored value is read before: a triggerer that is about to end can still write and no longer read, and the
        events of its last moments are lost to it.
        """
        is_own: bool = await self._ask("get") == self._value
        value = to_stored(cursor)
        await self._ask("set", value)
        self._value = value
        return is_own

    async def _ask(self, what: str, *arguments: Any) -> Any:
        return await ask_store(self._store, what, self.key, *arguments)


async def ask_store(store: Any, what: str, *arguments: Any) -> Any:
    """
    Call a method of an asset's state store, in a triggerer.

    :param store: the store.
    :param what: the method, ``get`` or ``set``.
    :param arguments: its arguments.
    """
    # The asynchronous methods came with Airflow 3.3.2.
    method = getattr(store, f"a{what}", None)
    return await (asyncio.to_thread(getattr(store, what), *arguments) if method is None else method(*arguments))
