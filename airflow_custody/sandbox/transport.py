"""Reach the TCP connection below a call, to break it."""

from __future__ import annotations

import asyncio

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

_Ends = tuple[object, object]


class Connections:
    """Know the open connections by their two ends."""

    def __init__(self) -> None:
        self._open: dict[_Ends, asyncio.Transport] = {}

    def of(self, scope: Scope) -> asyncio.Transport | None:
        """Find the connection a call came over, unless it is gone already."""
        return self._open.get((scope["client"], scope["server"]))

    def abort_all(self) -> None:
        """Close all of them at once, whatever is under way."""
        for transport in list(self._open.values()):
            transport.abort()

    def protocol(self) -> type[H11Protocol]:
        """Make a protocol class for uvicorn that keeps this register up to date."""
        connections = self._open

        class RegisteredProtocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                connections[self.client, self.server] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                # A new connection may have the same two ends by now.
                if connections.get((self.client, self.server)) is self.transport:
                    del connections[self.client, self.server]
                super().connection_lost(exc)

        return RegisteredProtocol
