"""Which service a command talks to, and as whom: an Airflow connection, or a base URL."""

from __future__ import annotations

import logging
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_custody.cli.commands import Once, Option, option
from airflow_custody.cli.trust import OPTIONS
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.verification.pins import PIN_SETTINGS

if TYPE_CHECKING:
    from airflow_custody.client import ClientSettings, CustodyClient, VerificationPins
    from airflow_custody.client.http.authentication import Authentication

    Adjust = Callable[[ClientSettings], ClientSettings]

DEFAULT_CONN_ID = "custody_default"
#: Its settings that an option gives; they go with ``--base-url``.
SETTINGS = (
    "timeout",
    "verify",
    "client_cert",
    "proxy",
    "max_retries",
    "max_response_bytes",
    "allow_http",
    *PIN_SETTINGS,
)

#: The options of every command that talks to the service.
CONNECTION_OPTIONS: tuple[Option, ...] = (
    option("--conn-id", metavar="ID", help=f"id of an Airflow connection. Default: {DEFAULT_CONN_ID}"),
    option("--base-url", metavar="URL", help="where the service is; then Airflow is not used. Credentials: see below"),
    option("--token-stdin", action="store_true", help="read the API token from standard input"),
    option("--timeout", metavar="SECONDS", help="for one whole exchange. Default: 30"),
    option("--verify", metavar="PATH|false", help="CA bundle to verify the certificate with; false: do not verify it"),
    option("--client-cert", metavar="PATH", help="PEM file with certificate and key, or both paths, comma-separated"),
    option("--proxy", metavar="URL", help="proxy, without a password. Default: from HTTPS_PROXY and NO_PROXY"),
    option("--max-retries", metavar="N", help="retries of a call. Default: 3"),
    option("--max-response-bytes", metavar="N", help="maximum size of a response. Default: 67108864 (64 MiB)"),
    option("--allow-http", action="store_true", help="send the token unencrypted to another machine"),
    option(
        "--superadmin-keys",
        metavar="PATH",
        action="append",
        help="file with the super-administrators' public keys, to verify with; may be repeated",
    ),
    option("--superadmin-minimum", metavar="N", action=Once, help="how many of these keys must have signed the rules"),
    option(
        "--networks", metavar="NAMES", action=Once, help="networks that are accepted, comma-separated. Default: any"
    ),
    option("--allow-legacy-signatures", action="store_true", help="accept addresses that were signed in an older form"),
    option(
        "--rules-not-before",
        metavar="DATE",
        action=Once,
        help="date before which no rules count. Default: any rules count",
    ),
)

_MAX_TOKEN = 64 * 1024
_QUOTED_SETTING = re.compile(f"'({'|'.join(SETTINGS)})'")
_NAMES = {
    "token": ("CUSTODY_TOKEN",),
    "password": ("CUSTODY_USER", "CUSTODY_PASSWORD"),
    "api_key": ("CUSTODY_API_KEY_ID", "CUSTODY_API_KEY_SECRET"),
}


@contextmanager
def open_source(args: Namespace, adjust: Adjust = lambda settings: settings) -> Iterator[Callable[[], CustodyClient]]:
    """
    Yield what returns the client that the arguments ask for.

    An Airflow connection is read at each call, so that a token that was renewed is used during a long wait.

    :param args: the parsed arguments.
    :param adjust: returns the settings to use instead of those that are given. Default: the same.
    :raises CustodyConfigurationError: if they contradict each other, or a setting is missing or wrong.
    """
    if args.base_url is None:
        if given := _given_settings(args):
            raise CustodyConfigurationError(
                f"{', '.join(given)}: only with --base-url",
                advice="An Airflow connection has settings of its own.",
                code="usage-wrong",
            )
        with _open_connection(args, adjust) as source:
            yield source
        return
    if args.conn_id is not None:
        raise CustodyConfigurationError(
            "--conn-id and --base-url are both given", advice="Give one of them.", code="usage-wrong"
        )
    with _open_base_url(args, adjust) as client:
        yield lambda: client


@contextmanager
def open_client(args: Namespace, adjust: Adjust = lambda settings: settings) -> Iterator[CustodyClient]:
    """Yield the client that the arguments ask for; takes and raises what :func:`open_source` does."""
    with open_source(args, adjust) as source:
        yield source()


def _given_settings(args: Namespace) -> list[str]:
    """Return the options that are given and go with ``--base-url``."""
    return [f"--{name.replace('_', '-')}" for name in (*SETTINGS, "token_stdin") if getattr(args, name)]


def read_pins(args: Namespace) -> VerificationPins:
    """
    Return what the options say is trusted, without a service.

    :param args: the parsed arguments.
    :raises CustodyConfigurationError: if an option is missing or wrong, or says something about a service.
    """
    others = [each for each in _given_settings(args) if each[2:].replace("-", "_") not in PIN_SETTINGS]
    others += [name for name, given in (("--conn-id", args.conn_id), ("--base-url", args.base_url)) if given]
    if others:
        raise CustodyConfigurationError(
            f"{', '.join(others)}: not with --from", advice="No service is asked.", code="usage-wrong"
        )
    # The URL is not used.
    settings = {**{name: getattr(args, name) or None for name in PIN_SETTINGS}, "base_url": "https://localhost"}
    if (pins := _parse_settings(settings).pins) is not None:
        return pins
    raise CustodyConfigurationError(
        "--superadmin-keys is missing: what is trusted is never read from the file",
        setting="superadmin_keys",
        advice="Give --superadmin-keys and --superadmin-minimum.",
        code="pins-wrong",
    )


# --- an Airflow connection ----------------------------------------------------------------------------------


@contextmanager
def _open_connection(args: Namespace, adjust: Adjust) -> Iterator[Callable[[], CustodyClient]]:
    # Airflow is imported here and nowhere else: importing it makes a home folder.
    from airflow.models.connection import Connection

    from airflow_custody.hooks.custody import CustodyHook

    class CommandLineHook(CustodyHook):
        # Nobody wants a person's look at the service among what Airflow does.
        sends_metrics = False

        @classmethod
        def get_connection(cls, conn_id: str) -> Any:
            """Return a connection from the secrets backends, the environment or, outside of a task, the database."""
            with _without_tracebacks(logging.getLogger(Connection.__module__), args.debug):
                return Connection.get_connection_from_secrets(conn_id)

        def _settings(self, base_url: str, extras: dict[str, Any]) -> ClientSettings:
            return adjust(super()._settings(base_url, extras))

    with CommandLineHook(args.conn_id or DEFAULT_CONN_ID) as hook:

        def source() -> CustodyClient:
            client = hook.get_conn()
            args.custody_auth = client.auth
            args.custody_unknown_extras = hook.unknown_extras
            return client

        yield source


@contextmanager
def _without_tracebacks(log: logging.Logger, debug: bool) -> Iterator[None]:
    """Have a log say in a line that a secrets backend cannot be used: the database may not be there at all."""

    def shorten(record: logging.LogRecord) -> bool:
        if not debug:
            record.exc_info = None
        return True

    log.addFilter(shorten)
    try:
        yield
    finally:
        log.removeFilter(shorten)


# --- a base URL ---------------------------------------------------------------------------------------------


@contextmanager
def _open_base_url(args: Namespace, adjust: Adjust) -> Iterator[CustodyClient]:
    from airflow_custody.client import CustodyClient

    if args.proxy and _has_password(args.proxy):
        raise CustodyConfigurationError(
            "--proxy contains a password, which others on this machine can read",
            setting="proxy",
            advice="Put the URL into the environment variable HTTPS_PROXY.",
            code="usage-wrong",
        )
    args.custody_auth = auth = _authentication(args)
    values = {name: getattr(args, name) or None for name in SETTINGS}
    settings = _parse_settings({**values, "base_url": args.base_url, "user_agent": "custody-cli", "source": OPTIONS})
    with CustodyClient.from_settings(adjust(settings), auth) as client:
        yield client


def _parse_settings(values: Mapping[str, Any]) -> ClientSettings:
    """Return settings that options give; what is wrong with one is said of the option."""
    from airflow_custody.client import ClientSettings

    try:
        return ClientSettings.parse(values)
    except CustodyConfigurationError as error:
        text = _QUOTED_SETTING.sub(lambda found: f"--{found[1].replace('_', '-')}", error.message)
        raise CustodyConfigurationError(text, setting=error.setting, advice=error.advice, code=error.code) from None


def _has_password(url: str) -> bool:
    try:
        return "@" in urlsplit(url if "://" in url else f"//{url}").netloc
    except ValueError:
        return "@" in url


def _authentication(args: Namespace) -> Authentication:
    from airflow_custody.client.auth import ApiKey, BearerToken, PasswordSignIn

    if args.token_stdin:
        return BearerToken(_read_token(), source="standard input (--token-stdin)")
    given = [way for way, names in _NAMES.items() if any(os.environ.get(name) for name in names)]
    if not given:
        raise CustodyConfigurationError(
            "no credentials are given",
            setting="token",
            advice="Put the API token into the environment variable CUSTODY_TOKEN, or use --token-stdin.",
            code="credentials-missing",
        )
    if len(given) > 1:
        both = " and ".join(_NAMES[way][0] for way in given)
        raise CustodyConfigurationError(
            f"{both} are both set", setting="auth", advice="Set those of one way only.", code="credentials-missing"
        )
    (way,) = given
    names = _NAMES[way]
    values = [os.environ.get(name, "") for name in names]
    for name, value in zip(names, values, strict=True):
        if not value:
            raise CustodyConfigurationError(
                f"the environment variable {name} is missing", setting=way, code="credentials-missing"
            )
    source = f"the environment ({', '.join(names)})"
    if way == "token":
        return BearerToken(*values, source=source)
    return ApiKey(*values, source=source) if way == "api_key" else PasswordSignIn(*values, source=source)


def _read_token() -> str:
    if sys.stdin is None:
        raise _no_token("standard input is closed")
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("API token: ").strip()
    token = sys.stdin.read(_MAX_TOKEN).strip()
    if not token:
        raise _no_token("standard input is empty")
    return token


def _no_token(why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting="token", advice="Pass the token on it.", code="credentials-missing")
