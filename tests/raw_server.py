"""Servers for what no HTTP server does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def raw_server(
    respond: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """Serve connections with a function; yield the URL and the list of what was sent, one entry for each connection."""
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) if context else connection as stream:
                    stream.settimeout(5)
                    received.append(stream.recv(65536))
                    respond(stream)
            except OSError:
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    scheme = "https" if context else "http"
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
