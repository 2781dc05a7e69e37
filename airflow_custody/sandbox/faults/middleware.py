"""Middleware that logs every call to the service, and injects faults."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_custody.sandbox.faults.store import Fault
from airflow_custody.sandbox.service import Service

_BODILESS_STATUSES = (204, 304)
_CHUNK_BYTES = 64 * 1024

_logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]


class _Disconnect(Exception):
    """Raised to close the connection without sending the rest of the data."""


@dataclass
class _Response:
    """A response that has not been sent yet."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""

    def head(self) -> bytes:
        """Return status line and headers as bytes, with ``Connection: close``."""
        lines = [f"HTTP/1.1 {self.status} ".encode()]
        lines += [name + b": " + value for name, value in [*self.headers, (b"connection", b"close")]]
        return b"\r\n".join([*lines, b"", b""])


class FaultMiddleware:
    """
    Logs calls and injects faults.

    This is a plain ASGI middleware, because FastAPI's own kind of middleware can neither break connections nor handle
    the responses to unexpected errors.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._faults = service.faults
        self._connections = service.connections
        self._request_log = service.request_log
        self._state = service.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or f"{path}/".startswith("/sandbox/"):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return
        record = self._request_log.add(scope, body)
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        fault = self._faults.take(scope["method"], path, query) or Fault()
        record["fault"] = fault.kind if fault.model_fields_set else None
        try:
            await self._delay(fault.delay)
            response = _response(200, "application/json", b"{}")
            if fault.does_work:
                response = await self._call_app(scope, receive, body)
            await self._delay(fault.delay_after)
            if fault.kind == "drop":
                raise _Disconnect
            response = _replace(response, fault)
            record["status"] = response.status
            # The service dates its responses by its own clock.
            date = formatdate(time.time() + self._state.settings.clock_offset, usegmt=True)
            response.headers = [*response.headers, (b"date", date.encode())]
            await self._send(scope, receive, send, fault, response)
        except _Disconnect:
            await self._disconnect(scope, receive, abort=True)

    async def _call_app(self, scope: Scope, receive: Receive, body: bytes) -> _Response:
        """Call the application, and return its response without sending it."""
        response = _Response(500)
        unread = [body]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                response.status = message["status"]
                response.headers = list(message["headers"])
            else:
                response.body += message.get("body", b"")

        try:
            await self._app(scope, replay, collect)
        except Exception:
            # The application wrote a 500 response before it raised the exception.
            _logger.exception("The sandbox failed")
        return response

    async def _send(self, scope: Scope, receive: Receive, send: Send, fault: Fault, response: _Response) -> None:
        if fault.kind in ("truncate_body", "truncate_headers"):
            self._send_raw(scope, fault, response)
            await self._disconnect(scope, receive)
            return
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        if fault.kind in ("trickle", "large"):
            pieces = self._padding(scope, fault.size)
            if fault.kind == "trickle":
                pieces = self._pieces(scope, response.body, fault)
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            response.body = b""
        await send({"type": "http.response.body", "body": response.body})

    def _send_raw(self, scope: Scope, fault: Fault, response: _Response) -> None:
        """Write to the TCP connection, because uvicorn sends only complete responses."""
        transport = self._connections.find(scope)
        if transport is None:
            return
        head = response.head()
        if fault.kind == "truncate_body":
            keep = len(response.body) // 2 if fault.keep is None else fault.keep
            transport.write(head + response.body[:keep])
        else:
            # Stop in the middle of a header's name, so that no client considers the headers complete.
            transport.write(head[: head.lower().index(b"content-length") + len("content-")])

    async def _disconnect(self, scope: Scope, receive: Receive, *, abort: bool = False) -> None:
        transport = self._connections.find(scope)
        if transport is not None:
            (transport.abort if abort else transport.close)()
        # Wait until the connection has ended. Otherwise, the HTTP library would send a response of its own.
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _pieces(self, scope: Scope, data: bytes, fault: Fault) -> AsyncIterator[bytes]:
        for start in range(len(data)):
            if start:
                await self._delay(fault.pieces_every)
            self._check_open(scope)
            yield data[start : start + 1]

    async def _padding(self, scope: Scope, size: int) -> AsyncIterator[bytes]:
        before, after = b'{"padding":"', b'"}'
        yield before
        remaining = size - len(before) - len(after)
        while remaining:
            # Let other calls run, even if this client reads fast.
            await self._delay(0)
            self._check_open(scope)
            yield b"x" * min(remaining, _CHUNK_BYTES)
            remaining -= min(remaining, _CHUNK_BYTES)
        yield after

    def _check_open(self, scope: Scope) -> None:
        if self._connections.find(scope) is None:
            raise _Disconnect

    async def _delay(self, seconds: float) -> None:
        """Wait until the delay ends, or the sandbox is reset or stopped."""
        if not await self._connections.wait(seconds):
            raise _Disconnect


async def _read(receive: Receive) -> bytes | None:
    """Return a request's body; None if the client disconnects early."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _response(status: int, content_type: str, body: bytes) -> _Response:
    if status in _BODILESS_STATUSES:
        return _Response(status)
    headers = [
        (b"content-type", content_type.encode("latin-1")),
        (b"content-length", str(len(body)).encode()),
    ]
    return _Response(status, headers, body)


def _replace(response: _Response, fault: Fault) -> _Response:
    """Return the response of the fault if it has one, and otherwise the service's response."""
    replacement = fault.replacement()
    if replacement is not None:
        extra = fault.extra_headers()
        response = _response(*replacement)
        response.headers = [each for each in response.headers if each[0].decode() not in extra]
        response.headers += [(name.encode(), value.encode("latin-1")) for name, value in extra.items()]
    elif fault.kind == "large":
        # Without a length, the HTTP library sends the body in chunks.
        length = [] if fault.chunked else [(b"content-length", str(fault.size).encode())]
        response = _Response(200, [(b"content-type", b"application/json"), *length])
    return response
