"""The commands, and how one is run: also by Airflow, which takes commands from providers from version 3.2 on."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody.cli import check, examples, health, status, webhooks, whitelist
from airflow_custody.cli.commands import ERROR, EXIT_CODES, INTERRUPTED, Command, Group, Parser, fill_parser
from airflow_custody.cli.output import Output, OutputError, discard, keep_clean, message
from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyError

if TYPE_CHECKING:
    from airflow.cli.cli_config import ActionCommand

COMMANDS: tuple[Command | Group, ...] = (
    check.COMMAND,
    status.COMMAND,
    health.COMMAND,
    whitelist.GROUP,
    webhooks.GROUP,
    examples.COMMAND,
)

HELP = "Check a custody service, and compare its whitelist with a file; changes nothing at the service"
_EXAMPLES = f"""\
examples:
  {{prog}} check                                            the connection custody_default of Airflow
  {{prog}} status                                           what is wrong, and what is pending
  {{prog}} health --conn-id custody_prod --watch 10
  {{prog}} whitelist dump > whitelist.yaml                  how one starts
  {{prog}} whitelist plan whitelist.yaml -o markdown
  {{prog}} whitelist verify --evidence -o json > audit.json   with pinned keys
  {{prog}} examples --to dags                                 copy the example DAGs
  CUSTODY_TOKEN=... {{prog}} whitelist plan whitelist.yaml --base-url https://custody.example.com

{EXIT_CODES}

Data goes to standard output, messages to standard error.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the console script ``custody``.

    :param arguments: its arguments. Default: those of the process.
    :return: the exit code.
    """
    try:
        parser = Parser(prog="custody", description=f"{HELP}.", epilog=_EXAMPLES.format(prog="custody"))
        fill_parser(parser, COMMANDS)
        code = run(parser.parse_args(arguments))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    return code if _flush() else ERROR


def run(args: Namespace) -> int:
    """
    Run the command that was parsed.

    :param args: the parsed arguments.
    :return: the exit code.
    """
    stream = sys.stdout
    if stream is None:
        message(OutputError())
        return ERROR
    try:
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
    """Say what nobody expected, without the credentials that are in use."""
    auth: Any = getattr(args, "custody_auth", None)
    name = type(exception).__name__
    if args.debug:
        import traceback

        lines = "".join(traceback.format_exception(exception)).splitlines()
    elif auth is None:
        # It may be about credentials, and nobody can redact them here.
        lines = [f"unexpected error: {name}; --debug shows what it says and where it comes from"]
    else:
        lines = [f"unexpected error: {name}: {auth.redact(exception, 1000)}; --debug shows where it comes from"]
    lines[-1] += f" {label('unexpected')}"
    for line in lines:
        message(line if auth is None else auth.redact(line, 1200))


def _flush() -> bool:
    """Write what is left, and tell whether all of it was written, or the reader has gone."""
    is_written = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except AttributeError:
            # It was closed before Python began.
            continue
        except BrokenPipeError:
            discard(stream)
        except OSError as error:
            discard(stream)
            is_written = False
            message(OutputError(error))
    return is_written


# --- airflow custody ----------------------------------------------------------------------------------------


def get_airflow_commands() -> list[ActionCommand]:
    """
    Return the commands for ``airflow custody``. Airflow calls this whenever it starts.

    It is one command whose only "argument" adds ours to its parser. Airflow's own groups of commands exit with 2 on
    wrong usage, which would say that there are changes.
    """
    from airflow.cli.cli_config import ActionCommand, Arg

    class Commands(Arg):
        def add_to_parser(self, parser: ArgumentParser) -> None:
            fill_parser(parser, COMMANDS)

    return [
        ActionCommand(
            name="custody",
            help=HELP,
            func=_run_for_airflow,
            args=(Commands(flags=("command",)),),  # type: ignore[no-untyped-call]
            epilog=_EXAMPLES.format(prog="airflow custody"),
        )
    ]


def _run_for_airflow(args: Namespace) -> None:
    code = run(args)
    sys.exit(code if _flush() else ERROR)
