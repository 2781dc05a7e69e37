"""A file, and a task that applies it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.apply_tries import ROWS, ApplyTask, address, plan, write_rows
from support.airflow.task_tries import RowsStore, somebody_creates
from support.clocks import SkippingTime

from airflow_custody.idempotency import send
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def batches(connection: str, airflow_db: None, waits: SkippingTime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send several batches, although the file has only a few rows."""
    monkeypatch.setattr(send, "MAX_BATCH", 5)


@pytest.fixture
def earlier(sandbox: Sandbox, batches: None) -> None:
    """Create another request of this user. While the service lists it, an empty search result proves absence."""
    somebody_creates(sandbox, label="Earlier", address=address(0))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a file with some rows that the service does not have."""
    return write_rows(tmp_path / "whitelist.yaml", ROWS)


@pytest.fixture
def task(path: str) -> ApplyTask:
    """Return a task that applies the file."""
    return ApplyTask(plan(path), RowsStore())


@pytest.fixture
def stored(task: ApplyTask) -> ApplyTask:
    """Return the task if this Airflow keeps a record for later tries."""
    if AIRFLOW < (3, 3):
        pytest.skip("the task state store of Airflow 3.3")
    return task
