"""``custody errors``: what an error code stands for."""

from __future__ import annotations

import textwrap
from argparse import ArgumentTypeError, Namespace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import NOTHING_TO_DO, Command, option
from airflow_custody.cli.output import Output
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.client.error_codes.entry import Entry

_WIDTH = 92


def errors(args: Namespace, output: Output) -> int:
    """
    Say why an error happens and what to do about it. The text of each error ends with its code,
    [custody/token-expired]. Without a code, all are listed. It asks no service.

    Exit codes: 0 printed, 1 there is no such code.

    JSON: a list of {"code", "title", "message", "cause", "what_to_do", "errors", "retried"}; retried
    is null where it depends, as the cause says.
    """
    from airflow_custody.client.error_codes.catalogue import ENTRIES, GROUPS

    if args.code is not None:
        entry = ENTRIES[args.code]
        output.data([_to_json(entry)], _describe(entry))
        return NOTHING_TO_DO
    width = max(map(len, ENTRIES))
    lines = []
    for group in GROUPS:
        lines += [group.title, *(f"  {each.code:{width}}  {each.title}" for each in group.entries), ""]
    output.data([_to_json(each) for each in ENTRIES.values()], lines)
    return NOTHING_TO_DO


def _to_json(entry: Entry) -> dict[str, Any]:
    return {
        "code": entry.code,
        "title": entry.title,
        "message": entry.message,
        "cause": entry.cause,
        "what_to_do": entry.cure,
        "errors": list(entry.errors),
        "retried": entry.is_retried,
    }


def _describe(entry: Entry) -> list[str]:
    retried = {True: "yes", False: "no", None: "that depends"}[entry.is_retried]
    parts = {
        "Example": entry.message,
        "Cause": entry.cause,
        "What to do": entry.cure,
        "Retried": f"{retried} ({', '.join(entry.errors)})",
    }
    lines = [f"{entry.title} (custody/{entry.code})"]
    for name, text in parts.items():
        # A message may have lines of its own.
        wrapped = [
            line for each in text.splitlines() for line in textwrap.wrap(each, _WIDTH - 4, break_on_hyphens=False)
        ]
        lines += ["", name, *(f"    {line}" for line in wrapped)]
    return lines


def _code(value: str) -> str:
    """Return a code, however much of its mark was copied with it."""
    from airflow_custody.client.error_codes.catalogue import ENTRIES

    code = value.strip().strip("[]").removeprefix("custody/").lower()
    if code not in ENTRIES:
        close = get_close_matches(code, ENTRIES, 3)
        hint = f"; perhaps {' or '.join(close)}" if close else "; without a code, all are listed"
        raise ArgumentTypeError(f"there is no code {sanitize(code, 40)!r}{hint}")
    return code


COMMAND = Command(
    "errors",
    "Say what an error code stands for",
    errors,
    (option("code", metavar="CODE", nargs="?", type=_code, help="the code. Default: all of them"),),
)
