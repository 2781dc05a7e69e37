"""What is retried within one call, what is not, and what must never be quoted."""

from __future__ import annotations

import contextlib
import json
import logging
import math
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
from urllib.parse import urlsplit

import pytest
from authorities import Authority
from hypothesis import given
from hypothesis import strategies as st
from raw_server import raw_server

from airflow_custody.client import (
    ClientSettings,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
    CustodyResponseError,
    PasswordSignIn,
    WhitelistRequest,
)
from airflow_custody.client.http.retries import parse_retry_after
from airflow_custody.sandbox import Sandbox

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")
PROXY_PASSWORD = "proxy-s3cret"


def refuse_tunnel(stream: socket.socket) -> None:
    stream.sendall(b"HTTP/1.1 407 Denied " + PROXY_PASSWORD.encode() + b"\r\nContent-Length: 0\r\n\r\n")


def refuse_handshake(stream: socket.socket) -> None:
    stream.sendall(b"\x15\x03\x01\x00\x02\x02\x28")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "; retry " in record.getMessage()]


@pytest.fixture(autouse=True)
def log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("retry_after", [None, 0])
def test_an_overloaded_service_is_not_asked_again_at_once(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture, retry_after: int | None
) -> None:
    sandbox.control.add_fault("status", status=503, times=2, **({} if retry_after is None else {"retry_after": 0}))
    with CustodyClient(sandbox.url, sandbox.token, max_retries=2) as client:
        client.list_health_checks()
    first, second = lines(caplog)
    assert first.endswith("retry 1 of 2 now")
    assert " in 1." in second


def create(client: CustodyClient) -> None:
    client.create_whitelist_request(REQUEST)


def read(client: CustodyClient) -> None:
    client.list_health_checks()


@pytest.mark.parametrize(("call", "connections"), [(create, 1), (read, 2)])
def test_a_failed_tls_handshake_is_retried_for_what_is_safe_to_repeat(call: Any, connections: int) -> None:
    with raw_server(refuse_handshake) as (url, received):
        https = url.replace("http:", "https:")
        with (
            CustodyClient(https, "t0ken", max_retries=1, timeout=5) as client,
            pytest.raises(CustodyConnectionError, match="nothing was sent"),
        ):
            call(client)
    assert len(received) == connections


def reset(stream: socket.socket) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def close(stream: socket.socket) -> None:
    pass


def hang(stream: socket.socket) -> None:
    time.sleep(0.6)


@pytest.mark.parametrize(("call", "connections"), [(create, 1), (read, 2)])
@pytest.mark.parametrize("ending", [reset, close, hang])
def test_a_handshake_that_breaks_off_is_retried_for_what_is_safe_to_repeat(
    ending: Callable[[socket.socket], None], call: Any, connections: int
) -> None:
    with raw_server(ending) as (url, received):
        https = url.replace("http:", "https:")
        with (
            CustodyClient(https, "t0ken", max_retries=1, timeout=0.5) as client,
            pytest.raises(CustodyConnectionError, match="nothing was sent"),
        ):
            call(client)
    assert len(received) == connections


@pytest.mark.parametrize("call", [create, read])
def test_a_proxy_that_refuses_us_is_asked_once(call: Any) -> None:
    # More often, and the account at the proxy may get locked.
    with raw_server(refuse_tunnel) as (url, received):
        proxy = f"http://user:{PROXY_PASSWORD}@{urlsplit(url).netloc}"
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=proxy, max_retries=3) as client,
            pytest.raises(CustodyConnectionError),
        ):
            call(client)
    assert len(received) == 1


@pytest.mark.parametrize("call", [create, read])
def test_a_refused_connection_is_retried_whatever_is_sent(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    with (
        CustodyClient("http://127.0.0.1:9", "t0ken", max_retries=1) as client,
        pytest.raises(CustodyConnectionError, match="nothing was sent"),
    ):
        call(client)
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "status", "status": 503, "retry_after": 0}], ids=str)
def test_a_create_is_never_repeated_after_it_was_sent(sandbox: Sandbox, fault: dict[str, Any]) -> None:
    sandbox.control.add_fault(**fault, times=None)
    with (
        CustodyClient(sandbox.url, sandbox.token, max_retries=5) as client,
        pytest.raises(CustodyOutcomeUnknownError),
    ):
        create(client)
    assert len(sandbox.control.request_log()) == 1


# --- the wrong scheme --------------------------------------------------------------------------------------


def send(data: bytes) -> Callable[[socket.socket], None]:
    return lambda stream: stream.sendall(data)


def context_of(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority[2])
    return context


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", b"SSH-2.0-x\r\n"]
)
def test_tls_spoken_to_a_server_without_fails_at_once(greeting: bytes, call: Any) -> None:
    with raw_server(send(greeting)) as (url, received):
        https = url.replace("http:", "https:")
        with (
            CustodyClient(https, "t0ken", max_retries=3, timeout=5) as client,
            pytest.raises(CustodyConnectionError, match="does not speak TLS on this port; nothing was sent") as caught,
        ):
            call(client)
    assert not caught.value.retryable
    assert not caught.value.transient
    assert f"Write http:// instead of https:// in the base URL {https}" in str(caught.value)
    assert len(received) == 1


# What servers do that are spoken to in plain HTTP on a port for TLS.
MISUNDERSTANDINGS = {
    "alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "alert of TLS 1.2": b"\x15\x03\x03\x00\x02\x02\x32",
    "handshake": b"\x16\x03\x03\x00\x04\x0e\x00\x00\x00",
}


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize("record", MISUNDERSTANDINGS.values(), ids=MISUNDERSTANDINGS)
def test_plain_http_that_is_responded_to_in_tls_fails_at_once(record: bytes, call: Any) -> None:
    with (
        raw_server(send(record)) as (url, received),
        CustodyClient(url, "t0ken", max_retries=3, timeout=5) as client,
        pytest.raises(CustodyConnectionError, match="speaks TLS on this port") as caught,
    ):
        call(client)
    assert not caught.value.retryable
    assert f"Write https:// instead of http:// in the base URL {url}" in str(caught.value)
    assert len(received) == 1


@pytest.mark.parametrize(
    ("call", "kind"), [(create, CustodyOutcomeUnknownError), (read, CustodyConnectionError)], ids=["create", "read"]
)
def test_a_port_for_tls_that_only_closes_is_found_out(
    call: Any, kind: type[CustodyError], authority: Authority
) -> None:
    with Sandbox(certfile=authority[2]) as sandbox:
        plain = sandbox.url.replace("https:", "http:")
        with (
            CustodyClient(plain, sandbox.token, max_retries=3, timeout=5) as client,
            pytest.raises(kind, match=f"Write https:// instead of http:// in the base URL {plain}") as caught,
        ):
            call(client)
        # A port may know both protocols: that a create was not carried out is not proved.
        assert type(caught.value) is kind
        assert not caught.value.retryable
        assert sandbox.control.request_log() == []


@pytest.mark.parametrize("call", [create, read])
def test_the_page_of_a_gateway_that_was_spoken_to_in_plain_http(call: Any) -> None:
    page = b"<html>400 The plain HTTP request was sent to HTTPS port</html>"
    response = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(page), page)

    def respond(stream: socket.socket) -> None:
        stream.sendall(MISUNDERSTANDINGS["handshake"] if received[-1].startswith(b"\x16\x03") else response)

    with (
        raw_server(respond) as (url, received),
        CustodyClient(url, "t0ken", max_retries=3, timeout=5) as client,
        pytest.raises(CustodyRequestError, match=f"Write https:// instead of http:// in the base URL {url}"),
    ):
        call(client)


def test_a_bad_request_is_not_the_wrong_scheme(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("html", status=400, times=2)
    sandbox.control.add_fault("status", status=400, times=1)
    with CustodyClient(sandbox.url, sandbox.token) as client:
        for _ in range(3):
            with pytest.raises(CustodyRequestError) as caught:
                read(client)
            assert "https://" not in str(caught.value)


def test_a_broken_connection_is_weather_and_the_server_is_asked_for_tls_once() -> None:
    with raw_server(close) as (url, received), CustodyClient(url, "t0ken", max_retries=2, timeout=5) as client:
        for _ in range(2):
            with pytest.raises(CustodyConnectionError) as caught:
                read(client)
            assert caught.value.retryable
    assert [each[:3] for each in received] == [b"GET", b"\x16\x03\x01", *[b"GET"] * 5]


def test_a_server_that_was_understood_before_is_not_asked_for_tls(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        read(client)
        sandbox.control.add_fault("drop")
        with pytest.raises(CustodyConnectionError):
            read(client)
    assert "Invalid HTTP request" not in caplog.text


def test_a_proxy_with_the_wrong_scheme_is_named() -> None:
    with raw_server(send(MISUNDERSTANDINGS["alert"])) as (url, received):
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=url, timeout=5) as client,
            pytest.raises(CustodyConnectionError, match="Write https:// instead of http:// in 'proxy'") as caught,
        ):
            read(client)
        assert not caught.value.retryable
        assert len(received) == 1
    with raw_server(send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as (url, received):
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=url.replace("http:", "https:")) as client,
            pytest.raises(CustodyConnectionError, match="Write http:// instead of https:// in 'proxy'") as caught,
        ):
            read(client)
        assert not caught.value.retryable
        assert len(received) == 1


def test_a_service_without_tls_behind_a_proxy_is_named() -> None:
    def connect(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        stream.recv(65536)
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with raw_server(connect) as (url, received):
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=url) as client,
            pytest.raises(CustodyConnectionError, match=r"in the base URL https://custody\.example\.com") as caught,
        ):
            read(client)
        assert not caught.value.retryable
        assert len(received) == 1


def test_a_refused_connection_names_the_base_url() -> None:
    with (
        CustodyClient("http://127.0.0.1:9/prefix", "t0ken", max_retries=0) as client,
        pytest.raises(CustodyConnectionError, match=r"Check the base URL http://127\.0\.0\.1:9/prefix, and that"),
    ):
        read(client)


# --- nothing is delivered later ----------------------------------------------------------------------------


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
    deadline = time.monotonic() + 4
    while (options := options_of_peer(connection))[0][0] and time.monotonic() < deadline:
        time.sleep(0.01)
    stream.sendall(b'{"result": {"id": "1"}}')
    return [*seen_options, options]


def check_options(seen_options: list[Options]) -> None:
    (while_sending, milliseconds), (after_headers, _) = seen_options
    assert while_sending == (1, 0)
    assert after_headers[0] == 0
    assert 4000 < milliseconds <= 5000


@on_linux
@pytest.mark.parametrize("tls", [False, True])
def test_a_request_that_waits_for_its_response_is_not_left_to_the_system(tls: bool, authority: Authority) -> None:
    seen_options: list[Any] = []

    def respond(stream: socket.socket) -> None:
        seen_options.extend(options_while_sending(stream, stream))

    with (
        raw_server(respond, context_of(authority) if tls else None) as (url, _),
        CustodyClient(url, "t0ken", verify=authority[1], timeout=5) as client,
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
        CustodyClient("https://localhost", "t0ken", verify=authority[1], timeout=5, proxy=proxy) as client,
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
        time.sleep(0.6)
        endings.append(ending_of(stream))

    with (
        raw_server(respond) as (url, _),
        CustodyClient(url, "t0ken", timeout=0.3) as client,
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
        process.wait(30)
        deadline = time.monotonic() + 5
        while not endings and time.monotonic() < deadline:
            time.sleep(0.01)
    assert endings == [ConnectionResetError]


def test_nothing_is_delivered_when_the_network_comes_back() -> None:
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*alone, "ip", "link", "set", "lo", "up"], check=False).returncode:
        pytest.skip("there are no network namespaces to be had")
    script = str(Path(__file__).parent / "outage.py")
    output = subprocess.run([*alone, sys.executable, script], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    # Without TCP_USER_TIMEOUT, the system delivers for a process that is frozen.
    frozen = "" if hasattr(socket, "TCP_USER_TIMEOUT") else "POST"
    assert json.loads(output) == {"gives up": "", "killed": "", "frozen": frozen, "fine": "POST"}


@pytest.mark.parametrize("tls", [False, True])
def test_the_time_of_before_send_does_not_count(sandbox: Sandbox, tls: bool, authority: Authority) -> None:
    def slow() -> None:
        time.sleep(0.8)

    with (
        Sandbox(certfile=authority[2]) if tls else contextlib.nullcontext(sandbox) as service,
        CustodyClient(service.url, service.token, timeout=0.5, verify=authority[1]) as client,
    ):
        read(client)
        for _ in range(2):
            assert client.create_whitelist_request(REQUEST, before_send=slow)
        service.control.add_fault("normal", delay=3, method="POST")
        started = time.monotonic()
        with pytest.raises(CustodyOutcomeUnknownError, match=r"within 0\.5 s"):
            client.create_whitelist_request(REQUEST, before_send=slow)
        assert 1.2 < time.monotonic() - started < 2.2


# --- secrets -----------------------------------------------------------------------------------------------


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_no_proxy_password_in_a_repr() -> None:
    settings = ClientSettings("https://custody.example.com", proxy=f"http://user:{PROXY_PASSWORD}@proxy.example.com")
    assert PROXY_PASSWORD not in repr(settings)
    with CustodyClient("https://custody.example.com", "t0ken", proxy=settings.proxy) as client:
        assert PROXY_PASSWORD not in repr(client.settings)
        assert PROXY_PASSWORD not in repr(client)


def test_no_proxy_password_in_an_error_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with raw_server(refuse_tunnel) as (url, _):
        proxy = f"http://user:{PROXY_PASSWORD}@{urlsplit(url).netloc}"
        with (
            CustodyClient("https://custody.example.com", "t0ken", proxy=proxy, max_retries=1) as client,
            pytest.raises(CustodyError) as caught,
        ):
            read(client)
    assert PROXY_PASSWORD not in str(caught.value)
    assert PROXY_PASSWORD not in caplog.text


MALFORMED = [
    f"http://user:{PROXY_PASSWORD}@[::1",
    f"http://user:{PROXY_PASSWORD}@proxy.invalid:99999",
    f"http://user:{PROXY_PASSWORD}\u2100@proxy.invalid:1",
]


@pytest.mark.parametrize("proxy", MALFORMED)
def test_no_password_of_a_malformed_proxy(
    clean_environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, proxy: str
) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyClient("https://custody.example.com", "t0ken", proxy=proxy)
    assert PROXY_PASSWORD not in str(caught.value)
    clean_environment.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyClient("https://custody.example.com", "t0ken")
    assert PROXY_PASSWORD not in str(caught.value)
    assert PROXY_PASSWORD not in caplog.text


def test_a_proxy_that_is_not_used_changes_nothing(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.setenv("HTTP_PROXY", MALFORMED[0])
    clean_environment.setenv("NO_PROXY", "localhost")
    with (
        CustodyClient("https://127.0.0.1:9", "t0ken", max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        read(client)
    assert "through the proxy" not in str(caught.value)
    assert client.auth.redact("no route to localhost") == "no route to localhost"


def test_a_token_that_was_replaced_is_still_redacted(sandbox: Sandbox) -> None:
    ann = sandbox.control.add_user("ann", ["TPUser"], password="ann-s-password")
    tokens: list[str] = []
    with CustodyClient(sandbox.url, auth=PasswordSignIn("ann", "ann-s-password", on_token=tokens.append)) as client:
        read(client)
        sandbox.control.revoke_tokens(ann)
        read(client)
        first, second = tokens
        assert client.auth.redact(f"{first} and {second} and ann-s-password") == "*** and *** and ***"


# --- how long to wait --------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["nan", "inf", "-inf", "-1", "1e3", "", "9" * 400, "9" * 5000, "\u0663", None])
def test_a_retry_after_that_is_no_number_of_seconds_is_none(header: str | None) -> None:
    seconds = parse_retry_after(header)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


@given(st.text(max_size=40))
def test_any_retry_after_is_a_number_of_seconds_or_none(header: str) -> None:
    seconds = parse_retry_after(header)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf"), -1, -0.5])
def test_an_error_carries_no_strange_retry_after(seconds: float) -> None:
    error = CustodyError("busy", retry_after=seconds)
    assert error.retry_after is None
    assert CustodyError.from_json({"message": "busy", "retry_after": seconds}).retry_after is None


# --- whose response is it? ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["{}".encode("utf-16"), b"\xef\xbb\xbf{}", b"{", b"NaN", b"[]", b'{"a": "\\ud800"}'], ids=repr
)
def test_only_json_in_utf_8_is_the_services(body: bytes) -> None:
    def respond(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with (
        raw_server(respond) as (url, _),
        CustodyClient(url, "t0ken", max_retries=0) as client,
        pytest.raises(CustodyResponseError, match="not a response of the custody service"),
    ):
        client.delete_webhook("00000000-0000-0000-0000-000000000000")
