"""A file, and a task that applies it."""

from __future__ import annotations

from pathlib import Path

import pytest
from apply_tries import ROWS, ApplyTask, plan, write_rows
from task_tries import RowsStore


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a file with some rows that the service does not have."""
    return write_rows(tmp_path / "whitelist.yaml", ROWS)


@pytest.fixture
def task(path: str) -> ApplyTask:
    """Return a task that applies it."""
    return ApplyTask(path, plan(path)["plan_hash"], RowsStore())
