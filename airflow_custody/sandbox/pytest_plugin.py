"""
The sandbox as a fixture of pytest, for tests of DAGs. In ``conftest.py``::

    pytest_plugins = ["airflow_custody.sandbox.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_custody.sandbox import Sandbox

_SIGNERS = ("alice", "bob")


@pytest.fixture(scope="session")
def custody_sandbox_server() -> Iterator[Sandbox]:
    """Run a sandbox in this process while tests run."""
    from airflow_custody.sandbox import Sandbox

    with Sandbox() as server:
        yield server


@pytest.fixture
def custody_sandbox(custody_sandbox_server: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """
    Return a sandbox as if it had just been started, and define the Airflow connections to it.

    They are those that ``python -m airflow_custody.sandbox --with-signers`` prints: ``custody_default``, with the keys
    to pin, and for each of the two users who must sign a connection to the service and one with the key, such as
    ``custody_first_signer`` and ``custody_first_key``.
    """
    from airflow_custody.sandbox import connection_variables

    server = custody_sandbox_server
    server.control.reset()
    signers = server.control.add_signers(_SIGNERS)
    for name, value in connection_variables(server.connection(pins=True), signers).items():
        monkeypatch.setenv(name, value)
    return server
