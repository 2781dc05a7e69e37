"""Hold calls up in a way that can be called off."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Pauses:
    """Know which calls wait; lives on the server's event loop."""

    def __init__(self) -> None:
        self._off = asyncio.Event()
        self._closed = False

    async def wait(self, seconds: float) -> bool:
        """Wait, and tell whether to go on: not if the pauses were called off meanwhile."""
        off = self._off
        if seconds:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(off.wait(), seconds)
        else:
            # Let others have their turn.
            await asyncio.sleep(0)
        return not (off.is_set() or self._closed)

    def call_off(self) -> None:
        """End every pause that has begun."""
        self._off.set()
        self._off = asyncio.Event()

    def close(self) -> None:
        """End every pause that has begun or will begin."""
        self._closed = True
        self._off.set()
