"""
Install packages with pip, and show that it goes on, for the Makefile.

``python install.py [--new] VENV ARGUMENT...``: the arguments are those of ``pip install``; with ``--new`` the
environment is made first, with this Python. On a terminal, one line says what pip is doing; elsewhere, there is a line
for each phase and one each twenty seconds. If pip fails, all that it said is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_INDENT = "    "
# Seconds between two signs of life: on a terminal, and elsewhere.
_OFTEN, _SELDOM = 0.5, 20.0
# How pip's lines begin, and what it is doing then.
_PHASES = {
    "Obtaining ": "reading the project",
    "Collecting ": "finding packages",
    "Building wheel": "building packages",
    "Installing collected packages": "installing",
}


class Progress:
    """
    A line that says what pip is doing.

    :param stream: where it is printed.
    :param terminal: whether a line can be written over.
    :param phase: what is done first.
    """

    def __init__(self, stream: IO[str], *, terminal: bool, phase: str) -> None:
        self._stream = stream
        self._terminal = terminal
        self._started = time.monotonic()
        self._said = 0.0
        self.phase = phase
        self.packages = 0
        #: Whether pip's lines are about what is to be installed: it first replaces itself in a new environment.
        self.follows = True

    @property
    def text(self) -> str:
        """What is going on."""
        seconds = f"{time.monotonic() - self._started:.0f} s"
        if self.phase == "finding packages" and self.packages > 1:
            return f"{self.phase}: {self.packages} so far ({seconds})"
        return f"{self.phase} ({seconds})"

    def read(self, line: str) -> None:
        """Learn from a line of pip's."""
        if not self.follows:
            return
        self.packages += line.startswith("Collecting ")
        if line.startswith("Successfully installed "):
            self.packages = len(line.split()) - 2
        for beginning, phase in _PHASES.items():
            if line.startswith(beginning) and phase != self.phase:
                self.phase = phase
                self.show(new=True)

    def show(self, *, new: bool = False) -> None:
        """Say what is going on, if it is new, or if nothing was said for a while."""
        now = time.monotonic()
        if self._terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write("\r" + f"{_INDENT}{self.text}"[: width - 1] + "\x1b[K")
        elif new or now - self._said >= _SELDOM:
            self._stream.write(f"{_INDENT}{self.text}\n")
            self._said = now
        self._stream.flush()

    def end(self, text: str) -> None:
        """Say how it ended."""
        seconds = f"{time.monotonic() - self._started:.0f} s"
        start = "\r\x1b[K" if self._terminal else ""
        self._stream.write(f"{start}{_INDENT}{text} ({seconds})\n")
        self._stream.flush()


def main(arguments: Sequence[str]) -> int:
    """Install, and return pip's exit code."""
    new = arguments[0] == "--new"
    venv, *packages = arguments[new:]
    phase = "making the environment" if new else "finding packages"
    progress = Progress(sys.stdout, terminal=can_rewrite(sys.stdout, os.environ), phase=phase)
    python = str(Path(venv) / "bin" / "python")
    commands = [[python, *_PIP, *packages]]
    if new:
        commands.insert(0, [sys.executable, "-m", "venv", "--clear", venv])
        commands.insert(1, [python, *_PIP, "--upgrade", "pip"])
    for command in commands:
        progress.follows = command is commands[-1]
        code, output = run(command, progress)
        if code:
            progress.end("failed")
            print(output, file=sys.stderr, flush=True)
            return code
    number = f"{progress.packages} package{'' if progress.packages == 1 else 's'}"
    progress.end(f"installed {number}" if progress.packages else "all was installed already")
    return 0


_PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off")


def can_rewrite(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal on which a line can be written over."""
    return stream.isatty() and environment.get("TERM", "dumb") != "dumb"


def run(command: Sequence[str], progress: Progress) -> tuple[int, str]:
    """Run a command, show progress meanwhile, and return its exit code and all that it printed."""
    lines: list[str] = []
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.append(line)
                progress.read(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            progress.show()
            reader.join(_OFTEN)
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        progress.end("interrupted")
        return 130, ""
    return code, "".join(lines).rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
