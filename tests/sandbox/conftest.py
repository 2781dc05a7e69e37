from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import requests
from sandbox_api import ROOT, Api, Call, OpenClient, Raw, Refused

from airflow_custody.sandbox import Sandbox

if TYPE_CHECKING:
    import httpx


@pytest.fixture(scope="session")
def running() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(running: Sandbox) -> Sandbox:
    running.control.reset()
    return running


@pytest.fixture
def client_of() -> Iterator[OpenClient]:
    """Return a function that opens a client of any sandbox, by URL and token."""
    with ExitStack() as opened:

        def open_one(url: str, token: str) -> Api:
            api = Api(url, token)
            opened.enter_context(api.session)
            return api

        yield open_one


@pytest.fixture
def api(sandbox: Sandbox, client_of: OpenClient) -> Api:
    return client_of(sandbox.url, sandbox.token)


@pytest.fixture
def call() -> Call:
    """Return a function that makes one call to any sandbox, on a connection of its own."""

    def call_once(sandbox: Sandbox, path: str = "/users/me", **options: Any) -> requests.Response:
        api = Api(sandbox.url, sandbox.token)
        with api.session:
            return api.get(path, **options)

    return call_once


@pytest.fixture
def raw(sandbox: Sandbox) -> Raw:
    """Return a function that makes one call, and returns every byte until the connection is closed."""

    def call_raw(path: str = "/health", method: str = "GET", body: bytes = b"") -> bytes:
        head = (
            f"{method} {ROOT}{path} HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer {sandbox.token}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) as connection:
            connection.sendall(head.encode() + body)
            response = b""
            while piece := connection.recv(65536):
                response += piece
            return response

    return call_raw


@pytest.fixture
def refused() -> Refused:
    """Return a function that checks that a response is an error in the service's form, and returns its message."""

    def check(response: requests.Response | httpx.Response, status: int) -> str:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/json"
        body = response.json()
        assert set(body) == {"error", "message", "code", "error_code"}
        assert body["code"] == status
        assert body["error_code"].startswith("E900-")
        assert body["message"]
        return str(body["message"])

    return check
