"""Results of commands that tests run, and the parsers of commands."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from airflow_custody.cli.main import make_parser


class Ran(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON data that was printed."""
        return json.loads(self.out)


Run = Callable[..., Ran]
Create = Callable[..., str]


def all_commands() -> dict[str, argparse.ArgumentParser]:
    """
    Return the parsers of all commands, including commands in groups.

    The keys are the names without ``custody``, such as ``whitelist plan``.
    """

    def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
        groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        for group in groups:
            for each in group.choices.values():
                yield from leaves(each)
        if not groups:
            yield parser

    return {each.prog.removeprefix("custody "): each for each in leaves(make_parser())}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return a command's options, and the names of the parsed values."""
    return {name for each in parser._actions for name in (*each.option_strings, each.dest)}
