"""What a command is, and the parser that is made of all of them. Airflow loads this at each start: nothing heavy."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_custody import __version__
from airflow_custody.client.error_codes import label
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.cli.output import Output

#: Exit codes; 130 is what shells give a command that Ctrl-C ended.
NOTHING_TO_DO, ERROR, CHANGES, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = f"""\
exit codes:
  {NOTHING_TO_DO}    nothing to do: all is as it should be
  {CHANGES}    the service does not have what a file says, is not healthy, or has unverified addresses
  {ERROR}    error, also for wrong usage and missing credentials
  {INTERRUPTED}  interrupted with Ctrl-C"""
CREDENTIALS_HELP = """\
Credentials with --base-url come from the environment: CUSTODY_TOKEN, an API token;
CUSTODY_USER and CUSTODY_PASSWORD; or CUSTODY_API_KEY_ID and CUSTODY_API_KEY_SECRET.
Or --token-stdin reads an API token. An Airflow connection has its own, and settings."""
#: What a command prints its data as.
OUTPUTS = ("table", "json", "yaml")
#: The words are those of ``trust.REJECTED_STATUSES``.
REJECTED_HELP = (
    "status word of rejected requests; may be repeated. Default: rejected, declined, expired, canceled and cancelled"
)
_NO_TOKEN_HERE = "; credentials are never given as an argument: put the token into CUSTODY_TOKEN, or use --token-stdin"
_SECRETIVE = ("token", "password", "secret", "key")


@dataclass(frozen=True)
class Option:
    """
    An option or argument of a command.

    :param flags: its names, or the one name of an argument.
    :param keywords: what ``ArgumentParser.add_argument`` takes besides.
    """

    flags: tuple[str, ...]
    keywords: Mapping[str, Any]


class Once(argparse.Action):
    """Refuses an option that is given twice: which one counts decides what is trusted."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Keep the value."""
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "is given twice")
        setattr(namespace, self.dest, values)


def option(*flags: str, **keywords: Any) -> Option:
    """Return an option; text that is given must not be empty, as what an unset variable of a shell leaves is."""
    if keywords.get("action") in (None, "append", Once):
        keywords.setdefault("type", text)
    return Option(flags, keywords)


@dataclass(frozen=True)
class Command:
    """
    A command.

    :param name: its name.
    :param help: what it does, in a line.
    :param run: does it, and returns the exit code. Its docstring is the command's help.
    :param options: its options and arguments.
    :param outputs: what ``--output`` offers; empty: the command has one form only. Default: table, json, yaml.
    """

    name: str
    help: str
    run: Callable[[argparse.Namespace, Output], int]
    options: tuple[Option, ...] = ()
    outputs: tuple[str, ...] = OUTPUTS


@dataclass(frozen=True)
class Group:
    """
    Several commands of one subject.

    :param name: its name.
    :param help: what they are about, in a line.
    :param commands: the commands.
    """

    name: str
    help: str
    commands: tuple[Command, ...]


def text(value: str) -> str:
    """Return a text that was given on the command line, or refuse an empty one."""
    if not value.strip():
        raise argparse.ArgumentTypeError("is empty")
    return value


class Parser(argparse.ArgumentParser):
    """A parser whose exit code for wrong usage is 1: 2, the one of argparse, would say that there are changes."""

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**{**keywords, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the usage, and exit with 1."""
        refuse_usage(self, message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, and refuse unknown ones here, where the usage is that of the command."""
        return parse_strictly(self, super().parse_known_args, args, namespace)


def refuse_usage(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Print a parser's usage and what is wrong, and exit with 1."""
    if sys.stderr is not None:
        # It would print to standard output.
        parser.print_usage(sys.stderr)
    parser.exit(ERROR, f"custody: {sanitize(message, 600)}; see {parser.prog} --help {label('usage-wrong')}\n")


def parse_strictly(parser: argparse.ArgumentParser, parse: Callable[..., Any], args: Any, namespace: Any) -> Any:
    """Parse arguments with ``parse``, and refuse unknown ones without their values: one may be a secret."""
    found, unknown = parse(args, namespace)
    if unknown:
        names = [each.partition("=")[0] for each in unknown if each.startswith("-")]
        hint = _NO_TOKEN_HERE if any(word in name for name in names for word in _SECRETIVE) else ""
        refuse_usage(
            parser, f"unknown argument: {', '.join(names)}{hint}" if names else "there is an argument too many"
        )
    return found, []


def fill_parser(parser: argparse.ArgumentParser, commands: Sequence[Command | Group]) -> None:
    """
    Add commands to a parser.

    :param parser: the parser; one of Airflow's becomes as strict as ours.
    :param commands: the commands and groups of commands.
    """
    if not isinstance(parser, Parser):
        known = parser.parse_known_args
        # On the object: Airflow makes it, and its exit code for wrong usage is 2.
        vars(parser).update(
            error=partial(refuse_usage, parser),
            parse_known_args=lambda args=None, namespace=None: parse_strictly(parser, known, args, namespace),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
    parser.add_argument("--version", action="version", version=f"custody {__version__}")
    _add_all(parser, commands)


def _add_all(parser: argparse.ArgumentParser, commands: Sequence[Command | Group]) -> None:
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for each in commands:
        if isinstance(each, Group):
            _add_all(added.add_parser(each.name, help=each.help, description=f"{each.help}."), each.commands)
        else:
            _add_command(added.add_parser(each.name, help=each.help, description=_description(each)), each)


def _description(command: Command) -> str:
    # Without docstrings, as in python -OO, there is still the line.
    return (inspect.getdoc(command.run) or f"{command.help}.").replace("%", "%%")


def _add_command(parser: argparse.ArgumentParser, command: Command) -> None:
    for each in command.options:
        parser.add_argument(*each.flags, **each.keywords)
        if "--base-url" in each.flags:
            parser.epilog = CREDENTIALS_HELP
    if command.outputs:
        parser.add_argument(
            "-o",
            "--output",
            choices=command.outputs,
            default=command.outputs[0],
            help=f"form of the output. Default: {command.outputs[0]}",
        )
    parser.add_argument("--debug", action="store_true", help="show where an unexpected error comes from")
    # Airflow keeps its log off the standard output of commands that have "output".
    parser.set_defaults(custody_run=command.run, **({} if command.outputs else {"output": "text"}))
