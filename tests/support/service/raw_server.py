"""Socket servers, for responses that HTTP servers never send."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

# Errors that a disconnecting or waiting client causes. Any other error is a mistake in the test.
_CLIENTS_DOING = (ConnectionError, TimeoutError, ssl.SSLError)


@contextlib.contextmanager
def raw_server(
    respond: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """
    Serve connections with a function.

    Yield the URL, and a list with the request of each connection.

    :param respond: the function, which writes the response to a connection.
    :param context: the TLS context. None: no TLS.
    :raises Exception: an error that the function raised, unless the client had disconnected. It replaces any error in
        the client.
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
        # Close only now: the descriptor may be reused, and the thread would accept connections of another listener.
        listener.close()
        if raised:
            raise raised[0]
        assert not thread.is_alive(), "the function still responds"


def _end(stream: socket.socket) -> None:
    """
    End a connection gracefully, so that the client receives all data.

    A connection that is closed already, or must be reset, is left unchanged. Closing a socket with unread data, such as
    the rest of a request's body, resets the connection, and the client loses the data that it has not read.
    """
    if stream.fileno() < 0 or struct.unpack("ii", stream.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0]:
        return
    with contextlib.suppress(OSError):
        # Wait for a limited time, because an exception may keep the client's end open.
        stream.settimeout(5)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(65536):
            pass
