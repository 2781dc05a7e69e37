"""Writing a new file, complete or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_custody.client.files import write_new_file

WRITE = "from airflow_custody.client.files import write_new_file; write_new_file(sys.argv[1], b'x' * 1000)"
# A limit on the size of files stands for a full disk.
FULL = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
KILLED = "import os, signal, sys; os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "


@pytest.mark.parametrize(("before", "left"), [(FULL, 0), (KILLED, 1)], ids=["a full disk", "killed"])
def test_a_write_that_does_not_end_leaves_no_file_of_that_name(tmp_path: Path, before: str, left: int) -> None:
    path = tmp_path / "new.json"
    done = subprocess.run([sys.executable, "-c", before + WRITE, path], capture_output=True, text=True, check=False)
    if left:
        assert done.returncode == -signal.SIGKILL
    else:
        assert "File too large" in done.stderr
    names = [each.name for each in tmp_path.iterdir()]
    assert [name.startswith(".custody-") and name.endswith(".part") for name in names] == [True] * left
    write_new_file(path, b"complete")
    assert path.read_bytes() == b"complete"


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "link", link)
    write_new_file(tmp_path / "new", b"first")
    with pytest.raises(FileExistsError):
        write_new_file(tmp_path / "new", b"second")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("new", b"first")]


def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_new_file(tmp_path / "new", b"")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
