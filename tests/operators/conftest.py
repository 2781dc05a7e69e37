"""A webhook, and an object storage."""

from __future__ import annotations

import pytest
from support.airflow.storages import Storage
from support.airflow.webhook_reads import TYPE

from airflow_custody.sandbox import Sandbox


@pytest.fixture
def webhook(sandbox: Sandbox) -> str:
    """Return the id of a webhook."""
    return str(sandbox.control.add_webhook(type=TYPE)["id"])


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Return an empty storage."""
    monkeypatch.setattr(Storage, "store", {})
    return Storage(skip_instance_cache=True)
