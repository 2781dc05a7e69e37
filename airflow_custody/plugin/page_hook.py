"""The hook with which the page reads a service, and the key that identifies a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.overview import for_people

if TYPE_CHECKING:
    from airflow.models.connection import Connection


class ConnectionKey(NamedTuple):
    """
    A connection.

    :param conn_id: its id.
    :param team: the team that owns it; None: no team.
    """

    conn_id: str
    team: str | None


class PageHook(CustodyHook):
    """
    A hook for a connection that a team may own.

    It sends no metrics, because metrics are about the work of DAGs.

    :param connection: the connection.
    """

    sends_metrics = False

    def __init__(self, connection: ConnectionKey) -> None:
        super().__init__(connection.conn_id)
        self._key = connection
        self._adapt_settings = for_people

    def get_connection(self, conn_id: str) -> Connection:  # type: ignore[override]
        from airflow.models.connection import Connection
        from airflow.providers.common.compat.sdk import AirflowNotFoundException, conf

        # If teams are disabled, pass no team: the database may still name a team, but Airflow would refuse this
        # argument.
        team = self._key.team if conf.getboolean("core", "multi_team", fallback=False) else None
        connection = Connection.get_connection_from_secrets(conn_id, team_name=team)
        # Some databases ignore case when they look up an id. Refuse a connection whose id is spelled differently,
        # because the user's access was checked only for the given spelling.
        if connection.conn_id != conn_id:
            raise AirflowNotFoundException(conn_id)
        return connection

    @property
    def is_refused(self) -> bool:
        """Whether the service has refused the credentials of the client."""
        return self._client is not None and self._client.auth.is_refused
