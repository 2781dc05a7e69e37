"""The connections that a user may read. Airflow's auth manager decides."""

from __future__ import annotations

import os
from contextlib import suppress

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.connection import Connection
from airflow.providers.common.compat.sdk import conf
from airflow.secrets.environment_variables import CONN_ENV_PREFIX, EnvironmentVariablesBackend
from airflow.utils.session import create_session
from fastapi import HTTPException
from sqlalchemy import select

from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.plugin.page_hook import ConnectionKey

__all__ = ["BaseUser", "GetUserDep", "find_connection", "list_connections"]


def list_connections(user: BaseUser) -> list[ConnectionKey]:
    """
    Return the connections of type ``custody`` that a user may read, sorted by id.

    The ids come from the database, from environment variables, and from ``[custody] page_connections``. This option
    names connections in a secrets backend, because a secrets backend cannot be listed. The type of such a connection is
    unknown until the connection is read.

    :param user: the user.
    """
    return [connection for connection in _all_connections() if _may_read(user, connection)]


def find_connection(user: BaseUser, conn_id: str) -> ConnectionKey:
    """
    Return the connection of type ``custody`` with an id.

    The id must be spelled exactly as listed. A source of connections may accept other spellings, but Airflow decides
    by the listed spelling whether the user may read the connection.

    :param user: the user.
    :param conn_id: the id.
    :raises HTTPException: 404 if the user may not read it, or if it does not exist.
    """
    for connection in _all_connections():
        if connection.conn_id == conn_id and _may_read(user, connection):
            return connection
    raise HTTPException(404)


def _may_read(user: BaseUser, connection: ConnectionKey) -> bool:
    details = ConnectionDetails(conn_id=connection.conn_id, team_name=connection.team)
    return get_auth_manager().is_authorized_connection(method="GET", details=details, user=user)


def _all_connections() -> list[ConnectionKey]:
    variables = [name.removeprefix(CONN_ENV_PREFIX) for name in os.environ if name.startswith(CONN_ENV_PREFIX)]
    teams: dict[str, str | None] = {variable.lower(): None for variable in variables}
    for conn_id in conf.get("custody", "page_connections", fallback="").split(","):
        if conn_id.strip():
            teams[conn_id.strip()] = None
    # Only the database knows teams, so its rows replace the entries from other sources.
    with create_session() as session:
        rows = select(Connection.conn_id, Connection.team_name).where(Connection.conn_type == CustodyHook.conn_type)
        for row in session.execute(rows):
            teams[row.conn_id] = row.team_name
    return [ConnectionKey(conn_id, teams[conn_id]) for conn_id in sorted(teams) if _may_be_custody(conn_id, variables)]


def _may_be_custody(conn_id: str, variables: list[str]) -> bool:
    """
    Return whether environment variables allow a connection to be of type ``custody``.

    Airflow looks for a connection in the environment variables before it looks in the database. To find the variable,
    it converts the id to upper case, so several spellings of an id lead to the same connection. Only the id in lower
    case is accepted here, so that the connection has one id.

    :param conn_id: the id of the connection.
    :param variables: the names of all variables with a connection, without their prefix.
    """
    variable = conn_id.upper()
    if variable not in variables:
        return True
    if conn_id != variable.lower():
        return False
    # If the variable's value cannot be read as a connection, it is not a connection of type ``custody``.
    with suppress(Exception):
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
        return connection is not None and connection.conn_type == CustodyHook.conn_type
    return False
