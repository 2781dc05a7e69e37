"""The parser of the commands. Airflow loads this module at each start, so it imports nothing heavy."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.cli.output import Output

    Commands = argparse._SubParsersAction["Parser"]

#: Exit codes. Shells use 130 for a command that was ended with Ctrl-C.
NOTHING_TO_DO, ERROR, CHANGES, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = f"""\
exit codes:
  {NOTHING_TO_DO}    nothing to do: no problems and no changes
  {CHANGES}    the service differs from a file, is unhealthy, or has unverified requests
  {ERROR}    error, including wrong usage and missing credentials
  {INTERRUPTED}  interrupted with Ctrl-C"""
_NO_TOKEN_HERE = "; credentials are never arguments: set CUSTODY_TOKEN, or use --token-stdin"
_SECRETIVE = ("token", "password", "secret", "key")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the width of the terminal, except for indented ones."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        def fill(paragraph: str) -> str:
            if "\n " in paragraph:
                return textwrap.indent(paragraph, indent)
            wrapped = textwrap.fill(
                " ".join(paragraph.split()),
                width - len(indent),
                break_long_words=False,
                break_on_hyphens=False,
            )
            return textwrap.indent(wrapped, indent)

        return "\n\n".join(map(fill, text.split("\n\n")))


class _ShowAll(argparse.Action):
    """The option ``--help-all``: prints the full help, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        if isinstance(parser, Parser):
            parser.expand_help()
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """
    A parser with short and full help.

    On wrong usage, it exits with 1. argparse itself would exit with 2, which means changes here.
    """

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", _Formatter)
        super().__init__(**{**keywords, "allow_abbrev": False})
        #: The rest of the description, for the full help.
        self.details = ""
        # The options that only the full help lists, with their help.
        self._minor: list[tuple[argparse.Action, str]] = []

    def add_argument(
        self, *flags: str, group: argparse._ArgumentGroup | None = None, is_minor: bool = False, **keywords: Any
    ) -> argparse.Action:
        """
        Add an argument. Empty text is refused as its value, because this is often the value of an unset shell variable.

        :param flags: same as in argparse.
        :param group: the group of the argument. Default None: no group.
        :param is_minor: whether only the full help lists the argument.
        :param keywords: same as in argparse.
        """
        if keywords.get("action") in (None, "store", "append"):
            keywords.setdefault("type", _text)
        if keywords.get("action") == "append":
            keywords["help"] += ". Repeatable"
        added = super().add_argument(*flags, **keywords) if group is None else group.add_argument(*flags, **keywords)
        if is_minor:
            self._minor.append((added, keywords["help"]))
            added.help = argparse.SUPPRESS
        return added

    def expand_help(self) -> None:
        """Extend the help by the details, the JSON output and the minor options."""
        self.description = "\n\n".join(filter(None, (self.description, self.details)))
        self.epilog = None
        for action, text in self._minor:
            action.help = text

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the usage and where to find help, and exit with 1."""
        text = f"custody: {sanitize(message, 600)} {label('parameter-wrong')}\nsee {self.prog} --help\n"
        self.exit(ERROR, text)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments. The error about unknown arguments does not repeat their values, which may be secrets."""
        found, unknown = super().parse_known_args(args, namespace)
        # Keep only two characters of a short option, because its value may be attached to it.
        names = [each.partition("=")[0] if each.startswith("--") else each[:2] for each in unknown if each[:1] == "-"]
        if names:
            hint = _NO_TOKEN_HERE if any(word in name for name in names for word in _SECRETIVE) else ""
            self.error(f"unknown argument: {', '.join(names)}{hint}")
        if unknown:
            self.error("unexpected argument")
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """
        Check a choice.

        Unlike argparse, do not repeat an unknown command in the error, because it may be a secret.
        """
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            raise argparse.ArgumentError(None, f"unknown command; the commands are: {', '.join(action.choices)}")
        super()._check_value(action, value)


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("is empty")
    return value


def usage_error(why: str, advice: str) -> CustodyConfigurationError:
    """Return the error for wrong usage."""
    return CustodyConfigurationError(why, advice=advice, code="parameter-wrong")


def flag_of(name: str) -> str:
    """Return the option of a setting."""
    return f"--{name.replace('_', '-')}"


def add_group(commands: Commands, name: str, help: str) -> Commands:
    """
    Add a group of commands for one subject, and return the object to add its commands to.

    :param commands: the object to add the group to.
    :param name: the group's name.
    :param help: the group's subject, in one line.
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

    :param commands: the object to add the command to.
    :param name: the command's name.
    :param help: the purpose of the command, in one line.
    :param run: the function that runs the command and returns the exit code. Its docstring is the command's
        description. The short help has only the docstring's first paragraph and the exit codes.
    :param outputs: the choices of ``--output``. Empty: the command has only one form of output.
    """
    # Use the help instead if there is no docstring, because the command runs with ``python -OO``.
    paragraphs = (inspect.getdoc(run) or f"{help}.").split("\n\n")
    short = [each for each in paragraphs if each == paragraphs[0] or each.startswith("Exit codes:")]
    parser = commands.add_parser(
        name,
        help=help,
        description="\n\n".join(short).replace("%", "%%"),
        epilog="See also: %(prog)s --help-all",
    )
    parser.details = "\n\n".join(each for each in paragraphs if each not in short).replace("%", "%%")
    parser.add_argument("--help-all", action=_ShowAll, nargs=0, help="show the help with all details, and exit")
    if outputs:
        text = f"{', '.join(outputs)}. Default: {outputs[0]}"
        parser.add_argument("-o", "--output", metavar="FORM", choices=outputs, default=outputs[0], help=text)
    text = "show the text and the traceback of an unexpected error"
    parser.add_argument("--debug", action="store_true", help=text)
    # Set "output" in any case, because Airflow keeps its log off the standard output of commands that have it.
    parser.set_defaults(custody_run=run, **({} if outputs else {"output": "text"}))
    return parser
