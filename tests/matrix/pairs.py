"""The pairs of Python and Airflow, and which of them can be tried here."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
AIRFLOWS = ("2.11", "3.0", "3.1", "3.2", "3.3")


@dataclass(frozen=True)
class Interpreter:
    """
    A Python that was found.

    :param path: its executable.
    :param version: its version, such as 3.12.1.
    """

    path: str
    version: str

    @property
    def line(self) -> str:
        """Such as 3.12."""
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True)
class Release:
    """
    A release of Airflow.

    :param version: its version, such as 3.3.2.
    :param requires_python: what it says of Python.
    """

    version: str
    requires_python: str

    @property
    def line(self) -> str:
        """Such as 3.3."""
        return ".".join(self.version.split(".")[:2])

    def excludes(self, interpreter: Interpreter) -> bool:
        """
        Return whether it says that it does not run on a Python.

        ``!=3.13`` excludes 3.13.0 only, in the words of the standard. It is taken for what it means: all of 3.13.
        """
        allowed = SpecifierSet(self.requires_python)
        return not (allowed.contains(interpreter.version) and allowed.contains(f"{interpreter.line}.0"))


def find_interpreters(given: str) -> dict[str, Interpreter]:
    """
    Return an interpreter for each line of Python that is to be found.

    :param given: paths of interpreters, separated by colons. The others are looked for on the ``PATH``.
    """
    found: dict[str, Interpreter] = {}
    names = [*filter(None, given.split(":")), *(f"python{line}" for line in PYTHONS)]
    for name in names:
        path = shutil.which(name)
        interpreter = path and _try_interpreter(path)
        if interpreter and interpreter.line in PYTHONS:
            found.setdefault(interpreter.line, interpreter)
        elif name in given.split(":"):
            raise SystemExit(f"matrix: {name} of PYTHONS is not a Python {PYTHONS[0]} to {PYTHONS[-1]}")
    return found


def _try_interpreter(path: str) -> Interpreter | None:
    """Return the interpreter at a path, unless it does not run: a version manager's stand-in may have none to start."""
    script = "import platform, ssl, sqlite3, sys; print(sys.executable, platform.python_version(), sep='\\n')"
    done = subprocess.run([path, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return Interpreter(*done.stdout.split("\n")[:2])


def newest_patches(listing: str) -> list[str]:
    """Return the newest release of each line of Airflow, from what ``pip index versions`` prints."""
    (line,) = (line for line in listing.splitlines() if line.startswith("Available versions:"))
    # The oldest releases have versions that follow no standard.
    stable = [Version(each) for each in re.findall(r"\b(\d+\.\d+\.\d+)(?=,|$)", line)]
    newest = []
    for wanted in AIRFLOWS:
        of_line = [each for each in stable if f"{each.major}.{each.minor}" == wanted]
        if of_line:
            newest.append(str(max(of_line)))
    return newest


def requires_python(wheel_metadata: str) -> str:
    """Return what the metadata of a wheel says of Python."""
    for line in wheel_metadata.splitlines():
        if line.startswith("Requires-Python:"):
            return line.partition(":")[2].strip()
    return ""


def relative(path: Path, root: Path) -> str:
    """Return a path as it is shown."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
