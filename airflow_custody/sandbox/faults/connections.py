"""The TCP connections below the calls, for faults that break them."""

from __future__ import annotations

import asyncio

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

_Addresses = tuple[object, object]


class Connections:
    """The open connections, by the addresses of their two ends."""

    def __init__(self) -> None:
        self._open: dict[_Addresses, asyncio.Transport] = {}

    def find(self, scope: Scope) -> asyncio.Transport | None:
        """Return the connection a call came over, or None if it is closed."""
        return self._open.get((scope["client"], scope["server"]))

    def abort_all(self) -> None:
        """Close all connections at once, without sending what is pending."""
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
                # A new connection may have the same addresses by now.
                if connections.get((self.client, self.server)) is self.transport:
                    del connections[self.client, self.server]
                super().connection_lost(exc)

        return RegisteredProtocol
