"""A hook of a connection that a test defines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_custody.hooks.custody import CustodyHook

Define = Callable[[Any], CustodyHook]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Return a function that defines the default connection, by a dict or as text, and returns its hook."""

    def define(value: Any) -> CustodyHook:
        text = value if isinstance(value, str) else json.dumps(value)
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", text)
        return CustodyHook()

    return define
