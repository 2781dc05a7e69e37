"""
The sandbox as a pytest fixture, for tests of DAGs.

Enable it in ``conftest.py``::

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
    """Run a sandbox in this process during the tests."""
    from airflow_custody.sandbox import Sandbox

    with Sandbox() as server:
        yield server


@pytest.fixture
def custody_sandbox(custody_sandbox_server: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """
    Return a fresh sandbox, with Airflow connections to it.

    The connections are the same as printed by ``python -m airflow_custody.sandbox --with-signers``. The connection
    ``custody_default`` pins the keys. Each of the two required signers has a connection to the service, such as
    ``custody_first_signer``, and a connection with the key, such as ``custody_first_key``.
    """
    from airflow_custody.sandbox import connection_variables

    server = custody_sandbox_server
    server.control.reset()
    signers = server.control.add_signers(_SIGNERS)
    for name, value in connection_variables(server.connection(pins=True), signers).items():
        monkeypatch.setenv(name, value)
    return server
