"""Functions that all suites of faults share: options, a folder that is kept if something failed, and the table."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that all suites have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the random moments")
    return parser


def run_in_folder(options: argparse.Namespace, run: Callable[[Path], list[str]]) -> int:
    """Run a suite, which returns in words what went wrong, in a new folder, and return the exit code."""
    print(f"random seed: {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="custody-faults-"))
    try:
        failures = run(folder)
    except Exception:
        failures = [traceback.format_exc(limit=3)]
    if options.keep or failures:
        print(f"logs: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(f"FAILED {failure}")
    if not failures:
        print("all guarantees held")
    return 1 if failures else 0


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown, with aligned columns."""
    lines = [head, [""] * len(head), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, cells in enumerate(lines):
        fill = "-" if number == 1 else " "
        padded = (cell.ljust(width, fill) for cell, width in zip(cells, widths, strict=True))
        print(f"| {' | '.join(padded)} |")
