"""The hook: an Airflow Connection becomes a client of the custody service."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_custody.client import ClientSettings, CustodyClient
    from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict
    from airflow_custody.client.http.authentication import Authentication

# The names of settings in a connection, where they differ from the client's.
_CONNECTION_FIELDS = {
    "base_url": "Base URL (Host)",
    "token": "Password",
    "password": "Password",
    "secret": "Password",
    "username": "User name (Login)",
}


# The ways to authenticate: what must be filled in for each, and what the Password is then.
_AUTH_METHODS = {
    "bearer": ("neither a user name nor an API key ID", "the API token"),
    "password": ("a user name (Login)", "the password"),
    "api_key": ("an API key ID", "the API key's secret"),
}


class CustodyHook(BaseHook):
    """
    The hook of an Airflow connection of type ``custody``.

    Host is the base URL (``https://custody.example.com``, a path prefix is allowed; a bare host with Schema and
    Port works too, ``https`` by default). There are three ways to authenticate, and what is filled in decides:
    Password alone is the API token; Login and Password are a user's; the extra ``api_key_id`` with Password is an API
    key and its secret. The extra ``auth`` (``bearer``, ``password``, ``api_key``) says which it must be. The other
    extras are the settings of :class:`~airflow_custody.client.CustodyClient`, with its defaults: ``timeout``,
    ``verify``, ``client_cert``, ``proxy``, ``max_retries``, ``max_response_bytes``, ``allow_http``.

    Some say what whitelisted addresses are verified with: ``superadmin_keys`` (public keys in PEM, also without their
    line ends, a list of them, or the absolute path of a file, which is read when the client is made),
    ``superadmin_minimum``, ``networks`` (``mainnet, testnet``), ``allow_legacy_signatures`` and ``rules_not_before`` (a
    date, or Unix time in seconds). They are no secrets, but whoever may change them decides what is trusted.

    An extra that is not known is ignored, with a warning that names it; one with a name that is close to those that say
    what is verified is refused. The Custody page and ``custody status`` read responses of 8 MiB at most, also where
    ``max_response_bytes`` is more.

    Use it in a ``with`` block or call :meth:`close`.

    :param custody_conn_id: id of the connection. Default ``custody_default``.
    """

    conn_name_attr = "custody_conn_id"
    default_conn_name = "custody_default"
    conn_type = "custody"
    hook_name = "Custody"
    #: Whether calls are counted and timed in Airflow's metrics.
    sends_metrics: ClassVar[bool] = True
    #: Whether it signs in together with all such hooks of its process: for one that makes many, one after another.
    shares_sign_in: ClassVar[bool] = False

    def __init__(self, custody_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.custody_conn_id = custody_conn_id
        self._client: CustodyClient | None = None
        self._connected_with: object = None
        #: What to tell of the connection's extras that are not known, once the client is made; empty: all are known.
        self.unknown_extras = ""
        # Airflow's API server tests a connection under an id that it makes up: messages do not name it then.
        self._is_tested = False

    def get_conn(self) -> CustodyClient:
        """
        Return a client for the connection.

        The connection is read at each call, so that a token that was renewed is used during a long wait; as
        long as nothing in it has changed it is the same client with its open connections.

        :return: a client; close it, or the hook, when done.
        :raises CustodyConfigurationError: if there is no such connection, or a setting in it is missing or wrong.
        """
        with suppress(RecursionError):
            return self._connect()
        raise self._wrong("is nested too deeply to be read", "Extra", "setting-wrong")

    def _connect(self) -> CustodyClient:
        from airflow_custody.client import CustodyClient
        from airflow_custody.metrics import call_observer

        connection = self._connection()
        extras = self._extras(connection)
        credentials = self._credentials(connection, extras)
        base_url = self._base_url(connection)
        connected_with = (connection.host, connection.schema, connection.port, credentials, extras)
        if self._client is None or connected_with != self._connected_with:
            self.close()
            wrong: CustodyConfigurationError | None = None
            try:
                settings = self._settings(base_url, extras)
                auth = self._authentication(*credentials)
                if self.shares_sign_in:
                    from airflow_custody.hooks._sign_ins import SIGN_INS

                    account = (settings.base_url, *credentials)
                    auth = SIGN_INS.of(self.custody_conn_id, connected_with, auth, account)
                self._client = CustodyClient.from_settings(settings, auth)
            except CustodyConfigurationError as error:
                wrong = error
            if self._client is None:
                # Raised out here, as all errors of this class: what was caught must not come along. The setting is
                # named once: as the connection names it.
                setting, code = (str(wrong.setting), wrong.code) if wrong else ("", "setting-wrong")
                raise self._wrong(self._fault(wrong), setting, code)
            self._connected_with = connected_with
            if self.sends_metrics and (observer := call_observer(self.custody_conn_id)) is not None:
                self._client.observe(observer)
        return self._client

    def check_health(self, criteria: HealthCriteria) -> HealthVerdict:
        """
        Fetch the health listing and judge it.

        :param criteria: which checks are judged and what makes them healthy.
        :return: the verdict.
        :raises CustodyError: if the listing cannot be fetched.
        """
        from airflow_custody.client.health.verdict import judge
        from airflow_custody.metrics import health_listed

        with health_listed(self.custody_conn_id, criteria, is_measured=self.sends_metrics) as checks:
            checks += self.get_conn().list_health_checks(criteria.tenant_id)
        return judge(checks, criteria)

    def test_connection(self) -> tuple[bool, str]:
        """
        Make authenticated calls that change nothing: the health listing, and who the user is; with pinned keys also
        the service's present rules, which must be signed with them.

        What the service does not offer, except for the listing, decides nothing. An extra that is not known is an
        error here, and nowhere else: nobody sees the warning.

        :return: whether they succeeded, and what to tell the user: also which roles are missing.
        """
        from airflow_custody.hooks._connection_test import try_client

        self._is_tested = True
        try:
            client = self.get_conn()
            if self.unknown_extras:
                raise CustodyConfigurationError(self.unknown_extras, code="setting-wrong")
            return try_client(client)
        except CustodyError as error:
            return False, str(error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the client's connections; the next call opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> CustodyHook:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how the form of Airflow 2 shows the standard fields; Airflow 3 reads the provider info."""
        behaviour = _connection_type()["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the extra fields of Airflow 2's form, made from those that Airflow 3 reads."""
        from flask_appbuilder.fieldwidgets import BS3TextAreaFieldWidget, BS3TextFieldWidget
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
                widget=BS3TextAreaFieldWidget() if schema.get("format") == "multiline" else BS3TextFieldWidget(),
            )
        return widgets

    # --- reading the connection ----------------------------------------------------------------------------

    def _connection(self) -> Connection:
        connection: Connection | None = None
        with suppress(AirflowNotFoundException):
            connection = self.get_connection(self.custody_conn_id)
        if connection is None:
            advice = "Make a connection with this id and the type Custody."
            raise missing_connection(self.custody_conn_id, advice, setting="custody_conn_id")
        if connection.conn_type != self.conn_type:
            raise self._wrong(
                f"must be {self.conn_type!r}, not {connection.conn_type!r}",
                "Connection Type",
                "setting-wrong",
                advice="Choose Custody there; outside the form, write conn_type 'custody'.",
            )
        return connection

    def _settings(self, base_url: str, extras: dict[str, Any]) -> ClientSettings:
        """Return the client's settings, read from the connection by name."""
        from airflow import __version__ as version

        from airflow_custody.client.settings import ClientSettings, is_key_text, refuse_misspelt
        from airflow_custody.hooks._connection_test import describe_unknown

        self.unknown_extras = ""
        known = [name for name in _connection_type()["conn-fields"] if name not in ("auth", "api_key_id")]
        if unknown := sorted(set(extras) - {*known, "auth", "api_key_id"}):
            refuse_misspelt(unknown)
            self.unknown_extras = describe_unknown(unknown, ["auth", "api_key_id", *known])
            self.log.warning("%s%s", self._start(), self.unknown_extras)
        if extras.get("proxy"):
            proxy = str(extras["proxy"])
            # Its password by itself, too. Taken apart by hand: it may be a URL that no parser can read.
            password = proxy.rpartition("@")[0].rpartition("://")[2].partition(":")[2]
            for secret in filter(None, (proxy, password, unquote(password))):
                mask(secret)
        keys = extras.get("superadmin_keys")
        for each in keys if isinstance(keys, list) else [keys]:
            # Which file a relative path names depends on where the process was started.
            if isinstance(each, str) and each and not is_key_text(each) and not os.path.isabs(each):
                raise CustodyConfigurationError(
                    "'superadmin_keys' must be public keys in PEM, or the absolute path of a file with them",
                    setting="superadmin_keys",
                    code="pins-wrong",
                )
        values = {name: extras.get(name) for name in known}
        return ClientSettings.parse(
            {**values, "base_url": base_url, "user_agent": f"Airflow/{version}", "source": self._place()}
        )

    def _credentials(self, connection: Connection, extras: dict[str, Any]) -> tuple[str, str, str]:
        """
        Return the authentication method, the name and the secret.

        What is filled in decides, and must be what ``auth`` says if it says anything.
        """
        password = connection.password or ""
        if password:
            mask(password)
        names = {"password": connection.login, "api_key": extras.get("api_key_id")}
        given = [method for method, name in names.items() if name not in (None, "")]
        if len(given) > 1:
            raise self._wrong(
                "a user name and an API key ID are filled in: leave one of them empty", "auth", "credentials-missing"
            )
        filled_in = given[0] if given else "bearer"
        auth = filled_in if extras.get("auth") in (None, "") else extras["auth"]
        if not isinstance(auth, str) or auth not in _AUTH_METHODS:
            *others, last = _AUTH_METHODS
            raise self._wrong(f"must be {', '.join(others)} or {last}", "auth", "setting-wrong")
        needs, secret = _AUTH_METHODS[auth]
        if auth != filled_in:
            raise self._wrong(f"is {auth}, which needs {needs}", "auth", "credentials-missing")
        if not password:
            raise self._wrong(f"{secret} is missing", "token", "credentials-missing")
        return auth, str(names.get(auth, "")), password

    def _authentication(self, auth: str, name: str, secret: str) -> Authentication:
        from airflow_custody.client.auth import ApiKey, BearerToken, PasswordSignIn

        place = self._place()
        if auth == "password":
            return PasswordSignIn(name, secret, source=place, on_token=mask)
        if auth == "api_key":
            return ApiKey(name, secret, source=place)
        return BearerToken(secret, source=f"the Password of {place}")

    def _base_url(self, connection: Connection) -> str:
        host = (connection.host or "").strip()
        if not host:
            raise self._wrong(
                "the base URL is missing (an example: https://custody.example.com)", "base_url", "setting-wrong"
            )
        schema, port = connection.schema or None, connection.port or None
        if schema is not None and schema.lower() not in ("http", "https"):
            raise self._wrong("must be http or https, or empty", "Schema", "setting-wrong")
        # Whoever forgot a slash is told so, and not sent to a host named "http".
        if "://" not in host and not host.lower().startswith(("http:", "https:")):
            host = f"{schema or 'https'}://{host}"
        elif schema is not None and not host.lower().startswith(f"{schema.lower()}://"):
            raise self._wrong("names another protocol than the base URL", "Schema", "setting-wrong")
        return host if port is None else self._with_port(host, port)

    def _with_port(self, url: str, port: int) -> str:
        from urllib.parse import urlsplit

        parts, named = None, None
        with suppress(ValueError):
            named = urlsplit(url).port
            parts = urlsplit(url)
        if parts is None:
            raise self._wrong("the base URL cannot be read as a URL", "base_url", "setting-wrong")
        if named is not None and named != port:
            raise self._wrong(f"is {port}, but the base URL names port {named}", "Port", "setting-wrong")
        return url if named is not None else parts._replace(netloc=f"{parts.netloc}:{port}").geturl()

    def _extras(self, connection: Connection) -> dict[str, Any]:
        text = connection.get_extra() if hasattr(connection, "get_extra") else connection.extra
        try:
            # A name that is there twice: the last would count, and might be another than a reviewer read.
            extras = json.loads(text, object_pairs_hook=_each_once) if text else {}
        except ValueError:
            extras = None
        if not isinstance(extras, dict):
            raise self._wrong("is not a JSON object, or has a name twice", "Extra", "setting-wrong")
        return extras

    def _fault(self, error: CustodyConfigurationError | None) -> str:
        """Return what is wrong with a setting, in words that may quote its value."""
        return "" if error is None else error.text.removeprefix(f"'{error.setting}' ")

    def _place(self) -> str:
        """Return what messages call the connection."""
        return "this connection" if self._is_tested else f"the Airflow connection {self.custody_conn_id!r}"

    def _start(self) -> str:
        """Return what a message begins with when one of the connection's fields is wrong."""
        return "" if self._is_tested else f"Airflow connection {self.custody_conn_id!r}, "

    def _wrong(
        self, why: str, setting: str, code: ErrorCode, *, advice: str | None = None
    ) -> CustodyConfigurationError:
        text = f"{self._start()}{_name(setting)}: {why}"
        return CustodyConfigurationError(text, setting=setting, code=code, advice=advice)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def missing_connection(conn_id: str, advice: str, *, setting: str) -> CustodyConfigurationError:
    """
    Return the error for a connection that Airflow does not find. It does not say so if it could not read one.

    :param conn_id: id of the connection.
    :param advice: what to do if there is none.
    :param setting: what named it.
    """
    what = "is not defined"
    if variable := connection_variable(conn_id):
        what = f"cannot be read from the environment variable {variable}"
        advice = "Correct the variable: a URI, or a JSON object of Airflow's fields, in which password is a text."
    return CustodyConfigurationError(
        f"the Airflow connection {conn_id!r} {what}", setting=setting, advice=advice, code="setting-wrong"
    )


def connection_variable(conn_id: str) -> str:
    """Return the name of the environment variable that defines a connection, if it is set; else empty."""
    name = f"AIRFLOW_CONN_{conn_id.upper()}"
    return name if name in os.environ else ""


def _name(setting: str) -> str:
    """Return a setting as a message names it: as the form shows it, and its name where there is no form."""
    if field := _connection_type()["conn-fields"].get(setting):
        return f"{field['label'].partition(' (')[0]} ({setting})"
    return _CONNECTION_FIELDS.get(setting, setting)


def _connection_type() -> dict[str, Any]:
    found: dict[str, Any] = get_provider_info()["connection-types"][0]
    return found


def mask(secret: str) -> None:
    """Register a secret with Airflow's masker, wherever this Airflow has it."""
    try:
        from airflow.sdk.log import mask_secret
    except ImportError:
        from airflow.utils.log.secrets_masker import mask_secret  # type: ignore[no-redef]
    mask_secret(secret)
