"""Who may see which connection. Airflow decides, by its own dependencies and its auth manager."""

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
from airflow_custody.plugin.readings import ConnectionKey

__all__ = ["BaseUser", "GetUserDep", "find_connection", "list_connections"]


def list_connections(user: BaseUser) -> list[ConnectionKey]:
    """
    Return the connections of type ``custody`` that a user may read, by their ids.

    They are those in the database, in environment variables, and those that ``[custody] page_connections`` names: the
    ones in a secrets backend cannot be listed, and of which type they are is not known before they are read.
    """
    return [each for each in _all() if _may_read(user, each)]


def find_connection(user: BaseUser, conn_id: str) -> ConnectionKey:
    """
    Return the connection of type ``custody`` with an id.

    Only what is listed can be found, letter by letter: whatever a source of connections takes for the same id, each
    connection has one, by which Airflow decides who may read it.

    :param user: who asks.
    :param conn_id: the id.
    :raises HTTPException: 404 if there is none that the user may read.
    """
    found = [each for each in _all() if each.conn_id == conn_id and _may_read(user, each)]
    if not found:
        raise HTTPException(404)
    return found[0]


def _may_read(user: BaseUser, connection: ConnectionKey) -> bool:
    details = ConnectionDetails(conn_id=connection.conn_id, team_name=connection.team)
    return get_auth_manager().is_authorized_connection(method="GET", details=details, user=user)


def _all() -> list[ConnectionKey]:
    named = [each.strip() for each in conf.get("custody", "page_connections", fallback="").split(",")]
    teams: dict[str, str | None] = dict.fromkeys(filter(None, named))
    with create_session() as session:
        rows = select(Connection.conn_id, Connection.team_name).where(Connection.conn_type == CustodyHook.conn_type)
        teams |= {row.conn_id: row.team_name for row in session.execute(rows)}
    variables = [each.removeprefix(CONN_ENV_PREFIX) for each in os.environ if each.startswith(CONN_ENV_PREFIX)]
    teams = dict.fromkeys((each.lower() for each in variables), None) | teams
    return [ConnectionKey(*each) for each in sorted(teams.items()) if _is_meant(each[0], variables)]


def _is_meant(conn_id: str, variables: list[str]) -> bool:
    """
    Tell whether an id is the one of a connection of type ``custody``, as far as environment variables say.

    They come before the database, and Airflow finds them by any casing of the id: only the one in lower case counts.
    """
    variable = conn_id.upper()
    return variable not in variables or (conn_id == variable.lower() and _is_custody(conn_id))


def _is_custody(conn_id: str) -> bool:
    """Tell whether the connection in an environment variable is of our type; one that cannot be read is not."""
    with suppress(Exception):
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
        return connection is not None and connection.conn_type == CustodyHook.conn_type
    return False
