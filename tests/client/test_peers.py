"""How errors describe a peer that does not respond as it should: a server, another program, a proxy, a gateway."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.service.authorities import Authority, context_of
from support.service.raw_server import raw_server
from support.whitelist.calls import create, read

from airflow_custody.client import (
    ClientSettings,
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
)
from airflow_custody.client.auth import BearerToken
from airflow_custody.client.health.operations import LIST_HEALTH_CHECKS
from airflow_custody.client.http.failures import explain_failure
from airflow_custody.sandbox import Sandbox

SERVICE = "https://custody.example.com"
CONNECTED = b"HTTP/1.1 200 Connected\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.6\r\n"


def send(data: bytes) -> Callable[[socket.socket], None]:
    return lambda stream: stream.sendall(data)


def alert(number: int) -> bytes:
    return b"\x15\x03\x03\x00\x02\x02" + bytes([number])


def connect_and_send(data: bytes) -> Callable[[socket.socket], None]:
    def respond(stream: socket.socket) -> None:
        stream.sendall(CONNECTED)
        stream.recv(65536)
        stream.sendall(data)

    return respond


def error_of(call: Any, url: str, **settings: Any) -> CustodyError:
    with (
        CustodyClient(url, "t0ken", **{"timeout": 60, "max_retries": 0, **settings}) as client,
        pytest.raises(CustodyError) as caught,
    ):
        call(client)
    return caught.value


HTTP = "Start the base URL {url} with http://, or use the HTTPS port."
CHECK = "Check the base URL {url}, and that the service is up."
CERTIFICATE = "If the service requires a client certificate, set its path in 'client_cert'."
PROXY_CERTIFICATE = (
    "If the proxy requires a client certificate, use another proxy, because only the service is sent one."
)
ALLOWS = "Check 'proxy', and that the proxy allows this host."
OTHER = "Another program listens on this port, or the port expects TLS. Check the base URL {url}."
OTHER_OR_GATEWAY = "Another program or a gateway may have sent this: check {}."

#: What a server sends to a client with a base URL of a scheme: the error's code, whether it is retryable, what it says.
SERVERS: list[tuple[str, bytes, str, bool, str, str]] = [
    ("https", SSH, "unreachable", False, "does not speak TLS on this port", HTTP),
    ("https", alert(40), "tls-failed", True, "TLS: {host} cannot be reached: ", f"{CHECK} {CERTIFICATE}"),
    ("https", alert(70), "tls-failed", True, "alert protocol version", CHECK),
    ("https", b"", "tls-failed", True, "TLS: {host} cannot be reached: ", CHECK),
    ("http", SSH, "response-unusable", False, "sent data that is not HTTP", OTHER),
    ("http", b"", "no-response", True, "was lost before the response was complete: Remote end closed connection", ""),
    ("http", b"HTTP/1.1 2x0 OK\r\n\r\n", "no-response", True, "was lost before the response was complete", ""),
]


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize(
    ("scheme", "greeting", "code", "retryable", "message", "advice"),
    SERVERS,
    ids=[f"{row[0]}, {row[1]!r}" for row in SERVERS],
)
def test_a_server(
    scheme: str, greeting: bytes, code: str, retryable: bool, message: str, advice: str, call: Any
) -> None:
    with raw_server(send(greeting)) as (raw, received):
        url = raw.replace("http:", f"{scheme}:")
        error = error_of(call, url)
    assert message.format(host=url.rpartition("/")[2]) in error.message
    assert str(error.advice or "").startswith(advice.format(url=url))
    assert len(received) == 1
    if call is create and scheme == "http":
        # The body was sent, so the peer may have acted on it.
        assert type(error) is CustodyOutcomeUnknownError
        assert error.retryable is False
        assert error.nothing_sent is False
    else:
        assert type(error) is CustodyConnectionError
        assert error.code == code
        assert error.retryable == retryable
        if call is create:
            assert error.nothing_sent


CHECK_PROXY = "Check 'proxy', and that the proxy is up."
PROXY, TARGET = "the proxy {host}", "custody.example.com"
OTHER_PROXY = "Another program listens on this port, or the port expects TLS. Check 'proxy'."
#: What a proxy does; the last one is what the service does, through it.
PROXIES: list[tuple[str, Callable[[socket.socket], None], str, bool, str, str]] = [
    ("http", send(SSH), "response-unusable", False, f"{PROXY} sent", OTHER_PROXY),
    ("https", send(SSH), "unreachable", False, f"{PROXY} does not speak TLS", "Start 'proxy' with http://,"),
    (
        "https",
        send(alert(116)),
        "tls-failed",
        True,
        f"TLS: {PROXY} cannot be reached",
        f"{CHECK_PROXY} {PROXY_CERTIFICATE}",
    ),
    ("https", send(b""), "tls-failed", True, f"{PROXY} cannot be", CHECK_PROXY),
    ("http", send(b"HTTP/1.1 407 No\r\n\r\n"), "unreachable", True, f"reached through {PROXY}: ", ALLOWS),
    ("http", connect_and_send(SSH), "unreachable", False, f"{TARGET} does not speak TLS", HTTP),
]


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize("proxy", PROXIES, ids=lambda row: f"{row[0]}, {row[4]}")
def test_a_proxy(proxy: Any, call: Any) -> None:
    scheme, respond, code, retryable, message, advice = proxy
    # A proxy that refuses the credentials is asked only once, because it may lock the account.
    retries = 3 if advice == ALLOWS else 0
    with raw_server(respond) as (raw, received):
        url = raw.replace("http:", f"{scheme}:")
        error = error_of(call, SERVICE, proxy=url, max_retries=retries)
        assert message.format(host=url.rpartition("/")[2]) in error.message
        assert str(error.advice).startswith(advice.format(url=SERVICE))
        assert type(error) is CustodyConnectionError
        assert error.code == code
        assert error.retryable == retryable
        assert error.nothing_sent or call is read
        assert len(received) == 1


def hang(stream: socket.socket) -> None:
    # The server hangs until the client gives up.
    stream.recv(1)


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize("respond", [hang, send(b"")], ids=["hangs", "closes"])
def test_a_proxy_that_does_not_answer_connect(call: Any, respond: Callable[[socket.socket], None]) -> None:
    with raw_server(respond) as (url, received):
        error = error_of(call, SERVICE, proxy=url, timeout=1)
    host = url.rpartition("/")[2]
    assert error.message.startswith(f"{TARGET} cannot be reached through the proxy {host}: ")
    assert error.message.endswith("; this request was not sent")
    assert error.advice == ALLOWS
    assert type(error) is CustodyConnectionError
    assert error.nothing_sent
    assert error.retryable
    assert [each.partition(b" ")[0] for each in received] == [b"CONNECT"]


@pytest.mark.parametrize("call", [create, read])
def test_a_port_without_a_listener(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    error = error_of(call, "http://127.0.0.1:9/prefix", max_retries=1)
    assert error.code == "unreachable"
    assert error.nothing_sent is True
    assert error.retryable is True
    assert error.advice == "Check the base URL http://127.0.0.1:9/prefix, and that the service is up."
    assert caplog.text.count("; retry 1 of 1") == 1


# --- certificates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verify_code", "verify", "advice"),
    [
        (9, True, "Check this machine's clock."),
        (10, True, "Check this machine's clock."),
        (20, True, "If the certificate's CA is private, set 'verify' to the path of a CA bundle that contains it."),
        (
            20,
            False,
            "The certificate's CA is not in 'verify', or the server does not send an intermediate certificate.",
        ),
        (62, True, "The certificate is for another host"),
        (66, True, "has a key or a signature that is too weak"),
        # The advice must not suggest that verification be switched off.
        (85, True, "from version 3.13 on. Have it reissued. Do not change 'verify': the CA is not missing from it."),
        (26, True, "is not valid for this kind of server. Have it reissued"),
    ],
    ids=["not yet valid", "expired", "a private CA", "another CA", "another host", "weak", "no key id", "for clients"],
)
def test_a_certificate_that_is_not_accepted(authority: Authority, verify_code: int, verify: bool, advice: str) -> None:
    failure = ssl.SSLCertVerificationError()
    failure.reason, failure.verify_code, failure.verify_message = "CERTIFICATE_VERIFY_FAILED", verify_code, "no"
    settings = ClientSettings(SERVICE, verify=verify or authority[1])
    error = explain_failure(LIST_HEALTH_CHECKS, settings, BearerToken("t0ken"), [failure], sent=None)
    assert error.code == "tls-failed"
    assert error.retryable is False
    assert advice in str(error.advice)


@pytest.mark.parametrize(
    ("version", "given"),
    [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)],
    ids=["TLS 1.2, missing", "TLS 1.2, refused", "TLS 1.3, missing"],
)
def test_a_client_certificate_that_is_missing_or_refused(
    tmp_path: Path, authority: Authority, version: ssl.TLSVersion, given: bool
) -> None:
    context = context_of(authority)
    context.load_verify_locations(authority[1])
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    settings: dict[str, Any] = {"verify": authority[1]}
    if given:
        trustme.CA().issue_cert("me.example.com").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
        settings["client_cert"] = str(tmp_path / "client.pem")
    with raw_server(lambda stream: None, context) as (url, _):
        error = error_of(read, url, **settings)
    words = "The service may reject the certificate in 'client_cert'" if given else CERTIFICATE
    assert words in str(error.advice)


# --- other programs, and gateways --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (200, {"status": "UP"}, f"{OTHER_OR_GATEWAY}"),
        (
            404,
            {"detail": "Not Found"},
            f"{OTHER_OR_GATEWAY} The service may not",
        ),
        (404, "<html>Not here</html>", "3.14"),
        (
            405,
            "<html>Not here</html>",
            f"{OTHER_OR_GATEWAY} The service may not offer",
        ),
        (
            403,
            "<html><title>Blocked</title></html>",
            OTHER_OR_GATEWAY,
        ),
    ],
    ids=["200", "404 in JSON", "404 page", "405 page", "403 page"],
)
def test_another_program_or_a_gateway(sandbox: Sandbox, status: int, body: Any, advice: str) -> None:
    kind = "html" if isinstance(body, str) else "status"
    sandbox.control.add_fault(kind, status=status, body=body, times=None)
    call = read if "3.14" in advice else lambda client: client.get_current_user()
    error = error_of(call, sandbox.url)
    assert error.code == "response-unusable"
    assert error.from_service is False
    assert advice.format(f"the base URL {sandbox.url}") in str(error.advice)
    error = error_of(call, sandbox.url, source="the Airflow connection 'bank'")
    assert "the Airflow connection 'bank'" in str(error.advice).replace("The user of", "")


@pytest.mark.parametrize(
    ("body", "is_own"),
    [
        ({"error": "NotFound", "message": "no such path", "code": 404}, True),
        ({"code": 5, "message": "no such path", "details": []}, True),
        ({"error": "NotFound", "code": 404}, False),
        ({"code": "5", "message": "no such path"}, False),
        ({"code": 5.0, "message": "no such path"}, False),
    ],
    ids=str,
)
def test_an_error_body_is_the_services_own_by_its_number(sandbox: Sandbox, body: dict[str, Any], is_own: bool) -> None:
    sandbox.control.add_fault("status", status=404, body=body)
    error = error_of(read, sandbox.url)
    assert error.from_service == is_own
    assert error.code == ("not-found" if is_own else "response-unusable")
    assert ("a gateway may have sent this" in str(error.advice)) is not is_own
