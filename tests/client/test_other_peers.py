"""What is said of a server that is not the service, or does not let the client in."""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from authorities import Authority, context_of
from raw_server import raw_server

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.client.http.peers import speaks_http, speaks_tls
from airflow_custody.sandbox import Sandbox

REQUEST = WhitelistRequest(label="L", address="0x" + "ab" * 20, blockchain="ETH")
CERTIFICATE = "the certificate of 127.0.0.1:"


def client_of(url: str, **settings: Any) -> CustodyClient:
    return CustodyClient(url, "a-token-of-nobody", **{"max_retries": 3, "timeout": 60, **settings})


# --- other protocols ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"-ERR unknown command 'GET'\r\n", b"\x4a\x00\x00\x00"]
)
def test_a_server_that_speaks_no_http(greeting: bytes) -> None:
    with raw_server(lambda stream: stream.sendall(greeting)) as (url, received), client_of(url) as client:
        with pytest.raises(CustodyResponseError, match="sent something that is not HTTP") as caught:
            client.list_health_checks()
        assert (caught.value.code, caught.value.retryable) == ("response-unusable", False)
        assert caught.value.advice == f"Another program is there: check the base URL {url}."
        assert len(received) == 1
        # Who knows what it made of a request.
        with pytest.raises(CustodyOutcomeUnknownError, match="sent something that is not HTTP") as unknown:
            client.create_whitelist_request(REQUEST)
        assert str(unknown.value.advice).startswith(f"{caught.value.advice} The request was sent and may have been")


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"220 mail ESMTP\r\n", b"\x15\x03\x01\x00\x02\x01\x00"]
)
def test_a_server_that_speaks_first_is_sent_nothing_that_must_not_be_sent_twice(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        accepted = []

        def let_it_greet() -> None:
            connection = listener.accept()[0]
            accepted.append(connection)
            connection.sendall(greeting)
            # On its way to this machine itself.
            time.sleep(0.2)

        with client_of(url) as client, pytest.raises(CustodyConnectionError, match="nothing was sent") as caught:
            client.create_whitelist_request(REQUEST, before_send=let_it_greet)
        assert len(accepted) == 1
        with accepted[0], suppress(ConnectionResetError):
            assert accepted[0].recv(1) == b""
    assert (caught.value.retryable, caught.value.nothing_sent) == (False, True)
    is_tls = greeting.startswith(b"\x15")
    assert caught.value.code == ("unreachable" if is_tls else "response-unusable")
    assert (f"Begin the base URL {url} with https://" in str(caught.value)) is is_tls
    assert ("Another program is there: check the base URL" in str(caught.value)) is not is_tls


@pytest.mark.parametrize("beginning", [b"H", b"HTTP", b"HTTP/", b"HTTP/1.1 20"])
def test_a_connection_that_breaks_is_no_other_program(beginning: bytes) -> None:
    with raw_server(lambda stream: stream.sendall(beginning)) as (url, received), client_of(url) as client:
        with pytest.raises(CustodyConnectionError) as caught:
            client.list_health_checks()
        assert (caught.value.code, len(received)) == ("no-response", 4)


def in_two(data: bytes) -> Any:
    def respond(stream: Any) -> None:
        stream.sendall(data[:1])
        time.sleep(0.2)
        stream.sendall(data[1:])

    return respond


def test_what_a_peer_speaks_is_known_however_it_cuts_its_bytes() -> None:
    with raw_server(in_two(b"HTTP/1.0 400 Bad Request\r\n\r\n")) as (url, _):
        secure = url.replace("http:", "https:")
        with client_of(secure) as client, pytest.raises(CustodyConnectionError) as caught:
            client.list_health_checks()
        assert caught.value.code == "unreachable"
    with raw_server(in_two(b"\x15\x03\x01\x00\x02\x02\x28")) as (url, _):
        assert speaks_tls("127.0.0.1", int(url.rpartition(":")[2]), 5)


@pytest.mark.parametrize("last", ["silence", "end"])
def test_a_peer_that_begins_only_is_waited_for_no_longer_than_asked(last: str) -> None:
    def respond(stream: Any) -> None:
        stream.sendall(b"HTT")
        if last == "silence":
            # Until the peer gives up; an error after five seconds.
            stream.recv(1)

    with raw_server(respond) as (url, _):
        assert not speaks_http("127.0.0.1", int(url.rpartition(":")[2]), 0.3)


# --- certificates -------------------------------------------------------------------------------------------


def days(number: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=number)


@pytest.mark.parametrize(
    ("host", "begins", "ends", "text", "advice"),
    [
        (
            "127.0.0.1",
            -2,
            -1,
            "certificate has expired",
            "Have the certificate replaced, or that of its CA in 'verify', unless this machine's clock is wrong.",
        ),
        ("127.0.0.1", 1, 2, "certificate is not yet valid", "Set this machine's clock; if it is right"),
        (
            "other.example.com",
            -1,
            1,
            "127.0.0.1",
            "The certificate is for another host, or has no subject alternative name: check the base URL https://",
        ),
    ],
)
def test_a_certificate_that_is_not_accepted(
    tmp_path: Path, host: str, begins: int, ends: int, text: str, advice: str, authority: Authority
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made = authority[0].issue_cert(host, not_before=days(begins), not_after=days(ends))
    file = tmp_path / "server.pem"
    made.private_key_and_cert_chain_pem.write_to_path(file)
    context.load_cert_chain(file)
    with (
        raw_server(lambda stream: None, context) as (url, _),
        client_of(url, verify=authority[1]) as client,
        pytest.raises(CustodyConnectionError, match=CERTIFICATE) as caught,
    ):
        client.list_health_checks()
    assert text in caught.value.message
    assert str(caught.value.advice).startswith(advice)
    assert "private" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "given"),
    [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)],
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
        file = tmp_path / "client.pem"
        trustme.CA().issue_cert("me.example.com").private_key_and_cert_chain_pem.write_to_path(file)
        settings["client_cert"] = str(file)
    with (
        raw_server(lambda stream: None, context) as (url, _),
        client_of(url, **settings, max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        client.list_health_checks()
    words = (
        "It may not accept the certificate in 'client_cert'" if given else "If it asks for a client certificate, give"
    )
    assert words in str(caught.value.advice)


def refuse(alert: int) -> Any:
    return lambda stream: stream.sendall(b"\x15\x03\x03\x00\x02\x02" + bytes([alert]))


CERTIFICATE_ALERTS = [41, 42, 43, 44, 45, 46, 48, 49, 116]


@pytest.mark.parametrize(
    ("alerts", "advice"),
    [
        (CERTIFICATE_ALERTS, "If it asks for a client certificate, give its path in 'client_cert'."),
        (
            [70, 71],
            "No TLS version or cipher is common to the service and this machine: have it accept TLS 1.2 or 1.3.",
        ),
        ([80, 112], "It may not serve this host name: check the base URL {}, and that the service is up."),
        ([10, 20, 47, 50, 51, 90, 120], "Check the base URL {}, and that the service is up."),
    ],
)
def test_a_handshake_that_is_refused_says_why(authority: Authority, alerts: list[int], advice: str) -> None:
    for alert in alerts:
        with raw_server(refuse(alert)) as (url, _):
            https = url.replace("http:", "https:")
            for settings in ({}, {"client_cert": authority[2]}):
                with (
                    client_of(https, **settings, max_retries=0) as client,
                    pytest.raises(CustodyConnectionError) as caught,
                ):
                    client.list_health_checks()
                given = alert in CERTIFICATE_ALERTS and settings
                expected = "It may not accept the certificate in 'client_cert'." if given else advice.format(https)
                assert (caught.value.code, caught.value.advice) == ("tls-failed", expected), alert


def test_a_handshake_failure_may_be_about_the_certificate_or_not() -> None:
    with (
        raw_server(refuse(40)) as (url, _),
        client_of(url.replace("http:", "https:"), max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        client.list_health_checks()
    assert caught.value.advice == (
        "If it asks for a client certificate, give its path in 'client_cert'. "
        "Or no TLS version or cipher is common to it and this machine."
    )


@pytest.mark.parametrize(
    ("response", "hint"),
    [
        (b"", True),
        (b"H", False),
        (b"HTTP/1.1 200 OK\r\nContent-Type: appl", False),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 120 + b"\r\n", False),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", False),
        (b"HTTP/1.1 101 Switching\r\n\r\n", False),
    ],
)
def test_who_has_begun_to_respond_misses_no_certificate(authority: Authority, response: bytes, hint: bool) -> None:
    with (
        raw_server(lambda stream: stream.sendall(response), context_of(authority)) as (url, _),
        client_of(url, verify=authority[1], max_retries=0) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        client.list_health_checks()
    assert caught.value.code == "no-response"
    assert ("client certificate" in str(caught.value)) is hint


def test_who_has_responded_before_misses_no_certificate(authority: Authority) -> None:
    body = b'{"groups": {"a": {"healthChecks": [{"healthCheck": "x", "status": "success"}]}}}'

    def respond(stream: Any) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        received.append(stream.recv(65536))

    with (
        raw_server(respond, context_of(authority)) as (url, received),
        client_of(url, verify=authority[1], max_retries=0) as client,
    ):
        client.list_health_checks()
        with pytest.raises(CustodyConnectionError) as caught:
            client.list_health_checks()
        assert (caught.value.code, caught.value.advice) == ("no-response", None)


# --- other programs, and gateways ---------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["<html><title>Sign in</title></html>", {"status": "UP"}, [], "plain"])
def test_a_success_of_another_program_names_the_base_url(sandbox: Sandbox, body: Any) -> None:
    kind = "html" if str(body).startswith("<") else "status"
    sandbox.control.add_fault(kind, status=200, body=body, path="/health")
    source = "the Airflow connection 'bank'"
    with (
        CustodyClient(sandbox.url, sandbox.token, source=source) as client,
        pytest.raises(CustodyResponseError) as caught,
    ):
        client.list_health_checks()
    assert caught.value.code == "response-unusable"
    assert "there: check the base URL of the Airflow connection 'bank'." in str(caught.value)


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("body", [{"detail": "Not Found"}, {"error": "API route not found"}, "<html>Not here</html>"])
def test_who_does_not_know_the_path_or_the_method_is_another_program(sandbox: Sandbox, status: int, body: Any) -> None:
    kind = "html" if isinstance(body, str) else "status"
    sandbox.control.add_fault(kind, status=status, body=body, times=None)
    verb = "is" if kind == "html" else "may be"
    expected = f"Another program or a gateway {verb} there: check the base URL {sandbox.url}."
    with client_of(sandbox.url) as client:
        for call, more in ((client.list_health_checks, ""), (client.get_current_user, " The service may not offer")):
            with pytest.raises(CustodyError) as caught:
                call()
            assert caught.value.code == "response-unusable"
            assert str(caught.value.advice).startswith(expected + more)


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize(
    "body",
    [
        {"error": "NotFound", "message": "no such path"},
        {"error": "NotFound", "message": ""},
        {"error": "NotFound", "code": 404},
        {"code": 5, "message": "no such path"},
        {"error": "NotFound", "detail": "health"},
    ],
    ids=str,
)
def test_an_error_of_the_service_is_not_taken_for_another_programs(
    sandbox: Sandbox, status: int, body: dict[str, Any]
) -> None:
    sandbox.control.add_fault("status", status=status, body=body, times=None)
    with client_of(sandbox.url) as client, pytest.raises(CustodyError) as caught:
        client.list_health_checks()
    assert caught.value.code in ("not-found", "request-refused")
    assert "Another program" not in str(caught.value.advice)


@pytest.mark.parametrize("call", ["list_health_checks", "get_current_user", "list_webhooks"])
def test_a_page_of_a_gateway_says_nothing_of_roles(sandbox: Sandbox, call: str) -> None:
    sandbox.control.add_fault("html", status=403, body="<html><title>Blocked</title></html>")
    with CustodyClient(sandbox.url, sandbox.token) as client, pytest.raises(CustodyPermissionError) as caught:
        list(getattr(client, call)())
    assert (caught.value.code, caught.value.required_roles) == ("response-unusable", ())
    assert str(caught.value.advice).startswith("The page is a gateway's: have it let this call through, or check ")
    assert "role" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.reject_whitelist_requests(["99999"], "no"),
        lambda client: client.delete_whitelist_request("99999", "no"),
        lambda client: client.get_whitelist_request("99999"),
    ],
    ids=["reject", "delete", "get"],
)
def test_an_id_that_is_not_there_is_not_found(sandbox: Sandbox, call: Any) -> None:
    with CustodyClient(sandbox.url, sandbox.token) as client, pytest.raises(CustodyNotFoundError) as caught:
        call(client)
    assert caught.value.code == "not-found"
    assert "It may not exist" in str(caught.value.advice)


def test_a_path_that_is_not_there_is_not_offered(sandbox: Sandbox) -> None:
    own = {"error": "NotFound", "message": "not found", "code": 404}
    sandbox.control.add_fault("status", status=404, body=own, path="/webhooks")
    with CustodyClient(sandbox.url, sandbox.token) as client, pytest.raises(CustodyError) as caught:
        list(client.list_webhooks())
    assert caught.value.code == "not-offered"
