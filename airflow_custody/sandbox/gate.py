"""Stand between the network and the service: note every call, and make it go wrong where that was ordered."""

from __future__ import annotations

import http
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_custody.sandbox.faults import Fault, FaultBook
from airflow_custody.sandbox.paths import is_control
from airflow_custody.sandbox.pauses import Pauses
from airflow_custody.sandbox.received import ReceivedLog
from airflow_custody.sandbox.transport import Connections

_BODILESS = (204, 304)
_CHUNK = 64 * 1024

_logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]


class _HangUp(Exception):
    """Ask for the connection to be closed without another word."""


@dataclass
class _Answer:
    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""

    def head(self) -> bytes:
        """Write status line and headers; the connection is closed after what is written this way."""
        try:
            phrase = http.HTTPStatus(self.status).phrase
        except ValueError:
            phrase = ""
        lines = [f"HTTP/1.1 {self.status} {phrase}".encode()]
        lines += [name + b": " + value for name, value in [*self.headers, (b"connection", b"close")]]
        return b"\r\n".join([*lines, b"", b""])


class Gate:
    """Wrap the application, as ASGI itself: what breaks connections cannot live inside a route."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        faults: FaultBook,
        received: ReceivedLog,
        connections: Connections,
        pauses: Pauses,
    ) -> None:
        self._app = app
        self._faults = faults
        self._received = received
        self._connections = connections
        self._pauses = pauses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        path = scope.get("path", "")
        if scope["type"] != "http" or is_control(path):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return
        record = self._received.add(scope, body)
        fault = self._faults.take(scope["method"], path)
        if fault is None:
            answer = await self._work(scope, receive, body)
            record["status"] = answer.status
            await _send(send, answer)
            return
        record["fault"] = fault.answer
        try:
            await self._pause(fault.delay)
            answer = await self._work(scope, receive, body) if fault.works else _plain(200, "application/json", b"{}")
            await self._pause(fault.delay_after)
            if fault.answer == "drop":
                raise _HangUp
            answer = _changed(answer, fault)
            record["status"] = answer.status
            await self._send_badly(scope, receive, send, fault, answer)
        except _HangUp:
            await self._hang_up(scope, receive, at_once=True)

    async def _work(self, scope: Scope, receive: Receive, body: bytes) -> _Answer:
        """Let the service do its work, and hold its answer back."""
        answer = _Answer(500)
        unread = [body]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = list(message["headers"])
            else:
                answer.body += message.get("body", b"")

        try:
            await self._app(scope, replay, collect)
        except Exception:
            # The application has written its answer for this, a 500, before it let the exception go on.
            _logger.exception("The sandbox itself failed")
        return answer

    async def _send_badly(self, scope: Scope, receive: Receive, send: Send, fault: Fault, answer: _Answer) -> None:
        if fault.answer in ("cut_body", "cut_headers", "trickle_headers"):
            await self._send_raw(scope, fault, answer)
            await self._hang_up(scope, receive)
        elif fault.answer == "trickle":
            await _send(send, answer, self._pieces(scope, answer.body, fault))
        elif fault.answer == "large":
            await _send(send, answer, self._padding(scope, fault.size or 0))
        else:
            await _send(send, answer)

    async def _send_raw(self, scope: Scope, fault: Fault, answer: _Answer) -> None:
        """Write past the HTTP library, which would not let half an answer through."""
        transport = self._connections.of(scope)
        if transport is None:
            return
        head = answer.head()
        if fault.answer == "cut_body":
            keep = len(answer.body) // 2 if fault.keep is None else fault.keep
            transport.write(head + answer.body[:keep])
        elif fault.answer == "cut_headers":
            # In the middle of a header's name, so that no reader can take what is there for all of it.
            transport.write(head[: head.lower().index(b"content-length") + len("content-")])
        else:
            async for piece in self._pieces(scope, head, fault):
                transport.write(piece)
            transport.write(answer.body)

    async def _hang_up(self, scope: Scope, receive: Receive, *, at_once: bool = False) -> None:
        transport = self._connections.of(scope)
        if transport is not None and at_once:
            transport.abort()
        elif transport is not None:
            transport.close()
        # The HTTP library would answer for us if this call ended before the connection did.
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _pieces(self, scope: Scope, data: bytes, fault: Fault) -> AsyncIterator[bytes]:
        for start in range(0, len(data), fault.piece):
            if start:
                await self._pause(fault.pieces_every)
            self._check_open(scope)
            yield data[start : start + fault.piece]

    async def _padding(self, scope: Scope, size: int) -> AsyncIterator[bytes]:
        before, after = b'{"padding":"', b'"}'
        yield before
        left = size - len(before) - len(after)
        while left:
            # Others get their turn, also while this caller reads as fast as it can.
            await self._pause(0)
            self._check_open(scope)
            yield b"x" * min(left, _CHUNK)
            left -= min(left, _CHUNK)
        yield after

    def _check_open(self, scope: Scope) -> None:
        transport = self._connections.of(scope)
        if transport is None or transport.is_closing():
            raise _HangUp

    async def _pause(self, seconds: float) -> None:
        """Wait; a caller that gives up does not make it shorter, the end of a test or of the sandbox does."""
        if not await self._pauses.wait(seconds):
            raise _HangUp


async def _read(receive: Receive) -> bytes | None:
    """Read the body of a request, or None if the caller is gone before all of it came."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def _send(send: Send, answer: _Answer, pieces: AsyncIterator[bytes] | None = None) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    if pieces is not None:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.body", "body": answer.body})


def _plain(status: int, content_type: str, body: bytes) -> _Answer:
    if status in _BODILESS:
        return _Answer(status)
    headers = [
        (b"content-type", content_type.encode("latin-1")),
        (b"content-length", str(len(body)).encode()),
    ]
    return _Answer(status, headers, body)


def _changed(answer: _Answer, fault: Fault) -> _Answer:
    """Put the ordered answer in place of the service's own."""
    made_up = fault.made_up()
    if made_up is not None:
        more = fault.more_headers()
        answer = _plain(*made_up)
        answer.headers = [one for one in answer.headers if one[0].decode() not in more]
        answer.headers += [(name.encode(), value.encode("latin-1")) for name, value in more.items()]
    elif fault.answer == "large":
        # Without a length the HTTP library sends it in chunks.
        length = [] if fault.chunked else [(b"content-length", str(fault.size).encode())]
        answer = _Answer(200, [(b"content-type", b"application/json"), *length])
    return answer
