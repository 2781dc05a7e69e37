"""The parser of the commands. Airflow loads this at each start: nothing heavy."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_custody.client.error_codes import label
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.status_words import REJECTED_STATUSES

if TYPE_CHECKING:
    from airflow_custody.cli.output import Output

    Commands = argparse._SubParsersAction["Parser"]

#: Exit codes; 130 is what shells give a command that Ctrl-C ended.
NOTHING_TO_DO, ERROR, CHANGES, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = f"""\
exit codes:
  {NOTHING_TO_DO}    nothing to do: all is as it should be
  {CHANGES}    the service does not have what a file says, is not healthy, or has unverified addresses
  {ERROR}    error, also for wrong usage and missing credentials
  {INTERRUPTED}  interrupted with Ctrl-C"""
_NO_TOKEN_HERE = "; credentials are never given as an argument: put the token into CUSTODY_TOKEN, or use --token-stdin"
_SECRETIVE = ("token", "password", "secret", "key")


class Parser(argparse.ArgumentParser):
    """A parser whose exit code for wrong usage is 1: 2, the one of argparse, would say that there are changes."""

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**{**keywords, "allow_abbrev": False})

    def add_argument(self, *flags: str, **keywords: Any) -> argparse.Action:
        """Add an argument; text must not be empty, as what an unset variable of a shell leaves is."""
        if keywords.get("action") in (None, "store", "append"):
            keywords.setdefault("type", _text)
        if keywords.get("action") == "append":
            keywords["help"] += ". May be repeated"
        return super().add_argument(*flags, **keywords)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the usage and where it is explained, and exit with 1."""
        text = f"custody: {sanitize(message, 600)} {label('parameter-wrong')}\nsee {self.prog} --help\n"
        self.exit(ERROR, text)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, and refuse unknown ones here, without their values: one may be a secret."""
        found, unknown = super().parse_known_args(args, namespace)
        names = [each.partition("=")[0] for each in unknown if each.startswith("-")]
        if names:
            hint = _NO_TOKEN_HERE if any(word in name for name in names for word in _SECRETIVE) else ""
            self.error(f"unknown argument: {', '.join(names)}{hint}")
        if unknown:
            self.error("there is an argument too many")
        return found, []


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("is empty")
    return value


def add_rejected_status(parser: Parser) -> None:
    """Add the option with the status words of rejected requests."""
    words = f"{', '.join(REJECTED_STATUSES[:-1])} and {REJECTED_STATUSES[-1]}"
    text = f"status word of rejected requests. Default: {words}"
    parser.add_argument("--rejected-status", dest="rejected_statuses", metavar="WORD", action="append", help=text)


def flag_of(name: str) -> str:
    """Return the option of a setting."""
    return f"--{name.replace('_', '-')}"


def add_group(commands: Commands, name: str, help: str) -> Commands:
    """
    Add a group of commands of one subject, and return where its commands are added.

    :param commands: where the group is added.
    :param name: its name.
    :param help: what they are about, in a line.
    """
    return commands.add_parser(name, help=help, description=f"{help}.").add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )


def add_command(
    commands: Commands,
    name: str,
    help: str,
    run: Callable[[argparse.Namespace, Output], int],
    outputs: tuple[str, ...] = ("table", "json"),
) -> Parser:
    """
    Add a command, and return its parser.

    :param commands: where it is added.
    :param name: its name.
    :param help: what it does, in a line.
    :param run: does it, and returns the exit code. Its docstring is the command's description.
    :param outputs: what ``--output`` offers; empty: the command has one form only.
    """
    # Without docstrings, as in python -OO, there is still the line.
    description = (inspect.getdoc(run) or f"{help}.").replace("%", "%%")
    parser = commands.add_parser(name, help=help, description=description)
    if outputs:
        text = f"form of the output. Default: {outputs[0]}"
        parser.add_argument("-o", "--output", choices=outputs, default=outputs[0], help=text)
    parser.add_argument("--debug", action="store_true", help="show where an unexpected error comes from")
    # Airflow keeps its log off the standard output of commands that have "output".
    parser.set_defaults(custody_run=run, **({} if outputs else {"output": "text"}))
    return parser
