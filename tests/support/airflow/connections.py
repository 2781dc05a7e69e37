"""Airflow connections to the sandbox."""

from __future__ import annotations

import json

from airflow_custody.sandbox import Sandbox


def connection_json(sandbox: Sandbox, **extra: object) -> str:
    """Return a connection to the sandbox as JSON, by default without retries."""
    return json.dumps(
        {
            "conn_type": "custody",
            "host": sandbox.url,
            "password": sandbox.token,
            "extra": {"timeout": 60, "max_retries": 0, **extra},
        }
    )
