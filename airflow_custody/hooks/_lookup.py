"""
Finds Airflow connections, reads their fields, and masks their secrets.

Error reports, such as Sentry's, contain the local variables of every function in a traceback, and the ``repr`` of a
connection shows its secrets. Therefore the connection itself is only used in this module, in functions that do not
raise exceptions while they hold it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.json_text import read_json

try:
    from airflow.sdk.log import mask_secret
except ImportError:  # Airflow 2
    from airflow.utils.log.secrets_masker import mask_secret  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Connection
    from pydantic import Secret, SecretStr


_VARIABLE = "AIRFLOW_CONN_"
#: Maximum size of a connection's extras in bytes.
_MAX_EXTRAS = 1024 * 1024


@dataclass(frozen=True)
class ConnectionFields:
    """
    The fields of an Airflow connection, whose ``repr`` shows no secret.

    :param conn_id: its id.
    :param conn_type: its type.
    :param place: host, schema, port and login. Each may contain a secret that a user has put into the wrong field.
    :param password: the Password, without line breaks at its end, masked in logs; empty if there is no Password. None
        if it is not text: some secrets backends return a number, which may have lost leading zeros.
    :param extras: the extras, without surrounding white space. None if they are not a JSON object, or repeat a name: of
        two values, a reviewer may have read the one that is not used.
    """

    conn_id: str | None
    conn_type: str | None
    place: Secret[dict[str, Any]]
    password: SecretStr | None
    extras: Secret[dict[str, Any]] | None


def find_connection(
    conn_id: str, advice: str, *, setting: str, get: Callable[[str], Connection] = BaseHook.get_connection
) -> ConnectionFields:
    """
    Return the fields of a connection.

    :param conn_id: its id.
    :param advice: advice if the connection does not exist.
    :param setting: the setting that names the connection.
    :param get: returns the connection. Default: Airflow's own function.
    :raises CustodyConfigurationError: if Airflow reports that the connection is not found. Airflow also reports this
        for a connection that it cannot read.
    """
    with suppress(AirflowNotFoundException):
        return read_connection(get(conn_id))
    what, variable = "is not defined", f"{_VARIABLE}{conn_id.upper()}"
    if near := _similar_id(conn_id, get):
        what = f"is not defined: did you mean {near!r}?"
    if variable in os.environ:
        what = f"cannot be read from the environment variable {variable}"
        advice = (
            "Correct the variable. It must be a URI, or a JSON object of Airflow's fields, with a string as password "
            "and a number as port."
        )
    raise CustodyConfigurationError(
        f"the Airflow connection {conn_id!r} {what}", setting=setting, advice=advice, code="setting-wrong"
    )


def _similar_id(conn_id: str, get: Callable[[str], Connection]) -> str:
    """
    Return the id of an existing connection that is similar; empty if none is found.

    A worker cannot list the connections, so only the default id, ids in environment variables, and other spellings of
    the same id are tried.
    """
    plain = conn_id.strip().lower().replace("-", "_").replace(" ", "_")
    known = {each.removeprefix(_VARIABLE).lower() for each in os.environ if each.startswith(_VARIABLE)}
    for each in get_close_matches(plain, (known | {"custody_default", plain}) - {conn_id}, n=3, cutoff=0.8):
        # Ignore errors here, because they must not replace the error about the missing connection.
        with suppress(Exception):
            get(each)
            return each
    return ""


def read_connection(connection: Connection) -> ConnectionFields:
    """
    Return the fields of a connection. This function raises no exceptions, because it holds the connection itself.

    :param connection: the connection.
    """
    from pydantic import Secret, SecretStr

    password: Any = "" if connection.password is None else connection.password
    if isinstance(password, str):
        # Also mask the Password without surrounding white space, because a token is sent in this form.
        if stripped := password.strip():
            mask(stripped)
        # Remove line breaks from the end, because files and secrets backends may add them.
        password = SecretStr(password.rstrip("\r\n"))
    else:
        password = None
    # Some secrets backends return an object instead of text.
    extras: Any = connection.extra
    if not isinstance(extras, dict):
        try:
            extras = read_json((extras or "{}").encode(), _MAX_EXTRAS)
        except (AttributeError, TypeError, ValueError):
            extras = None
    known: dict[str, Any] = {}
    for name, value in extras.items() if isinstance(extras, dict) else ():
        # Remove white space, because a file or a secrets backend may add it.
        if isinstance(value, list):
            known[name] = [each.strip() if isinstance(each, str) else each for each in value]
        else:
            known[name] = value.strip() if isinstance(value, str) else value
    place = {name: getattr(connection, name) for name in ("host", "schema", "port", "login")}
    hidden = Secret(known) if isinstance(extras, dict) else None
    return ConnectionFields(connection.conn_id, connection.conn_type, Secret(place), password, hidden)


def mask(secret: str | SecretStr) -> None:
    """Register a secret with Airflow's masker, in any version of Airflow."""
    mask_secret(secret if isinstance(secret, str) else secret.get_secret_value())
