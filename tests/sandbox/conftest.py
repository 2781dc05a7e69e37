from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from airflow_custody.sandbox import Sandbox

ROOT = "/api/rest/v1"


class Api:
    """Call the service the way any client would."""

    def __init__(self, url: str, token: str | None) -> None:
        self.root = url + ROOT
        self.token = token
        self.session = requests.Session()
        self.session.trust_env = False

    def call(self, method: str, path: str, *, token: str | None = None, **options: Any) -> requests.Response:
        headers = options.pop("headers", {})
        if token or self.token:
            headers.setdefault("Authorization", f"Bearer {token or self.token}")
        options.setdefault("timeout", 10)
        options.setdefault("allow_redirects", False)
        return self.session.request(method, self.root + path, headers=headers, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.call("POST", path, json=body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.call("PATCH", path, json=body, **options)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self.call("DELETE", path, **options)


@pytest.fixture(scope="session")
def running() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(running: Sandbox) -> Sandbox:
    running.control.reset()
    return running


@pytest.fixture
def client_of() -> Iterator[Callable[[str, str], Api]]:
    """Open clients of any sandbox, by URL and token."""
    with ExitStack() as opened:

        def open_one(url: str, token: str) -> Api:
            api = Api(url, token)
            opened.enter_context(api.session)
            return api

        yield open_one


@pytest.fixture
def api(sandbox: Sandbox, client_of: Callable[[str, str], Api]) -> Api:
    return client_of(sandbox.url, sandbox.token)


@pytest.fixture
def call() -> Callable[..., requests.Response]:
    """Make one call to any sandbox, on a connection of its own."""

    def call_once(sandbox: Sandbox, path: str = "/users/me", **options: Any) -> requests.Response:
        api = Api(sandbox.url, sandbox.token)
        with api.session:
            return api.get(path, **options)

    return call_once


@pytest.fixture
def raw(sandbox: Sandbox) -> Callable[..., bytes]:
    """Send a call by hand and return every byte that comes back until the connection is closed."""

    def talk(path: str = "/health", method: str = "GET", body: bytes = b"") -> bytes:
        head = (
            f"{method} {ROOT}{path} HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer {sandbox.token}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        url = urlsplit(sandbox.url)
        with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
            connection.sendall(head.encode() + body)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
            return answer

    return talk


@pytest.fixture
def refused() -> Callable[..., str]:
    """Check that an answer is an error in the service's flat form, and return its message."""

    def check(answer: requests.Response, status: int) -> str:
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        body = answer.json()
        assert set(body) == {"error", "message", "code", "error_code"}
        assert body["code"] == status
        assert body["error_code"].startswith("E900-")
        assert body["message"]
        return str(body["message"])

    return check
