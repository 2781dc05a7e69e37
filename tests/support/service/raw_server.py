"""Socket servers that send responses which no HTTP server sends."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

# What a client that breaks off, or waits, does to a server. All else is a fault of the test.
_CLIENTS_DOING = (ConnectionError, TimeoutError, ssl.SSLError)


@contextlib.contextmanager
def raw_server(
    respond: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """
    Serve connections with a function; yield the URL and the list of what was sent, one entry for each connection.

    :raises Exception: what the function raised, in place of what the client made of it; not if the client had broken
        off the connection.
    """
    received: list[bytes] = []
    raised: list[BaseException] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) if context else connection as stream:
                    stream.settimeout(60)
                    received.append(stream.recv(65536))
                    respond(stream)
                    _end(stream)
            except _CLIENTS_DOING:
                continue
            except BaseException as error:
                raised.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    scheme = "https" if context else "http"
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(600)
        # Not before: the thread would accept the connections of the next listener with the same descriptor.
        listener.close()
        if raised:
            raise raised[0]
        assert not thread.is_alive(), "the function still responds"


def _end(stream: socket.socket) -> None:
    """
    End a connection so that what was sent arrives; not if it is closed already, or to be reset.

    A socket that is closed before all is read, the request's body say, resets the connection: the client loses what it
    has not read either.
    """
    if stream.fileno() < 0 or struct.unpack("ii", stream.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0]:
        return
    with contextlib.suppress(OSError):
        # A client that keeps its end open, to an exception say, is not waited for any longer.
        stream.settimeout(5)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(65536):
            pass
