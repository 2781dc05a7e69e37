"""The command that lists and copies the example DAGs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from cli_runs import Run

from airflow_custody.cli import examples
from airflow_custody.client.errors import CustodyConfigurationError

SOURCES = Path(__file__).parents[2] / "example_dags"
NAMES = sorted(path.stem for path in SOURCES.glob("*.py"))


def test_each_has_a_name_and_a_sentence(plain: Run) -> None:
    code, out, _ = plain("examples", "-o", "json")
    assert code == 0
    rows = json.loads(out)
    assert [row["name"] for row in rows] == NAMES
    assert all(row["summary"].endswith(".") and "\n" not in row["summary"] for row in rows)
    assert all(Path(row["path"]).is_file() for row in rows)


def test_the_table_has_all_of_them(plain: Run) -> None:
    header, *lines = plain("examples").out.splitlines()
    assert header.split() == ["NAME", "SUMMARY"]
    assert [line.split()[0] for line in lines] == NAMES


def test_all_are_copied_with_the_file_that_they_read(plain: Run, tmp_path: Path) -> None:
    code, out, _ = plain("examples", "--to", str(tmp_path / "new" / "dags"))
    assert code == 0
    copies = [Path(line) for line in out.splitlines()]
    assert sorted(copy.name for copy in copies) == sorted(
        path.name for path in SOURCES.iterdir() if path.suffix in (".py", ".yaml")
    )
    assert all(copy.read_bytes() == (SOURCES / copy.name).read_bytes() for copy in copies)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("custody_health_gate", {"custody_health_gate.py"}),
        ("custody_health_gate.py", {"custody_health_gate.py"}),
        ("custody_whitelist_reconciliation", {"custody_whitelist_reconciliation.py", "custody_whitelist.yaml"}),
    ],
)
def test_one_is_copied(plain: Run, tmp_path: Path, name: str, files: set[str]) -> None:
    code, out, _ = plain("examples", name, "--to", str(tmp_path), "-o", "json")
    assert code == 0
    assert {path.name for path in tmp_path.iterdir()} == files
    (row,) = json.loads(out)
    assert Path(row["path"]).parent == tmp_path


@pytest.mark.parametrize("existing", ["custody_whitelist.yaml", "custody_whitelist_as_code.py"])
def test_nothing_is_replaced(plain: Run, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    code, out, err = plain("examples", "custody_whitelist_as_code", "--to", str(tmp_path))
    assert (code, out) == (1, "")
    assert "nothing was copied" in err
    assert str(tmp_path / existing) in err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(existing, "mine")]


def test_what_is_the_same_is_skipped(plain: Run, tmp_path: Path) -> None:
    same = tmp_path / "custody_whitelist.yaml"
    assert plain("examples", "custody_whitelist_as_code", "--to", str(tmp_path)).err == ""
    code, out, err = plain("examples", "custody_whitelist_reconciliation", "--to", str(tmp_path))
    assert (code, err) == (0, f"custody: skipped, as they are there already: {same}\n")
    assert (tmp_path / "custody_whitelist_reconciliation.py").is_file()
    assert plain("examples", "--to", str(tmp_path)).code == 0
    code, out, err = plain("examples", "--to", str(tmp_path))
    assert (code, out) == (0, "")
    same.write_text("mine")
    (tmp_path / "custody_first_dag.py").unlink()
    code, out, err = plain("examples", "--to", str(tmp_path))
    assert (code, out) == (1, "")
    assert f"nothing was copied: these exist already, with other content: {same}. " in err
    assert not (tmp_path / "custody_first_dag.py").exists()


def test_a_link_to_the_same_is_refused(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "custody_health_gate.py").symlink_to(SOURCES / "custody_health_gate.py")
    assert plain("examples", "custody_health_gate", "--to", str(tmp_path)).code == 1


def test_a_dangling_link_is_not_followed(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "custody_health_gate.py").symlink_to(tmp_path / "elsewhere.py")
    assert plain("examples", "custody_health_gate", "--to", str(tmp_path)).code == 1
    assert not (tmp_path / "elsewhere.py").exists()


def test_an_unknown_name_is_refused(plain: Run, tmp_path: Path) -> None:
    code, out, err = plain("examples", "custody_nothing", "--to", str(tmp_path))
    assert (code, out) == (1, "")
    assert "there is no example custody_nothing" in err


def test_a_folder_that_cannot_be_written_is_named(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = plain("examples", "--to", str(tmp_path / "file" / "dags"))
    assert code == 1
    assert f"{tmp_path / 'file'}" in err


@pytest.mark.parametrize("folder", ["a" * 300, "a/" * 3000, "loop/dags"], ids=["long name", "long path", "loop"])
def test_a_folder_that_cannot_be_is_named(plain: Run, tmp_path: Path, folder: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    code, out, err = plain("examples", "custody_first_dag", "--to", str(tmp_path / folder))
    assert (code, out) == (1, "")
    assert err.startswith(f"custody: {tmp_path}/")
    assert " cannot be written: " in err
    assert err.endswith("Choose another folder. [custody/parameter-wrong]\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="may write everywhere")
@pytest.mark.parametrize(("name", "mode"), [("theirs", 0o000), ("theirs/dags", 0o000), ("theirs/dags", 0o500)])
def test_a_folder_of_somebody_else_is_named(plain: Run, tmp_path: Path, name: str, mode: int) -> None:
    folder, closed = tmp_path / "theirs" / "dags", tmp_path / name
    folder.mkdir(parents=True)
    closed.chmod(mode)
    ran = plain("examples", "custody_first_dag", "--to", str(folder))
    closed.chmod(0o700)
    assert ran.code == 1
    assert f"{folder} cannot be written: Permission denied" in ran.err


def test_a_write_that_fails_in_the_middle_leaves_nothing(plain: Run, tmp_path: Path) -> None:
    arguments = ("examples", "custody_whitelist_as_code", "--to", str(tmp_path))
    # Less than the file has.
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1000, 1000))
    command = [sys.executable, "-B", "-m", "airflow_custody.cli", *arguments]
    ran = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 1
    assert f"{tmp_path} cannot be written: File too large" in ran.stderr
    assert list(tmp_path.iterdir()) == []
    assert plain(*arguments).code == 0
    copies = list(tmp_path.iterdir())
    assert all(copy.read_bytes() == (SOURCES / copy.name).read_bytes() for copy in copies)
    assert len(copies) == 2


def test_a_copy_may_be_read_and_written_as_new_files_are(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    assert plain("examples", "custody_first_dag", "--to", str(tmp_path)).code == 0
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


def test_in_a_wheel_they_are_in_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples, "_PACKAGE", tmp_path / "airflow_custody")
    (tmp_path / "airflow_custody" / "example_dags").mkdir(parents=True)
    (tmp_path / "example_dags").mkdir()
    assert examples.examples_folder() == tmp_path / "airflow_custody" / "example_dags"


def test_an_installation_without_them_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples, "_PACKAGE", tmp_path / "airflow_custody")
    with pytest.raises(CustodyConfigurationError, match="has no examples"):
        examples.examples_folder()
