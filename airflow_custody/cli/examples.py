"""The command ``examples``: the example DAGs that come with the package."""

from __future__ import annotations

import ast
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_custody.cli.commands import NOTHING_TO_DO, add_command
from airflow_custody.cli.output import Output, message
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.files import write_new_file
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands

_PACKAGE = Path(__file__).parent.parent
# What some of the DAGs read. It is copied with them.
_WHITELIST = "custody_whitelist.yaml"


def show_examples(args: Namespace, output: Output) -> int:
    """
    List the example DAGs, or copy some or all of them into a folder.

    A copy is a file to edit: each says at its top what to change and which connections it
    needs. A copy is written whole or not at all, and a file that is there already is never
    replaced. If it has other content, nothing at all is copied; if it is the same, it is skipped,
    and a message says so.

    Exit codes: 0 listed, or copied or the same already; 1 error.

    JSON: a list of {"name", "summary", "path"}; the path is that of the copy with --to.
    """
    folder = examples_folder()
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    names = [*dict.fromkeys(name.removesuffix(".py") for name in args.names)]
    if unknown := [name for name in names if name not in found]:
        raise _refused(f"there is no example {', '.join(unknown)}", "`custody examples` lists those that there are.")
    target = Path(args.to) if args.to else None
    rows, texts = [], {}
    for name in names or found:
        text = found[name].read_text("utf-8")
        texts[found[name].name] = text
        rows.append({"name": name, "summary": _summary_of(text), "path": str((target or folder) / found[name].name)})
    view: Sequence[object] = [{"name": row["name"], "summary": row["summary"]} for row in rows]
    if target:
        if any(_WHITELIST in text for text in texts.values()):
            texts[_WHITELIST] = (folder / _WHITELIST).read_text("utf-8")
        view = _copy(texts, target)
    output.data(rows, view)
    return NOTHING_TO_DO


def examples_folder() -> Path:
    """Return where the examples are: in the package, or beside it in a clone."""
    for folder in (_PACKAGE / "example_dags", _PACKAGE.parent / "example_dags"):
        if folder.is_dir():
            return folder
    raise _refused("this installation of the package has no examples", "Install the package again from its wheel.")


def _summary_of(source: str) -> str:
    """Return the first sentence of a DAG file's docstring."""
    first, _, _ = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    return " ".join(first.split())


def _copy(texts: dict[str, str], folder: Path) -> list[str]:
    """Write files into a folder, and return the paths of those that were not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copies = {folder / name: text for name, text in texts.items()}
        there = {copy: text for copy, text in copies.items() if os.path.lexists(copy)}
        other = [str(copy) for copy, text in there.items() if copy.read_bytes() != text.encode()]
        if other:
            raise _refused(
                f"nothing was copied: these exist already, with other content: {', '.join(other)}",
                "Choose another folder, or name the examples to copy.",
            )
        if there:
            message(f"skipped, as they are there already: {', '.join(map(str, there))}")
        new = [copy for copy in copies if copy not in there]
        for copy in new:
            write_new_file(copy, copies[copy].encode())
    except OSError as error:
        raise _refused(f"{sanitize(folder)} cannot be written: {error.strerror}", "Choose another folder.") from None
    return [str(copy) for copy in new]


def _refused(why: str, advice: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, advice=advice, code="parameter-wrong")


def add_to(commands: Commands, help: str) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "examples", help, show_examples)
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples to list or copy. Default: all")
    text = "copy them into this folder, which is created if it does not exist"
    parser.add_argument("--to", metavar="FOLDER", help=text)
