"""The output of ``make test``, its behaviour without a Python for Airflow 2.11, and the failures of ``make matrix``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from matrix import AIRFLOWS, NEWEST_PYTHONS, PYTHONS, is_broken

# The variables that a make above this test sets, such as the one that CI runs.
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHON", "PYTHON_AIRFLOW_2", "REQUIRE_AIRFLOW_2")
ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def run(*command: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    return subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=600, check=False
    )


# --- the output --------------------------------------------------------------------------------------------


def test_a_part_that_fails_is_shown_and_fails_all(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("good:\n\t@echo 17 passed\nbad:\n\t@echo why; exit 3\n")
    at_once = (sys.executable, str(TOOLS / "at_once.py"))
    done = run(*at_once, "good", "", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("good: 17 passed")
    done = run(*at_once, "bad good", "good", folder=tmp_path)
    assert done.returncode == 1
    assert "bad: FAILED" in done.stdout
    assert "\nwhy\nmake: *** " in done.stdout


# --- without a Python for Airflow 2.11 ----------------------------------------------------------------------


@pytest.fixture
def pythons(tmp_path: Path) -> Path:
    """Return a folder that has everything that make needs, except Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to(str(shutil.which("sh")))
    return folder


def add_python(folder: Path, name: str, minor: int | None) -> None:
    """Add a Python. Without a minor version, it is like pyenv's: it only reports that it is not installed."""
    found = (
        "exit 127" if minor is None else f'exec {sys.executable} -c "import sys; sys.version_info = (3, {minor}); $2"'
    )
    path = folder / name
    path.write_text(f"#!/bin/sh\n{found}\n")
    path.chmod(0o755)


def dry_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    make = str(shutil.which("make"))
    return run(make, "--dry-run", "test", "PYTHON=python3", *options, PATH=str(folder))


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ({"python3": 13, "python3.12": 12}, "python3.12"),
        ({"python3": 14, "python3.12": None, "python3.10": 10}, "python3.10"),
    ],
    ids=str,
)
def test_airflow_2_gets_a_python_that_it_supports(pythons: Path, found: dict[str, int | None], chosen: str) -> None:
    for name, minor in found.items():
        add_python(pythons, name, minor)
    done = dry_run(pythons, "VENV_2=none", "REQUIRE_AIRFLOW_2=yes", "test-airflow2")
    assert f"{chosen} -m venv none" in done.stdout
    assert 'at_once.py "lint test-airflow3" "wheel docs faults test-airflow2"' in done.stdout
    assert "NOT RUN" not in done.stdout


def test_without_one_its_suite_is_left_out_and_the_last_lines_say_so(pythons: Path) -> None:
    add_python(pythons, "python3", 13)
    add_python(pythons, "python3.12", None)
    lines = dry_run(pythons).stdout.splitlines()
    assert any(line.endswith('at_once.py "lint test-airflow3" "wheel docs faults "') for line in lines)
    assert re.search(r"NOT RUN: test-airflow2.*install one, or set PYTHON_AIRFLOW_2", lines[-2])
    assert lines[-1].endswith("summary.py --total .reports/test-airflow3.xml")


def test_without_a_required_one_make_fails(pythons: Path) -> None:
    for target in ("python-airflow2", "test-airflow2"):
        done = run("make", target, "VENV_2=none", "PYTHON_AIRFLOW_2=", "REQUIRE_AIRFLOW_2=yes")
        assert done.returncode == 2
        assert "Airflow 2.11 needs Python 3.10, 3.11 or 3.12: install one, or set PYTHON_AIRFLOW_2" in done.stdout
    assert "REQUIRE_AIRFLOW_2=yes" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    ("line", "airflow", "outcome", "expected"),
    [
        ("3.11", "3.3.2", "passes (120 tests)", False),
        ("3.11", "3.3.2", "fails: 1 failed", True),
        ("3.12", "2.11.2", "does not import: ImportError", True),
        # Airflow itself does not support these pairs.
        ("3.13", "2.11.2", "does not install: no wheel", False),
    ],
)
def test_the_matrix_fails_if_a_supported_pair_does_not_pass(
    line: str, airflow: str, outcome: str, expected: bool
) -> None:
    assert is_broken(line, airflow, outcome) is expected
    assert NEWEST_PYTHONS.keys() < AIRFLOWS.keys()
    assert {*NEWEST_PYTHONS.values()} < {*PYTHONS}


# --- what `make test` does not run ---------------------------------------------------------------------------


def test_the_dags_of_the_scale_suite_can_be_imported(tmp_path: Path) -> None:
    """Only `make scale` runs these DAGs, so an operator that refuses them would be noticed late."""
    (tmp_path / "file0.csv").write_text("label,address,blockchain\n")
    (tmp_path / "ids.json").write_text('["1", "2"]')
    paths = os.pathsep.join([str(ROOT / "tests" / "faults"), str(ROOT)])
    dags = str(ROOT / "tests" / "scale" / "dags" / "scale.py")
    done = run(sys.executable, dags, FAULTS_FOLDER=str(tmp_path), PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr[-2000:]
