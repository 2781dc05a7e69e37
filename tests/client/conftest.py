"""A user of the sandbox with a password."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sign_ins import PASSWORD, ROLES, client_of

from airflow_custody.client import CustodyClient, PasswordSignIn
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def ann(sandbox: Sandbox) -> str:
    """Return the id of a user of that name."""
    return sandbox.control.add_user("ann", ROLES, password=PASSWORD)


@pytest.fixture
def client(sandbox: Sandbox, ann: str) -> Iterator[CustodyClient]:
    """Return a client that signs in as ann."""
    with client_of(sandbox, PasswordSignIn("ann", PASSWORD)) as made:
        yield made
