from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from support.service.sandbox_api import ROOT, Api

from airflow_custody.sandbox import Sandbox


@pytest.fixture
def api(sandbox: Sandbox) -> Api:
    return Api(sandbox.url, sandbox.token)


@pytest.fixture
def raw(sandbox: Sandbox) -> Callable[..., bytes]:
    """Return a function that makes a call, and returns all received bytes."""

    def call_raw(path: str = "/users/me", method: str = "GET", body: bytes = b"") -> bytes:
        head = (
            f"{method} {ROOT}{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {sandbox.token}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", sandbox.port), timeout=60) as connection:
            connection.sendall(head.encode() + body)
            response = b""
            while piece := connection.recv(65536):
                response += piece
            return response

    return call_raw
