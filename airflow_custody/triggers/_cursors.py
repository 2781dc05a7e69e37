"""The cursors of watchers of webhook calls, in the state stores of the assets that they watch for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError
from airflow_custody.triggers._waiting import within

if TYPE_CHECKING:
    from airflow_custody.client.webhooks.journal import CallCursor

STATE_KEY = "custody_webhook_calls"
#: Seconds that Airflow has for reading or writing a cursor.
STORE_TIMEOUT = 30.0


class CursorError(Exception):
    """Raised when a watcher has no cursor that it may go on from; the message says what to do."""

    def __str__(self) -> str:
        return f"{super().__str__()} {label('record-unreadable')}"


class CursorStore:
    """
    The store of a watcher's cursor: the state store of the asset that it watches for.

    :param store: Airflow's state store; None: there is none.
    :param name: the cursor's name.
    :param conn_id: id of the connection that the watcher reads with.
    """

    # The cursors of the watchers that run in this process.
    _in_use: ClassVar[dict[tuple[asyncio.AbstractEventLoop, str, str], CursorStore]] = {}

    def __init__(self, store: Any, name: str, conn_id: str) -> None:
        self._store = store
        self._name = name
        self._conn_id = conn_id
        self._claim: tuple[asyncio.AbstractEventLoop, str, str] | None = None
        self._stored: Any = None
        self.key = ""

    async def load(self) -> tuple[CallCursor | None, str]:
        """
        Return the cursor, None if there is none yet, and the service whose journal it was read from.

        :raises CursorError: if it cannot be had, or is another watcher's.
        """
        from airflow_custody.client.webhooks.journal import CallCursor

        if self._store is None:
            raise CursorError(
                "Airflow gives this trigger no state store. It keeps one for the trigger of an AssetWatcher, from "
                "Airflow 3.3 on"
            )
        self.release()
        self.key = f"{STATE_KEY}:{self._name}"
        claim = (asyncio.get_running_loop(), repr(self._store), self.key)
        if self._in_use.setdefault(claim, self) is not self:
            raise CursorError(
                f"another watcher of this asset is using the cursor {self._name!r}: give each a cursor_name of its own"
            )
        self._claim = claim
        try:
            self._stored = await self._get()
            if self._stored is None:
                return None, ""
            place = self._stored if isinstance(self._stored, Mapping) else {}
            return CallCursor.from_json(place.get("cursor")), str(place.get("service"))
        except ValueError as error:
            raise CursorError(
                "Airflow keeps state for a trigger of exactly one asset: give each asset's watcher a trigger with a "
                f"cursor_name of its own ({error})"
            ) from error
        except CustodyError as error:
            raise CursorError(
                f"the cursor in the asset's state store cannot be read: {error.text} Nothing is read until the key "
                f"{self.key!r} there is repaired, or deleted, which starts over as 'start' says"
            ) from error
        except Exception as error:
            raise CursorError(f"the cursor cannot be loaded ({why(error)}); it is tried again") from error

    async def save(self, cursor: CallCursor, service: str) -> bool:
        """
        Save the cursor, and the service whose journal it was read from.

        The stored value is read before: a triggerer that is about to end can still write and no longer read, and the
        events of its last moments are lost to it.

        :return: whether it was what this watcher had stored or loaded.
        """
        same: bool = await self._get() == self._stored
        stored = {"service": service, "conn_id": self._conn_id, "cursor": cursor.to_json()}
        await self._set(stored)
        self._stored = stored
        return same

    def release(self) -> None:
        """Leave the cursor to the next watcher."""
        if self._claim is not None:
            del self._in_use[self._claim]
            self._claim = None

    async def _get(self) -> Any:
        # The asynchronous methods came with Airflow 3.3.2. Before, one that hangs keeps its thread.
        if hasattr(self._store, "aget"):
            return await within(STORE_TIMEOUT, self._store.aget(self.key))
        return await within(STORE_TIMEOUT, asyncio.to_thread(self._store.get, self.key))

    async def _set(self, value: Any) -> None:
        if hasattr(self._store, "aset"):
            await within(STORE_TIMEOUT, self._store.aset(self.key, value))
        else:
            await within(STORE_TIMEOUT, asyncio.to_thread(self._store.set, self.key, value))


def why(exception: Exception) -> str:
    """Return an exception in words."""
    return f"{type(exception).__name__}: {exception}"
