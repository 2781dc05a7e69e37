"""The main demo's output on the terminal, while Airflow's own output goes to a file."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from _environment import relative_path


class DemoError(Exception):
    """Raised when the demo did not go as expected."""


class Output:
    """
    The demo's output on the terminal.

    :param log: file for everything else that this process writes.
    """

    def __init__(self, log: Path) -> None:
        self._started = time.monotonic()
        self._terminal = os.fdopen(os.dup(1), "w")
        self._lock = threading.Lock()
        self.log = relative_path(log)
        with log.open("wb") as file:
            # At the level of file descriptors, because Airflow keeps the streams that it finds.
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)

    def print_line(self, line: str = "") -> None:
        """Print a line."""
        with self._lock:
            print(line.rstrip(), file=self._terminal, flush=True)

    def print_step(self, subject: str, text: str, *more: str) -> None:
        """Print one step of the demo, with the time, and further lines below it."""
        lines = [f"{self.seconds:5.1f} s  {subject:<8}  {text}", *(f"{'':19}{line}".rstrip() for line in more)]
        self.print_line("\n".join(lines))

    def print_failure(self, reason: str) -> None:
        """Print why the demo failed, and where to read more."""
        self.print_line(f"demo: failed: {reason} (see {self.log})")

    @property
    def seconds(self) -> float:
        """Seconds since the demo started."""
        return time.monotonic() - self._started
