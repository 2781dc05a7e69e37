"""A client of the sandbox with a token, and one that signs in as ann."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from support.clocks import Clock
from support.service.sign_ins import PASSWORD, ROLES, client_of

from airflow_custody.client import CustodyClient, PasswordSignIn
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


@pytest.fixture
def ann(sandbox: Sandbox) -> str:
    """Return the id of the user ann."""
    return sandbox.control.add_user("ann", ROLES, password=PASSWORD)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that decides when tokens expire."""
    made = Clock(time.time())
    monkeypatch.setattr("airflow_custody.client.auth.time", SimpleNamespace(time=made))
    return made


@pytest.fixture
def anns(sandbox: Sandbox, ann: str, clock: Clock) -> Iterator[CustodyClient]:
    """Return a client that signs in as ann."""
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD)) as made:
        yield made
