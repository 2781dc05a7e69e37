"""Opens the client of a command: from an Airflow connection, or from a base URL."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import Parser, flag_of, usage_error
from airflow_custody.client import ClientSettings, CustodyClient
from airflow_custody.client.auth import ApiKey, BearerToken, PasswordSignIn
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.verification.pins import PIN_SETTINGS
from airflow_custody.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from airflow_custody.client import VerificationPins
    from airflow_custody.client.auth import Authentication

DEFAULT_CONN_ID = "custody_default"
_FORM: dict[str, Any] = get_provider_info()["connection-types"][0]["conn-fields"]
#: The settings that have an option, for use with ``--base-url``. Credentials have no options.
SETTINGS = tuple(name for name in _FORM if name not in ("auth", "api_key_id"))
# Names of the options' values in the help. For all other options, the name of their type is used.
_METAVARS = {
    "timeout": "SECONDS",
    "verify": "PATH|false",
    "client_cert": "PATH",
    "proxy": "URL",
    "superadmin_keys": "PATH",
    "networks": "NAMES",
    "rules_not_before": "DATE",
    "effective_statuses": "WORDS",
    "rejected_statuses": "WORDS",
    "accept_fields": "KEYS",
}
_GROUP_HELP = (
    "A command uses an Airflow connection; or a URL (--base-url) with credentials from environment variables, which "
    "are CUSTODY_TOKEN; CUSTODY_USER and CUSTODY_PASSWORD; or CUSTODY_API_KEY_ID and CUSTODY_API_KEY_SECRET. With a "
    "URL, the other settings of a connection are options, which --help-all lists."
)


def add_connection_options(parser: Parser) -> None:
    """
    Add the options of every command that talks to the service, as the last group of its help.

    :param parser: the command's parser.
    """
    group = parser.add_argument_group("connection", _GROUP_HELP)
    add = parser.add_argument
    add("--conn-id", group=group, metavar="ID", help=f"id of the Airflow connection. Default: {DEFAULT_CONN_ID}")
    add("--base-url", group=group, metavar="URL", help="URL of the service; Airflow is not used")
    add("--token-stdin", group=group, action="store_true", help="read the API token from standard input")
    for name in SETTINGS:
        add(flag_of(name), group=group, is_minor=True, **_option(name))


def _option(name: str) -> dict[str, Any]:
    """Return the option for a setting, with the form's description."""
    text = _FORM[name]["description"].removesuffix(".").replace("%", "%%")
    # Do not change the first letter of an abbreviation, such as URL.
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
    Yield the client for the arguments of a command.

    :param args: the parsed arguments.
    :raises CustodyConfigurationError: if the arguments contradict each other, or a setting is missing or wrong.
    """
    if args.base_url is None:
        if given := _given(args):
            raise usage_error(
                f"{', '.join(given)}: can only be used with --base-url",
                "Without --base-url, the command uses an Airflow connection. Change the setting there, or also use "
                "--base-url.",
            )
        # Import Airflow only here, because importing it takes a second, and creates Airflow's home folder.
        from airflow_custody.cli.airflow_hook import CommandLineHook

        opened = CommandLineHook(args.conn_id or DEFAULT_CONN_ID).get_conn()
    elif args.conn_id is not None:
        raise usage_error("--conn-id and --base-url are both given", "Use only one of them.")
    else:
        opened = _base_url_client(args)
    with opened as client:
        args.custody_auth = client.auth
        yield client


def read_pins(args: Namespace) -> VerificationPins:
    """
    Return the pins in the options, for verification without a service.

    :param args: the parsed arguments.
    :raises CustodyConfigurationError: if an option is missing or wrong, or only makes sense with a service.
    """
    pin_options = {flag_of(name) for name in PIN_SETTINGS}
    others = [each for each in _given(args, "conn_id", "base_url") if each not in pin_options]
    if others:
        raise usage_error(
            f"{', '.join(others)}: cannot be used with --from", "Remove the option: --from does not use the service."
        )
    # ClientSettings requires a URL, but this one is not used.
    settings = {**{name: getattr(args, name) or None for name in PIN_SETTINGS}, "base_url": "https://localhost"}
    if (pins := ClientSettings.parse(settings).pins) is not None:
        return pins
    raise CustodyConfigurationError(
        "--superadmin-keys is missing: pins are never read from the file",
        setting="superadmin_keys",
        advice="Set --superadmin-keys and --superadmin-minimum.",
    )


def _given(args: Namespace, *more: str) -> list[str]:
    """Return the given options that belong to ``--base-url``."""
    return [flag_of(name) for name in (*SETTINGS, "token_stdin", *more) if getattr(args, name)]


# --- a base URL ---------------------------------------------------------------------------------------------


def _base_url_client(args: Namespace) -> CustodyClient:
    if args.proxy and "@" in args.proxy:
        raise CustodyConfigurationError(
            "--proxy contains a password, which other users of this machine can read",
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
    methods: dict[Callable[..., Authentication], tuple[str, ...]] = {
        BearerToken: ("CUSTODY_TOKEN",),
        PasswordSignIn: ("CUSTODY_USER", "CUSTODY_PASSWORD"),
        ApiKey: ("CUSTODY_API_KEY_ID", "CUSTODY_API_KEY_SECRET"),
    }
    given = [(method, names) for method, names in methods.items() if any(map(os.environ.get, names))]
    if not given:
        advice = "Put the API token into the environment variable CUSTODY_TOKEN, or use --token-stdin."
        raise _no_credentials("no credentials are given", advice)
    if len(given) > 1:
        both = " and ".join(names[0] for _, names in given)
        raise _no_credentials(f"{both} are both set", "Set the variables of one method only.")
    method, names = given[0]
    for name in names:
        if not os.environ.get(name):
            raise _no_credentials(f"the environment variable {name} is missing", "Set this variable.")
    return method(*(os.environ[name] for name in names), source=f"the environment ({', '.join(names)})")


def _read_token() -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        return getpass("API token: ").strip()
    if token := sys.stdin.read().strip() if sys.stdin is not None else "":
        return token
    raise _no_credentials("standard input is closed or empty", "Pass the token on standard input.")


def _no_credentials(why: str, advice: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, setting="token", advice=advice, code="credentials-missing")
