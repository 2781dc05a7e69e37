"""What was sent, and on which connection. This decides what may be sent again, and which request a response answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clocks import SkippingTime
from support.service.authorities import Authority, context_of
from support.service.raw_server import raw_server
from support.whitelist.calls import REQUEST, create, read

from airflow_custody.client import (
    ApiKey,
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
)
from airflow_custody.client.http import transport
from airflow_custody.sandbox import Sandbox

WEBHOOK = "00000000-0000-4000-8000-000000000000"


def response(body: str, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", body]).encode()


def created(number: int) -> bytes:
    return response(f'{{"result": {{"id": "{number}"}}}}')


def listed(group: str) -> bytes:
    return response('{"groups": {"%s": {"healthChecks": [{"healthCheck": "x"}]}}}' % group)  # noqa: UP031 - braces


def groups_of(client: CustodyClient) -> list[str]:
    return [check.listed_under for check in client.list_health_checks()]


class Service:
    """
    A service that responds as it should, and does to its connections what a test says.

    :param authority: the authority that has issued its certificate; None: the service does not use TLS.
    """

    def __init__(self, authority: Authority | None) -> None:
        self._context = context_of(authority) if authority else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self.bodies: list[bytes] = []
        #: What it does with a request once it has the headers; it returns whether it goes on as usual.
        self.on_headers: Callable[[socket.socket], bool] = lambda stream: True
        #: What it sends in response to the requests, one after the other; then as it should.
        self.responses: list[bytes] = []
        # The first thread accepts connections, and starts the others.
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._talk, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _talk(self, stream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context:
                stream = self._context.wrap_socket(stream, server_side=True)
            self.connections.append(stream)
            while request := stream.recv(65536):
                while b"\r\n\r\n" not in request:
                    request += stream.recv(65536)
                if not self.on_headers(stream):
                    return
                head, _, body = request.partition(b"\r\n\r\n")
                length = int((re.findall(rb"(?i)content-length: *(\d+)", head) or [0])[0])
                while len(body) < length:
                    if not (more := stream.recv(65536)):
                        return
                    body += more
                self.bodies.append(body)
                own = created(len(self.bodies)) if head.startswith(b"POST") else listed("own")
                stream.sendall(self.responses.pop(0) if self.responses else own)

    def close(self) -> None:
        """
        End all threads, and only then close what they use.

        A thread that reads until the end of a TLS stream then writes an alert. If the socket is closed by then, the
        alert goes to whichever file was opened next, because it has the same descriptor.
        """
        end(self._listener)
        self._threads[0].join(60)
        for each in self.connections:
            end(each)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a connection is still in use"
        for each in (self._listener, *self.connections):
            each.close()


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def service(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Service]:
    made = Service(authority if request.param else None)
    yield made
    made.close()


@pytest.fixture
def client(service: Service, authority: Authority) -> Iterator[CustodyClient]:
    with CustodyClient(service.url, "t0ken", verify=authority[1], timeout=60, max_retries=2) as made:
        yield made


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the file descriptors of the connections that this process has made, the newest last."""
    made: list[int] = []
    connect = socket.socket.connect

    def note(self: socket.socket, address: Any) -> None:
        connect(self, address)
        made.append(self.fileno())

    monkeypatch.setattr(socket.socket, "connect", note)
    return made


def end(stream: socket.socket) -> bool:
    """End a connection at once; what the peer sends from now on is refused. It stays open: a thread may use it."""
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    return False


# --- one connection ----------------------------------------------------------------------------------------


def call_in_child(client: CustodyClient) -> None:
    assert groups_of(client) == ["own"]


def test_a_forked_process_has_connections_of_its_own(service: Service, client: CustodyClient) -> None:
    read(client)
    child = multiprocessing.get_context("fork").Process(target=call_in_child, args=(client,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    read(client)
    assert len(service.connections) == 2


def test_closing_a_client_leaves_the_calls_of_other_threads_alone(service: Service, client: CustodyClient) -> None:
    has_headers, is_closed = threading.Event(), threading.Event()
    found: list[str] = []

    def wait(stream: socket.socket) -> bool:
        has_headers.set()
        return is_closed.wait(60)

    service.on_headers = wait
    thread = threading.Thread(target=lambda: found.extend(groups_of(client)))
    thread.start()
    assert has_headers.wait(60)
    client.close()
    is_closed.set()
    thread.join(60)
    assert found == ["own"]


# --- what ends a connection --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "half closed", "stray"])
def test_a_pooled_connection_that_ended_or_has_something_unasked_is_not_used(
    service: Service, client: CustodyClient, how: str, connected: list[int]
) -> None:
    """An unexpected second response must not be used as the response to the next request."""
    for call, number in ((create, 1), (read, 2)):
        call(client)
        stream = service.connections[-1]
        if how == "stray":
            stream.sendall(created(666) if call is create else listed("stale"))
        else:
            stream.shutdown(socket.SHUT_WR if how == "half closed" else socket.SHUT_RDWR)
        # Wait until it has arrived.
        assert select.select(connected[-1:], [], [], 60)[0]
        assert client.create_whitelist_request(REQUEST) == str(2 * number)
        assert len(service.connections) == 1 + number


@pytest.mark.parametrize("interim", ["101 Switching Protocols", "103 Early Hints"])
def test_an_interim_response_is_no_response_and_ends_the_connection(
    service: Service, client: CustodyClient, interim: str
) -> None:
    head = f"HTTP/1.1 {interim}\r\n\r\n".encode()
    service.responses = [head + created(666), head + listed("other")]
    with pytest.raises(CustodyOutcomeUnknownError, match="it is not a final response") as caught:
        create(client)
    assert not caught.value.from_service
    assert not caught.value.nothing_sent
    with pytest.raises(CustodyResponseError):
        read(client)
    assert groups_of(client) == ["own"]
    assert len(service.connections) == 3


#: Responses that end early.
TRUNCATED = {
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
    "chunk": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"gro',
    "last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "headers": b"HTTP/1.1 200 OK\r\nContent-Le",
    "status line": b"HTTP/1.1 20",
    "nothing": b"",
}


@pytest.mark.parametrize(
    "breaks_tls",
    [None, b"", b"\x15\x03\x03\x00\x02\x02\x50", b"garbage"],
    ids=["TLS ends", "TCP ends", "an alert", "garbage"],
)
@pytest.mark.parametrize("truncated", TRUNCATED.values(), ids=TRUNCATED)
def test_a_truncated_response_is_no_success(authority: Authority, truncated: bytes, breaks_tls: bytes | None) -> None:
    def respond(stream: socket.socket) -> None:
        stream.sendall(truncated)
        if breaks_tls is not None:
            with socket.socket(fileno=stream.detach()) as bare:
                bare.sendall(breaks_tls)

    for call in (create, read, lambda client: client.delete_webhook(WEBHOOK)):
        with (
            raw_server(respond, context_of(authority)) as (url, received),
            # Unless told otherwise, urllib3 repeats some of these failures regardless of the method.
            CustodyClient(url, "t0ken", verify=authority[1], max_retries=3 if call is create else 0) as client,
            pytest.raises(CustodyError) as caught,
        ):
            call(client)
        assert not caught.value.from_service
        assert isinstance(caught.value, CustodyOutcomeUnknownError) is (call is create)
        assert len([each for each in received if each]) == 1


# --- the body's first read ---------------------------------------------------------------------------------


class Recorder:
    """A ``before_send`` for the tests: it counts its calls, and may call a function."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.calls = 0
        self._steps = list(steps)

    def __call__(self) -> None:
        self.calls += 1
        if self._steps:
            self._steps.pop(0)()


@pytest.fixture
def turned(waits: SkippingTime, monkeypatch: pytest.MonkeyPatch) -> SkippingTime:
    """Return the clock by which the client tells how old a request is."""
    monkeypatch.setattr(transport, "time", waits)
    return waits


def test_before_send_is_called_when_the_headers_have_left_and_the_body_has_not(
    service: Service, client: CustodyClient
) -> None:
    has_headers = threading.Event()

    def note(stream: socket.socket) -> bool:
        has_headers.set()
        return True

    def wait() -> None:
        assert has_headers.wait(60)
        service.bodies.append(b"before")

    service.on_headers = note
    before = Recorder(wait)
    assert client.create_whitelist_request(REQUEST, before_send=before)
    assert before.calls == 1
    assert service.bodies[0] == b"before"
    assert len(service.bodies) == 2


@pytest.mark.parametrize("raised", [BrokenPipeError(32, "x"), TimeoutError(), KeyboardInterrupt()], ids=repr)
def test_an_exception_of_before_send_comes_out_unchanged_and_nothing_is_done(
    service: Service, client: CustodyClient, raised: BaseException
) -> None:
    def refuse() -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        client.create_whitelist_request(REQUEST, before_send=refuse)
    assert caught.value is raised
    read(client)
    # The connection with half a request on it is not used again.
    assert service.bodies == [b""]


def test_a_slow_before_send_is_called_again(service: Service, client: CustodyClient, turned: SkippingTime) -> None:
    before = Recorder(*[lambda: turned.sleep(6)] * 2)
    assert client.create_whitelist_request(REQUEST, before_send=before) == "1"
    assert before.calls == 3


def test_a_before_send_that_is_slow_three_times_ends_the_create(
    service: Service, client: CustodyClient, turned: SkippingTime
) -> None:
    before = Recorder(*[lambda: turned.sleep(6)] * 3)
    with pytest.raises(CustodyError, match=r"recording the request took longer .* 3 times in a row") as caught:
        client.create_whitelist_request(REQUEST, before_send=before)
    assert caught.value.nothing_sent is True
    assert caught.value.retryable is True
    assert caught.value.code == "task-stopped"
    assert before.calls == 3
    assert len(service.bodies) == 0


def test_a_machine_that_sleeps_while_it_records_records_again(
    service: Service, client: CustodyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's monotonic clock stands still while it sleeps."""
    monkeypatch.setattr(transport, "time", time)
    clock = time.time
    before = Recorder(lambda: monkeypatch.setattr(time, "time", lambda: clock() + 60))
    assert client.create_whitelist_request(REQUEST, before_send=before) == "1"
    assert before.calls == 2


def test_a_signature_is_new_when_the_body_leaves(
    sandbox: Sandbox, ann: str, monkeypatch: pytest.MonkeyPatch, turned: SkippingTime
) -> None:
    """An API key signs the time: if connecting takes longer than the fence, the request is signed again."""
    made = sandbox.control.add_api_key(ann)
    connect, pauses = socket.socket.connect, [6]

    def connect_slowly(self: socket.socket, address: Any) -> None:
        turned.sleep(pauses.pop() if pauses else 0)
        connect(self, address)

    auth, before = ApiKey(made["id"], made["secret"]), Recorder()
    with CustodyClient(sandbox.url, auth=auth) as client, monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_slowly)
        client.create_whitelist_request(REQUEST, before_send=before)
    assert before.calls == 2
    assert len([each for each in sandbox.control.request_log() if each["status"] == 200]) == 1


def test_a_time_out_before_the_body_is_read_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    """The type of the error does not matter."""

    def wait(stream: socket.socket) -> None:
        # The server ends when the client gives up.
        stream.recv(65536)

    caplog.set_level("INFO")
    with (
        raw_server(wait) as (url, _),
        CustodyClient(url.replace("http:", "https:"), "t0ken", max_retries=1, timeout=0.5) as client,
        pytest.raises(CustodyConnectionError, match="; this request was not sent") as caught,
    ):
        create(client)
    assert caught.value.nothing_sent is True
    assert caught.value.retryable is True
    assert "retry 1 of 1" in caplog.text


@pytest.mark.parametrize("when", ["before its body", "after its body"])
def test_a_pooled_connection_that_ends_with_the_request_is_unknown(
    service: Service, client: CustodyClient, when: str
) -> None:
    read(client)
    if when == "before its body":
        service.on_headers = end
    else:
        service.responses = [b""]

        def end_later(stream: socket.socket) -> bool:
            threading.Timer(0.2, end, (stream,)).start()
            return True

        service.on_headers = end_later
    before = Recorder(lambda: time.sleep(0.1))
    with pytest.raises(CustodyOutcomeUnknownError) as caught:
        client.create_whitelist_request(REQUEST, before_send=before)
    assert not caught.value.nothing_sent
    assert before.calls == 1


def test_a_response_that_came_before_the_request_left_is_not_the_response_to_it(
    service: Service, client: CustodyClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that closes a pooled connection may say something first; urllib3 reads that if it cannot send."""
    caplog.set_level("INFO")
    read(client)
    send = http.client.HTTPConnection.send
    failures = [BrokenPipeError(32, "Broken pipe")]

    def fail_once(self: http.client.HTTPConnection, data: Any) -> None:
        if failures:
            service.connections[0].sendall(created(666))
            raise failures.pop()
        send(self, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", fail_once)
    before = Recorder()
    assert client.create_whitelist_request(REQUEST, before_send=before) == "2"
    assert before.calls == 1
    assert "responded before the request's body was sent; the request was not carried out; retry 1" in caplog.text


# --- requests that the client gave up ------------------------------------------------------------------------


def test_a_request_that_was_given_up_is_not_delivered_later() -> None:
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*alone, "ip", "link", "set", "lo", "up"], check=False).returncode:
        pytest.skip("no network namespaces: 'unshare --map-root-user --net' fails here")
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("the system has no such option")
    script = str(Path(__file__).parent / "outage.py")
    output = subprocess.run([*alone, sys.executable, script], stdout=subprocess.PIPE, timeout=600, check=True).stdout
    assert json.loads(output) == {"gives up": False, "killed": False, "frozen": False, "fine": True}
