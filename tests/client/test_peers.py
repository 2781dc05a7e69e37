"""What is said of a peer that cannot be talked to: a server, another program in its place, a proxy, a gateway."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support.service.authorities import Authority, context_of
from support.service.raw_server import raw_server
from support.whitelist.calls import create, read
from urllib3.util.ssl_ import create_urllib3_context

from airflow_custody.client import (
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
)
from airflow_custody.client.http import transport
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
CERTIFICATE = "If it requires a client certificate, set its path in 'client_cert'."
PROXY_CERTIFICATE = "If it requires a client certificate, use another proxy, because only the service is sent one."
ALLOWS = "Check 'proxy', and that the proxy allows this host."
OTHER = "Another program listens there, or the port expects TLS. Check the base URL {url}."
OTHER_OR_GATEWAY = "Another program or a gateway may have sent this: check {}."

#: What a server sends to a client with a base URL of a scheme: the error's code, whether it is retryable, what it says.
SERVERS: list[tuple[str, bytes, str, bool, str, str]] = [
    ("https", SSH, "unreachable", False, "does not speak TLS on this port", HTTP),
    ("https", alert(40), "tls-failed", True, "TLS: {host} cannot be reached: ", f"{CHECK} {CERTIFICATE}"),
    ("https", alert(116), "tls-failed", True, "TLS: {host} cannot be reached: ", f"{CHECK} {CERTIFICATE}"),
    ("https", alert(70), "tls-failed", True, "alert protocol version", CHECK),
    ("https", b"", "tls-failed", True, "TLS: {host} cannot be reached: ", CHECK),
    ("http", alert(70), "response-unusable", False, "sent data that is not HTTP", OTHER),
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
        # Its body has left: who knows what was made of it.
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
OTHER_PROXY = "Another program listens there, or the port expects TLS. Check 'proxy'."
#: What a proxy does; the last one is what the service does, through it.
PROXIES: list[tuple[str, Callable[[socket.socket], None], str, bool, str, str]] = [
    ("http", send(SSH), "response-unusable", False, f"{PROXY} sent", OTHER_PROXY),
    ("https", send(SSH), "unreachable", False, f"{PROXY} does not speak TLS", "Start 'proxy' with http://,"),
    ("http", send(alert(70)), "response-unusable", False, f"{PROXY} sent", OTHER_PROXY),
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
    ("http", connect_and_send(alert(70)), "tls-failed", True, f"{TARGET} cannot be reached", CHECK),
]


@pytest.mark.parametrize("call", [create, read])
@pytest.mark.parametrize("proxy", PROXIES, ids=lambda row: f"{row[0]}, {row[4]}")
def test_a_proxy(proxy: Any, call: Any) -> None:
    scheme, respond, code, retryable, message, advice = proxy
    # A proxy that refuses is asked once: the account there may get locked.
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
    # Until the client gives up.
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


# Nothing listens on this loopback address.
@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_the_port_that_was_tried_is_named_although_the_base_url_has_none(scheme: str, port: int) -> None:
    error = error_of(read, f"{scheme}://127.9.9.9", max_retries=0)
    assert error.message.startswith(f"127.9.9.9:{port} cannot be reached: ")


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


def days(number: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=number)


REPLACED = "Check this machine's clock. If it is right, replace the certificate, or that of its CA in 'verify'."
UNKNOWN_CA = "Its CA is not in 'verify', or the server does not send an intermediate certificate."


@pytest.mark.parametrize("is_proxy", [False, True])
@pytest.mark.parametrize(
    ("host", "begins", "ends", "verify", "advice"),
    [
        ("127.0.0.1", -2, -1, "bundle", REPLACED),
        ("127.0.0.1", 1, 2, "bundle", REPLACED),
        ("other.example.com", -1, 1, "bundle", "The certificate is for another host"),
        ("127.0.0.1", -1, 1, "another bundle", UNKNOWN_CA),
        ("127.0.0.1", -1, 1, True, "If its CA is private, set 'verify' to the path of its bundle."),
    ],
    ids=["expired", "not yet valid", "another host", "another CA", "a private CA"],
)
def test_a_certificate_that_is_not_accepted(
    tmp_path: Path,
    authority: Authority,
    host: str,
    begins: int,
    ends: int,
    verify: Any,
    advice: str,
    is_proxy: bool,
) -> None:
    made = authority[0].issue_cert(host, not_before=days(begins), not_after=days(ends))
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "another.pem")
    settings = {"verify": {"bundle": authority[1], "another bundle": str(tmp_path / "another.pem")}.get(verify, True)}
    with raw_server(lambda stream: None, context_of((authority[0], "", str(tmp_path / "server.pem")))) as (url, _):
        error = error_of(read, SERVICE, proxy=url, **settings) if is_proxy else error_of(read, url, **settings)
    peer = url.rpartition("/")[2]
    assert error.code == "tls-failed"
    assert error.retryable is False
    assert f"the certificate of {'the proxy ' if is_proxy else ''}{peer} was not accepted: " in error.message
    assert str(error.advice).startswith(advice)


def issue(
    folder: Path, *, ca: Sequence[x509.ExtensionType], server: Sequence[x509.ExtensionType], has_identifiers: bool
) -> Path:
    """Write a CA's certificate, and one for this machine with its key, with these extensions; return the CA's path."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in ("CA", "server")]
    pems = []
    for key, name, extensions in zip(keys, names, (ca, server), strict=True):
        builder = x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(days(-1)).not_valid_after(days(1))
        identifiers = [
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key()),
        ]
        for extension in (*extensions, *(identifiers if has_identifiers else ())):
            is_critical = isinstance(extension, (x509.BasicConstraints, x509.KeyUsage))
            builder = builder.add_extension(extension, critical=is_critical)
        pems.append(builder.sign(keys[0], SHA256()).public_bytes(Encoding.PEM))
    (folder / "ca.pem").write_bytes(pems[0])
    private_key = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.pem").write_bytes(pems[1] + private_key)
    return folder / "ca.pem"


SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
IS_CA = x509.BasicConstraints(ca=True, path_length=None)
NO_CA = x509.BasicConstraints(ca=False, path_length=None)
FOR_THIS_MACHINE = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
FOR_CLIENTS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
STRICT = "violates RFC 5280, which Python checks from version 3.13 on. Have it reissued. Its CA is not missing"
CANNOT_BE_USED = "is not valid for this kind of server. Have it reissued"


@pytest.mark.parametrize(
    ("ca", "server", "cause", "advice"),
    [
        ([IS_CA, SIGNS_CERTIFICATES], [FOR_THIS_MACHINE], "Missing Authority Key Identifier", STRICT),
        ([NO_CA], [FOR_THIS_MACHINE], "invalid CA certificate", CANNOT_BE_USED),
        (
            [IS_CA, SIGNS_CERTIFICATES],
            [FOR_THIS_MACHINE, FOR_CLIENTS],
            "unsuitable certificate purpose",
            CANNOT_BE_USED,
        ),
    ],
    ids=["no key identifier", "a CA that is none", "for clients only"],
)
def test_a_certificate_that_is_not_made_as_it_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ca: Any, server: Any, cause: str, advice: str
) -> None:
    """The CA is in the bundle: the advice must not tempt anyone to switch verification off."""

    def as_in_python_3_13() -> ssl.SSLContext:
        context = create_urllib3_context()
        if advice == STRICT:
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(transport, "create_urllib3_context", as_in_python_3_13)
    bundle = issue(tmp_path, ca=ca, server=server, has_identifiers=advice != STRICT)
    with raw_server(lambda stream: None, context_of((trustme.CA(), "", str(tmp_path / "server.pem")))) as (url, _):
        error = error_of(read, url, verify=str(bundle))
    assert error.code == "tls-failed"
    assert error.retryable is False
    assert cause in error.message
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
    words = "It may reject the certificate in 'client_cert'" if given else CERTIFICATE
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
        # So says Airflow's own API server.
        (
            405,
            {"detail": "Method Not Allowed"},
            f"{OTHER_OR_GATEWAY} The service",
        ),
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
    ids=["200", "404 in JSON", "404 page", "405 in JSON", "405 page", "403 page"],
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
        ({"message": "no Route matched"}, False),
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
