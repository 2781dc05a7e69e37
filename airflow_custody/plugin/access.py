"""Who may see which connection. Airflow decides, by its own dependencies and its auth manager."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.connection import Connection
from airflow.providers.common.compat.sdk import AirflowNotFoundException, conf
from airflow.secrets.environment_variables import CONN_ENV_PREFIX, EnvironmentVariablesBackend
from airflow.utils.session import create_session
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from airflow_custody.client.text import has_unprintable
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.plugin.threads import BusyError, GivenUpError, Threads

__all__ = ["BaseUser", "CustodyConnection", "GetUserDep", "find_connection", "list_connections"]

log = logging.getLogger(__name__)

#: How many seconds a page waits for all connections that it needs.
BUDGET = 8.0
#: How many connections are read for one page; the others are there by their ids.
MAX_CONNECTIONS = 50
_MAX_ID = 250
_BROKEN = "This connection cannot be read. The log of the API server says why."
#: Names a process's digests, so that they tell nothing outside of it.
_DIGEST_KEY = secrets.token_bytes(32)


@dataclass(frozen=True)
class CustodyConnection:
    """
    A connection of type ``custody`` that a user may read.

    :param conn_id: its id.
    :param connection: the connection; None if it cannot be read.
    :param problem: why it cannot be read, and what to do; empty if it can.
    :param late: whether it is not known (yet) what it is: nothing is wrong with it as far as is known.
    :param digest: the same as long as nothing in the connection changes but its password: a secrets backend may make a
        new token for each look-up.
    """

    conn_id: str
    connection: Connection | None = field(default=None, repr=False)
    problem: str = ""
    late: bool = False
    digest: bytes = field(default=b"", repr=False)


class _LookUps:
    """
    The look-ups of connections that are going on. A secrets backend that hangs keeps none of Airflow's own threads.

    Who asks for the same connection meanwhile gets the same look-up.
    """

    def __init__(self) -> None:
        self._threads = Threads("custody-connections")
        self._lock = threading.Lock()
        self._open: dict[Hashable, Future[CustodyConnection | None]] = {}

    async def find(self, ids: list[tuple[str, str | None]]) -> list[CustodyConnection | None]:
        """
        Return connections in the order of their ids; None stands for one of another type.

        :param ids: id and team of each.
        """
        futures = [self._start(*each) for each in ids]
        await self._threads.wait(futures, BUDGET)
        return [_result(conn_id, future) for (conn_id, _), future in zip(ids, futures, strict=True)]

    def _start(self, conn_id: str, team: str | None) -> Future[CustodyConnection | None]:
        key = (conn_id, team)
        with self._lock:
            self._open = {each: future for each, future in self._open.items() if not future.done()}
            if key not in self._open:
                try:
                    self._open[key] = self._threads.submit(key, lambda: _read(conn_id, team))
                except BusyError as error:
                    refused: Future[CustodyConnection | None] = Future()
                    refused.set_exception(error)
                    return refused
            return self._open[key]


_look_ups = _LookUps()


async def list_connections(user: BaseUser) -> list[CustodyConnection]:
    """
    Return the connections of type ``custody`` that a user may read, by their ids.

    They are those in the database, in environment variables, and those that ``[custody] page_connections`` names: the
    ones in a secrets backend cannot be listed. Airflow finds one in an environment variable by any casing of its id:
    only the one in lower case counts.
    """
    ids = await run_in_threadpool(_readable, user)
    found = await _look_ups.find(ids[:MAX_CONNECTIONS])
    others = (_not_read(conn_id, "This connection has not been read.") for conn_id, _ in ids[MAX_CONNECTIONS:])
    return [*filter(None, found), *others]


async def find_connection(user: BaseUser, conn_id: str) -> CustodyConnection | None:
    """
    Return a connection of type ``custody``; None if there is none with this id that the user may read.

    Only what is listed can be found: whatever a source of connections takes for the same id, each connection has one,
    by which Airflow decides who may read it.
    """
    if len(conn_id) > _MAX_ID or has_unprintable(conn_id):
        return None
    listed = await run_in_threadpool(_readable, user, conn_id)
    found = await _look_ups.find(listed)
    return found[0] if found else None


def _readable(user: BaseUser, only: str | None = None) -> list[tuple[str, str | None]]:
    """
    Return id and team of each connection that there may be and that the user may read, by their ids.

    :param user: the user.
    :param only: the only id to look for, letter by letter. Default None: all.
    """
    teams = {**dict.fromkeys(_named()), **_in_database()}
    listed = [each for each in sorted(teams) if only in (None, each) and _is_spelt_as_listed(each)]
    return [(each, teams[each]) for each in listed if _may_read(user, each, teams[each])]


def _is_spelt_as_listed(conn_id: str) -> bool:
    """Tell whether an id is the one of several spellings that counts: in lower case where the environment has it."""
    name = f"{CONN_ENV_PREFIX}{conn_id.upper()}"
    return name not in os.environ or conn_id == name.removeprefix(CONN_ENV_PREFIX).lower()


def _result(conn_id: str, future: Future[CustodyConnection | None]) -> CustodyConnection | None:
    error = future.exception() if future.done() else GivenUpError()
    if error is None:
        return future.result()
    if isinstance(error, GivenUpError):
        return _not_read(conn_id)
    return _not_read(conn_id, str(error) if isinstance(error, BusyError) else _BROKEN)


def _not_read(conn_id: str, problem: str = "") -> CustodyConnection:
    slow = f"This connection could not be read within {BUDGET:.0f} s: a secrets backend is slow or does not respond."
    return CustodyConnection(conn_id, problem=problem or f"{slow} Refresh this page in a moment.", late=True)


def _may_read(user: BaseUser, conn_id: str, team: str | None) -> bool:
    details = ConnectionDetails(conn_id=conn_id, team_name=team)
    return get_auth_manager().is_authorized_connection(method="GET", details=details, user=user)


def _in_database() -> dict[str, str | None]:
    """Return the ids of the connections in the database, with the team that each belongs to."""
    rows = select(Connection.conn_id, Connection.team_name).where(Connection.conn_type == CustodyHook.conn_type)
    with create_session() as session:
        return {row.conn_id: row.team_name for row in session.execute(rows)}


def _named() -> Iterator[str]:
    """Yield the ids of the connections in environment variables and in the configuration."""
    for name in os.environ:
        if not name.startswith(CONN_ENV_PREFIX):
            continue
        conn_id = name.removeprefix(CONN_ENV_PREFIX).lower()
        # One that cannot be read is not known to be ours.
        with suppress(Exception):
            connection = EnvironmentVariablesBackend().get_connection(conn_id)
            if connection is not None and connection.conn_type == CustodyHook.conn_type:
                yield conn_id
    for conn_id in conf.get("custody", "page_connections", fallback="").split(","):
        if conn_id.strip():
            yield conn_id.strip()


def _read(conn_id: str, team: str | None) -> CustodyConnection | None:
    """Return the connection as a task would get it; None if it is of another type."""
    try:
        if not conf.getboolean("core", "multi_team", fallback=False):
            # Left over in the database, say: Airflow refuses it.
            team = None
        connection = Connection.get_connection_from_secrets(conn_id, team_name=team)
        # Some databases find a row by any casing of its id.
        if connection.conn_type != CustodyHook.conn_type or connection.conn_id != conn_id:
            return None
        return CustodyConnection(conn_id, connection, digest=_digest(connection))
    except AirflowNotFoundException:
        problem = "This connection is not defined, or its secrets backend cannot be read."
    except Exception:
        log.warning("The connection %r cannot be read", conn_id, exc_info=True)
        problem = _BROKEN
    return CustodyConnection(conn_id, problem=problem)


def _digest(connection: Connection) -> bytes:
    settings = (connection.host, connection.schema, connection.login, connection.port)
    text = repr((*settings, connection.get_extra()))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=_DIGEST_KEY).digest()
