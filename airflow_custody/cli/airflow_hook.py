"""The hook of the command line. It imports Airflow, so only what needs an Airflow connection imports it."""

from __future__ import annotations

from typing import Any

from airflow.models.connection import Connection

from airflow_custody.hooks.custody import CustodyHook


class CommandLineHook(CustodyHook):
    """A hook that finds connections outside of a task, and sends no metrics."""

    # Nobody wants a person's look at the service among what Airflow does.
    sends_metrics = False

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Return a connection from the secrets backends, the environment or, outside of a task, the database."""
        return Connection.get_connection_from_secrets(conn_id)
