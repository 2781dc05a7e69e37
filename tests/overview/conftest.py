"""A service for tests that read its overview."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox

Create = Callable[..., str]


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


@pytest.fixture
def pinning(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0, **sandbox.control.pins()) as made:
        yield made


@pytest.fixture
def create(client: CustodyClient) -> Create:
    """Return a function that creates a pending request, and returns its id."""

    def create(number: int, **fields: Any) -> str:
        given: dict[str, Any] = {"label": f"L{number}", "address": f"0x{number:040x}", "blockchain": "ETH", **fields}
        return client.create_whitelist_request(WhitelistRequest(**given))

    return create
