"""Which service a command talks to, and as whom: an Airflow connection, or a base URL."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from getpass import getpass
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import Parser, flag_of
from airflow_custody.client import ClientSettings, CustodyClient
from airflow_custody.client.auth import ApiKey, BearerToken, PasswordSignIn
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.verification.pins import PIN_SETTINGS
from airflow_custody.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, VerificationPins
    from airflow_custody.client.http.authentication import Authentication

DEFAULT_CONN_ID = "custody_default"
_FORM: dict[str, Any] = get_provider_info()["connection-types"][0]["conn-fields"]
#: The settings that have an option, which goes with ``--base-url``; credentials have none.
SETTINGS = tuple(name for name in _FORM if name not in ("auth", "api_key_id"))
# The values of options; others are called by their type.
_METAVARS = {
    "timeout": "SECONDS",
    "verify": "PATH|false",
    "client_cert": "PATH",
    "proxy": "URL",
    "superadmin_keys": "PATH",
    "networks": "NAMES",
    "rules_not_before": "DATE",
}
_CREDENTIALS_HELP = """\
Credentials with --base-url come from the environment: CUSTODY_TOKEN, an API token;
CUSTODY_USER and CUSTODY_PASSWORD; or CUSTODY_API_KEY_ID and CUSTODY_API_KEY_SECRET.
Or --token-stdin reads an API token. A proxy with a password goes into HTTPS_PROXY.
An Airflow connection has its own credentials and settings."""


def add_connection_options(parser: Parser) -> None:
    """
    Add the options of every command that talks to the service.

    :param parser: the command's parser.
    """
    parser.epilog = _CREDENTIALS_HELP
    add = parser.add_argument
    add("--conn-id", metavar="ID", help=f"id of an Airflow connection. Default: {DEFAULT_CONN_ID}")
    add("--base-url", metavar="URL", help="where the service is; then Airflow is not used. Credentials: see below")
    add("--token-stdin", action="store_true", help="read the API token from standard input")
    for name in SETTINGS:
        add(flag_of(name), **_option(name))


def _option(name: str) -> dict[str, Any]:
    """Return the option of a setting, in the words of the form."""
    text = _FORM[name]["description"].removesuffix(".").replace("%", "%%")
    # Not an abbreviation.
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    kind = _FORM[name]["schema"]["type"][0]
    if kind == "boolean":
        return {"action": "store_true", "help": text}
    action = "append" if name == "superadmin_keys" else "store"
    return {"action": action, "metavar": _METAVARS.get(name, "N" if kind == "integer" else kind.upper()), "help": text}


@contextmanager
def open_client(args: Namespace) -> Iterator[CustodyClient]:
    """
    Yield the client that the arguments ask for.

    :param args: the parsed arguments.
    :raises CustodyConfigurationError: if they contradict each other, or a setting is missing or wrong.
    """
    if args.base_url is None:
        if given := _given(args):
            raise usage_error(
                f"{', '.join(given)}: only with --base-url", "An Airflow connection has settings of its own."
            )
        opened = _airflow_client(args)
    elif args.conn_id is not None:
        raise usage_error("--conn-id and --base-url are both given", "Give one of them.")
    else:
        opened = _base_url_client(args)
    with opened as client:
        args.custody_auth = client.auth
        yield client


def read_pins(args: Namespace) -> VerificationPins:
    """
    Return what the options say is trusted, without a service.

    :param args: the parsed arguments.
    :raises CustodyConfigurationError: if an option is missing or wrong, or says something about a service.
    """
    pin_options = {flag_of(name) for name in PIN_SETTINGS}
    others = [each for each in _given(args, "conn_id", "base_url") if each not in pin_options]
    if others:
        raise usage_error(f"{', '.join(others)}: not with --from", "No service is asked.")
    # The URL is not used.
    settings = {**{name: getattr(args, name) or None for name in PIN_SETTINGS}, "base_url": "https://localhost"}
    if (pins := ClientSettings.parse(settings).pins) is not None:
        return pins
    raise CustodyConfigurationError(
        "--superadmin-keys is missing: what is trusted is never read from the file",
        setting="superadmin_keys",
        advice="Give --superadmin-keys and --superadmin-minimum.",
    )


def _given(args: Namespace, *more: str) -> list[str]:
    """Return the options that are given and go with ``--base-url``."""
    return [flag_of(name) for name in (*SETTINGS, "token_stdin", *more) if getattr(args, name)]


def usage_error(why: str, advice: str) -> CustodyConfigurationError:
    """Return the error of options that contradict each other."""
    return CustodyConfigurationError(why, advice=advice, code="parameter-wrong")


# --- an Airflow connection ----------------------------------------------------------------------------------


def _airflow_client(args: Namespace) -> CustodyClient:
    # Airflow is imported here and nowhere else: importing it makes a home folder.
    from airflow_custody.cli.airflow_hook import CommandLineHook

    return CommandLineHook(args.conn_id or DEFAULT_CONN_ID).get_conn()


# --- a base URL ---------------------------------------------------------------------------------------------


def _base_url_client(args: Namespace) -> CustodyClient:
    if args.proxy and "@" in args.proxy:
        raise CustodyConfigurationError(
            "--proxy contains a password, which others on this machine can read",
            setting="proxy",
            advice="Put the URL into the environment variable HTTPS_PROXY.",
            code="parameter-wrong",
        )
    auth = _authentication(args)
    values = {name: getattr(args, name) or None for name in SETTINGS}
    settings = ClientSettings.parse(
        {**values, "base_url": args.base_url, "user_agent": "custody-cli", "source": "--base-url"}
    )
    return CustodyClient.from_settings(settings, auth)


def _authentication(args: Namespace) -> Authentication:
    if args.token_stdin:
        return BearerToken(_read_token(), source="standard input (--token-stdin)")
    ways: dict[Callable[..., Authentication], tuple[str, ...]] = {
        BearerToken: ("CUSTODY_TOKEN",),
        PasswordSignIn: ("CUSTODY_USER", "CUSTODY_PASSWORD"),
        ApiKey: ("CUSTODY_API_KEY_ID", "CUSTODY_API_KEY_SECRET"),
    }
    given = [(way, names) for way, names in ways.items() if any(map(os.environ.get, names))]
    if not given:
        advice = "Put the API token into the environment variable CUSTODY_TOKEN, or use --token-stdin."
        raise _no_credentials("no credentials are given", advice)
    if len(given) > 1:
        both = " and ".join(names[0] for _, names in given)
        raise _no_credentials(f"{both} are both set", "Set those of one way only.")
    way, names = given[0]
    for name in names:
        if not os.environ.get(name):
            raise _no_credentials(f"the environment variable {name} is missing", "Set it.")
    return way(*(os.environ[name] for name in names), source=f"the environment ({', '.join(names)})")


def _read_token() -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return getpass("API token: ").strip()
    if token := sys.stdin.read().strip() if sys.stdin is not None else "":
        return token
    raise _no_credentials("standard input is closed or empty", "Pass the token on it.")


def _no_credentials(why: str, advice: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting="token", advice=advice, code="credentials-missing")
