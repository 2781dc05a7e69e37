"""The command ``examples``: the example DAGs that come with the package."""

from __future__ import annotations

import ast
import os
from argparse import Namespace
from pathlib import Path

from airflow_custody._new_files import write_new
from airflow_custody.cli.commands import NOTHING_TO_DO, Command, option
from airflow_custody.cli.output import Output, message
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.text import sanitize

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
    unknown = [name for name in args.names if name.removesuffix(".py") not in found]
    if unknown:
        raise _refused(f"there is no example {', '.join(unknown)}", "`custody examples` lists those that there are.")
    chosen = [found[name.removesuffix(".py")] for name in dict.fromkeys(args.names)] or list(found.values())
    target = Path(args.to) if args.to else None
    rows = [
        {
            "name": path.stem,
            "summary": summary_of(path.read_text("utf-8")),
            "path": str(target / path.name if target else path),
        }
        for path in chosen
    ]
    if target:
        lines = [str(copy) for copy in _copy(chosen, target)]
    else:
        lines = [f"{row['name']}\n    {row['summary']}" for row in rows]
    output.data(rows, lines)
    return NOTHING_TO_DO


def examples_folder() -> Path:
    """Return where the examples are: in the package, or beside it in a clone."""
    for folder in (_PACKAGE / "example_dags", _PACKAGE.parent / "example_dags"):
        if folder.is_dir():
            return folder
    raise _refused("this installation of the package has no examples", "Install the package again from its wheel.")


def summary_of(source: str) -> str:
    """Return the first sentence of a DAG file's docstring."""
    first, _, _ = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    return " ".join(first.split())


def _copy(paths: list[Path], folder: Path) -> list[Path]:
    """Copy files, with what they read, and return the copies that were made."""
    texts = {path: path.read_text("utf-8") for path in paths}
    if any(_WHITELIST in text for text in texts.values()):
        whitelist = paths[0].with_name(_WHITELIST)
        texts[whitelist] = whitelist.read_text("utf-8")
    copies = {path: folder / path.name for path in texts}
    same = [path for path, copy in copies.items() if _has_text(copy, texts[path])]
    existing = [str(copy) for path, copy in copies.items() if path not in same and os.path.lexists(copy)]
    if existing:
        raise _refused(
            f"nothing was copied: {', '.join(existing)} exist{'s' if len(existing) == 1 else ''} already, with other "
            "content",
            "Choose another folder, or name the examples to copy.",
        )
    if same:
        message(f"skipped, as they are there already: {', '.join(str(copies[path]) for path in same)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, copy in copies.items():
            if path not in same:
                write_new(copy, texts[path])
    except OSError as error:
        raise _refused(f"{sanitize(folder)} cannot be written: {error.strerror}", "Choose another folder.") from None
    return [copy for path, copy in copies.items() if path not in same]


def _has_text(copy: Path, text: str) -> bool:
    """Tell whether a file is there and has this text; a link is another file, whatever it leads to."""
    try:
        return not copy.is_symlink() and copy.read_bytes() == text.encode()
    except OSError:
        return False


def _refused(why: str, advice: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(why, advice=advice, code="usage-wrong")


COMMAND = Command(
    "examples",
    "List the example DAGs, or copy them into a folder",
    show_examples,
    (
        option("names", nargs="*", metavar="NAME", help="examples to list or copy. Default: all"),
        option("--to", metavar="FOLDER", help="copy them into this folder, which is created if it does not exist"),
    ),
)
