"""The command ``examples``: lists and copies the example DAGs."""

from __future__ import annotations

import ast
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_custody.cli.commands import NOTHING_TO_DO, add_command, usage_error
from airflow_custody.cli.output import Output, message
from airflow_custody.client.files import write_new_file
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands

_PACKAGE = Path(__file__).parent.parent
# The whitelist file that some of the DAGs read. It is copied together with them.
_WHITELIST = "custody_whitelist.yaml"


def show_examples(args: Namespace, output: Output) -> int:
    """
    List the example DAGs, or copy them into a folder.

    Exit codes: 0 listed, copied, or already there with the same content; 1 error.

    Edit the copies: the text at the top of each lists what to change, and the connections that the DAG needs. An
    existing file is never replaced. If it has the same content as the example, it is skipped; if it has other content,
    nothing is copied.

    JSON: a list of {"name", "summary", "path"}. With --to, path is the path of the copy.
    """
    folder = examples_folder()
    texts = _read_examples(folder, args.names)
    target = Path(args.to) if args.to else None
    rows = [
        {"name": name.removesuffix(".py"), "summary": _summary_of(text), "path": str((target or folder) / name)}
        for name, text in texts.items()
    ]
    if target is None:
        output.data(rows, [{"name": row["name"], "summary": row["summary"]} for row in rows])
        return NOTHING_TO_DO
    if any(_WHITELIST in text for text in texts.values()):
        texts[_WHITELIST] = (folder / _WHITELIST).read_text("utf-8")
    output.data(rows, _copy(texts, target))
    return NOTHING_TO_DO


def _read_examples(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of the named examples (without names: of all examples), by file name."""
    found = {path.name: path for path in sorted(folder.glob("*.py"))}
    files = [f"{name.removesuffix('.py')}.py" for name in names] or [*found]
    if unknown := [name.removesuffix(".py") for name in files if name not in found]:
        raise usage_error(f"unknown example {', '.join(unknown)}", "`custody examples` lists the examples.")
    return {name: found[name].read_text("utf-8") for name in files}


def examples_folder() -> Path:
    """Return the folder of the examples, in the package or beside it."""
    for folder in (_PACKAGE / "example_dags", _PACKAGE.parent / "example_dags"):
        if folder.is_dir():
            return folder
    raise usage_error("this installation has no examples", "Install the package again from its wheel.")


def _summary_of(source: str) -> str:
    """Return the first sentence of a DAG file's docstring."""
    first, _, _ = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    return " ".join(first.split())


def _copy(texts: dict[str, str], folder: Path) -> list[str]:
    """Write files that do not exist yet, and return their paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copies = {folder / name: text for name, text in texts.items()}
        existing = [copy for copy in copies if os.path.lexists(copy)]
        changed = [str(copy) for copy in existing if copy.read_bytes() != copies[copy].encode()]
        if changed:
            raise usage_error(
                f"nothing was copied, because these files exist with other content: {', '.join(changed)}",
                "Delete these files, choose another folder, or name other examples.",
            )
        if existing:
            message(f"skipped, because they already exist: {', '.join(map(str, existing))}")
        new = [copy for copy in copies if copy not in existing]
        for copy in new:
            write_new_file(copy, copies[copy].encode())
    except OSError as error:
        raise usage_error(f"{sanitize(folder)} cannot be written: {error.strerror}", "Choose another folder.") from None
    return [str(copy) for copy in new]


def add_to(commands: Commands, help: str) -> None:
    """Add the command."""
    parser = add_command(commands, "examples", help, show_examples)
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples to list or copy. Default: all")
    text = "copy the examples into this folder, which is created if missing"
    parser.add_argument("--to", metavar="FOLDER", help=text)
