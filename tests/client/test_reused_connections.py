"""Creates that may go out on a connection that was used a moment ago: which do, and what is never sent twice."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from authorities import Authority, context_of

from airflow_custody.client import CustodyClient, CustodyOutcomeUnknownError, WhitelistRequest


class Service:
    """
    A service that creates what it is asked for, and ends its connections in a way of its own.

    :param authority: what it has its certificate from; None: it does not speak TLS.
    """

    def __init__(self, authority: Authority | None) -> None:
        self._context = context_of(authority) if authority else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.created: list[str] = []
        self.connections = 0
        #: How many responses a connection gets before it ends.
        self.responses = 1_000_000
        #: How it ends then: "close", "half close", "stray", "close on request" or "close once created".
        self.ending = "close"
        #: Seconds between the last response and the end.
        self.pause = 0.0
        self.headers = ""
        #: Set when a connection has ended.
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, stream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context:
                stream = self._context.wrap_socket(stream, server_side=True)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with stream:
                for _ in range(self.responses):
                    if not (label := _read_label(stream)):
                        return
                    stream.sendall(self._create(label))
                time.sleep(self.pause)
                self._end(stream)
            if self.ending == "close":
                self.ended.set()

    def _create(self, label: str) -> bytes:
        with self._lock:
            self.created.append(label)
            number = len(self.created)
        return self._response(number)

    def _response(self, number: int) -> bytes:
        body = f'{{"result": {{"id": "{number}"}}}}'
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{self.headers}\r\n{body}".encode()

    def _end(self, stream: socket.socket) -> None:
        if self.ending == "half close":
            stream.shutdown(socket.SHUT_WR)
            self.ended.set()
            time.sleep(0.3)
        elif self.ending == "stray":
            stream.sendall(self._response(666))
            self.ended.set()
            time.sleep(0.3)
        elif self.ending == "close on request":
            _read_label(stream)
        elif self.ending == "close once created" and (label := _read_label(stream)):
            self._create(label)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _read_label(stream: socket.socket) -> str:
    request = stream.recv(65536)
    while request and not (found := re.search(rb'"label": ?"(\w+)"', request)):
        if not (more := stream.recv(65536)):
            return ""
        request += more
    return found[1].decode() if request and found else ""


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def service(request: pytest.FixtureRequest, authority: Authority) -> Iterator[tuple[Service, CustodyClient]]:
    server = Service(authority if request.param else None)
    with CustodyClient(server.url, "t0ken", verify=authority[1], timeout=60, max_retries=0) as client:
        yield server, client
    server.close()


def create(client: CustodyClient, number: int, *, reuse: bool = True) -> str:
    request = WhitelistRequest(label=f"L{number}", address="0x" + "ab" * 20, blockchain="ETH")
    return client.create_whitelist_request(request, reuse_connection=reuse)


def test_creates_share_a_connection_only_if_their_caller_says_so(service: tuple[Service, CustodyClient]) -> None:
    server, client = service
    assert [create(client, number) for number in range(5)] == ["1", "2", "3", "4", "5"]
    assert server.connections == 1
    assert [create(client, number, reuse=False) for number in range(3)] == ["6", "7", "8"]
    assert server.connections == 4


def test_a_connection_that_was_idle_is_not_used_again(
    service: tuple[Service, CustodyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = service
    monkeypatch.setattr("airflow_custody.client.http.transport._REUSE_WITHIN", 600.0)
    elapsed = 0.0
    monkeypatch.setattr("airflow_custody.client.http.connections.monotonic", lambda: time.monotonic() + elapsed)
    create(client, 1)
    elapsed += 1000.0
    create(client, 2)
    assert server.connections == 2
    # Nor is one that becomes so while before_send runs.
    request = WhitelistRequest(label="L3", address="0x" + "ab" * 20, blockchain="ETH")
    calls: list[int] = []

    def wait() -> None:
        nonlocal elapsed
        calls.append(1)
        elapsed += 1000.0

    client.create_whitelist_request(request, before_send=wait, reuse_connection=True)
    assert (server.connections, len(calls)) == (3, 2)
    # That is not the peer's doing.
    create(client, 4)
    assert server.connections == 3
    assert server.created == ["L1", "L2", "L3", "L4"]


def test_a_connection_whose_end_was_announced_is_not_used_again(service: tuple[Service, CustodyClient]) -> None:
    server, client = service
    server.headers = "Connection: close\r\n"
    assert [create(client, number) for number in range(3)] == ["1", "2", "3"]
    assert server.connections == 3


@pytest.mark.parametrize("responses", [1, 3])
@pytest.mark.parametrize("ending", ["close", "half close", "stray"])
@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_a_connection_that_ends_is_replaced(
    service: tuple[Service, CustodyClient], ending: str, responses: int, pause: float
) -> None:
    server, client = service
    server.ending, server.responses, server.pause = ending, responses, pause
    made: list[str] = []
    for number in range(6):
        made.append(create(client, number))
        if (number + 1) % responses == 0:
            # Until the end has arrived, too; the race is below.
            assert server.ended.wait(600)
            server.ended.clear()
            time.sleep(0.02)
    assert made == [str(number + 1) for number in range(6)]
    assert server.created == [f"L{number}" for number in range(6)]


@pytest.mark.parametrize("ending", ["close on request", "close once created"])
@pytest.mark.parametrize("responses", [1, 3])
def test_what_is_lost_with_a_used_connection_is_unknown_and_happens_once(
    service: tuple[Service, CustodyClient], ending: str, responses: int
) -> None:
    server, client = service
    server.ending, server.responses = ending, responses
    lost = []
    for number in range(8):
        try:
            create(client, number)
        except CustodyOutcomeUnknownError:
            lost.append(number)
    assert lost == [responses]
    # From then on each has a connection of its own.
    assert server.connections == 8 - responses
    done = [f"L{number}" for number in range(8) if ending == "close once created" or number != responses]
    assert server.created == done


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.003])
def test_a_service_that_closes_just_then_is_sent_nothing_twice(
    service: tuple[Service, CustodyClient], pause: float
) -> None:
    server, client = service
    server.responses, server.pause = 2, pause
    lost = 0
    for number in range(30):
        try:
            create(client, number)
        except CustodyOutcomeUnknownError:
            lost += 1
    assert lost <= 1
    assert len(set(server.created)) == len(server.created) >= 30 - lost
