"""
Reads an Airflow connection of type ``custody``.

The result is a client, or an error that names the wrong field by its label in the form.
"""

from __future__ import annotations

import ipaddress
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow import __version__ as airflow_version

from airflow_custody.client import CustodyClient
from airflow_custody.client.auth import ApiKey, BearerToken, PasswordSignIn
from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.settings import ClientSettings, is_key_text
from airflow_custody.client.text import as_name, read_number, sanitize
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks._lookup import mask, read_extras, read_password

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Connection

    from airflow_custody.client.http.authentication import Authentication

# Names of settings in a connection, if they differ from the client's.
_CONNECTION_FIELDS = {
    "base_url": "Base URL (Host)",
    "token": "Password",
    "password": "Password",
    "secret": "Password",
    "username": "User name (Login)",
}
# For each way to authenticate: the fields that must be filled in, and the meaning of the Password.
_AUTH_METHODS = {
    "bearer": ("neither a user name nor an API key ID", "the API token"),
    "password": ("a user name (Login)", "the password"),
    "api_key": ("an API key ID", "the API key's secret"),
}
# The reason for refusing a number. A number may have lost leading zeros.
_NOT_TEXT = "must be text: put it in quotation marks where it is defined"
_MAX_PORT = 65_535
_FORM: dict[str, Any] = get_provider_info()["connection-types"][0]["conn-fields"]


class ConnectionReader:
    """
    Reads a connection.

    :param connection: the connection.
    :param named: whether messages name the connection; False: the connection is being tested, and Airflow's API server
        has generated its id.
    :raises CustodyConfigurationError: if a field is wrong.
    """

    def __init__(self, connection: Connection, *, named: bool) -> None:
        self._connection = connection
        self._place = f"the Airflow connection {connection.conn_id!r}" if named else "this connection"
        #: The beginning of error messages, with the connection's name; may be empty.
        self.start = f"Airflow connection {connection.conn_id!r}, " if named else ""
        if connection.conn_type != "custody":
            raise CustodyConfigurationError(
                f"{self.start}Connection Type: must be 'custody', not {connection.conn_type!r}",
                setting="Connection Type",
                advice="In the form, choose the type Custody; outside the form, write conn_type 'custody'.",
                code="setting-wrong",
            )
        extras = read_extras(connection)
        if extras is None:
            raise self._wrong("is not a JSON object, or repeats a name", "Extra")
        self._extras = extras
        self._credentials = self._read_credentials()
        self._base_url = self._read_base_url()
        #: All values of the connection, including secrets, to detect changes.
        self.values = (connection.host, connection.schema, connection.port, self._credentials, self._extras)

    def make_client(self, adapt: Callable[[ClientSettings], ClientSettings]) -> CustodyClient:
        """
        Return a client for the connection.

        :param adapt: called with the connection's settings; returns the client's settings.
        :raises CustodyConfigurationError: if a setting is wrong.
        """
        try:
            settings = adapt(self._client_settings())
            for each in settings.proxy_in_use.secrets if settings.proxy_in_use else ():
                mask(each)
            method, name, secret = self._credentials
            auth: Authentication
            if method == "api_key":
                auth = ApiKey(name, secret, source=self._place)
            elif method == "bearer":
                auth = BearerToken(secret, source=f"the Password of {self._place}")
            else:
                auth = PasswordSignIn(name, secret, source=self._place, on_token=mask)
            return CustodyClient.from_settings(settings, auth)
        except CustodyConfigurationError as error:
            wrong = error
        # Raise the new error here, so that the caught exception is not chained. The error names the setting as the form
        # does.
        setting = str(wrong.setting)
        raise self._wrong(wrong.text.removeprefix(f"'{setting}' "), setting, wrong.code)

    def _client_settings(self) -> ClientSettings:
        if unknown := sorted(self._extras.keys() - _FORM.keys()):
            # Do not quote the values, because the value of a mistyped key may be a secret.
            names = sanitize(", ".join(map(repr, unknown)), 200)
            raise CustodyConfigurationError(
                f"unknown key {names}. Correct or remove it; valid keys: {', '.join(_FORM)}", setting="Extra"
            )
        keys = self._extras.get("superadmin_keys")
        for each in keys if isinstance(keys, list) else [keys]:
            # A relative path would depend on the folder in which the process was started.
            if isinstance(each, str) and each and not is_key_text(each) and not os.path.isabs(each):
                raise CustodyConfigurationError(
                    "'superadmin_keys' must be public keys in PEM, or the absolute path of a file with them",
                    setting="superadmin_keys",
                )
        more = {"base_url": self._base_url, "user_agent": f"Airflow/{airflow_version}", "source": self._place}
        return ClientSettings.parse({**self._extras, **more})

    def _read_credentials(self) -> tuple[str, str, str]:
        """
        Return the authentication method, the name and the secret.

        The filled-in fields determine the method. If ``auth`` is set, it must name the same method.
        """
        password = read_password(self._connection)
        if password is None:
            raise self._wrong(_NOT_TEXT, "password", "credentials-missing")
        names = {
            "password": self._read_text(self._connection.login, "username"),
            "api_key": self._read_text(self._extras.get("api_key_id"), "api_key_id"),
        }
        given = [method for method, name in names.items() if name]
        if len(given) > 1:
            raise self._wrong(
                "a user name and an API key ID are filled in: leave one of them empty", "auth", "credentials-missing"
            )
        filled_in = given[0] if given else "bearer"
        auth = self._read_text(self._extras.get("auth"), "auth") or filled_in
        if auth not in _AUTH_METHODS:
            *others, last = _AUTH_METHODS
            raise self._wrong(f"must be {', '.join(others)} or {last}", "auth")
        needs, secret = _AUTH_METHODS[auth]
        if auth != filled_in:
            raise self._wrong(f"is {auth}, which needs {needs}", "auth", "credentials-missing")
        if not password:
            raise self._wrong(f"{secret} is missing", "token", "credentials-missing")
        return auth, names.get(auth, ""), password

    def _read_base_url(self) -> str:
        host = _with_brackets(self._read_text(self._connection.host, "base_url"))
        schema = self._read_text(self._connection.schema, "Schema").lower()
        port = self._read_port()
        if not host:
            raise self._wrong("the base URL is missing (an example: https://custody.example.com)", "base_url")
        if schema not in ("", "http", "https"):
            raise self._wrong("must be http or https, or empty", "Schema")
        # Do not add a scheme to a URL with a missing slash, such as "https:/example.com": it would then lead to a
        # host named "https". Such a URL is refused later.
        if "://" not in host and not host.lower().startswith(("http:", "https:")):
            host = f"{schema or 'https'}://{host}"
        elif schema and not host.lower().startswith(f"{schema}://"):
            raise self._wrong("names another protocol than the base URL", "Schema")
        return host if port is None else self._add_port(host, port)

    def _add_port(self, host: str, port: int) -> str:
        parts, named = None, None
        with suppress(ValueError):
            named = urlsplit(host).port
            parts = urlsplit(host)
        if parts is None:
            raise self._wrong(
                "the base URL cannot be read as a URL (an example: https://custody.example.com:8443)", "base_url"
            )
        if named not in (None, port):
            raise self._wrong(f"is {port}, but the base URL names port {named}", "Port")
        return host if named else parts._replace(netloc=f"{parts.netloc}:{port}").geturl()

    def _read_port(self) -> int | None:
        """
        Return the port; None if there is none.

        Some forms save a missing port as 0.
        """
        given: Any = self._connection.port
        text = as_name("" if given is None else given)
        if text is not None and not text.strip():
            return None
        port = None if text is None else read_number(text.strip(), _MAX_PORT)
        if port is None:
            raise self._wrong(f"must be a whole number up to {_MAX_PORT}", "Port")
        return port or None

    def _read_text(self, value: object, setting: str) -> str:
        """Return a field's text, stripped; empty if it is not set."""
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(_NOT_TEXT, setting)
        return value.strip()

    def _wrong(self, why: str, setting: str, code: ErrorCode = "setting-wrong") -> CustodyConfigurationError:
        # The label in the form, and the name for use outside the form.
        label = _FORM[setting]["label"].partition(" (")[0] if setting in _FORM else ""
        name = f"{label} ({setting})" if label else _CONNECTION_FIELDS.get(setting, setting)
        return CustodyConfigurationError(f"{self.start}{name}: {why}", setting=setting, code=code)


def _with_brackets(host: str) -> str:
    """
    Return a host or a URL with brackets around IPv6 addresses.

    Airflow removes them from a connection's URI.
    """
    before, slashes, rest = host.rpartition("://")
    address, slash, path = rest.partition("/")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return host
    return f"{before}{slashes}[{address}]{slash}{path}"
