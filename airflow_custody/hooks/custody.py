"""An Airflow Connection becomes a client of the custody service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyNotFoundError
from airflow_custody.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health import HealthCriteria, HealthVerdict

# How the client's settings are called in a connection, where the name differs.
_IN_THE_FORM = {"base_url": "Host", "token": "Password"}


class CustodyHook(BaseHook):
    """
    Connect to a custody service as an Airflow connection of type ``custody`` says.

    Host is the base URL (``https://custody.example.com``, a path prefix is allowed; a bare host with Schema and
    Port works too, ``https`` by default), Password is the API token. Extras: ``timeout``, ``verify``,
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
                self._client = CustodyClient(**settings)
            except CustodyConfigurationError as error:
                raise self._wrong(str(error), str(error.setting)) from None
            self._client_settings = settings
        return self._client

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
        Make one authenticated call that changes nothing: the health listing.

        :return: whether it succeeded, and what to tell the user.
        """
        try:
            checks = self.get_conn().list_health_checks()
        except CustodyNotFoundError as error:
            return False, f"{error} The token could not be tested."
        except CustodyError as error:
            return False, str(error)
        finally:
            self.close()
        return True, f"The service accepted the token and lists {len(checks)} health checks."

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
        token = connection.password or ""
        if not token:
            raise self._wrong("the API token is missing", "token")
        _mask(token)
        settings: dict[str, Any] = {
            "base_url": self._base_url(connection),
            "token": token,
            "token_origin": f"the Password of the Airflow connection {self.custody_conn_id!r}",
            "user_agent": _airflow_user_agent(),
        }
        extras = self._extras(connection)
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
            _mask(settings["proxy"])
        if extras:
            # Names only: whoever mistypes one may have put a secret behind it.
            self.log.warning(
                "Connection %r: extras that this connection type does not know are ignored: %s",
                self.custody_conn_id,
                ", ".join(sorted(extras)),
            )
        return settings

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


def _mask(secret: str) -> None:
    """Register a secret with Airflow's masker, wherever this Airflow has it."""
    try:
        from airflow.sdk.log import mask_secret
    except ImportError:
        from airflow.utils.log.secrets_masker import mask_secret  # type: ignore[no-redef]
    mask_secret(secret)


def _airflow_user_agent() -> str:
    from airflow import __version__ as version

    return f"Airflow/{version}"
