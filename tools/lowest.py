"""The lower bounds of the package's requirements, for ``make test-airflow2``.

Without an argument, print them as a requirements file. With ``--check``, fail unless exactly these versions are
installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent


def main(arguments: list[str]) -> None:
    """Print the requirements, or check what is installed."""
    project = read_project()
    bounds = lower_bounds(project)
    if arguments == ["--check"]:
        wrong = [
            f"{name} {version(name)}, not {bound}" for name, bound in bounds.items() if Version(version(name)) != bound
        ]
        sys.exit("not the lower bounds: " + ", ".join(wrong) if wrong else 0)
    print(f"--editable .[{','.join(project['optional-dependencies'])}]")
    for name, bound in bounds.items():
        print(f"{name}=={bound}")


def read_project() -> dict[str, Any]:
    """Return the table ``project`` of ``pyproject.toml``."""
    project: dict[str, Any] = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def lower_bounds(project: dict[str, Any]) -> dict[str, Version]:
    """
    Return the lower bound of each requirement for this Python version.

    The requirements of all extras are included.
    """
    bounds: dict[str, Version] = {}
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate():
            continue
        lowest = [Version(one.version) for one in requirement.specifier if one.operator == ">="]
        if len(lowest) != 1:
            sys.exit(f"pyproject.toml: {text!r} has no lower bound")
        if bounds.setdefault(requirement.name, lowest[0]) != lowest[0]:
            sys.exit(f"pyproject.toml: {requirement.name} has two different lower bounds")
    return bounds


if __name__ == "__main__":
    main(sys.argv[1:])
