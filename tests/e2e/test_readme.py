"""The README as a reader uses it: the code and commands that it shows run exactly as printed."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.airflow.airflow_runs import AIRFLOW

from airflow_custody import __version__

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def block(language: str, text: str) -> str:
    """Return the one block of the README in a language that has a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    (found,) = [each for each in blocks if text in each]
    return str(found)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Return a function that starts commands in a reader's folder, and stops them at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "COVERAGE"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    started: list[subprocess.Popen[str]] = []

    def start(commands: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            # The shell ends as soon as a command fails.
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=600)


# This test starts another Airflow, so it is slow. The tests of the examples run the same DAG on both lines of Airflow.
@pytest.mark.slow
@pytest.mark.skipif(AIRFLOW < (3, 0), reason="what the reader installs is the newest Airflow")
def test_the_dag_runs_as_it_stands(shell: Callable[[str], subprocess.Popen[str]], tmp_path: Path) -> None:
    sandbox = shell(block("bash", "airflow_custody.sandbox"))
    printed = tmp_path / "sandbox.env"
    end = time.monotonic() + 900
    while not (printed.is_file() and "custody whitelist verify" in printed.read_text()):
        assert sandbox.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    # The output has private keys.
    assert stat.S_IMODE(printed.stat().st_mode) == 0o600
    run = shell(block("bash", "airflow dags test"))
    output, _ = run.communicate(timeout=900)
    assert run.returncode == 0, output[-5000:]
    (verified,) = (line for line in output.splitlines() if line.startswith("request "))
    assert re.sub(r"\d+", "ID", verified, count=1) == (
        'request ID: verified: ETH 0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb "Settlement", '
        "validly signed by alice@example.test, bob@example.test"
    )


def test_its_version_and_extras_are_those_of_the_package() -> None:
    assert f"Release {__version__}, beta" in " ".join(README.split())
    assert (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].startswith(f"{__version__} ")
    extras = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    for extra in re.findall(r"pip install '\.\[(.+?)\]'", README):
        assert f"\n{extra} = [" in extras
