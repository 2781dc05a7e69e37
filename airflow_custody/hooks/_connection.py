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
from airflow_custody.client.settings import ClientSettings, digests_of_files
from airflow_custody.client.text import read_number, sanitize
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks._lookup import ConnectionFields, mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_custody.client.auth import Authentication

# Names of the connection's fields for the client's settings, where the two differ.
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
# Why a number is refused where text is expected. A number may have lost leading zeros.
_NOT_TEXT = "must be text: put it in quotation marks where it is defined"
_MAX_PORT = 65_535
_FORM: dict[str, Any] = get_provider_info()["connection-types"][0]["conn-fields"]


class ConnectionReader:
    """
    Reads the settings and credentials in a connection.

    :param connection: the fields of the connection.
    :param named: whether messages name the connection. False: the connection is being tested under an id that Airflow's
        API server has generated.
    :raises CustodyConfigurationError: if a field is wrong.
    """

    def __init__(self, connection: ConnectionFields, *, named: bool) -> None:
        self._place = f"the Airflow connection {connection.conn_id!r}" if named else "this connection"
        #: The beginning of error messages: the connection's name, or empty.
        self.start = f"Airflow connection {connection.conn_id!r}, " if named else ""
        if connection.conn_type != "custody":
            raise CustodyConfigurationError(
                f"{self.start}Connection Type: must be 'custody', not {connection.conn_type!r}",
                setting="Connection Type",
                advice="In the form, choose the type Custody; outside the form, write conn_type 'custody'.",
                code="setting-wrong",
            )
        if connection.extras is None:
            raise self._named(_wrong("is not a JSON object, or repeats a name", "Extra"))
        self._extras = connection.extras.get_secret_value()
        self._fields = connection.place.get_secret_value()
        self._password = connection.password
        #: All values of the connection, and digests of the files that it names, to detect changes. The digests are made
        #: before the client reads the files, so that no change is missed.
        self.values = connection, digests_of_files(self._extras)

    def make_client(self, adapt: Callable[[ClientSettings], ClientSettings] | None) -> CustodyClient:
        """
        Return a client for the connection.

        :param adapt: called with the connection's settings; returns the client's settings. None: the connection's
            settings are used unchanged.
        :raises CustodyConfigurationError: if a setting is wrong.
        """
        try:
            settings = self._read_settings()
            auth = self._read_credentials()
            settings = settings if adapt is None else adapt(settings)
            for each in settings.proxy_in_use.secrets if settings.proxy_in_use else ():
                mask(each)
            return CustodyClient.from_settings(settings, auth)
        except CustodyConfigurationError as error:
            wrong = error
        # Raise the new error, which names the setting as in the form, outside of "except", so that the caught exception
        # is not chained. Its traceback leads through functions with values of the connection.
        raise self._named(wrong)

    def _read_settings(self) -> ClientSettings:
        if unknown := sorted(self._extras.keys() - _FORM.keys()):
            # Do not quote the values, because the value of a mistyped key may be a secret.
            names = sanitize(", ".join(map(repr, unknown)), 200)
            raise CustodyConfigurationError(
                f"unknown key {names}. Correct or remove it; valid keys: {', '.join(_FORM)}", setting="Extra"
            )
        _, digests = self.values
        # Refuse a relative path, because its meaning would depend on the folder in which the process was started.
        if any(name == "superadmin_keys" and not os.path.isabs(path) for name, path in digests):
            raise CustodyConfigurationError(
                "must be public keys in PEM, or the absolute path of a file with them",
                setting="superadmin_keys",
            )
        more = {"base_url": self._read_base_url(), "user_agent": f"Airflow/{airflow_version}", "source": self._place}
        return ClientSettings.parse({**self._extras, **more})

    def _read_credentials(self) -> Authentication:
        """
        Return the way to authenticate, according to the fields that are filled in.

        If ``auth`` is set, it must name the same way.
        """
        if self._password is None:
            raise _wrong(_NOT_TEXT, "password", "credentials-missing")
        names = {
            "password": _read_text(self._fields["login"], "username"),
            "api_key": _read_text(self._extras.get("api_key_id"), "api_key_id"),
        }
        given = [method for method, name in names.items() if name]
        if len(given) > 1:
            raise _wrong(
                "a user name and an API key ID are filled in: leave one of them empty", "auth", "credentials-missing"
            )
        filled_in = given[0] if given else "bearer"
        method = _read_text(self._extras.get("auth"), "auth") or filled_in
        if method not in _AUTH_METHODS:
            *others, last = _AUTH_METHODS
            raise _wrong(f"must be {', '.join(others)} or {last}", "auth")
        needs, secret = _AUTH_METHODS[method]
        if method != filled_in:
            raise _wrong(f"is {method}, which needs {needs}", "auth", "credentials-missing")
        if not self._password:
            raise _wrong(f"{secret} is missing", "token", "credentials-missing")
        if method == "api_key":
            return ApiKey(names[method], self._password, source=self._place)
        if method == "password":
            return PasswordSignIn(names[method], self._password, source=self._place, on_token=mask)
        return BearerToken(self._password, source=f"the Password of {self._place}")

    def _read_base_url(self) -> str:
        host = _with_brackets(_read_text(self._fields["host"], "base_url"))
        schema = _read_text(self._fields["schema"], "Schema").lower()
        port = self._read_port()
        if not host:
            raise _wrong("the base URL is missing (an example: https://custody.example.com)", "base_url")
        if schema not in ("", "http", "https"):
            raise _wrong("must be http or https, or empty", "Schema")
        # Do not add a scheme to a URL with a missing slash, such as "https:/example.com": it would then lead to a
        # host named "https". Such a URL is refused later.
        if "://" not in host and not host.lower().startswith(("http:", "https:")):
            host = f"{schema or 'https'}://{host}"
        elif schema and not host.lower().startswith(f"{schema}://"):
            raise _wrong("contradicts the protocol in the base URL", "Schema")
        return host if port is None else self._add_port(host, port)

    def _add_port(self, host: str, port: int) -> str:
        parts, named = None, None
        with suppress(ValueError):
            named = urlsplit(host).port
            parts = urlsplit(host)
        if parts is None:
            raise _wrong(
                "the base URL cannot be read as a URL (an example: https://custody.example.com:8443)", "base_url"
            )
        if named not in (None, port):
            raise _wrong(f"is {port}, but the base URL names port {named}", "Port")
        return host if named else parts._replace(netloc=f"{parts.netloc}:{port}").geturl()

    def _read_port(self) -> int | None:
        """
        Return the port; None if it is not set, or 0, because some forms save a missing port as 0.
        """
        given: Any = self._fields["port"]
        given = "" if given is None else given
        text = str(given).strip() if type(given) in (int, str) else "not a number"
        if not text:
            return None
        port = read_number(text, _MAX_PORT)
        if port is None:
            raise _wrong(f"must be a whole number up to {_MAX_PORT}", "Port")
        return port or None

    def _named(self, error: CustodyConfigurationError) -> CustodyConfigurationError:
        """Return an error about a setting with the connection's name, and the setting's name in the form."""
        setting = str(error.setting)
        # Name the setting by its label in the form, and by its name outside the form.
        label = _FORM[setting]["label"].partition(" (")[0] if setting in _FORM else ""
        name = f"{label} ({setting})" if label else _CONNECTION_FIELDS.get(setting, setting)
        return CustodyConfigurationError(f"{self.start}{name}: {error.explanation}", setting=setting, code=error.code)


def _wrong(why: str, setting: str, code: ErrorCode = "setting-wrong") -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting=setting, code=code)


def _read_text(value: object, setting: str) -> str:
    """Return a field's text without surrounding white space; empty if the field is not set."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(_NOT_TEXT, setting)
    return value.strip()


def _with_brackets(host: str) -> str:
    """
    Return a host or a URL with brackets around an IPv6 address, which Airflow removes from a connection's URI.
    """
    before, slashes, rest = host.rpartition("://")
    address, slash, path = rest.partition("/")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return host
    return f"{before}{slashes}[{address}]{slash}{path}"
