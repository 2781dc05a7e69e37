"""What was given up is not delivered later."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from authorities import Authority, context_of
from calls import REQUEST, create, read
from raw_server import raw_server

from airflow_custody.client import (
    CustodyClient,
    CustodyOutcomeUnknownError,
)
from airflow_custody.sandbox import Sandbox

Options = tuple[tuple[int, ...], int]


def options_of_peer(stream: socket.socket) -> Options:
    """Return the linger option and the user time-out of a connection's other end, which this process has open too."""
    ends = (stream.getpeername(), stream.getsockname())
    # The system's own list: what Python knows has sockets of any family, and changes its order.
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as each:
                if (each.getsockname(), each.getpeername()) == ends:
                    linger = struct.unpack("ii", each.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
                    return linger, each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    raise AssertionError("this process has no other end of this connection")


on_linux = pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")


def options_while_sending(stream: Any, connection: socket.socket) -> list[Options]:
    """Respond on a stream over a connection; return the client's options before the headers, and after them."""
    seen_options = [options_of_peer(connection)]
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n")
    # The client has read the headers once it has nothing more to discard; how soon is the machine's affair.
    deadline = time.monotonic() + 20
    while (options := options_of_peer(connection))[0][0] and time.monotonic() < deadline:
        time.sleep(0.01)
    stream.sendall(b'{"result": {"id": "1"}}')
    return [*seen_options, options]


def check_options(seen_options: list[Options]) -> None:
    (while_sending, milliseconds), (after_headers, _) = seen_options
    assert while_sending == (1, 0)
    assert after_headers[0] == 0
    assert 30_000 < milliseconds <= 60_000


@on_linux
@pytest.mark.parametrize("tls", [False, True])
def test_a_request_that_waits_for_its_response_is_not_left_to_the_system(tls: bool, authority: Authority) -> None:
    seen_options: list[Any] = []

    def respond(stream: socket.socket) -> None:
        seen_options.extend(options_while_sending(stream, stream))

    with (
        raw_server(respond, context_of(authority) if tls else None) as (url, _),
        CustodyClient(url, "t0ken", verify=authority[1], timeout=60) as client,
    ):
        create(client)
    check_options(seen_options)


class TLSWithin:
    """The server's end of TLS over a stream that may be TLS itself."""

    def __init__(self, stream: socket.socket, context: ssl.SSLContext) -> None:
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._pump(self._tls.do_handshake)

    def recv(self) -> bytes:
        return bytes(self._pump(self._tls.read))

    def sendall(self, data: bytes) -> None:
        self._pump(lambda: self._tls.write(data))

    def _pump(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                done = step()
                self._stream.sendall(self._outgoing.read())
                return done
            except ssl.SSLWantReadError:
                self._stream.sendall(self._outgoing.read())
                self._incoming.write(self._stream.recv(65536))


@on_linux
@pytest.mark.parametrize("proxy_tls", [False, True])
def test_neither_is_one_that_goes_through_a_proxy(proxy_tls: bool, authority: Authority) -> None:
    seen_options: list[Any] = []

    def respond(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        inner = TLSWithin(stream, context_of(authority))
        inner.recv()
        seen_options.extend(options_while_sending(inner, stream))

    with (
        raw_server(respond, context_of(authority) if proxy_tls else None) as (proxy, _),
        CustodyClient("https://localhost", "t0ken", verify=authority[1], timeout=60, proxy=proxy) as client,
    ):
        create(client)
    check_options(seen_options)


def ending_of(stream: socket.socket) -> object:
    """Return how the connection ends, after what is left of the request: with b"", or an error."""
    try:
        while stream.recv(65536):
            pass
    except OSError as error:
        return type(error)
    return b""


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nContent-"])
def test_who_gives_up_resets_the_connection(beginning: bytes) -> None:
    endings: list[Any] = []

    def respond(stream: socket.socket) -> None:
        stream.sendall(beginning)
        endings.append(ending_of(stream))

    with (
        raw_server(respond) as (url, _),
        CustodyClient(url, "t0ken", timeout=2) as client,
        pytest.raises(CustodyOutcomeUnknownError),
    ):
        create(client)
    assert endings == [ConnectionResetError]


def test_a_process_that_is_killed_resets_the_connection() -> None:
    endings: list[Any] = []

    def respond(stream: socket.socket) -> None:
        process.kill()
        process.wait()
        endings.append(ending_of(stream))

    script = (
        "import sys\n"
        "from airflow_custody.client import CustodyClient, WhitelistRequest\n"
        "sys.stdin.readline()\n"
        "CustodyClient(sys.argv[1], 't0ken').create_whitelist_request("
        "WhitelistRequest(label='a', address='0x' + 'ab' * 20, blockchain='ETH'))\n"
    )
    with raw_server(respond) as (url, _):
        process = subprocess.Popen([sys.executable, "-c", script, url], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        process.wait(600)
        deadline = time.monotonic() + 300
        while not endings and time.monotonic() < deadline:
            time.sleep(0.01)
    assert endings == [ConnectionResetError]


def test_nothing_is_delivered_when_the_network_comes_back() -> None:
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*alone, "ip", "link", "set", "lo", "up"], check=False).returncode:
        pytest.skip("there are no network namespaces to be had")
    script = str(Path(__file__).parent / "outage.py")
    output = subprocess.run([*alone, sys.executable, script], stdout=subprocess.PIPE, timeout=600, check=True).stdout
    # Without TCP_USER_TIMEOUT, the system delivers for a process that is frozen.
    frozen = "" if hasattr(socket, "TCP_USER_TIMEOUT") else "POST"
    assert json.loads(output) == {"gives up": "", "killed": "", "frozen": frozen, "fine": "POST"}


@pytest.mark.parametrize("tls", [False, True])
def test_the_time_of_before_send_does_not_count(
    sandbox: Sandbox, tls: bool, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    elapsed = 0.0
    monkeypatch.setattr("airflow_custody.client.http.connections.monotonic", lambda: time.monotonic() + elapsed)

    def slow() -> None:
        nonlocal elapsed
        elapsed += 100.0

    with (
        Sandbox(certfile=authority[2]) if tls else contextlib.nullcontext(sandbox) as service,
        CustodyClient(service.url, service.token, timeout=60, verify=authority[1]) as client,
        CustodyClient(service.url, service.token, timeout=2, verify=authority[1]) as hasty,
    ):
        read(client)
        for _ in range(2):
            assert client.create_whitelist_request(REQUEST, before_send=slow)
        service.control.add_fault("normal", delay=3600, method="POST")
        with pytest.raises(CustodyOutcomeUnknownError, match=r"within 2 s"):
            hasty.create_whitelist_request(REQUEST, before_send=slow)
