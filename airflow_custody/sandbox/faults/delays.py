"""Delays that can be cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Delays:
    """The delays of calls; belongs to the server's event loop."""

    def __init__(self) -> None:
        self._cancelled = asyncio.Event()
        self._closed = False

    async def wait(self, seconds: float) -> bool:
        """Wait, and return False if the delay was cancelled meanwhile."""
        cancelled = self._cancelled
        if seconds:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(cancelled.wait(), seconds)
        else:
            # Let other calls run.
            await asyncio.sleep(0)
        return not (cancelled.is_set() or self._closed)

    def cancel(self) -> None:
        """Cancel every delay that has begun."""
        self._cancelled.set()
        self._cancelled = asyncio.Event()

    def close(self) -> None:
        """Cancel every delay that has begun or will begin."""
        self._closed = True
        self._cancelled.set()
