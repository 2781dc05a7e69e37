"""The open TCP connections, and delays of calls. Both can be aborted."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connections:
    """
    The open connections, by the addresses of both ends.

    Use it only on the server's event loop.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[object, object], asyncio.Transport] = {}
        self._cut_off = asyncio.Event()
        self._closed = False

    def find(self, scope: Scope) -> asyncio.Transport | None:
        """Return the connection of a call; None if the connection is closed."""
        transport = self._open.get((scope["client"], scope["server"]))
        return None if transport is None or transport.is_closing() else transport

    async def wait(self, seconds: float) -> bool:
        """Delay a call, and return False if it was aborted meanwhile."""
        cut_off = self._cut_off
        if seconds:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(cut_off.wait(), seconds)
        else:
            # Yield to the event loop, so that other calls run.
            await asyncio.sleep(0)
        return not (cut_off.is_set() or self._closed)

    def cut_off_delays(self) -> None:
        """Abort all calls that are currently delayed."""
        self._cut_off.set()
        self._cut_off = asyncio.Event()

    def close(self) -> None:
        """Abort all connections and delays, without sending pending data."""
        self._closed = True
        self._cut_off.set()
        for transport in list(self._open.values()):
            transport.abort()

    def protocol(self) -> type[H11Protocol]:
        """Return a protocol class for uvicorn that registers its connections here."""
        connections = self._open

        class RegisteredProtocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                connections[self.client, self.server] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                # Remove only this connection, because a new connection may have the same addresses by now.
                if connections.get((self.client, self.server)) is self.transport:
                    del connections[self.client, self.server]
                super().connection_lost(exc)

        return RegisteredProtocol
