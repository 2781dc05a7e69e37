"""Run the commands: ``custody`` and, on Airflow 3.2 and later, ``airflow custody``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_custody import __version__
from airflow_custody.cli.commands import ERROR, EXIT_CODES, INTERRUPTED, Parser
from airflow_custody.cli.output import Output, keep_clean, message, not_writable
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError

if TYPE_CHECKING:
    from airflow.cli.cli_config import ActionCommand

HELP = "Check a custody service, and compare its whitelist with a file. Only 'whitelist delete' changes the service"
#: The commands and their help. Each has a module of the same name, which is imported only if the command is used.
_COMMANDS = {
    "check": "Test a connection step by step",
    "status": "Show a summary of the service",
    "health": "Evaluate the service's health checks",
    "whitelist": "Whitelists, and whitelist files",
    "webhooks": "Webhook configurations",
    "examples": "List the example DAGs, or copy them into a folder",
}
_EXAMPLES = f"""\
examples:
  {{prog}} check                            test the connection custody_default
  {{prog}} status                           show problems and pending requests
  {{prog}} health --conn-id custody_prod --group hsm
  {{prog}} whitelist dump > list.yaml       start a whitelist file
  {{prog}} whitelist plan list.yaml -o markdown
  {{prog}} whitelist verify --evidence -o json > audit.json
  {{prog}} examples --to dags               copy the example DAGs
  CUSTODY_TOKEN=... {{prog}} whitelist plan list.yaml --base-url https://HOST

{EXIT_CODES}

Data goes to standard output, messages to standard error.
"""


def make_parser(prog: str = "custody", only: str | None = None) -> Parser:
    """
    Return the parser of the commands.

    :param prog: the name of the program. Default ``custody``.
    :param only: the command to parse. The other commands are only listed in the help. Default None: all commands.
    """
    parser = Parser(prog=prog, description=f"{HELP}.", epilog=_EXAMPLES.format(prog=prog))
    parser.add_argument("--version", action="version", version=f"custody {__version__}")
    _add_commands(parser, only)
    return parser


def _add_commands(parser: ArgumentParser, only: str | None) -> None:
    """
    Add the commands to a parser.

    :param only: the command to parse; the other commands are only listed. None: all commands.
    """
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for name, text in _COMMANDS.items():
        if only in (None, name):
            importlib.import_module(f"airflow_custody.cli.{name}").add_to(commands, text)
        else:
            commands.add_parser(name, help=text)


def _parse(prog: str, arguments: Sequence[str], namespace: Namespace | None = None) -> Namespace:
    command = next((each for each in arguments if not each.startswith("-")), "")
    return make_parser(prog, command).parse_args(arguments, namespace)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the console script ``custody``.

    :param arguments: the script's arguments. Default: the arguments of the process.
    :return: the exit code.
    """
    try:
        args = _parse("custody", sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:
        if sys.stdout is not None:
            # The reader of the help may have closed the pipe.
            with suppress(CustodyError):
                Output("text", sys.stdout).text("")
        return ended.code if isinstance(ended.code, int) else 0
    return run(args)


def run(args: Namespace) -> int:
    """
    Run a parsed command.

    :param args: the parsed arguments.
    :return: the exit code.
    """
    stream = sys.stdout
    try:
        if stream is None:
            raise not_writable("it is closed")
        with keep_clean(stream):
            return int(args.custody_run(args, Output(args.output, stream)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except CustodyError as error:
        message(error)
    except Exception as exception:
        _report_unexpected(exception, args)
    return ERROR


def _report_unexpected(exception: Exception, args: Namespace) -> None:
    """Report an unexpected error. Its text is included only with ``--debug``, and credentials in it are redacted."""
    text = f"unexpected error: {type(exception).__name__}; --debug shows the error's text and traceback"
    if args.debug:
        text = "".join(traceback.format_exception(exception))
    auth: Any = getattr(args, "custody_auth", None)
    for line in f"{text.rstrip()} {label('unexpected')}".splitlines():
        message(line if auth is None else auth.redact(line, 1200))


# --- airflow custody ----------------------------------------------------------------------------------------


def get_airflow_commands() -> list[ActionCommand]:
    """
    Return the commands for ``airflow custody``. Airflow calls this whenever it starts.

    For Airflow, there is a single command, whose arguments are parsed by this package's own parser: on wrong usage,
    Airflow's parser exits with 2, but 2 means changes here.
    """
    from airflow.cli.cli_config import ActionCommand, Arg

    class Arguments(Arg):
        def add_to_parser(self, parser: ArgumentParser) -> None:
            if "_ARGCOMPLETE" in os.environ:
                # The shell asks for completions, so add the commands to Airflow's own parser, where they are searched.
                _add_commands(parser, None)
                return

            def parse(args: Sequence[str], namespace: Namespace | None = None) -> tuple[Namespace, list[str]]:
                found = _parse("airflow custody", args, namespace)
                found.func = _run_for_airflow
                return found, []

            vars(parser).update(parse_known_args=parse)

    arguments = Arguments(flags=("arguments",))  # type: ignore[no-untyped-call]
    return [ActionCommand(name="custody", help=HELP, func=_run_for_airflow, args=(arguments,))]


def _run_for_airflow(args: Namespace) -> None:
    sys.exit(run(args))
