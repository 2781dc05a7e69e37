"""Which connections are used again, and what is read from them."""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from authorities import Authority, context_of
from raw_server import raw_server

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    WhitelistRequest,
)
from airflow_custody.sandbox import Sandbox

EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"
Respond = Callable[[socket.socket, bytes], None]


def response(body: str, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


def created(number: int) -> bytes:
    return response(f'{{"result": {{"id": "{number}"}}}}')


def listed(group: str) -> bytes:
    return response('{"groups": {"%s": {"healthChecks": [{"healthCheck": "x"}]}}}' % group)  # noqa: UP031 - braces


def groups_of(client: CustodyClient, tenant_id: str | None = None) -> list[str]:
    return [check.listed_under for check in client.list_health_checks(tenant_id)]


def request_of(label: str) -> WhitelistRequest:
    return WhitelistRequest(label=label, address="0x" + "ab" * 20, blockchain="ETH")


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def serve(request: pytest.FixtureRequest, authority: Authority) -> Callable[..., Any]:
    """Return a function that serves connections with a function, and yields a client and what each began with."""

    @contextlib.contextmanager
    def serving(respond: Respond, **settings: Any) -> Iterator[tuple[CustodyClient, list[bytes]]]:
        context = context_of(authority) if request.param else None
        with (
            raw_server(lambda stream: respond(stream, received[-1]), context) as (url, received),
            CustodyClient(
                url, "t0ken", **{"verify": authority[1], "timeout": 60, "max_retries": 0, **settings}
            ) as made,
        ):
            yield made, received

    return serving


def read_request(stream: socket.socket, beginning: bytes = b"") -> bytes:
    """Read one request to its end, and not further; nothing if there is none."""
    request = beginning or stream.recv(65536)
    length = int((re.findall(rb"(?i)\r\ncontent-length: *(\d+)", request) or [0])[0])
    while request and len(request.partition(b"\r\n\r\n")[2]) < length:
        request += stream.recv(65536)
    return request


def in_turn(*responses: bytes, pause: float = 0.0, second: bytes = b"") -> Respond:
    """Respond to the requests, on whichever connection, with these; after each, and a pause, send a second response."""
    left = list(responses)

    def respond(stream: socket.socket, beginning: bytes) -> None:
        read_request(stream, beginning)
        while left:
            stream.sendall(left.pop(0) + (b"" if pause else second))
            if pause:
                time.sleep(pause)
                stream.sendall(second)
            if not left or not read_request(stream):
                return

    return respond


# --- interim responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("interim", [EARLY_HINTS, PROCESSING, CONTINUE, EARLY_HINTS * 3 + PROCESSING, CONTINUE * 20])
def test_interim_responses_are_read_past(serve: Any, interim: bytes) -> None:
    with serve(in_turn(interim + created(1), interim + created(2))) as (client, _):
        assert client.create_whitelist_request(request_of("AAA")) == "1"
        assert client.create_whitelist_request(request_of("BBB")) == "2"
    with serve(in_turn(interim + listed("one"), interim + listed("two"))) as (client, received):
        assert groups_of(client, "1") == ["one"]
        assert groups_of(client, "2") == ["two"]
    # Who sends interim responses may send more than one final one.
    assert len(received) == 2


@pytest.mark.parametrize("interim", [EARLY_HINTS, PROCESSING, CONTINUE])
def test_a_late_final_response_is_the_responses_to_its_request(serve: Any, interim: bytes) -> None:
    def respond(stream: socket.socket, beginning: bytes) -> None:
        read_request(stream, beginning)
        stream.sendall(interim)
        time.sleep(0.2)
        stream.sendall(created(1))
        stream.recv(65536)

    with serve(respond) as (client, _):
        assert client.create_whitelist_request(request_of("AAA")) == "1"


@pytest.mark.parametrize("interim", [CONTINUE * 21, EARLY_HINTS * 21, SWITCHING, EARLY_HINTS + SWITCHING])
def test_too_many_interim_responses_and_another_protocol_are_errors(serve: Any, interim: bytes) -> None:
    with serve(in_turn(interim + created(1), created(2))) as (client, received):
        with pytest.raises(CustodyOutcomeUnknownError):
            client.create_whitelist_request(request_of("AAA"))
        assert client.create_whitelist_request(request_of("BBB")) == "2"
    with serve(in_turn(interim + listed("one"), listed("two"))) as (client, received):
        with pytest.raises(CustodyConnectionError):
            client.list_health_checks("1")
        client.list_health_checks("2")
        assert len(received) == 2


def test_endless_interim_responses_end_with_the_deadline(serve: Any) -> None:
    def respond(stream: socket.socket, beginning: bytes) -> None:
        read_request(stream, beginning)
        while True:
            stream.sendall(EARLY_HINTS)
            time.sleep(0.2)

    with serve(respond, timeout=3) as (client, _), pytest.raises(CustodyOutcomeUnknownError, match=r"within 3 s"):
        client.create_whitelist_request(request_of("AAA"))


# --- two responses to one request --------------------------------------------------------------------------

SECONDS = {
    "a response": listed("stale"),
    "one byte": b"H",
    "a large response": response('{"groups": {}}' + " " * 40_000),
}


@pytest.mark.parametrize("second", SECONDS.values(), ids=SECONDS)
@pytest.mark.parametrize("pause", [0.0])
@pytest.mark.parametrize(
    "first",
    [
        listed("first"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n" + b'{"groups": {}}' + b"\r\n0\r\n\r\n",
    ],
    ids=["length", "chunked"],
)
def test_a_second_response_is_never_read(serve: Any, first: bytes, pause: float, second: bytes) -> None:
    with serve(in_turn(first, listed("own"), pause=pause, second=second)) as (client, received):
        client.list_health_checks("1")
        time.sleep(2 * pause)
        assert groups_of(client) == ["own"]
        assert len(received) == 2


@pytest.mark.parametrize("pause", [0.0])
def test_a_create_never_reads_a_second_response(serve: Any, pause: float) -> None:
    with serve(in_turn(created(1), created(2), pause=pause, second=created(666))) as (client, received):
        assert client.create_whitelist_request(request_of("AAA")) == "1"
        # Without a wait: the second response comes while the next request is made.
        assert client.create_whitelist_request(request_of("BBB"), before_send=lambda: time.sleep(pause)) == "2"
        assert len(received) == 2


def test_a_response_with_two_lengths_is_the_last_on_its_connection(serve: Any) -> None:
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    with serve(in_turn(first, listed("own"))) as (client, received):
        for _ in range(2):
            client.list_health_checks()
        assert len(received) == 2


def test_a_response_after_which_nothing_comes_leaves_its_connection_in_use(serve: Any) -> None:
    with serve(in_turn(*[listed("own")] * 3)) as (client, received):
        for _ in range(3):
            client.list_health_checks()
        assert len(received) == 1


# --- a connection that is closed while before_send runs ----------------------------------------------------


class Closing:
    """A server that closes connections when it is told to, and otherwise responds to what comes."""

    def __init__(self, authority: Authority | None) -> None:
        self._context = context_of(authority) if authority else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._orders: queue.Queue[str] = queue.Queue()
        self._done: queue.Queue[str] = queue.Queue()
        self.connections = 0
        self.requests: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, stream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context:
                stream = self._context.wrap_socket(stream, server_side=True)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # One thread for each connection: two would break TLS.
            while True:
                # An order is for the connection that is open, and not for one that the client has just closed.
                with contextlib.suppress(TimeoutError):
                    stream.settimeout(0.02)
                    beginning = stream.recv(65536)
                    stream.settimeout(60)
                    if not (request := read_request(stream, beginning)):
                        stream.close()
                        return
                    self.requests.append(request)
                    stream.sendall(created(7) if request.startswith(b"POST") else listed("own"))
                    continue
                try:
                    how = self._orders.get_nowait()
                    break
                except queue.Empty:
                    pass
            with contextlib.suppress(OSError):
                if how == "bytes":
                    stream.sendall(created(666))
                elif how == "close" and isinstance(stream, ssl.SSLSocket):
                    stream.unwrap()
            if how != "bytes":
                stream.shutdown(socket.SHUT_RDWR)
            self._done.put(how)
            time.sleep(0.5)
        stream.close()

    def end(self, how: str) -> None:
        """End the one connection that is open: with an end of TLS, without one, or by sending something."""
        self._orders.put(how)
        self._done.get(timeout=600)
        time.sleep(0.02)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def closing(request: pytest.FixtureRequest, authority: Authority) -> Iterator[tuple[Closing, CustodyClient]]:
    server = Closing(authority if request.param else None)
    with CustodyClient(server.url, "t0ken", verify=authority[1], timeout=60, max_retries=2) as client:
        yield server, client
    server.close()


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("how", ["close", "shutdown", "bytes"])
def test_a_connection_that_ends_while_before_send_runs_is_replaced(
    closing: tuple[Closing, CustodyClient], how: str, pooled: bool
) -> None:
    server, client = closing
    if pooled:
        client.list_health_checks()
        server.requests.clear()
    calls: list[int] = []

    def record() -> None:
        calls.append(1)
        if len(calls) < 3:
            server.end(how)

    assert client.create_whitelist_request(request_of("AAA"), before_send=record) == "7"
    assert len(calls) == 3
    assert len(server.requests) == 1


@pytest.mark.parametrize("how", ["close", "shutdown", "bytes"])
def test_connections_that_keep_ending_are_given_up(closing: tuple[Closing, CustodyClient], how: str) -> None:
    server, client = closing
    calls: list[int] = []

    def record() -> None:
        calls.append(1)
        server.end(how)

    with pytest.raises(CustodyConnectionError, match="3 times in a row; nothing was sent") as caught:
        client.create_whitelist_request(request_of("AAA"), before_send=record)
    assert caught.value.retryable
    assert caught.value.transient
    assert len(calls) == 3
    assert server.requests == []


def test_a_create_takes_no_connection_from_the_pool(closing: tuple[Closing, CustodyClient]) -> None:
    server, client = closing
    for number in (1, 2, 3):
        client.list_health_checks()
        assert client.create_whitelist_request(request_of("AAA")) == "7"
        assert server.connections == 1 + number
    # What is safe to repeat does.
    client.list_health_checks()
    assert server.connections == 4


@pytest.mark.parametrize("closing", [False], indirect=True, ids=["plain"])
def test_a_proxy_that_closes_while_before_send_runs_is_connected_to_again(
    closing: tuple[Closing, CustodyClient],
) -> None:
    server, _ = closing
    calls: list[int] = []

    def record() -> None:
        calls.append(1)
        if len(calls) < 3:
            server.end("close")

    with CustodyClient("http://custody.example.com", "t0ken", proxy=server.url, allow_http=True) as client:
        assert client.create_whitelist_request(request_of("AAA"), before_send=record) == "7"
    assert len(calls) == 3
    assert len(server.requests) == 1


def test_so_is_one_that_a_tunnel_goes_through(authority: Authority) -> None:
    calls: list[int] = []
    tunnels: list[tuple[socket.socket, socket.socket]] = []
    sockets: list[socket.socket] = []

    def relay(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    with Sandbox(certfile=authority[2]) as sandbox, socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(sandbox.url.rpartition(":")[2])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    inner, _ = listener.accept()
                    inner.recv(65536)
                    outer = socket.create_connection(("127.0.0.1", port))
                    tunnels.append((inner, outer))
                    sockets.extend((inner, outer))
                    inner.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 Connected\r\n\r\n")
                    for pair in ((inner, outer), (outer, inner)):
                        threading.Thread(target=relay, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()

        def record() -> None:
            calls.append(1)
            if len(calls) < 3:
                for each in tunnels.pop():
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                time.sleep(0.05)

        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        url = f"https://localhost:{port}"
        with CustodyClient(url, sandbox.token, proxy=proxy, verify=authority[1]) as client:
            client.list_health_checks()
            assert client.create_whitelist_request(request_of("AAA"), before_send=record)
        assert len(calls) == 3
        assert len(sandbox.control.whitelist_requests()) == 1
        listener.shutdown(socket.SHUT_RDWR)
    time.sleep(0.05)
    for each in sockets:
        each.close()


def test_what_before_send_raises_still_comes_out(closing: tuple[Closing, CustodyClient]) -> None:
    server, client = closing

    def refuse() -> None:
        server.end("close")
        raise OSError("the intent cannot be stored")

    with pytest.raises(OSError, match="the intent cannot be stored") as caught:
        client.create_whitelist_request(request_of("AAA"), before_send=refuse)
    assert not isinstance(caught.value, CustodyError)
    assert server.requests == []
