"""What the Makefile's targets print while they install."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from install import Progress, can_rewrite, run

INSTALL = Path(__file__).parent / "install.py"
PIP = """\
Obtaining file:///project
Collecting requests
  Downloading requests-2.34.0-py3-none-any.whl (64 kB)
Collecting urllib3
Installing collected packages: urllib3, requests
Successfully installed requests-2.34.0 urllib3-2.7.0
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def follow(stream: io.StringIO, *, terminal: bool) -> str:
    progress = Progress(stream, terminal=terminal, phase="making the environment")
    progress.show()
    for line in PIP.splitlines():
        progress.read(line)
    progress.end(f"installed {progress.packages} packages")
    return re.sub(r"\d+ s", "0 s", stream.getvalue())


def test_in_a_pipe_each_phase_has_a_line() -> None:
    assert follow(io.StringIO(), terminal=False).splitlines() == [
        "    making the environment (0 s)",
        "    reading the project (0 s)",
        "    finding packages (0 s)",
        "    installing (0 s)",
        "    installed 2 packages (0 s)",
    ]


def test_what_pip_does_to_itself_is_no_phase() -> None:
    stream = io.StringIO()
    progress = Progress(stream, terminal=False, phase="making the environment")
    progress.follows = False
    for line in PIP.splitlines():
        progress.read(line)
    assert (stream.getvalue(), progress.packages, progress.phase) == ("", 0, "making the environment")
    progress.follows = True
    progress.read("Collecting a")
    progress.read("Collecting b")
    assert progress.text.startswith("finding packages: 2 so far (")


def test_on_a_terminal_one_line_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    written = follow(Terminal(), terminal=True)
    assert written.count("\n") == 1
    *shown, last = [each.replace("\x1b[K", "") for each in written.split("\r")]
    assert last == "    installed 2 packages (0 s)\n"
    # Never wider than the terminal, where it could not be written over.
    assert all(len(each) < 20 for each in shown)


@pytest.mark.parametrize(
    ("stream", "term", "expected"),
    [(Terminal(), "xterm", True), (Terminal(), "dumb", False), (io.StringIO(), "xterm", False)],
)
def test_only_on_a_terminal_that_can(stream: io.StringIO, term: str, expected: bool) -> None:
    assert can_rewrite(stream, {"TERM": term}) is expected


def test_what_a_command_prints_is_kept_for_when_it_fails() -> None:
    stream = io.StringIO()
    progress = Progress(stream, terminal=False, phase="finding packages")
    script = "import sys; print('Collecting x', flush=True); sys.exit('ERROR: no such package')"
    code, output = run([sys.executable, "-c", script], progress)
    assert (code, progress.packages) == (1, 1)
    assert output.splitlines() == ["Collecting x", "ERROR: no such package"]


def test_pips_errors_are_shown(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    command = [sys.executable, str(INSTALL), str(tmp_path), "./no-such-folder"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("    failed (")
    assert "no-such-folder" in done.stderr
