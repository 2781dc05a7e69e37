"""One Airflow home and one sandbox for the whole run, a clean view of the sandbox for each test."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from hypothesis import HealthCheck, settings
from support.airflow.process_state import restored
from support.clocks import SkippingTime, skipping_waits
from support.service.authorities import Authority

if TYPE_CHECKING:
    from support.airflow.statsd_server import StatsdServer
    from support.airflow.task_log import TaskLog

# Set these before the first import of Airflow, because Airflow reads its settings only once.
for _name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[_name]
_HOME = tempfile.TemporaryDirectory(prefix="airflow-custody-tests-")
os.environ.update(
    AIRFLOW_HOME=_HOME.name,
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__DAGS_FOLDER=str(Path(__file__).parent / "dags"),
    AIRFLOW__CORE__UNIT_TEST_MODE="False",
    AIRFLOW__LOGGING__LOGGING_LEVEL="INFO",
)

from support.airflow.connections import connection_json  # noqa: E402

from airflow_custody.sandbox import Sandbox  # noqa: E402

pytest_plugins = ["airflow_custody.sandbox.pytest_plugin"]

# Use a long time limit, so that no test fails because a machine is slow.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_sessionfinish() -> None:
    """Keep what was measured: a worker that takes over ten seconds to end, on a busy machine, is killed."""
    if (coverage := sys.modules.get("coverage")) and (measured := coverage.Coverage.current()):
        measured.save()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Have each process begin with slow tests, which would otherwise run alone at the end.

    Names that differ between processes are refused, because the processes would not find each other's tests.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"pass ids to parametrize, without addresses in memory: {item.nodeid[:300]}")
    # pytest-xdist first gives each process an equal part of the list.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    size = -(-len(others) // processes)
    items[:] = [
        item
        for number in range(processes)
        for item in (*slow[number::processes], *others[number * size : (number + 1) * size])
    ]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Show the beginning of collections, errors and long texts, which pytest would only number."""
    is_long = isinstance(val, (str, bytes)) and len(val) > 80
    if is_long or isinstance(val, (dict, list, tuple, set, frozenset, BaseException)):
        return _shown(val)[:80]
    return None


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!a}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (set, frozenset)):
        # Their order is another in each process.
        return "{" + ", ".join(sorted(map(_shown, value))) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, int) and value.bit_length() > 64:
        # Python refuses to write very large numbers.
        return "a large number"
    if isinstance(value, (str, bytes)):
        return ascii(value[:80])
    if value is None or isinstance(value, (int, float)):
        return ascii(value)
    return type(value).__name__


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    with restored():
        yield


@pytest.fixture
def waits() -> Iterator[SkippingTime]:
    """Skip the package's waits, and return the clock that shows how long they would have taken."""
    with skipping_waits() as skipping:
        yield skipping


@pytest.fixture
def sandbox(custody_sandbox_server: Sandbox) -> Sandbox:
    """Return the sandbox, reset as if it had just been started, without signers and connections."""
    custody_sandbox_server.control.reset()
    return custody_sandbox_server


@pytest.fixture
def connection(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> str:
    """Define the default connection, to the sandbox, and return its id."""
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox))
    return "custody_default"


@pytest.fixture(scope="session")
def airflow_db() -> None:
    from airflow.utils import db

    db.initdb()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
        str(folder / "server.pem")
    )
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    return authority, str(folder / "ca.pem"), str(folder / "server.pem")


@pytest.fixture
def task_log(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> TaskLog:
    from support.airflow.task_log import TaskLog

    caplog.set_level("INFO")
    return TaskLog(caplog, capsys)


@pytest.fixture
def statsd() -> Iterator[StatsdServer]:
    """Turn metrics on, to a StatsD server without tags: Airflow's default."""
    from support.airflow.statsd_server import metrics_on

    with metrics_on() as server:
        yield server


@pytest.fixture
def tagged() -> Iterator[StatsdServer]:
    """Turn metrics on, to a StatsD server with tags."""
    from support.airflow.statsd_server import metrics_on

    with metrics_on(statsd_influxdb_enabled="True") as server:
        yield server
