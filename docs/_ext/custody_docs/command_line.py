"""The pages of the command line, made of its parsers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from unittest import mock

from custody_docs.rest import block, code, escape, heading, page, table, toctree

FOLDER = "reference/command-line"


def pages() -> dict[str, str]:
    """Return the pages of the command line, by their paths."""
    from airflow_custody.cli.commands import EXIT_CODES
    from airflow_custody.cli.main import HELP, make_parser
    from airflow_custody.sandbox.__main__ import make_parser as make_sandbox_parser

    # The width of a usage is that of the terminal otherwise.
    with mock.patch.dict(os.environ, {"COLUMNS": "74", "NO_COLOR": "1"}):
        parser = make_parser()
        result = {f"{FOLDER}/{_slug(name)}": _command(name, each) for name, _, each in _leaves(parser)}
        rows = [(f":doc:`{name} </{FOLDER}/{_slug(name)}>`", escape(text)) for name, text, _ in _leaves(parser)]
        codes = re.findall(r"^  (\d+) +(.*)$", EXIT_CODES, re.MULTILINE)
        result[FOLDER] = page(
            heading("Command line"),
            f"{escape(HELP)}.",
            "The same commands are ``airflow custody ...`` on Airflow 3.2 and later, and ``custody ...`` everywhere.",
            table(("Command", "What it does"), rows),
            heading("Exit codes", 1),
            table(("Code", "Meaning"), [(code(number), escape(text)) for number, text in codes]),
            toctree(f"/{FOLDER}/{_slug(name)}" for name, _, _ in _leaves(parser)),
        )
        result["reference/sandbox-command"] = _command("python -m airflow_custody.sandbox", make_sandbox_parser())
    return result


def _slug(name: str) -> str:
    return name.removeprefix("custody ").replace(" ", "-")


def _leaves(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield the commands of a parser, also in groups: the name, what it does in a line, and the parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for name, each in action.choices.items():
                inner = list(_leaves(each))
                yield from inner or [(each.prog, f"{helps.get(name, '')}.", each)]


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    arguments = [each for each in parser._actions if not each.option_strings]
    options = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    return page(
        heading(name),
        *_paragraphs(parser.description or ""),
        block(parser.format_usage().removeprefix("usage: "), language="console"),
        f".. program:: {name}",
        heading("Arguments", 1) if arguments else "",
        *(_option(each) for each in arguments),
        heading("Options", 1),
        *(_option(each) for each in options),
        *_paragraphs(parser.epilog or ""),
    )


def _option(action: argparse.Action) -> str:
    """Return the description of an option or argument."""
    value = "" if action.nargs == 0 else _placeholder(action)
    names = [f"{each} {value}".strip() for each in action.option_strings] or [value]
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return f".. option:: {', '.join(names)}\n\n   {escape(text[:1].upper() + text[1:])}.\n"


def _placeholder(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def _paragraphs(text: str) -> list[str]:
    """Return plain text as paragraphs; what is indented stays as it is."""
    result = []
    for paragraph in text.replace("%%", "%").split("\n\n"):
        is_block = any(line.startswith(" ") for line in paragraph.splitlines())
        result.append(block(paragraph) if is_block else escape(paragraph))
    return result
