"""A service that echoes secrets: no error, log line or exception chain shows one, in any form."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_server import raw_server
from secret_forms import FORMS, forms_of, is_latin_1, secrets, tokens

from airflow_custody.client import (
    ApiKey,
    ClientSettings,
    CustodyClient,
    CustodyConfigurationError,
    CustodyError,
    PasswordSignIn,
)
from airflow_custody.client.auth import BearerToken
from airflow_custody.client.http.authentication import Authentication

TYPE, URL = "requestStatus.updated", "https://receiver.example.com/"
# A word of the service that is no secret.
WORD = "zebra-quagga"


class Hostile(ThreadingHTTPServer):
    """A service that sends what a test wants."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reset()

    def reset(self) -> None:
        self.status, self.reason, self.headers, self.body = 200, "OK", dict[str, str](), b""
        self.sign_in_works = True
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The body would wait for the client's system to acknowledge the headers: 40 ms.
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        pass

    def respond(self) -> None:
        service = self.server
        assert isinstance(service, Hostile)
        service.requests += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, reason, headers, body = service.status, service.reason, service.headers, service.body
        if self.path.endswith("/authentication/token") and service.sign_in_works:
            status, reason, headers, body = 200, "OK", {}, b'{"result": "signed-in-t0ken"}'
        self.send_response(status, reason)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = respond


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def as_new(hostile: Hostile) -> None:
    """Let no test depend on what another one has had the service send."""
    hostile.reset()


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
    shown = [str(error), error.reason, repr(error), str(vars(error)), json.dumps(error.to_json(), ensure_ascii=False)]
    return "\n".join([*shown, *lines])


def seen(secret: str, texts: str) -> list[str]:
    return [form for form in forms_of(secret) if form in texts]


def marked(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts that turn up nowhere by chance."""
    return st.builds(lambda text, at: f"{text[:at]}Zq7{text[at:]}", texts, st.integers(0, 40))


PLACES = ["text", "html", "error", "message", "both", "error_code", "other", "nested", "list", "reason", "type"]
PLACES += ["location", "malformed header", "a key", "two hundred"]


def echo(server: Hostile, place: str, text: str, status: int) -> None:
    """Have the server send a text in one place of its response."""
    server.status, server.reason, server.headers, body = status, "Reason", {"Content-Type": "application/json"}, b""
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
    elif place in ("text", "html"):
        body = (f"<p>{text}</p>" if place == "html" else text).encode()
        server.headers = {"Content-Type": f"text/{place}"}
    elif place == "two hundred":
        server.status, body = 200, text.encode()
    elif not is_latin_1(text) or "\n" in text or "\r" in text:
        body = text.encode()
    elif place == "reason":
        server.reason = text
    else:
        name = {"type": "Content-Type", "location": "Location", "malformed header": "bad name"}[place]
        server.headers = {name: text}
        if place == "location":
            server.status = 302
    if place == "a key":
        server.status = 200
    server.body = body


statuses = st.sampled_from([400, 401, 403, 404, 409, 422, 429, 500, 503])
ways = st.tuples(st.sampled_from(PLACES), st.sampled_from(list(FORMS)), statuses)


def read(server: Hostile, auth: Authentication, **settings: Any) -> str:
    with CustodyClient(server.url, auth=auth, max_retries=0, timeout=60, **settings) as client:
        return texts_of(client.list_health_checks)


@settings(max_examples=150)
@given(token=marked(tokens), way=ways)
def test_a_token(hostile: Hostile, token: str, way: tuple[str, str, int]) -> None:
    place, form, status = way
    echo(hostile, place, f"({FORMS[form](token)})", status)
    texts = read(hostile, BearerToken(token))
    assert not seen(token, texts)


@settings(max_examples=150)
@given(password=marked(secrets), way=ways)
def test_a_password(hostile: Hostile, password: str, way: tuple[str, str, int]) -> None:
    place, form, status = way
    echo(hostile, place, f"({FORMS[form](password)})", status)
    hostile.sign_in_works = True
    assert not seen(password, read(hostile, PasswordSignIn("ann", password)))


@settings(max_examples=100)
@given(st.binary(min_size=4, max_size=32), ways, st.sampled_from([str.upper, str.lower]))
def test_the_secret_of_an_api_key(
    hostile: Hostile, key: bytes, way: tuple[str, str, int], change: Callable[[str], str]
) -> None:
    place, form, status = way
    echo(hostile, place, f"({FORMS[form](change(key.hex()))})", status)
    texts = read(hostile, ApiKey("key-id", key.hex()))
    assert not seen(key.hex(), texts)
    assert not seen(key.hex().upper(), texts)


@settings(max_examples=100)
@given(marked(secrets).filter(is_latin_1), ways)
def test_the_password_of_a_proxy(hostile: Hostile, password: str, way: tuple[str, str, int]) -> None:
    place, form, status = way
    echo(hostile, place, f"({FORMS[form](password)})", status)
    proxy = hostile.url.replace("://", f"://user:{quote(password, safe='')}@")
    assert not seen(password, read(hostile, BearerToken("t0ken"), proxy=proxy, allow_http=True))


# --- where a request carries a secret, no word of the response is quoted -------------------------------------


@settings(max_examples=150)
@given(password=marked(secrets), way=ways)
def test_no_word_of_a_failed_sign_in_is_quoted(hostile: Hostile, password: str, way: tuple[str, str, int]) -> None:
    place, form, status = way
    echo(hostile, place, f"{WORD} {FORMS[form](password)}", status)
    hostile.sign_in_works = False
    texts = read(hostile, PasswordSignIn("ann", password))
    hostile.sign_in_works = True
    assert WORD not in texts
    assert not seen(password, texts)


@settings(max_examples=150)
@given(secret=marked(secrets), way=ways)
def test_no_word_of_a_failed_creation_of_a_webhook_is_quoted(
    hostile: Hostile, secret: str, way: tuple[str, str, int]
) -> None:
    place, form, status = way
    echo(hostile, place, f"{WORD} {FORMS[form](secret)}", status)
    with CustodyClient(hostile.url, "t0ken", max_retries=0) as client:
        texts = texts_of(lambda: client.create_webhook(TYPE, URL, secret=secret))
    assert WORD not in texts
    assert not seen(secret, texts)


@pytest.mark.parametrize(
    "first", [b"%b HTTP/1.1\r\n\r\n", b"HTTP/1.1 4%b no\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n"]
)
def test_no_word_of_what_is_not_http_either(first: bytes) -> None:
    with (
        raw_server(lambda stream: stream.sendall(first % WORD.encode())) as (url, _),
        CustodyClient(url, auth=PasswordSignIn("ann", "a-password"), max_retries=0, timeout=60) as client,
    ):
        assert WORD not in texts_of(client.list_health_checks)


@pytest.mark.parametrize(
    "body", [{"webhook": {"id": WORD}, "secret": WORD}, {"webhook": WORD}, {"secret": {WORD: 1}}, WORD, [WORD]]
)
def test_no_word_of_a_strange_success_either(hostile: Hostile, body: object) -> None:
    hostile.status, hostile.headers, hostile.body = 200, {"Content-Type": WORD}, json.dumps(body).encode()
    with CustodyClient(hostile.url, "t0ken", max_retries=0) as client:
        assert WORD not in texts_of(lambda: client.create_webhook(TYPE, URL))


# --- what is quoted elsewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        ({"error": "InvalidArgument", "message": WORD, "code": 400}, True),
        ({"message": WORD}, True),
        ({"error": "InvalidArgument", "message": "m", "detail": WORD}, False),
        ({"error": "InvalidArgument", "message": {"text": WORD}}, False),
        ({"error": [WORD], "message": "m"}, False),
        ({"error": "InvalidArgument", "message": "m", "error_code": {"text": WORD}}, False),
    ],
)
def test_only_error_and_message_of_a_json_object_are_quoted(hostile: Hostile, body: object, quoted: bool) -> None:
    hostile.status, hostile.headers, hostile.body = 400, {}, json.dumps(body).encode()
    assert (WORD in read(hostile, BearerToken("t0ken"))) is quoted


@pytest.mark.parametrize("body", ["<html>a page</html>", '["a list"]', '{"detail": "of another"}'])
def test_another_body_is_described_and_its_first_words_are_quoted(hostile: Hostile, body: str) -> None:
    hostile.status, hostile.headers = 400, {"Content-Type": "text/x-test"}
    hostile.body = (body + " many more words" * 20 + WORD).encode()
    texts = read(hostile, BearerToken("t0ken"))
    assert f"content type text/x-test, {len(hostile.body)} bytes, beginning {body!r}"[:-1] in texts
    assert WORD not in texts


def test_the_last_hundred_tokens_are_redacted(hostile: Hostile) -> None:
    auth = PasswordSignIn("ann", "a-password")
    spent = [f"token-number-{number:03}-of-many" for number in range(100)]
    for token in spent:
        auth.hide_token(token)
    for token in spent:
        hostile.status, hostile.headers, hostile.body = 400, {}, json.dumps({"message": f"not {token}"}).encode()
        assert token not in read(hostile, auth)


# --- what a secret is made of ------------------------------------------------------------------------------

MAKERS: list[Callable[[], object]] = [
    lambda: CustodyClient("https://custody.example.com", "s3cret-\u20ac"),
    lambda: CustodyClient("https://custody.example.com", "s3cret- x"),
    lambda: ApiKey("id", "s3cret-not-hex"),
    lambda: ApiKey("id", b"s3cret"),  # type: ignore[arg-type]
    lambda: CustodyClient("https://ann:s3cret@[custody", "t0ken"),
    lambda: CustodyClient("https://custody.example.com", "t0ken", proxy="http://ann:s3cret@[proxy"),
    lambda: CustodyClient("https://custody.example.com", "t0ken", proxy="http://ann:s3cret\u20ac@proxy.example.com"),
    lambda: CustodyClient("https://custody.example.com", "t0ken", proxy="http://ann:s3cret%E2%82%AC@proxy.example.com"),
    lambda: CustodyClient("https://custody.example.com", "t0ken", user_agent="s3cret-\u20ac"),
    lambda: ClientSettings("https://custody.example.com", verify="/no/such"),
    lambda: ClientSettings("https://custody.example.com", client_cert="/no/such"),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_cannot_be_sent_is_refused_without_a_chain(make: Callable[[], object]) -> None:
    texts = texts_of(make)
    assert "s3cret" not in texts.replace('s3cret-not-hex")', "").split("Traceback")[0]


@pytest.mark.parametrize("token", ["t0ken-\u20ac", "two words", "", 3, None])
def test_a_token_from_the_service_that_cannot_be_sent(hostile: Hostile, token: object) -> None:
    hostile.status, hostile.headers, hostile.body = 200, {}, json.dumps({"result": token}).encode()
    hostile.sign_in_works = False
    texts = read(hostile, PasswordSignIn("ann", "a-password"))
    hostile.sign_in_works = True
    assert "\u20ac" not in texts
    assert "two words" not in texts


def test_a_proxy_of_the_environment_whose_password_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:s3cret%E2%82%AC@proxy.example.com")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert "s3cret" not in texts_of(lambda: CustodyClient("https://custody.example.com", "t0ken"))


def test_what_no_library_should_raise_becomes_an_error_of_ours(hostile: Hostile) -> None:
    class Careless(Authentication):
        def apply(self, request: Any, transport: Any, within: float | None = None) -> None:
            request.headers["Authorization"] = "Bearer s3cret-\u20ac"

    before = hostile.requests
    with CustodyClient(hostile.url, auth=Careless(source="nowhere"), max_retries=2) as client:
        with pytest.raises(CustodyConfigurationError, match="UnicodeEncodeError; nothing was sent") as caught:
            client.list_health_checks()
        assert caught.value.__context__ is None
    assert hostile.requests == before
