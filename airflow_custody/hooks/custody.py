"""An Airflow Connection becomes a client of the custody service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_custody.client.errors import (
    NOT_OFFERED,
    CustodyConfigurationError,
    CustodyError,
    CustodyNotFoundError,
)
from airflow_custody.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health import HealthCriteria, HealthVerdict
    from airflow_custody.client.published import WireUser

# How the client's settings are called in a connection, where the name differs.
_IN_THE_FORM = {
    "base_url": "Host",
    "token": "Password",
    "password": "Password",
    "secret": "Password",
    "username": "Login",
}
# What the operators need, for the test of a connection. The last two are published knowledge.
_ROLES = {
    "TPUser": "everything",
    "WhitelistedAddressCreator": "creating whitelisting requests",
    "WhitelistedAddressApprover": "approving them",
    "Admin": "webhooks",
}


class CustodyHook(BaseHook):
    """
    Connect to a custody service as an Airflow connection of type ``custody`` says.

    Host is the base URL (``https://custody.example.com``, a path prefix is allowed; a bare host with Schema and
    Port works too, ``https`` by default). There are three ways to sign in, and what is filled in decides: Password
    alone is the API token; Login and Password are a user's; the extra ``api_key_id`` with Password is an API key and
    its secret. The extra ``auth`` (``bearer``, ``password``, ``api_key``) says which it must be. All but the token
    are published knowledge, not part of the given interface. Extras: ``timeout``, ``verify``,
    ``client_cert``, ``proxy``, ``max_retries``, ``max_response_bytes``, ``allow_http``; they are those of
    :class:`~airflow_custody.client.CustodyClient` and have its defaults.

    :param custody_conn_id: id of the connection. Default ``custody_default``.
    """

    conn_name_attr = "custody_conn_id"
    default_conn_name = "custody_default"
    conn_type = "custody"
    hook_name = "Custody"

    def __init__(self, custody_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.custody_conn_id = custody_conn_id
        self._client: CustodyClient | None = None
        self._client_settings: dict[str, Any] | None = None

    def get_conn(self) -> CustodyClient:
        """
        Return a client for the connection.

        The connection is read at each call, so that a token that was renewed is taken up during a long wait; as
        long as nothing in it has changed it is the same client with its open connections.

        :return: a client; close it, or the hook, when done.
        :raises CustodyConfigurationError: if there is no such connection, or a setting in it is missing or wrong.
        """
        from airflow_custody.client import CustodyClient

        settings = self._settings()
        if self._client is None or settings != self._client_settings:
            self.close()
            try:
                self._client = CustodyClient(**self._with_credentials(**settings))
            except CustodyConfigurationError as error:
                raise self._wrong(str(error), str(error.setting)) from None
            self._client_settings = settings
        return self._client

    def _with_credentials(self, *, auth: str, name: str, secret: str, **settings: Any) -> dict[str, Any]:
        """Turn how to sign in into what the client takes."""
        origin = f"the Airflow connection {self.custody_conn_id!r}"
        if auth == "bearer":
            return {**settings, "token": secret, "token_origin": f"the Password of {origin}"}
        from airflow_custody.client import ApiKey, PasswordSignIn

        if auth == "password":
            return {**settings, "auth": PasswordSignIn(name, secret, origin=origin, on_token=mask)}
        return {**settings, "auth": ApiKey(name, secret, origin=origin)}

    def check_health(self, criteria: HealthCriteria) -> HealthVerdict:
        """
        Fetch the health listing and judge it.

        :param criteria: which checks are looked at and what makes them healthy.
        :return: the verdict.
        :raises CustodyError: if the listing cannot be fetched.
        """
        from airflow_custody.client.health import judge

        return judge(self.get_conn().list_health_checks(criteria.tenant_id), criteria)

    def test_connection(self) -> tuple[bool, str]:
        """
        Make authenticated calls that change nothing: the health listing, and who the user is.

        The latter is published knowledge; where it is not offered, the listing alone decides.

        :return: whether they succeeded, and what to tell the user: also which roles are missing.
        """
        good, user = True, None
        try:
            client = self.get_conn()
            try:
                words = (
                    f"The service accepted the connection and lists {len(client.list_health_checks())} health checks."
                )
            except CustodyNotFoundError as error:
                good, words = False, str(error)
            try:
                user = client.get_current_user()
            except CustodyError as error:
                if error.status not in NOT_OFFERED:
                    raise
        except CustodyError as error:
            return False, str(error)
        finally:
            self.close()
        if user is not None:
            return good, f"{words} {_roles_in_words(user)}"
        return good, words if good else f"{words} The token could not be tested."

    def close(self) -> None:
        """Close the client's connections; the next call opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how the form of Airflow 2 shows the standard fields; Airflow 3 reads the provider info."""
        behaviour = _connection_type()["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the extra fields of Airflow 2's form, made from those that Airflow 3 reads."""
        from flask_appbuilder.fieldwidgets import BS3TextFieldWidget
        from wtforms import BooleanField, IntegerField, StringField
        from wtforms.validators import NumberRange, Optional

        # Airflow 2 takes no FloatField: it would drop the connection type.
        kinds = {"number": StringField, "integer": IntegerField, "string": StringField}
        widgets: dict[str, Any] = {}
        for name, spec in _connection_type()["conn-fields"].items():
            kind, schema = spec["schema"]["type"][0], spec["schema"]
            if kind == "boolean":
                widgets[name] = BooleanField(spec["label"], description=spec["description"])
                continue
            validators = [Optional()]
            if kind == "integer":
                validators.append(NumberRange(min=schema["minimum"], max=schema.get("maximum")))
            widgets[name] = kinds[kind](
                spec["label"],
                validators=validators,
                description=spec["description"],
                widget=BS3TextFieldWidget(),
            )
        return widgets

    # --- reading the connection ----------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        """Return the client's arguments, read from the connection by name."""
        try:
            connection = self.get_connection(self.custody_conn_id)
        except AirflowNotFoundException:
            raise CustodyConfigurationError(
                f"the Airflow connection {self.custody_conn_id!r} is not defined", setting="custody_conn_id"
            ) from None
        if connection.conn_type != self.conn_type:
            raise self._wrong(f"must be {self.conn_type!r}, not {connection.conn_type!r}", "Connection Type")
        settings: dict[str, Any] = {
            "base_url": self._base_url(connection),
            "user_agent": _airflow_user_agent(),
        }
        extras = self._extras(connection)
        settings.update(self._sign_in(connection, extras.pop("auth", None), extras.pop("api_key_id", None)))
        readers: dict[str, Callable[[Any], Any]] = {
            "timeout": _number,
            "verify": _switch,
            "client_cert": _paths,
            "proxy": str,
            "max_retries": _number,
            "max_response_bytes": _number,
            "allow_http": _switch,
        }
        for name, read in readers.items():
            value = extras.pop(name, None)
            # The form saves what was left empty as null or as an empty text.
            if value is not None and value != "":
                settings[name] = read(value)
        if not isinstance(settings.get("allow_http", False), bool):
            raise self._wrong("must be true or false", "allow_http")
        if settings.get("proxy"):
            mask(settings["proxy"])
        if extras:
            # Names only: whoever mistypes one may have put a secret behind it.
            self.log.warning(
                "Connection %r: extras that this connection type does not know are ignored: %s",
                self.custody_conn_id,
                ", ".join(sorted(extras)),
            )
        return settings

    def _sign_in(self, connection: Connection, auth: Any, api_key_id: Any) -> dict[str, str]:
        """Return how to sign in: what is filled in decides, and must be what ``auth`` says if it says anything."""
        login, password = connection.login or "", connection.password or ""
        if password:
            mask(password)
        if login and api_key_id:
            raise self._wrong("a user name and an API key's id are filled in: leave one of them empty", "auth")
        filled_in = "password" if login else "api_key" if api_key_id else "bearer"
        auth = auth or filled_in
        if auth not in ("bearer", "password", "api_key"):
            raise self._wrong("must be bearer, password or api_key", "auth")
        if auth != filled_in:
            needed = {
                "bearer": "neither a user name nor an API key's id",
                "password": "the user name in Login",
                "api_key": "the id in 'api_key_id'",
            }
            raise self._wrong(f"is {auth}, which needs {needed[auth]}", "auth")
        if not password:
            missing = {"bearer": "the API token", "password": "the password", "api_key": "the API key's secret"}
            raise self._wrong(f"{missing[auth]} is missing", "token")
        return {"auth": auth, "name": login or str(api_key_id or ""), "secret": password}

    def _base_url(self, connection: Connection) -> str:
        host = (connection.host or "").strip()
        if not host:
            raise self._wrong("the base URL is missing (an example: https://custody.example.com)", "base_url")
        schema, port = connection.schema or None, connection.port or None
        if schema is not None and schema.lower() not in ("http", "https"):
            raise self._wrong("must be http or https, or empty", "Schema")
        if "://" not in host:
            host = f"{schema or 'https'}://{host}"
        elif schema is not None and not host.lower().startswith(f"{schema.lower()}://"):
            raise self._wrong("says another protocol than the base URL", "Schema")
        return host if port is None else self._with_port(host, port)

    def _with_port(self, url: str, port: int) -> str:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(url)
            named = parts.port
        except ValueError:
            raise self._wrong("the base URL can not be read as a URL", "base_url") from None
        if named is not None and named != port:
            raise self._wrong(f"is {port}, but the base URL names port {named}", "Port")
        return url if named is not None else parts._replace(netloc=f"{parts.netloc}:{port}").geturl()

    def _extras(self, connection: Connection) -> dict[str, Any]:
        text = connection.get_extra() if hasattr(connection, "get_extra") else connection.extra
        try:
            extras = json.loads(text) if text else {}
        except ValueError:
            extras = None
        if not isinstance(extras, dict):
            raise self._wrong("is not a JSON object", "Extra")
        return extras

    def _wrong(self, why: str, setting: str) -> CustodyConfigurationError:
        name = _IN_THE_FORM.get(setting, setting)
        return CustodyConfigurationError(f"Airflow connection {self.custody_conn_id!r}, {name}: {why}", setting=setting)


def _connection_type() -> dict[str, Any]:
    found: dict[str, Any] = get_provider_info()["connection-types"][0]
    return found


def _roles_in_words(user: WireUser) -> str:
    """Name a user's roles, and those that the operators need and the user lacks."""
    roles = user.get("roles") or []
    own = {role.casefold() for role in roles}
    missing = [f"{role} ({what})" for role, what in _ROLES.items() if role.casefold() not in own]
    words = f"User {user.get('id')} has the roles: {', '.join(roles) or 'none'}."
    return f"{words} Missing: {', '.join(missing)}." if missing else words


def _number(value: Any) -> Any:
    """Turn a text from a URI into the number it spells; anything else is left for the client to refuse."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def _switch(value: Any) -> Any:
    """Turn "true" and "false" into what they say; any other text is left as it is."""
    return {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value


def _paths(value: Any) -> Any:
    """Turn "certificate,key" into the pair."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    return tuple(parts) if isinstance(parts, (list, tuple)) and len(parts) != 1 else value


def mask(secret: str) -> None:
    """Register a secret with Airflow's masker, wherever this Airflow has it."""
    try:
        from airflow.sdk.log import mask_secret
    except ImportError:
        from airflow.utils.log.secrets_masker import mask_secret  # type: ignore[no-redef]
    mask_secret(secret)


def _airflow_user_agent() -> str:
    from airflow import __version__ as version

    return f"Airflow/{version}"
