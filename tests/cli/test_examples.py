"""The command that lists and copies the example DAGs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Run

from airflow_custody.cli import examples

SOURCES = Path(__file__).parents[2] / "example_dags"
NAMES = sorted(path.stem for path in SOURCES.glob("*.py"))


def test_each_has_a_name_and_a_sentence(plain: Run) -> None:
    code, out, _ = plain("examples", "-o", "json")
    assert code == 0
    rows = json.loads(out)
    assert [row["name"] for row in rows] == NAMES
    assert all(row["summary"].endswith(".") and "\n" not in row["summary"] for row in rows)
    assert all(Path(row["path"]).is_file() for row in rows)


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


def test_an_unknown_name_is_refused(plain: Run, tmp_path: Path) -> None:
    code, out, err = plain("examples", "custody_nothing", "--to", str(tmp_path))
    assert (code, out) == (1, "")
    assert "there is no example custody_nothing" in err


def test_in_a_wheel_they_are_in_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples, "_PACKAGE", tmp_path / "airflow_custody")
    (tmp_path / "airflow_custody" / "example_dags").mkdir(parents=True)
    (tmp_path / "example_dags").mkdir()
    assert examples.examples_folder() == tmp_path / "airflow_custody" / "example_dags"
