"""The hook of the command line. This module imports Airflow, so import it only if an Airflow connection is used."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from airflow import __version__ as airflow_version
from airflow.models.connection import Connection
from airflow.providers.common.compat.sdk import AirflowNotFoundException, conf

from airflow_custody.hooks.custody import CustodyHook


class CommandLineHook(CustodyHook):
    """A hook that finds connections outside of a task, and sends no metrics."""

    # Send no metrics, because metrics describe the work of Airflow's tasks, and not the calls of users.
    sends_metrics = False

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """
        Return a connection from a secrets backend, an environment variable or the database.

        Outside of a task, Airflow 3's own hook reads all of these sources except the database. It is tried first,
        because it does not load the models of the database. It is not used if workers have a secrets backend of their
        own, because it would read that backend.
        """
        if not (airflow_version.startswith("2.") or conf.get("workers", "secrets_backend", fallback="")):
            with suppress(AirflowNotFoundException):
                return super().get_connection(conn_id)
        return Connection.get_connection_from_secrets(conn_id)
