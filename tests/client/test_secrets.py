"""A service that echoes secrets: no error, log line or exception chain shows one, in any form."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.service.raw_server import raw_server
from support.whitelist.calls import create

from airflow_custody.client import (
    ApiKey,
    ClientSettings,
    CustodyClient,
    CustodyConfigurationError,
    CustodyError,
    PasswordSignIn,
)
from airflow_custody.client.auth import Authentication, BearerToken
from airflow_custody.client.secrets import REDACTED, redact, without_secrets
from airflow_custody.sandbox import Sandbox

TYPE, URL = "requestStatus.updated", "https://receiver.example.com/"
# This word of the service is not secret.
WORD = "zebra-quagga"


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def escaped(text: str) -> str:
    """Return a text as .NET and Gson write it in JSON."""
    return "".join(
        json.dumps(each)[1:-1] if ord(each) > 126 else each if each.isalnum() else f"\\u{ord(each):04X}"
        for each in text
    )


#: The forms in which a secret is redacted.
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON, raw": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON, escaped": escaped,
    "URL": lambda text: quote(text, safe=""),
    "URL, slashes": quote,
    "URL, form": quote_plus,
    "base64": in_base64,
    "base64, unpadded": lambda text: in_base64(text).rstrip("="),
    "base64, URL": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


def is_latin_1(text: str) -> bool:
    with suppress(UnicodeEncodeError):
        return bool(text.encode("latin-1")) or not text
    return False


def marked(letters: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return secrets that cannot occur in a text by chance."""
    texts = st.text(letters, min_size=4, max_size=40)
    return st.builds(lambda text, at: f"{text[:at]}Zq7{text[at:]}", texts, st.integers(0, 40))


#: Secrets with all that some format escapes.
secrets = marked(
    st.sampled_from("\"\\&<>%+/ é€😀'=;#u0x41") | st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"])
)
#: Those that can be sent in a header.
tokens = marked(st.sampled_from("\"\\&<>%+/é'=;#u0x41.-_") | st.characters(min_codepoint=0x21, max_codepoint=0x7E))
keys = st.builds(
    lambda key, change: change(key.hex()), st.binary(min_size=4, max_size=32), st.sampled_from([str.upper, str.lower])
)


@given(secrets, st.sampled_from(list(FORMS)))
def test_a_secret_is_redacted_in_every_form(secret: str, form: str) -> None:
    text = redact(f"<{FORMS[form](secret)}>", [secret])
    assert FORMS[form](secret) not in text
    assert REDACTED in text


@pytest.mark.parametrize("secret", ["", "====", "tea"])
def test_other_text_is_not_redacted(secret: str) -> None:
    assert redact("no such text", [secret]) == "no such text"
    assert redact("t0ken-and-more", ["t0ken", "t0ken-and-more"]) == REDACTED


# --- a service that echoes ---------------------------------------------------------------------------------


class Hostile:
    """A service that sends what a test wants."""

    def __init__(self) -> None:
        self.url, self.received = "", list[bytes]()
        self.sign_in_works = True
        self.respond(200, b"")

    def respond(self, status: int, body: object, headers: dict[str, str] | None = None, reason: str = "OK") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Connection": "close", "Content-Length": str(len(data)), **(headers or {})}
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self.response = "\r\n".join(lines).encode("latin-1") + data

    def serve(self, stream: socket.socket) -> None:
        signs_in = b"/authentication/token" in self.received[-1]
        stream.sendall(SIGNED_IN if signs_in and self.sign_in_works else self.response)


SIGNED_IN = b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 29\r\n\r\n{"result": "signed-in-t0ken"}'


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    service = Hostile()
    with raw_server(service.serve) as (service.url, service.received):
        yield service


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect all log lines, tracebacks included."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, root = Collect(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def texts_of(call: Callable[[], object]) -> str:
    """Return all that an error of this call shows, and what was logged."""
    with logged() as lines:
        error: BaseException | None = None
        try:
            call()
        except Exception as exception:
            error = exception
    assert isinstance(error, CustodyError), error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert len(str(error)) < 1000
    shown = [str(error), error.reason, repr(error), str(vars(error)), json.dumps(error.to_json(), ensure_ascii=False)]
    return "\n".join([*shown, *lines])


def read(server: Hostile, auth: Authentication, **settings: Any) -> str:
    with CustodyClient(server.url, auth=auth, max_retries=0, timeout=60, **settings) as client:
        return texts_of(client.list_health_checks)


PLACES = ["text", "html", "error", "message", "both", "error_code", "other", "nested", "list", "reason", "type"]
PLACES += ["location", "malformed header", "a key", "status line", "length"]
ways = st.tuples(
    st.sampled_from(PLACES),
    st.sampled_from(list(FORMS)),
    st.sampled_from([200, 400, 401, 403, 404, 409, 422, 429, 500, 503]),
)


def echo(server: Hostile, place: str, text: str, status: int) -> None:
    """Have the server send a text in one place of its response."""
    bodies: dict[str, object] = {
        "error": {"error": text, "message": "m"},
        "message": {"error": "E", "message": text, "code": 7},
        "both": {"error": text, "message": text, "error_code": text},
        "error_code": {"error": "E", "message": "m", "error_code": text},
        "other": {"detail": text},
        "nested": {"message": {"text": text}, "error": [text]},
        "list": [text],
        "a key": {"groups": {text: {"healthChecks": 3}}},
    }
    if place in bodies:
        body = json.dumps(bodies[place], ensure_ascii=len(text) % 2 == 0).encode()
        server.respond(200 if place == "a key" else status, body, {"Content-Type": "application/json"})
    elif place in ("text", "html"):
        server.respond(
            status, (f"<p>{text}</p>" if place == "html" else text).encode(), {"Content-Type": f"text/{place}"}
        )
    elif not is_latin_1(text) or "\n" in text or "\r" in text:
        server.respond(status, text.encode())
    elif place == "status line":
        server.response = f"{text} HTTP/1.1\r\n\r\n".encode("latin-1")
    elif place == "reason":
        server.respond(status, b"", reason=text)
    else:
        name = {
            "type": "Content-Type",
            "location": "Location",
            "length": "Content-Length",
            "malformed header": "bad name",
        }[place]
        server.respond(302 if place == "location" else status, b"", {name: text})


def by_proxy(server: Hostile, secret: str) -> str:
    proxy = server.url.replace("://", f"://user:{quote(secret, safe='')}@")
    return read(server, BearerToken("t0ken"), proxy=proxy, allow_http=True)


def create_webhook(server: Hostile, secret: str | None) -> str:
    with CustodyClient(server.url, "t0ken", max_retries=0) as client:
        return texts_of(lambda: client.create_webhook(TYPE, URL, secret=secret))


class Carrier(NamedTuple):
    """
    A call whose sender has a secret.

    :ivar is_quoted: whether words of the response are quoted: not where the request carries the secret.
    """

    secrets: st.SearchStrategy[str]
    call: Callable[[Hostile, str], str]
    is_quoted: bool = True


CARRIERS = {
    "token": Carrier(tokens, lambda server, secret: read(server, BearerToken(secret))),
    "password": Carrier(secrets, lambda server, secret: read(server, PasswordSignIn("ann", secret))),
    "API key": Carrier(keys, lambda server, secret: read(server, ApiKey("key-id", secret.swapcase()))),
    "proxy": Carrier(secrets.filter(is_latin_1), by_proxy),
    "sign-in": Carrier(secrets, lambda server, secret: read(server, PasswordSignIn("ann", secret)), is_quoted=False),
    "new webhook": Carrier(secrets, create_webhook, is_quoted=False),
}


@pytest.mark.parametrize("name", CARRIERS)
def test_secrets_are_shown_in_no_form(hostile: Hostile, name: str) -> None:
    carrier = CARRIERS[name]
    hostile.sign_in_works = name != "sign-in"

    @settings(max_examples=100)
    @given(carrier.secrets, ways)
    def check(secret: str, way: tuple[str, str, int]) -> None:
        place, form, status = way
        echo(hostile, place, f"{WORD} {FORMS[form](secret)}", status)
        texts = carrier.call(hostile, secret)
        assert not [each for each in FORMS.values() if each(secret) in texts]
        assert carrier.is_quoted or WORD not in texts

    check()


@pytest.mark.parametrize("name", ["read", "create", "sign-in"])
@pytest.mark.parametrize(
    "fault",
    [
        # If a text is cut in the middle of a secret, half of the secret may be left.
        {"kind": "status", "status": 500, "body": {"error": "x" * 290, "message": "{token}"}},
        {"kind": "html", "body": "y" * 110 + "{token}"},
    ],
    ids=lambda fault: fault["kind"],
)
def test_a_cut_text_shows_no_part_of_a_token(sandbox: Sandbox, client: CustodyClient, fault: Any, name: str) -> None:
    token, auth = sandbox.token, PasswordSignIn("ann", sandbox.token)
    sandbox.control.add_fault(**json.loads(json.dumps(fault).replace("{token}", token)))
    with CustodyClient(sandbox.url, auth=auth, max_retries=0) as other:
        caller = other if name == "sign-in" else client
        texts = texts_of(lambda: create(caller) if name == "create" else caller.get_rules())
        assert token[:12] not in texts + repr(client) + repr(other) + repr(auth)


# --- what is quoted elsewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        ({"error": "InvalidArgument", "message": WORD, "code": 400}, True),
        ({"error": "InvalidArgument", "message": "m", "detail": WORD}, False),
        ({"error": "InvalidArgument", "message": {"text": WORD}}, False),
        ({"error": [WORD], "message": "m"}, False),
        ({"error": "InvalidArgument", "message": "m", "error_code": {"text": WORD}}, False),
        # The body of a response that carries no secret is described.
        (b"<html>a page</html>" + b" many more words" * 20 + WORD.encode(), False),
    ],
)
def test_only_error_and_message_of_a_json_object_are_quoted(hostile: Hostile, body: object, quoted: bool) -> None:
    hostile.respond(400, body, {"Content-Type": "text/x-test"})
    texts = read(hostile, BearerToken("t0ken"))
    assert (WORD in texts) is quoted
    if isinstance(body, bytes):
        assert f"content type text/x-test, {len(body)} bytes, beginning '<html>a page</html> " in texts


def test_a_proxys_password_is_in_no_error_repr_or_log() -> None:
    with raw_server(
        lambda stream: stream.sendall(b"HTTP/1.1 407 Denied proxy-s3cret\r\nContent-Length: 0\r\n\r\n")
    ) as (url, _):
        proxy = f"http://user:proxy-s3cret@{urlsplit(url).netloc}"
        with CustodyClient("https://custody.example.com", "t0ken", proxy=proxy, max_retries=1) as client:
            texts = texts_of(client.list_health_checks)
            assert "proxy-s3cret" not in texts + repr(client) + repr(client.settings)
    assert "proxy-s3cret" not in repr(ClientSettings("https://custody.example.com", proxy=proxy))


def test_the_log_has_no_query_of_a_confidential_operation(client: CustodyClient) -> None:
    with logged() as lines:
        list(client.list_webhooks(webhook_type=WORD))
    assert "list webhooks" in "".join(lines)
    assert WORD not in "".join(lines)


def test_an_unexpected_exception_becomes_an_error_without_its_text(hostile: Hostile) -> None:
    class Careless(Authentication):
        def apply(self, request: Any, transport: Any) -> None:
            request.headers["Authorization"] = "Bearer s3cret-\u20ac"

    with CustodyClient(hostile.url, auth=Careless(source="nowhere"), max_retries=2) as client:
        with pytest.raises(CustodyConfigurationError, match="with these settings: UnicodeEncodeError") as caught:
            client.list_health_checks()
        assert caught.value.__context__ is None
    assert hostile.received == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("", None),
        ("https://x.test", "https://x.test"),
        ("https://x.test:8443/", "https://x.test:8443"),
        ("HTTPS://[2001:db8::1]:8443/", "HTTPS://[2001:db8::1]:8443"),
        ("https://x.test:8443/s3cret/b", "https://x.test:8443/***"),
        ("https://x.test/;token=s3cret", "https://x.test/***"),
        ("https://x.test?s3cret", "https://x.test/***"),
        ("https://x.test#s3cret", "https://x.test/***"),
        ("https://x.test:s3cret/", "***"),
        ("https://x.test\n/s3cret", "***"),
        ("https://ann:s3cret@x.test/a?b=s3cret#s3cret", "https://***@x.test/***"),
        ("https://ann:s3cret@s3cret@x.test", "https://***@x.test"),
        ("https://ann:s3cret@s3cret/s3cret@x.test/", "***"),
        ("https://s3cret?@x.test/", "***"),
        ("s3cret@x.test", "***"),
        ("javascript:s3cret", "***"),
        ("http://[s3cret", "***"),
    ],
)
def test_secrets_in_a_url_are_not_shown(url: str | None, shown: str | None) -> None:
    assert without_secrets(url) == shown
