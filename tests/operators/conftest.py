"""A webhook."""

from __future__ import annotations

import pytest
from webhook_reads import TYPE

from airflow_custody.sandbox import Sandbox


@pytest.fixture
def webhook(sandbox: Sandbox) -> str:
    """Return the id of a webhook."""
    return str(sandbox.control.add_webhook(type=TYPE)["id"])
